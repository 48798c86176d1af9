"""Deletion of queries: gone at once, their rows deleted in bounded steps, also after a restart."""

import json

import msgspec
import pytest
from observing import explained, observed
from serving import figures

from mcfair.errors import NotFoundError
from mcfair.service.core.deletions import PURGE_STEP
from mcfair.service.core.engine import Engine
from mcfair.service.core.records import encode
from mcfair.service.core.reports import export
from mcfair.service.core.verification import replay, verify
from mcfair.service.group_commit import GroupCommit
from mcfair.service.ranker import Ranker
from mcfair.service.stores import SQLiteStore
from mcfair.service.wire import Event, RawRankRequest

LIVE = 300_000
ITEMS = msgspec.Raw(msgspec.json.encode([{"id": item} for item in "abcde"]))


class CountingStore(SQLiteStore):
    """A store that records the rows changed by each transaction."""

    most_changed = 0

    def begin(self, **options):
        super().begin(**options)
        self.before = self.changes

    def commit(self):
        self.most_changed = max(self.most_changed, self.changes - self.before)
        super().commit()


def request(query):
    return RawRankRequest(query=query, items=ITEMS, k=3)


def transaction(engine, work, *args):
    engine.store.begin()
    result = work(*args)
    engine.store.commit()
    return result


def fill(engine, query, entries):
    """Write a log of many impressions, with a snapshot at its end, straight into the store."""
    store, number = engine.store, engine.store.find_query(engine.ids.query(query))
    first = store.entry(number, 1)
    for seq in range(2, entries + 1):
        store.append(number, first._replace(seq=seq))
    snapshot = msgspec.structs.replace(engine.ledger(number).snapshot(), seq=entries)
    store.add_snapshot(number, entries, first.time, encode(snapshot))
    assert store.snapshot(number)[0] == entries
    engine.evict(number)


@pytest.fixture
def engine():
    made = Engine(CountingStore(None))
    yield made
    made.store.close()


@pytest.mark.parametrize("whole", [False, True], ids=["delete_query", "reset"])
def test_deletion_of_300_000_impressions_changes_few_rows_per_transaction(engine, whole):
    transaction(engine, engine.rank, request("large"))
    transaction(engine, engine.rank, request("small"))
    transaction(engine, fill, engine, "large", LIVE)
    engine.store.most_changed = 0
    if whole:
        transaction(engine, engine.reset)
    else:
        transaction(engine, engine.delete_query, "large")
    assert engine.store.most_changed <= 2
    assert LIVE < engine.store.usage().deleting < LIVE + 30
    with pytest.raises(NotFoundError):
        observed(engine, "large")
    steps = 0
    while engine.purging:
        transaction(engine, engine.compact_expired, 0.0)
        if steps % 100 == 0:
            transaction(engine, engine.rank, request("large"))
            transaction(engine, engine.rank, request("small"))
        steps += 1
    assert steps >= LIVE // PURGE_STEP
    assert engine.store.most_changed <= max(PURGE_STEP, 20)
    usage = engine.store.usage()
    assert usage.deleting == 0
    assert usage.queries == 2
    assert engine.store.number("SELECT count(*) FROM log") == usage.impressions
    assert observed(engine, "large").visits > 10
    assert verify(engine.store) == []
    assert replay(engine.store)[2] == []


@pytest.mark.parametrize("whole", [False, True], ids=["delete_query", "reset"])
@pytest.mark.parametrize("compacted", [False, True], ids=["live", "compacted"])
def test_impressions_and_keys_of_a_deleted_query_are_gone_at_once_and_for_ever(engine, whole, compacted):
    answers = [engine.rank(request("q"), str(i)) for i in range(100)]
    if compacted:
        engine.clock = lambda: engine.latest + 8 * 86_400_000
        engine.compact_expired()
    number = engine.store.find_query(engine.ids.query("q"))
    engine.reset() if whole else engine.delete_query("q")
    for _ in range(2):
        events = [Event(impression=answers[0].impression, item="a")]
        assert engine.feedback(events).results[0].status == "unknown_impression"
        with pytest.raises(NotFoundError, match="no such"):
            explained(engine, answers[-1].impression)
        assert engine.store.key_of(number) is None
        engine = Engine(engine.store)  # a restart before anything was purged
    new = engine.rank(request("q"), "99")
    assert new.impression not in {answer.impression for answer in answers}
    assert observed(engine, "q").visits == 1
    assert engine.store.find_query(engine.ids.query("q")) > number
    engine.compact_expired()
    assert engine.store.usage().deleting == 0
    assert observed(engine, "q").visits == 1


@pytest.mark.parametrize("whole", [False, True], ids=["delete_query", "reset"])
def test_a_store_in_the_middle_of_a_purge_is_sound(tmp_path, whole):
    engine = Engine(CountingStore(tmp_path / "store.db"))
    for query in ("p", "q"):
        for _ in range(PURGE_STEP + 50):
            transaction(engine, engine.rank, request(query))
    transaction(engine, *((engine.reset,) if whole else (engine.delete_query, "p")))
    transaction(engine, engine.rank, request("p"))
    left = [engine.store.usage().deleting]
    while engine.purging:
        transaction(engine, engine.compact_expired, 0.0)
        left.append(engine.store.usage().deleting)
        copy = tmp_path / f"{len(left)}.db"
        engine.store.backup(copy)
        for store in (engine.store, SQLiteStore(copy)):
            assert verify(store) == []
            assert replay(store)[::2] == (1 if whole else 2, [])
            queries = [line for line in map(json.loads, export(store)) if "visits" in line]
            assert sorted(each["visits"] for each in queries) == ([1] if whole else [1, PURGE_STEP + 50])
            assert figures(store, engine.now()).queries == len(queries)
            if store is not engine.store:
                again = Engine(store)
                again.compact_expired()
                assert store.usage().deleting == 0
                assert observed(again, "p").visits == 1
                store.close()
    assert left == sorted(left, reverse=True)
    assert len(left) > 4
    engine.store.close()


def test_an_item_of_a_deleted_query_is_not_deleted_again(engine):
    for query in ("p", "q"):
        engine.rank(request(query))
    engine.delete_query("p")
    assert engine.delete_item("a") == 1
    engine.reset()
    assert engine.delete_item("b") == 0


def test_a_query_that_is_deleted_while_it_is_verified_or_exported_is_no_fault(tmp_path):
    engine = Engine(CountingStore(tmp_path / "store.db"))
    for query in ("p", "q"):
        for _ in range(600):
            transaction(engine, engine.rank, request(query))

    def delete_and_purge(number):
        if number == 1:
            transaction(engine, engine.delete_query, "q")
            for _ in range(2):
                transaction(engine, engine.compact_expired, 0.0)

    with engine.store.reader() as reader:
        assert verify(reader, delete_and_purge) == []
        lines = export(reader)
        assert sum(1 for _ in lines) == 602
    engine.store.close()


class RecordingExecutor(GroupCommit):
    """An executor that records the operations that take their turn on the engine."""

    submitted = ()

    def submit(self, work, *args, **kwargs):
        self.submitted += (work.__name__,)
        return super().submit(work, *args, **kwargs)


def test_usage_and_reset_count_outside_the_engines_turn():
    with Ranker("memory:", warm=False, executor_class=RecordingExecutor) as ranker:
        for query in "pqr":
            ranker.rank(query, ["a", "b"], k=1)
        assert ranker.usage().queries == 3
        assert ranker.reset() == 3
        assert ranker.usage().queries == 0
        assert ranker.executor.submitted == ("rank", "rank", "rank", "reset")
