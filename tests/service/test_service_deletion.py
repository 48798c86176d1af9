"""Deletion of an item from many queries: gone at once, erased in steps, resumed after a restart."""

import itertools

import msgspec
import pytest
from observing import explained, observed

from mcfair.service.core.deletions import DELETION_STEP
from mcfair.service.core.engine import Engine
from mcfair.service.core.verification import replay, verify
from mcfair.service.stores import SQLiteStore
from mcfair.service.wire import Event, RawRankRequest

QUERIES = [f"q{i}" for i in range(3 * DELETION_STEP)]


def request(query, items="ab"):
    raw = msgspec.Raw(msgspec.json.encode([{"id": item} for item in items]))
    return RawRankRequest(query=query, items=raw, k=2)


def shown(engine, query):
    return {item.id: item.exposure for item in observed(engine, query).items}


@pytest.fixture
def engine():
    made = Engine(SQLiteStore(None))
    yield made
    made.store.close()


def consistent(engine):
    return verify(engine.store) == [] and replay(engine.store)[2] == []


def test_a_deleted_item_is_gone_at_once_and_erased_in_steps(engine):
    answers = {query: engine.rank(request(query), query) for query in QUERIES}
    changes = engine.store.changes
    assert engine.delete_item("a") == len(QUERIES)
    assert engine.store.changes == changes + 1  # nothing but the deletion itself
    assert engine.store.usage().deleting == len(QUERIES)
    last = QUERIES[-1]
    assert set(shown(engine, last)) == {"b"}
    assert [item.id for item in engine.rank(request(QUERIES[-2]), QUERIES[-2]).items] == ["b"]
    assert [item.id for item in explained(engine, answers[QUERIES[-3]].impression).items] == [None, "b"]
    click = Event(impression=answers[QUERIES[-4]].impression, item="a")
    assert engine.feedback([click]).results[0].status == "not_in_impression"
    left = [engine.store.usage().deleting]
    while engine.deletions:
        engine.compact_expired(0.0)
        left.append(engine.store.usage().deleting)
    assert all(0 <= before - after <= DELETION_STEP for before, after in itertools.pairwise(left))
    assert left[-1] == 0
    assert all(set(shown(engine, query)) == {"b"} for query in QUERIES)
    assert consistent(engine)


def test_an_item_that_is_added_again_during_its_deletion_stays(engine):
    for query in QUERIES:
        engine.rank(request(query))
    engine.rank(request("never had it", "b"))
    engine.delete_item("a")
    again = [QUERIES[0], QUERIES[-1], "never had it", "new"]
    for query in again:
        engine.rank(request(query))
    engine.compact_expired()
    assert not engine.deletions
    for query in QUERIES:
        assert set(shown(engine, query)) == ({"a", "b"} if query in again else {"b"})
    assert [shown(engine, query)["a"] for query in again] == [1.0] * 4
    assert engine.delete_item("a") == len(again)
    engine.compact_expired()
    assert all("a" not in shown(engine, query) for query in [*QUERIES, *again])
    assert consistent(engine)


def test_a_deletion_continues_after_a_restart_and_a_rollback(engine):
    for query in QUERIES:
        engine.rank(request(query))
    engine.delete_item("a")
    engine.compact_expired(0.0)
    engine.store.begin()
    engine.compact_expired(0.0)
    engine.store.rollback()
    engine.drop_cache()
    assert engine.store.usage().deleting == len(QUERIES) - DELETION_STEP
    again = Engine(engine.store)
    assert set(shown(again, QUERIES[-1])) == {"b"}
    again.compact_expired()
    assert again.store.usage().deleting == 0
    assert again.store.count_item("a") == 0
    assert consistent(again)
