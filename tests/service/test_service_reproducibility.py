"""Every combination of rules gives the same answer on retry, explanation, restart and replay, to the bit."""

import random
from itertools import product

import msgspec
import numpy as np
import pytest
from deliberate_faults import caught_by
from observing import explained as explained_by
from observing import observed

import mcfair as mf
from mcfair.service.core.engine import Engine
from mcfair.service.core.ledger import Ledger
from mcfair.service.core.records import decode_impression
from mcfair.service.core.repository import LedgerRepository
from mcfair.service.core.rules import change_rules
from mcfair.service.core.verification import replay, verify
from mcfair.service.stores import SQLiteStore
from mcfair.service.wire import Event, PolicyChange, RawRankRequest, convert

START = 1_700_000_000_000
ITEMS = "abcdefghij"
POLICIES = [
    "MCFair(alpha=1, beta=10)",
    "MMF(alpha=0.8)",
    "FairCo(alpha=2, beta=5)",
    "TopK(ties=least-exposed)",
    "RandomK",
    "RareGroups",
]
RULES = {
    "maturation": [0.0, 5.0, 20.0],
    "half_life": [None, 20.0, 1000.0],
    "newcomer_exposure": ["zero", "fair"],
    "examination": [1.0, [1.0, 0.0, 0.3], 0.5],
    "prior_mean": [None, 0.3],
    "experiment": [
        None,
        {"name": "one", "arms": [{"name": "b", "policy": "TopK", "share": 0.5}]},
        {
            "name": "two",
            "arms": [
                {"name": "b", "policy": "RareGroups", "share": 0.3},
                {"name": "c", "policy": "RandomK", "share": 0.4},
            ],
        },
    ],
}
COMBINATIONS = list(product(range(3), range(3), range(2)))


class RareGroups(mf.Policy):
    """Rank the items of small groups first."""

    def score(self, q, rng):
        return q.R - np.bincount(q.providers)[q.providers]


@pytest.fixture(autouse=True)
def policy_that_reads_groups(registries):
    mf.register(RareGroups)


