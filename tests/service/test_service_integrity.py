"""Integrity of the counters: whatever is sent, in whatever order, nothing counts twice and nothing becomes negative."""

import base64

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from observing import explained, observed

from mcfair.errors import ConflictError, StoreError
from mcfair.service.core.engine import Engine
from mcfair.service.core.rules import change_rules
from mcfair.service.core.verification import replay, verify
from mcfair.service.stores import SQLiteStore
from mcfair.service.wire import Event, PolicyChange, RawRankRequest

START = 1_700_000_000_000
CLOCK = [START]


def open_engine(store=None, **rules):
    rules = {"prior_strength": 1.0} | rules
    return Engine(
        store or SQLiteStore(None), lambda stored: change_rules(stored, "TopK", rules), clock=lambda: CLOCK[0]
    )


def request(items="ab", query="q", **options):
    raw = msgspec.Raw(msgspec.json.encode([{"id": item} for item in items]))
    return RawRankRequest(query=query, items=raw, **{"k": 3} | options)


def state(engine, query="q"):
    return {item.id: (item.exposure, item.clicks) for item in observed(engine, query).items}


def statuses(engine, events, **options):
    return [result.status for result in engine.feedback(events, **options).results]


def test_one_click_under_many_spellings_counts_once():
    engine = open_engine()
    name = engine.rank(request()).impression
    raw = base64.urlsafe_b64decode(name)
    others = [name + "=" * i for i in range(1, 5)] + [f"{name[:i]}\n{name[i:]}" for i in range(0, 40, 3)]
    others += [base64.b64encode(raw).decode() + "=", name[:-1] + ("A" if name[-1] != "A" else "B")]
    events = [Event(impression=text, item="a") for text in (name, *others, name)]
    assert statuses(engine, events) == ["applied", *["unknown_impression"] * len(others), "duplicate"]
    assert state(engine)["a"] == (1.0, 1.0)
    assert verify(engine.store) == []


def test_a_click_at_a_rank_that_nobody_examines_does_not_lift_the_estimate():
    engine = open_engine(examination=[1.0, 0.5], prior_strength=0.0)
    name = engine.rank(request("abc")).impression
    before = observed(engine, "q")
    assert statuses(engine, [Event(impression=name, item="c")]) == ["applied"]
    assert observed(engine, "q") == before
    assert [item.clicked for item in explained(engine, name).items] == [False, False, True]
    assert statuses(engine, [Event(impression=name, item="b")]) == ["applied"]
    assert state(engine)["b"] == (0.5, 1.0)
    assert statuses(engine, [Event(impression=name, item="c")], retract=True) == ["applied"]
    assert state(engine)["c"] == (0.0, 0.0)
    assert verify(engine.store) == []


def test_a_restored_store_gives_out_other_ids_and_credits_no_lost_impression(tmp_path):
    engine = open_engine()
    kept = engine.rank(request())
    engine.store.backup(tmp_path / "backup.db")
    lost = [engine.rank(request("xy")).impression for _ in range(3)]
    restored = open_engine(SQLiteStore(tmp_path / "backup.db"))
    again = [restored.rank(request()).impression for _ in range(3)]
    assert not set(lost) & set(again)
    assert statuses(restored, [Event(impression=name, item="a") for name in lost]) == ["unknown_impression"] * 3
    assert statuses(restored, [Event(impression=kept.impression, item="a")]) == ["applied"]
    assert state(restored)["a"] == (4.0, 1.0)
    restored.store.close()


def test_a_retry_after_a_restart_returns_the_id_of_the_first_answer(tmp_path):
    engine = open_engine(SQLiteStore(tmp_path / "s.db"))
    engine.store.begin()
    first = engine.rank(request(), "key")
    engine.store.commit()
    engine.store.close()
    again = open_engine(SQLiteStore(tmp_path / "s.db"))
    assert again.rank(request(), "key") == first
    assert again.rank(request()).impression != first.impression
    again.store.close()


