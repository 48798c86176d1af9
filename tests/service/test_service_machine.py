"""Whatever happens, in whatever order and however often: the books are those of a dict, on every store."""

import itertools
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec import structs
from naive_service import CLICKED, SHOWN, UNCLICKED, UNSHOWN, NaiveService

from mcfair import MCFair, Query
from mcfair.errors import ConflictError, NotFoundError
from mcfair.policies.base import EXAMPLE_DRAWS
from mcfair.service import engine as engine_module
from mcfair.service.engine import Engine, OpenImpression
from mcfair.service.history import replay, verify
from mcfair.service.ledger import SHOWN as SHOWN_BIT
from mcfair.service.rules import change_rules
from mcfair.service.stores import SQLiteStore
from mcfair.service.wire import Event, Item, PolicyChange, RankRequest, with_raw_items
from mcfair.users.examination import examination

QUERIES = ["shoes", "hats", "Schuhe, groß"]
ITEMS = ["a", "b", "c", "d", "e", "f"]
PRIORS = [None, None, 0.0, 0.25, 1.0]
START = 1_700_000_000_000
POLICY = MCFair(alpha=1.0, beta=10.0)


class Machine(RuleBasedStateMachine):
    """Operations on the engine and on the model, with a store that can fail and a process that can die."""

    in_file = False
    engine_class = Engine

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="mcfair-machine-"))
        self.copies = itertools.count()
        self.stores = []
        self.impressions = []  # (name, query, the model's impression)
        self.answers = {}
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
            strength=strength, maturation=maturation, half_life=half_life, newcomer_exposure=newcomer_exposure, retention=30_000
        )
        self.settings = {
            "prior_strength": strength, "maturation": maturation / 1000, "half_life": half_life / 1000 or None,
            "newcomer_exposure": newcomer_exposure, "retention": 30.0,
        }  # fmt: skip
        self.exact = newcomer_exposure == "zero" and not half_life
        self.path = self.folder / "0.db" if self.in_file else None
        self.start(SQLiteStore(self.path))
        self.engine.compaction_cursor = 0

    def start(self, store):
        self.stores.append(store)
        store.begin()
        self.engine = self.engine_class(
            store, lambda stored: change_rules(stored, POLICY, self.settings), clock=lambda: self.clock
        )
        store.commit()

    def do(self, work, *args, **kwargs):
        """Do one operation as the writer does, in a transaction of its own."""
        self.engine.store.begin()
        try:
            return work(self.engine, *args, **kwargs)
        finally:
            self.engine.store.commit()

    # --- operations --------------------------------------------------------------------------------------------------

    @rule(
        query=st.sampled_from(QUERIES),
        items=st.lists(st.sampled_from(ITEMS), min_size=1, unique=True),
        priors=st.lists(st.sampled_from(PRIORS), min_size=6, max_size=6),
        k=st.integers(1, 7),
        deferred=st.booleans(),
        shadow=st.sampled_from([False, False, True]),
        key=st.sampled_from([None, None, "k1", "k2"]),
    )
    def rank(self, query, items, priors, k, deferred, shadow, key):
        candidates = [Item(item, prior) for item, prior in zip(items, priors, strict=False)]
        request = RankRequest(query=query, items=candidates, k=k, defer_exposure=deferred, shadow=shadow)
        if key in self.answers and self.is_remembered(self.answers[key][1]):
            earlier, name, answer = self.answers[key]
            if earlier == request:
                again = self.do(Engine.rank, with_raw_items(request), key)
                (made,) = [made for other, _, made in self.impressions if other == name]
                left = [item for item in answer.items if self.model.rank_of(query, made, item.id) is not None]
                assert again == structs.replace(answer, items=left)
            else:
                with pytest.raises(ConflictError):
                    self.do(Engine.rank, with_raw_items(request), key)
            return
        answer = self.do(Engine.rank, with_raw_items(request), key)
        used = [item.prior for item in candidates]
        book = self.model.meet(query, items, used, self.clock)
        R, E = self.model.view(query, items, used, self.clock)
        k = min(k, len(items))
        if self.exact:
            strength = self.model.strength if any(prior is not None for prior in used) else 0.0
            F = np.zeros((len(items), k), np.int32)
            view = Query(R, E, F, self.p[:k], np.array(len(book.impressions)), strength, np.zeros(1))
            wanted = [items[i] for i in POLICY.rank(view, EXAMPLE_DRAWS)]
            assert [item.id for item in answer.items] == (items[:k] if shadow else wanted)
        shown = [item.id for item in answer.items]
        assert [item.rank for item in answer.items] == list(range(1, k + 1))
        made = self.model.show(query, shown, self.p[:k].tolist(), self.number, self.clock, deferred)
        self.impressions.append((answer.impression, query, made))
        if key is not None:
            self.answers[key] = (request, answer.impression, answer)

    def is_remembered(self, name):
        """Whether a retry would get the impression of that name."""
        return any(other == name and self.clock < made.time + 30_000 for other, _, made in self.impressions)

    @precondition(lambda self: self.impressions)
    @rule(data=st.data(), item=st.sampled_from(ITEMS), retract=st.booleans(), repeats=st.integers(1, 3))
    def click(self, data, item, retract, repeats):
        name, query, made = data.draw(st.sampled_from(self.impressions))
        answer = self.do(Engine.feedback, [Event(impression=name, item=item)] * repeats, retract=retract)
        rank = self.model.rank_of(query, made, item)
        for result in answer.results:
            ranks = [len(made.items)] if rank is None else [rank]
            assert result.status == self.model.mark(query, made, ranks, UNCLICKED if retract else CLICKED, self.clock)

    @precondition(lambda self: self.impressions)
    @rule(data=st.data(), ranks=st.lists(st.integers(1, 7), min_size=1, unique=True) | st.none(), retract=st.booleans())
    def shown(self, data, ranks, retract):
        name, query, made = data.draw(st.sampled_from(self.impressions))
        answer = self.do(Engine.feedback, [Event(impression=name, type="shown", ranks=ranks)], retract=retract)
        places = range(len(made.items)) if ranks is None else [rank - 1 for rank in ranks]
        expected = self.model.mark(query, made, places, UNSHOWN if retract else SHOWN, self.clock)
        assert answer.results[0].status == expected

    @rule(data=st.data(), event=st.sampled_from(["forged", "rubbish", "no item", "no type"]))
    def bad_event(self, data, event):
        name = data.draw(st.sampled_from([each[0] for each in self.impressions])) if self.impressions else "A" * 28
        before = len(self.impressions)
        if event == "forged":
            place = data.draw(st.integers(0, 27))
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

    @rule(ms=st.sampled_from([1, 900, 5_000, 9_000, 40_000]))
    def wait(self, ms):
        self.clock += ms

    @rule()
    def expire(self):
        self.do(Engine.compact_expired)

    @rule(severity=st.sampled_from([1.0, 0.5, 0.0]))
    def examine(self, severity):
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
    def fail(self, data, query):
        """Lose a transaction: nothing of it may be left, in memory or on disk."""
        self.engine.store.begin()
        self.engine.rank(with_raw_items(RankRequest(query=query, items=[Item("a"), Item("new")], k=2)))
        if self.impressions:
            name, _, _ = data.draw(st.sampled_from(self.impressions))
            self.engine.feedback([Event(impression=name, type="shown"), Event(impression=name, item="a")])
        self.engine.store.rollback()
        self.engine.drop_cache()

    @rule()
    def crash(self):
        """Die and come back: from the files as they are, nothing closed."""
        if self.path is None:
            self.engine.drop_cache()
            return
        new = self.folder / f"{next(self.copies) + 1}.db"
        for suffix in ("", "-wal"):
            if (old := self.path.with_name(self.path.name + suffix)).exists():
                shutil.copy(old, new.with_name(new.name + suffix))
        self.path = new
        self.start(SQLiteStore(new))

    # --- what must hold ----------------------------------------------------------------------------------------------

    @invariant()
    def books_agree(self):
        for query, _ in self.model.queries.items():
            state = self.do(Engine.query_state, query)
            expected = self.model.state(query, self.clock)
            assert {item.id for item in state.items} == expected.keys()
            for item in state.items:
                found = (item.exposure, item.clicks, item.relevance)
                if self.exact:
                    assert found == expected[item.id]
                else:
                    assert found == pytest.approx(expected[item.id], rel=1e-9, abs=1e-12)
            assert state.visits == len(self.model.queries[query].impressions)
            assert 0 <= state.floor <= state.unfairness + 1e-9

    def teardown(self):
        if self.stores:
            self.engine.store.rollback()  # of a step that failed half way
            with self.engine.store.reader() as store:
                assert verify(store) == []
                assert replay(store)[2] == []
        for store in self.stores:
            store.close()
        shutil.rmtree(self.folder)


