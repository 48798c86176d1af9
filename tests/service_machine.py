"""The state machine of the service: the same operations on the engine and on a naive model of it."""

import itertools
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from msgspec import structs
from naive_service import CLICKED, SHOWN, UNCLICKED, UNSHOWN, NaiveService
from observing import observed

from mcfair import MCFair, Query
from mcfair.errors import ConflictError, NotFoundError
from mcfair.policies.selection import EXAMPLE_DRAWS
from mcfair.service.core.engine import Engine
from mcfair.service.core.rules import change_rules
from mcfair.service.core.verification import replay, verify
from mcfair.service.stores import SQLiteStore
from mcfair.service.wire import Event, ImportedItem, ImportedQuery, Item, PolicyChange, RankRequest, with_raw_items
from mcfair.users.examination import examination

QUERIES = ["shoes", "hats", "Schuhe, groß"]
ITEMS = ["a", "b", "c", "d", "e", "f"]
PRIORS = [None, None, 0.0, 0.25, 1.0]
LISTS = st.lists(st.tuples(st.sampled_from(ITEMS), st.booleans()), min_size=1, max_size=4, unique_by=lambda e: e[0])
START = 1_700_000_000_000
POLICY = MCFair(alpha=1.0, beta=10.0)
POLICIES = {None: POLICY, "control": POLICY, "b": MCFair(alpha=5.0, beta=1.0)}
SECRET = bytes(range(32))
"""Sessions are assigned to arms by a hash keyed with the secret of the store: with a random one, an example that failed
might pass when Hypothesis repeats it."""
EXPERIMENT = {"name": "e", "arms": [{"name": "b", "policy": str(POLICIES["b"]), "share": 0.5}]}


