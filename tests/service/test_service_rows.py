"""Rows of a ledger: those of deleted and of idle items are used again, and every answer stays reproducible."""

import msgspec
import pytest
from deliberate_faults import caught_by
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from observing import observed
from service_machine import Machine

from mcfair.service.core.engine import Engine
from mcfair.service.core.repository import LedgerRepository
from mcfair.service.core.rules import change_rules
from mcfair.service.core.verification import replay, verify
from mcfair.service.stores import SQLiteStore, StoreCorruptError
from mcfair.service.wire import Item, RawRankRequest

START = 1_700_000_000_000
ITEMS = [f"item {i}" for i in range(12)]


class Clock:
    now = START

    def __call__(self):
        return self.now


def request(items, k=2, query="q"):
    raw = msgspec.Raw(msgspec.json.encode([Item(item) for item in items]))
    return RawRankRequest(query=query, items=raw, k=k)


def open_engine(clock, **settings):
    rules = {"retention": 60.0, "policy": "MCFair(beta=5)"} | settings.pop("rules", {})
    policy = rules.pop("policy")
    return Engine(SQLiteStore(None), lambda stored: change_rules(stored, policy, rules), clock=clock, **settings)


def consistent(engine):
    return verify(engine.store) == [] and replay(engine.store)[2] == []


def rows(engine):
    return engine.ledger(engine.find_number("q", None)).rows


@pytest.mark.parametrize(
    "rules", [{}, {"maturation": 50.0}, {"half_life": 100.0, "newcomer_exposure": "fair"}], ids=str
)
def test_a_query_that_sees_ever_new_items_keeps_as_many_rows_as_live_items_need(rules):
    clock = Clock()
    engine = open_engine(clock, rules=rules, max_items=6)
    for day in range(40):
        for item in [f"{day - 1} {i}" for i in range(3)]:
            engine.delete_item(item)
        for i in range(5):
            engine.rank(request([f"{day} {i}" for i in range(3)]), f"{day} {i}")
            clock.now += 25_000
        engine.compact_expired()
        if day % 7 == 0:
            engine.drop_cache()
        assert consistent(engine)
    assert len(engine.ledger(engine.find_number("q", None)).index) == 3
    assert rows(engine) <= 12
    assert engine.store.number("SELECT count(*) FROM items") <= 12


def test_a_row_is_not_used_again_while_a_log_entry_refers_to_it():
    clock = Clock()
    engine = open_engine(clock)
    engine.rank(request(["a", "b"]), "first")
    engine.delete_item("a")
    engine.compact_expired()
    answer = engine.rank(request(["b", "c"]), "second")
    assert rows(engine) == 3  # the first list refers to the row of a
    clock.now += 61_000
    engine.compact_expired()
    engine.drop_cache()
    engine.rank(request(["d", "b"]))
    assert rows(engine) == 3
    assert engine.ledger(engine.find_number("q", None)).index == {"d": 0, "b": 1, "c": 2}
    assert [item.exposure for item in observed(engine, "q").items if item.id == "d"] != [0.0]
    assert answer.query_id
    assert consistent(engine)


def test_a_refused_request_returns_the_rows_it_took():
    clock = Clock()
    engine = open_engine(clock)
    engine.rank(request(["a", "b"]))
    engine.delete_item("a")
    clock.now += 61_000
    engine.compact_expired()
    before = engine.ledger(engine.find_number("q", None)).snapshot()

    class Refusing(LedgerRepository):
        def decide(self, *args):
            raise ArithmeticError("refused")

    working, engine.repository = engine.repository, Refusing(engine.store)
    with pytest.raises(ArithmeticError, match="refused"):
        engine.rank(request(["b", "c", "d"]))
    engine.repository = working
    ledger = engine.ledger(engine.find_number("q", None))
    assert ledger.snapshot() == before
    assert set(ledger.index) == {"b"}
    engine.rank(request(["b", "c", "d"]))
    assert ledger.index == {"c": 0, "b": 1, "d": 2}
    assert consistent(engine)