class Run:
    """A random trace over one store, with every answer kept for comparison."""

    def __init__(self, seed, rules, engine_class=Engine):
        self.rng = random.Random(seed)
        self.clock = START
        self.engine_class = engine_class
        self.store = SQLiteStore(None)
        self.asked = {}  # key -> (request, answer)
        self.deleted = set()
        self.rules = {"retention": 60.0, "experiment": RULES["experiment"][seed % 3]} | rules
        self.restart()

    def restart(self):
        self.engine = self.engine_class(
            self.store, lambda stored: change_rules(stored, self.rng.choice(POLICIES), self.rules),
            clock=lambda: self.clock, cache=self.rng.choice([1, 1 << 20]),
            snapshot_interval=self.rng.choice([2, 5]), snapshot_spacing=self.rng.choice([4, 9]), compaction_step=7,
        )  # fmt: skip

    def rank(self):
        rng = self.rng
        items = [
            {"id": item}
            | ({"prior": rng.choice([0.0, 0.5, 0.9])} if rng.random() < 0.3 else {})
            | ({"group": rng.choice("GH")} if rng.random() < 0.3 else {})
            for item in rng.sample(ITEMS, rng.randint(1, 8))
        ]
        request = RawRankRequest(
            query=rng.choice("pq"), items=msgspec.Raw(msgspec.json.encode(items)), k=rng.randint(1, 5), explain=True,
            policy=rng.choice([None, None, *POLICIES]), defer_exposure=rng.random() < 0.2, shadow=rng.random() < 0.2,
            session=rng.choice([None, "s1", "s2", "s3", "s4", "s5"]),
        )  # fmt: skip
        key = f"{len(self.asked)}"
        self.asked[key] = (request, self.engine.rank(request, key), self.clock)

    def feedback(self):
        recent = list(self.asked.values())[-12:]
        events = []
        for _, answer, _ in self.rng.sample(recent, min(3, len(recent))):
            if self.rng.random() < 0.3:
                events.append(Event(impression=answer.impression, type="shown"))
            events.append(Event(impression=answer.impression, item=self.rng.choice(ITEMS)))
        self.engine.feedback(events, retract=self.rng.random() < 0.2)

    def change(self):
        name = self.rng.choice(list(RULES))
        self.rules[name] = self.rng.choice(RULES[name])
        self.engine.change(convert(PolicyChange, {name: self.rules[name]}))

    def step(self):
        action = self.rng.random()
        if action < 0.5 or not self.asked:
            self.rank()
        elif action < 0.75:
            self.feedback()
        elif action < 0.87:
            self.clock += self.rng.choice([1, 300, 3_000, 3_000, 8_000, 25_000])
        elif action < 0.9:
            self.change()
        elif action < 0.91 and self.engine.version.rules.experiment is not None:
            self.engine.stop_arm(self.engine.version.experiment, "b", "it is a test")
            self.rules["experiment"] = msgspec.to_builtins(self.engine.version.rules.experiment)
        elif action < 0.92:
            self.engine.delete_item(self.rng.choice(ITEMS))
        elif action < 0.95:
            self.engine.compact_expired()
        elif action < 0.97:
            self.engine.drop_cache()
        else:
            self.restart()

    def compare(self):
        """Retry every request, explain every impression and compare the state with that of a new engine."""
        explained = {}
        for key, (request, answer, ranked) in self.asked.items():
            if self.clock >= ranked + 60_000:
                continue
            again = self.engine.rank(request, key)
            left = {item.id for item in again.items}
            assert again == msgspec.structs.replace(answer, items=[i for i in answer.items if i.id in left]), "retry"
            why = explained[answer.impression] = explained_by(self.engine, answer.impression)
            assert why.arm == answer.arm, "explanation of the arm"
            if not request.shadow:
                told = [(item.id, item.score, item.terms) for item in why.items if item.id is not None]
                assert told == [(item.id, item.score, item.terms) for item in again.items], "explanation"
        states = [observed(self.engine, query) for query in self.queries()]
        self.engine = self.engine_class(self.store, clock=lambda: self.clock)
        assert states == [observed(self.engine, query) for query in self.queries()], "restart"
        for name, why in explained.items():
            assert explained_by(self.engine, name) == why, "explanation after a restart"
        faults = verify(self.store) + replay(self.store)[2]
        assert not faults, faults[0]

    def queries(self):
        return sorted({request.query for request, _, _ in self.asked.values()})


class QuietRun(Run):
    """A trace in which half-lives are lengthened and shortened around quiet times of many of them, and newcomers join.

    The clock may also be set back while the service is restarted.
    """

    half_lives = (None, 1.0, 3.0, 300.0, 86_400.0, 1e9)

    def __init__(self, seed):
        self.fresh = 0
        super().__init__(seed, {"newcomer_exposure": "fair", "half_life": 1.0})

    def rank(self):
        """Rank with a newcomer among the candidates."""
        self.fresh += 1
        items = [{"id": "a", "prior": 0.5}, {"id": "b"}, {"id": f"new {self.fresh}", "prior": 0.7}]
        raw = msgspec.Raw(msgspec.json.encode(items))
        request = RawRankRequest(query=self.rng.choice("pq"), items=raw, k=2, explain=True)
        key = f"{len(self.asked)}"
        self.asked[key] = (request, self.engine.rank(request, key), self.clock)

    def step(self):
        action = self.rng.random()
        if action < 0.4 or not self.asked:
            self.rank()
        elif action < 0.55:
            self.feedback()
        elif action < 0.75:
            half_life = 1_000 * self.rng.choice(self.half_lives[1:])
            self.clock += round(min(4e11, half_life * self.rng.choice([0.3, 9, 300, 600, 800, 1_100, 5_000])))
        elif action < 0.9:
            self.rules["half_life"] = self.rng.choice(self.half_lives)
            self.engine.change(PolicyChange(half_life=self.rules["half_life"]))
        elif action < 0.95:
            self.engine.drop_cache()
        else:
            self.clock -= self.rng.choice([0, 0, 5_000, 40_000_000])
            self.restart()