class Machine(RuleBasedStateMachine):
    """The same operations on the engine and on the model, with a store that can fail and a process that can crash."""

    in_file = False
    engine_class = Engine

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="mcfair-machine-"))
        self.copies = itertools.count()
        self.stores = []
        self.impressions = []  # (id, query, the model's impression)
        self.answers = {}
        self.assigned = []  # (arm, the model's impression), also of queries that were deleted
        self.clock = START
        self.number = 0
        self.p = examination(6)

    @initialize(
        strength=st.sampled_from([0.0, 1.0, 2.5]),
        maturation=st.sampled_from([0, 0, 5_000]),
        half_life=st.sampled_from([0, 0, 20_000]),
        newcomer_exposure=st.sampled_from(["zero", "zero", "fair"]),
    )
    def open(self, strength, maturation, half_life, newcomer_exposure):
        self.model = NaiveService(
            strength=strength,
            maturation=maturation,
            half_life=half_life,
            newcomer_exposure=newcomer_exposure,
            retention=30_000,
        )
        self.settings = {
            "prior_strength": strength, "prior_certainty": strength,
            "maturation": maturation / 1000, "half_life": half_life / 1000 or None,
            "newcomer_exposure": newcomer_exposure, "retention": 30.0, "experiment": EXPERIMENT,
        }  # fmt: skip
        self.exact = newcomer_exposure == "zero" and not half_life
        self.path = self.folder / "0.db" if self.in_file else None
        self.start(self.open_store())

    def open_store(self):
        return SQLiteStore(self.path)

    def write_secret(self, store):
        store.db.execute("UPDATE meta SET value = ? WHERE name = 'secret'", (SECRET,))

    def start(self, store):
        self.stores.append(store)
        store.begin(exclusive=True)
        self.write_secret(store)
        store.secret = SECRET
        self.engine = self.engine_class(
            store, lambda stored: change_rules(stored, POLICY, self.settings), clock=lambda: self.clock,
            snapshot_interval=3, snapshot_spacing=7, compaction_step=5,
        )  # fmt: skip
        store.commit()

    def do(self, work, *args, **kwargs):
        """Execute one operation in a transaction of its own, as the writer does."""
        self.engine.store.begin(exclusive=True)
        try:
            return work(self.engine, *args, **kwargs)
        finally:
            assert not self.engine.store.commit(), "the only writer has lost"

    # --- operations --------------------------------------------------------------------------------------------------

    @rule(
        query=st.sampled_from(QUERIES),
        items=st.lists(st.sampled_from(ITEMS), min_size=1, unique=True),
        priors=st.lists(st.sampled_from(PRIORS), min_size=6, max_size=6),
        k=st.integers(1, 7),
        deferred=st.booleans(),
        shadow=st.sampled_from([False, False, True]),
        key=st.sampled_from([None, None, "k1", "k2"]),
        session=st.sampled_from([None, "s1", "s2", "s3", "s4"]),
    )
    def rank(self, query, items, priors, k, deferred, shadow, key, session):
        candidates = [Item(item, prior) for item, prior in zip(items, priors, strict=False)]
        request = RankRequest(
            query=query, items=candidates, k=k, defer_exposure=deferred, shadow=shadow, session=session
        )
        scoped = query, key  # idempotency keys belong to a query
        if scoped in self.answers and self.is_remembered(self.answers[scoped][1]):
            if self.answers[scoped][0] == request:
                self.check_repeated(scoped)
            else:
                with pytest.raises(ConflictError):
                    self.do(Engine.rank, with_raw_items(request), key)
            return
        answer = self.do(Engine.rank, with_raw_items(request), key)
        used = [item.prior for item in candidates]
        data = self.model.admit(query, items, used, self.clock)
        R, E = self.model.view(query, items, used, self.clock)
        k = min(k, len(items))
        if self.exact:
            strength = self.model.strength if any(prior is not None for prior in used) else 0.0
            F = np.zeros((len(items), k), np.int32)
            n, visits = len(items), np.array(len(data.impressions))
            posterior = np.zeros((n, 0, 3))
            view = Query(R, np.zeros(n), E, F, self.p[:k], visits, np.arange(n), strength, posterior, np.zeros(1))
            wanted = [items[i] for i in POLICIES[answer.arm].rank(view, EXAMPLE_DRAWS)]
            expected = items[:k] if shadow else wanted
            assert [item.id for item in answer.items] == expected, f"list of query {query!r} differs from the model"
        shown = [item.id for item in answer.items]
        assert [item.rank for item in answer.items] == list(range(1, k + 1))
        made = self.model.show(query, shown, self.p[:k].tolist(), self.number, self.clock, deferred)
        self.impressions.append((answer.impression, query, made))
        assert (answer.arm is None) == (shadow or session is None), f"a list of session {session} has arm {answer.arm}"
        if answer.arm is not None:
            self.assigned.append((answer.arm, made))
        if key is not None:
            self.answers[scoped] = (request, answer.impression, answer)

    @precondition(lambda self: self.answers)
    @rule(data=st.data())
    def repeat_request(self, data):
        scoped = data.draw(st.sampled_from(sorted(self.answers)))
        if self.is_remembered(self.answers[scoped][1]):
            self.check_repeated(scoped)

    def check_repeated(self, scoped):
        """Repeat a request with its idempotency key: the response is the same, without items deleted since."""
        request, name, answer = self.answers[scoped]
        key = scoped[1]
        again = self.do(Engine.rank, with_raw_items(request), key)
        (made,) = [made for other, _, made in self.impressions if other == name]
        left = [item for item in answer.items if self.model.rank_of(request.query, made, item.id) is not None]
        expected = structs.replace(answer, items=left)
        assert again == expected, f"repeated request {key}: {again} instead of {expected}"

    def is_remembered(self, name):
        """Return whether the idempotency key of an impression is still valid."""
        return any(other == name and self.clock < made.time + 30_000 for other, _, made in self.impressions)

    @precondition(lambda self: self.impressions)
    @rule(data=st.data(), item=st.sampled_from(ITEMS), retract=st.booleans(), repeats=st.integers(1, 3))
    def click(self, data, item, retract, repeats):
        name, query, made = data.draw(st.sampled_from(self.impressions))
        answer = self.do(Engine.feedback, [Event(impression=name, item=item)] * repeats, retract=retract)
        rank = self.model.rank_of(query, made, item)
        for result in answer.results:
            ranks = [len(made.items)] if rank is None else [rank]
            expected = self.model.apply_feedback(query, made, ranks, UNCLICKED if retract else CLICKED, self.clock)
            assert result.status == expected, f"status of a click is {result.status} instead of {expected}"

    @precondition(lambda self: self.impressions)
    @rule(data=st.data(), item=st.sampled_from(ITEMS))
    def click_in_several_lists(self, data, item):
        lists = data.draw(st.lists(st.sampled_from(self.impressions), min_size=2, max_size=5))
        answer = self.do(Engine.feedback, [Event(impression=name, item=item) for name, _, _ in lists])
        for (_, query, made), result in zip(lists, answer.results, strict=True):
            rank = self.model.rank_of(query, made, item)
            ranks = [len(made.items)] if rank is None else [rank]
            expected = self.model.apply_feedback(query, made, ranks, CLICKED, self.clock)
            assert result.status == expected, f"status of one of several clicks is {result.status}, not {expected}"

    @precondition(lambda self: self.impressions)
    @rule(data=st.data(), ranks=st.lists(st.integers(1, 7), min_size=1, unique=True) | st.none(), retract=st.booleans())
    def shown(self, data, ranks, retract):
        name, query, made = data.draw(st.sampled_from(self.impressions))
        answer = self.do(Engine.feedback, [Event(impression=name, type="shown", ranks=ranks)], retract=retract)
        places = range(len(made.items)) if ranks is None else [rank - 1 for rank in ranks]
        expected = self.model.apply_feedback(query, made, places, UNSHOWN if retract else SHOWN, self.clock)
        status = answer.results[0].status
        assert status == expected, f"status of shown ranks is {status} instead of {expected}"

    @rule(data=st.data(), event=st.sampled_from(["forged", "rubbish", "no item", "no type"]))
    def bad_event(self, data, event):
        name = data.draw(st.sampled_from([each[0] for each in self.impressions])) if self.impressions else "A" * 40
        before = len(self.impressions)
        if event == "forged":
            place = data.draw(st.integers(0, 39))
            other = "B" if name[place] == "A" else "A"
            result = self.do(Engine.feedback, [Event(impression=name[:place] + other + name[place + 1 :], item="a")])
            assert result.results[0].status == "unknown_impression"
        elif event == "rubbish":
            assert (
                self.do(Engine.feedback, [Event(impression="é?", item="a")]).results[0].status == "unknown_impression"
            )
        elif before:
            wrong = Event(impression=name) if event == "no item" else Event(impression=name, type="bought", item="a")
            assert self.do(Engine.feedback, [wrong]).results[0].status in ("invalid", "expired", "unknown_impression")

    @rule(
        query=st.sampled_from(QUERIES),
        lists=st.lists(LISTS, min_size=1, max_size=3),
        source=st.sampled_from(["monday.csv", "tuesday.csv"]),
    )
    def import_history(self, query, lists, source):
        counts = {}
        for shown in lists:
            for rank, (item, clicked) in enumerate(shown, start=1):
                cell = counts.setdefault(item, {}).setdefault(rank, [rank, 0, 0])
                cell[1], cell[2] = cell[1] + 1, cell[2] + clicked
        items = [ImportedItem(id=item, counts=list(cells.values())) for item, cells in counts.items()]
        history = ImportedQuery(query=query, visits=len(lists), items=items)
        status = self.do(Engine.import_history, source, [history]).results[0].status
        expected = self.model.import_lists(query, source, lists, self.p[:4].tolist(), self.number, self.clock)
        assert status == expected, f"status of an import is {status} instead of {expected}"

    @rule(ms=st.sampled_from([1, 900, 5_000, 9_000, 40_000]))
    def advance_clock(self, ms):
        self.clock += ms

    @rule()
    def compact(self):
        self.do(Engine.compact_expired)
        for query, data in self.model.queries.items():
            found = {item.id for item in self.do(observed, query).items}
            for item in set(data.known()) - found:
                assert self.model.is_idle(query, item, self.clock), f"{item} of query {query!r} was deleted"
                self.model.delete_idle(query, item)

    @rule(severity=st.sampled_from([1.0, 0.5, 0.0]))
    def change_examination(self, severity):
        self.do(Engine.change, PolicyChange(examination=severity))
        self.p = examination(6, severity)
        self.number = self.engine.version.examination

    @rule(item=st.sampled_from(ITEMS))
    def delete_item(self, item):
        assert self.do(Engine.delete_item, item) == self.model.delete_item(item)

    @rule(query=st.sampled_from(QUERIES))
    def delete_query(self, query):
        if query in self.model.queries:
            self.do(Engine.delete_query, query)
            del self.model.queries[query]
            self.impressions = [each for each in self.impressions if each[1] != query]
        else:
            with pytest.raises(NotFoundError):
                self.do(Engine.delete_query, query)

    @rule(data=st.data(), query=st.sampled_from(QUERIES))
    def roll_back(self, data, query):
        """Roll a transaction back: nothing of it may remain, in memory or on disk."""
        self.engine.store.begin()
        self.engine.refresh()
        self.engine.rank(with_raw_items(RankRequest(query=query, items=[Item("a"), Item("new")], k=2, session="s1")))
        if self.impressions:
            name, _, _ = data.draw(st.sampled_from(self.impressions))
            self.engine.feedback([Event(impression=name, type="shown"), Event(impression=name, item="a")])
        self.engine.store.rollback()
        self.engine.drop_cache()
        for missing in set(QUERIES) - self.model.queries.keys():  # rankings look a query up in the cache first
            found = self.do(lambda engine, query=missing: engine.ledger_of(engine.ids.query(query)))
            assert found is None, f"after a rollback: query {missing!r} is cached, but not in the model"
        self.compare_with_the_model("after a rollback: ")

    @rule()
    def crash(self):
        """Restart from the files as they are, without closing anything."""
        if not self.in_file:
            self.engine.drop_cache()
            return
        new = self.folder / f"{next(self.copies) + 1}.db"
        for suffix in ("", "-wal"):
            if (old := self.path.with_name(self.path.name + suffix)).exists():
                shutil.copy(old, new.with_name(new.name + suffix))
        self.path = new
        self.start(self.open_store())

    # --- invariants --------------------------------------------------------------------------------------------------

    @invariant()
    def agrees_with_the_model(self):
        self.compare_with_the_model()

    def compare_with_the_model(self, when=""):
        for query in QUERIES:
            if query not in self.model.queries:
                assert not self.exists(query), f"{when}query {query!r} exists, but not in the model"
                continue
            state = self.do(observed, query)
            expected = self.model.state(query, self.clock)
            found = {item.id for item in state.items}
            assert found == expected.keys(), f"{when}query {query!r} has items {found} instead of {set(expected)}"
            for item in state.items:
                exposure, clicks, relevance = expected[item.id]
                self.check_equal(f"{when}exposure of {item.id}", item.exposure, exposure)
                self.check_equal(f"{when}clicks of {item.id}", item.clicks, clicks)
                self.check_equal(f"{when}relevance of {item.id}", item.relevance, relevance)
            visits = len(self.model.queries[query].impressions)
            assert state.visits == visits, f"{when}query {query!r} has {state.visits} visits instead of {visits}"
            assert 0 <= state.floor <= state.unfairness + 1e-9, f"floor {state.floor}, unfairness {state.unfairness}"
        self.compare_totals_of_arms(when)

    def compare_totals_of_arms(self, when):
        """Recount the lists and clicks of each arm: they stay when their query is deleted."""
        expected, found = Counter(), Counter()
        for arm, made in self.assigned:
            ranks = range(len(made.items))
            expected[arm, "lists"] += any(made.exposed(rank) for rank in ranks)
            expected[arm, "clicks"] += sum(made.clicked(rank) for rank in ranks)
        for arm, _, totals in self.do(lambda engine: engine.store.arm_totals(engine.version.experiment)):
            found[["control", "b"][arm], "lists"] += totals.lists
            found[["control", "b"][arm], "clicks"] += totals.clicks
        assert found == expected, f"{when}totals of arms are {dict(found)} instead of {dict(expected)}"

    def exists(self, query):
        try:
            self.do(observed, query)
        except NotFoundError:
            return False
        return True

    def check_equal(self, name, found, expected):
        """Compare to the bit where the arithmetic is the model's, closely where decay changes the order of sums."""
        equal = found == expected if self.exact else found == pytest.approx(expected, rel=1e-9, abs=1e-12)
        assert equal, f"{name} is {found} instead of {expected}"

    def teardown(self):
        failed = sys.exc_info()[0] is not None  # the failure of a step must not be replaced by one of the proofs
        try:
            if self.stores:
                self.engine.store.rollback()  # of a step that failed halfway
                if not failed:
                    with self.engine.store.reader() as store:
                        faults = [f"verify: {fault}" for fault in verify(store)]
                        faults += [f"replay: {fault}" for fault in replay(store)[2]]
                        assert not faults, faults[0]
        finally:
            for store in self.stores:
                store.close()
            shutil.rmtree(self.folder)