def test_idempotency_keys_belong_to_a_caller_and_a_query():
    engine = open_engine()
    uses = [("p", None), ("p", "a"), ("q", "a"), ("q", "b")]
    answers = {use: engine.rank(request(query=use[0]), "same", use[1]) for use in uses}
    assert len({answer.impression for answer in answers.values()}) == 4
    for (query, caller), answer in answers.items():
        assert engine.rank(request(query=query), "same", caller) == answer
    with pytest.raises(ConflictError):
        engine.rank(request(query="p", k=1), "same", "a")


def test_a_store_of_the_first_schema_is_refused_with_a_line_that_says_so(tmp_path):
    store = SQLiteStore(tmp_path / "s.db")
    store.begin()
    store.probe()
    store.commit()
    store.db.execute("PRAGMA user_version = 1")
    store.close()
    with pytest.raises(StoreError, match=r"older mcfair \(schema 1\).*start with a new store"):
        SQLiteStore(tmp_path / "s.db")


STEPS = st.one_of(
    st.tuples(st.just("rank"), st.sampled_from(["ab", "abc", "cd", "a"]), st.booleans(), st.booleans()),
    st.tuples(st.just("event"), st.integers(0, 30), st.sampled_from("abcd"), st.booleans()),
    st.tuples(st.just("shown"), st.integers(0, 30), st.none() | st.integers(1, 4), st.booleans()),
    st.tuples(st.just("delete"), st.sampled_from("abcd")),
    st.tuples(st.just("wait"), st.sampled_from([1, 2_000, 11_000, 30_000, 200_000])),
    st.tuples(st.just("rules"), st.sampled_from([None, 10.0, 20.0]), st.sampled_from([0.0, 5.0]),
              st.sampled_from([1.0, [1.0, 0.0, 0.5]])),
    st.tuples(st.just("compact")), st.tuples(st.just("evict")),
)  # fmt: skip


def perform(engine, names, step):
    match step:
        case ("rank", items, deferred, shadow):
            names.append(engine.rank(request(items, defer_exposure=deferred, shadow=shadow)).impression)
        case ("event", which, item, retract) if names:
            engine.feedback([Event(impression=names[which % len(names)], item=item)] * 2, retract=retract)
        case ("shown", which, rank, retract) if names:
            ranks = None if rank is None else [rank]
            engine.feedback([Event(impression=names[which % len(names)], type="shown", ranks=ranks)], retract=retract)
        case ("delete", item):
            engine.delete_item(item)
        case ("wait", ms):
            CLOCK[0] += ms
        case ("rules", half_life, maturation, examination):
            engine.change(PolicyChange(half_life=half_life, maturation=maturation, examination=examination))
        case ("compact",):
            engine.compact_expired()
        case ("evict",):
            engine.drop_cache()


@given(st.lists(STEPS, max_size=40))
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_counters_never_become_negative(steps):
    engine = open_engine(retention=1000.0)
    names = []
    for step in steps:
        perform(engine, names, step)
        for ledger in engine.ledgers.values():
            blocks = ledger.counts.blocks.values()
            for counts in (each for b in blocks for each in (b.F, b.C, b.pending_F, b.pending_C)):
                assert counts.size == 0 or counts.min() >= 0
            assert all((b.pending_F <= b.F).all() for b in blocks if b.pending_C.size)
    assert verify(engine.store) == []
    assert replay(engine.store)[2] == []
    engine.store.close()


def test_a_retraction_after_its_counts_were_dropped_does_not_make_later_counts_negative():
    """Counts without a half-life share one block; a half-life drops it, and without one it begins anew."""
    engine = open_engine(retention=1e6)
    old = engine.rank(request()).impression
    engine.change(PolicyChange(half_life=10.0))
    CLOCK[0] += 200_000
    engine.rank(request())
    engine.change(PolicyChange(half_life=None))
    engine.rank(request())
    assert statuses(engine, [Event(impression=old, type="shown")], retract=True) == ["applied"]
    assert state(engine)["a"][0] == 2.0
    assert verify(engine.store) == []