@pytest.mark.parametrize("seed", range(12))
def test_changes_of_the_half_life_and_long_quiet_times_are_reproducible(seed):
    run = QuietRun(seed)
    for _ in range(12):
        for _ in range(8):
            run.step()
        run.compare()
    run.store.close()


def test_a_newcomer_after_a_longer_half_life_and_a_quiet_time_leaves_the_query_readable():
    run = Run(0, {"newcomer_exposure": "fair", "half_life": 300.0, "retention": 604_800.0})
    old, new = (msgspec.Raw(msgspec.json.encode([{"id": id} for id in ids])) for ids in ("ab", "abc"))
    run.engine.rank(RawRankRequest(query="q", items=old, k=2))
    run.engine.change(PolicyChange(half_life=86_400.0))
    run.clock += 4 * 86_400_000
    answer = run.engine.rank(RawRankRequest(query="q", items=new, k=3))
    assert [item.id for item in explained_by(run.engine, answer.impression).items] == [item.id for item in answer.items]
    before = observed(run.engine, "q")
    run.engine.drop_cache()
    assert observed(run.engine, "q") == before
    assert verify(run.store) + replay(run.store)[2] == []
    run.store.close()


def check(seed, combination, engine_class=Engine, steps=120):
    names = ("maturation", "half_life", "newcomer_exposure")
    rules = {name: RULES[name][i] for name, i in zip(names, combination, strict=True)}
    run = Run(seed, rules, engine_class)
    for step in range(steps):
        run.step()
        if step % 40 == 39:
            run.compare()
    run.store.close()


@pytest.mark.parametrize("combination", COMBINATIONS, ids=str)
def test_every_combination_of_rules_is_reproducible(combination):
    check(COMBINATIONS.index(combination), combination)


# --- deliberate faults -----------------------------------------------------------------------------------------------


class NewcomersForgotten(LedgerRepository):
    """Ignores the starting exposure that was recorded for newcomers."""

    def impression(self, ledger, entry):
        impression, candidates = super().impression(ledger, entry)
        return msgspec.structs.replace(impression, newcomer_exposure=0.0), candidates


class GroupsForgotten(LedgerRepository):
    """Ignores the groups that were recorded with the candidates."""

    def candidates(self, ledger, entry):
        found = super().candidates(ledger, entry)
        return found._replace(groups=np.arange(found.rows.size))


class PendingForgotten(LedgerRepository):
    """Loads snapshots as if every impression had matured."""

    def empty(self, number, key):
        ledger = super().empty(number, key)

        def restore(snapshot):
            Ledger.restore(ledger, msgspec.structs.replace(snapshot, first_pending=0, pending_since=None))
            for block in ledger.counts.blocks.values():
                block.reset_pending(ledger.capacity if snapshot.maturation else 0)

        ledger.restore = restore
        return ledger


class LaterFeedbackSeen(LedgerRepository):
    """Matures impressions with the feedback of today instead of that of the time."""

    def recorded(self, ledger, after):
        for each in super().recorded(ledger, after):
            entry = self.store.entry(ledger.number, each.seq)
            yield each._replace(bits=bytes(decode_impression(entry.body).bits(entry.bits)))


FAULTS = {
    NewcomersForgotten: (1, 1, 1),
    GroupsForgotten: (0, 0, 0),
    PendingForgotten: (2, 0, 0),
    LaterFeedbackSeen: (2, 0, 0),
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_deliberate_fault_of_reproduction_is_caught(fault):
    def attempt(faulty):
        class FaultyEngine(Engine):
            def drop_cache(self):
                super().drop_cache()
                if faulty:
                    self.repository = fault(self.store)

        for seed in range(12 if faulty else 1):
            check(seed, FAULTS[fault], FaultyEngine)

    caught_by(attempt, r"retry|explanation|restart|verify|replayed|do not reproduce")