class FileMachine(Machine):
    in_file = True


QUICK = settings(max_examples=50, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("machine", [Machine, FileMachine], ids=["memory", "sqlite"])
def test_the_books_are_those_of_the_model(machine, monkeypatch):
    monkeypatch.setattr(engine_module, "SNAPSHOT_INTERVAL", 3)
    monkeypatch.setattr(engine_module, "SNAPSHOT_SPACING", 7)
    run_state_machine_as_test(machine, settings=QUICK)


# --- the machine notices ---------------------------------------------------------------------------------------------


class ForgetsTheMask(Engine):
    """Counts a click again when it is reported again."""

    def open_impression(self, impression, now):
        found = super().open_impression(impression, now)
        if isinstance(found, OpenImpression):
            found.before = bytes(bits & SHOWN_BIT for bits in found.before)
            found.bits = bytearray(found.before)
        return found


class CreditsTwice(Engine):
    """Credits exposure when a list is made and again when it is shown."""

    def open_impression(self, impression, now):
        found = super().open_impression(impression, now)
        if isinstance(found, OpenImpression):
            found.before = bytes(bits & ~SHOWN_BIT for bits in found.before)
            found.bits = bytearray(found.before)
        return found


class LosesLateClicks(Engine):
    """Does not write clicks down if a list was made meanwhile."""

    def write_feedback(self, each, now):
        if each.ledger.seq == each.newcomer_exposure.seq:
            super().write_feedback(each, now)


class KeepsWhatWasRolledBack(Engine):
    """Goes on with its own books after a transaction was lost."""

    def forget(self):
        if not hasattr(self, "ledgers"):
            super().drop_cache()


FIND = settings(QUICK, max_examples=300, database=None, phases=[Phase.generate], report_multiple_bugs=False)
"""Any failure will do; to look for the smallest one would take minutes."""


@pytest.mark.parametrize("broken", [ForgetsTheMask, CreditsTwice, LosesLateClicks, KeepsWhatWasRolledBack])
def test_a_broken_engine_is_found_out(broken, monkeypatch):
    monkeypatch.setattr(engine_module, "SNAPSHOT_INTERVAL", 3)
    monkeypatch.setattr(engine_module, "SNAPSHOT_SPACING", 7)
    machine = type("BrokenMachine", (Machine,), {"engine_class": broken})
    with pytest.raises(BaseException, match=r".+"):  # which assertion fails, or which row is refused, does not matter
        run_state_machine_as_test(machine, settings=FIND)