def test_candidates_that_were_never_shown_lose_their_rows_once_no_list_refers_to_them():
    clock = Clock()
    engine = open_engine(clock, rules={"policy": "TopK"})
    for i in range(50):
        engine.rank(request(["shown", *(f"{i} {j}" for j in range(20))], k=1))
        clock.now += 10_000
        engine.compact_expired()
        assert {"shown", *(f"{i} {j}" for j in range(20))} <= set(engine.ledger(engine.find_number("q", None)).index)
    assert rows(engine) <= 21 * 30
    assert engine.store.usage().items <= 21 * 15
    clock.now += 200_000
    for _ in range(3):
        engine.reset_expiry_schedule()
        engine.compact_expired()
    assert [item.id for item in observed(engine, "q").items] == ["shown"]
    assert observed(engine, "q").visits == 50
    assert consistent(engine)


# --- a long history against the model --------------------------------------------------------------------------------

OPERATIONS = st.one_of(
    st.tuples(
        st.just("rank"), st.lists(st.sampled_from(ITEMS), min_size=1, max_size=6, unique=True), st.integers(1, 4),
        st.sampled_from([None, "k1", "k2", "k3"]),
    ),
    st.tuples(st.just("delete"), st.sampled_from(ITEMS)),
    st.tuples(st.just("click"), st.integers(0, 5), st.sampled_from(ITEMS)),
    st.tuples(st.just("clock"), st.sampled_from([900, 5_000, 16_000])),
    st.tuples(st.just("compact")),
    st.tuples(st.just("restart")),
)  # fmt: skip


class Drawn:
    """Stands for the data of a state machine: the impression to click on, counted from the newest."""

    def __init__(self, back):
        self.back = back

    def draw(self, strategy):
        return self.of[-1 - self.back % len(self.of)]


class History(Machine):
    """The state machine of the service, driven by a list of operations."""

    def run(self, operations):
        for name, *arguments in operations:
            getattr(self, f"do_{name}")(*arguments)
            self.compare_with_the_model()

    def do_rank(self, items, k, key):
        self.rank("shoes", items, [None] * len(items), k, deferred=False, shadow=False, key=key, session=None)

    def do_delete(self, item):
        self.delete_item(item)

    def do_click(self, back, item):
        if self.impressions:
            drawn = Drawn(back)
            drawn.of = self.impressions
            self.click(drawn, item, retract=False, repeats=1)

    def do_clock(self, ms):
        self.advance_clock(ms)

    def do_compact(self):
        self.compact()

    def do_restart(self):
        self.crash()


LONG = settings(deadline=None, suppress_health_check=list(HealthCheck))
HISTORIES = st.lists(OPERATIONS, min_size=60, max_size=250)
RULES = st.fixed_dictionaries({
    "strength": st.sampled_from([0.0, 1.0]), "maturation": st.sampled_from([0, 5_000]),
    "half_life": st.sampled_from([0, 20_000]), "newcomer_exposure": st.sampled_from(["zero", "fair"]),
})  # fmt: skip


def check_history(rules, operations, engine_class=Engine):
    history = History()
    history.engine_class = engine_class
    history.open(**rules)
    try:
        history.run(operations)
    finally:
        history.teardown()


def test_a_long_history_with_reused_rows_agrees_with_the_model():
    reused = []

    class Watching(Engine):
        def choose(self, *args):
            chosen = super().choose(*args)
            reused.extend(chosen.reused)
            return chosen

    @LONG
    @given(rules=RULES, operations=HISTORIES)
    def check(rules, operations):
        check_history(rules, operations, Watching)

    check()
    assert reused, "no row was used again"


class ReuseForgotten(LedgerRepository):
    """Ignores which rows of deleted items an impression took."""

    def impression(self, ledger, entry):
        impression, candidates = super().impression(ledger, entry)
        return msgspec.structs.replace(impression, reused=[]), candidates


FIND = settings(LONG, max_examples=300, derandomize=True, database=None, phases=[Phase.generate])


def test_deliberate_loss_of_reused_rows_is_caught():
    def attempt(faulty):
        class FaultyEngine(Engine):
            def drop_cache(self):
                super().drop_cache()
                if faulty:
                    self.repository = ReuseForgotten(self.store)

        @settings(FIND, max_examples=FIND.max_examples if faulty else 5)
        @given(rules=RULES, operations=HISTORIES)
        def check(rules, operations):
            try:
                check_history(rules, operations, FaultyEngine)
            except StoreCorruptError as error:
                raise AssertionError(f"found by reading: {error}") from error

        check()

    caught_by(
        attempt, r"found by reading: .* has an item in|exposure of|clicks of|has items|list of|repeated|verify|replay"
    )
