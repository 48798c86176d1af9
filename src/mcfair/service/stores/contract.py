"""The contract that every store keeps, as one function: run it on stores of your own."""

from __future__ import annotations

from collections.abc import Callable

from .contract_arms import check_arms
from .contract_history import check_history, check_summaries
from .errors import StoreConflictError, StoreCorruptError
from .store import KIND_FEEDBACK, KIND_IMPRESSION, LogEntry, Store, StoredKey

MANY = 1_500
"""More rows than a store reads at a time."""


def check_store(factory: Callable[[], Store]) -> None:
    """Check that a store keeps the contract of `mcfair.service.stores.Store`.

    Rows that are written between `begin` and `commit` appear together or not at all. The writer reads its own rows,
    readers only committed ones, and inside a read transaction those of one state. The log of a query is in order and
    refuses a sequence number that exists, at once or by losing the query. Numbers of queries are never reused. Long
    results are complete, whatever the store reads at a time. Compaction, idempotency keys, API keys, versions of the
    rules, summaries, history and the totals of arms behave as documented.

    Parameters
    ----------
    factory
        Returns a new, empty store for each check, which closes it.

    Raises
    ------
    AssertionError
        If the store breaks the contract; the message states how.

    Examples
    --------
    >>> from mcfair.service.stores import open_store
    >>> check_store(lambda: open_store("memory:"))
    """
    for check in CHECKS:
        store = factory()
        try:
            check(store)
        finally:
            store.rollback()
            store.close()


def entry(seq: int, kind: int = KIND_IMPRESSION, candidates: int | None = 1) -> LogEntry:
    """Return an entry of a log."""
    return LogEntry(seq, 1_000 + seq, kind, 1, candidates, b"body %d" % seq, None)


def check_transactions(store: Store) -> None:
    """Check that the rows of a transaction appear together or not at all."""
    store.begin()
    first = store.add_query(b"one")
    store.append(first, entry(1))
    store.commit()
    assert store.entry(first, 1) == entry(1), "a committed row is missing"
    before = store.changes
    store.begin()
    store.add_query(b"two")
    store.append(first, entry(2))
    store.set_bits(first, 1, b"bits")
    store.add_items(first, [(0, "a", None)])
    assert store.changes > before, "`changes` does not count rows that were written"
    assert store.find_query(b"two") is not None, "the writer does not read its own uncommitted rows"
    store.rollback()
    kept = [store.find_query(b"two"), store.entry(first, 2), store.items(first), store.entry(first, 1)]
    assert kept == [None, None, [], entry(1)], "rollback keeps some rows"
    store.rollback()  # without a transaction it does nothing
    assert 0 < store.wall_time() <= store.wall_time(), "the wall clock does not run"
    store.begin(durable=False)
    store.probe()
    store.commit()
    store.check_attached()
    assert store.check() == [], "a new store is not sound"


def check_readers(store: Store) -> None:
    """Check that readers see committed rows only, and one state in a read transaction."""
    with store.reader() as reader:
        store.begin()
        store.add_query(b"one")
        assert reader.numbers(0, 9) == [], "a reader sees rows that are not committed"
        store.commit()
    with store.reader() as reader:
        assert reader.secret == store.secret, "a reader has another secret"
        with reader.read_transaction():
            assert len(reader.numbers(0, 9)) == 1, "a reader does not see a committed row"
            store.begin()
            store.add_query(b"two")
            store.commit()
            assert len(reader.numbers(0, 9)) == 1, "the state changes within a read transaction"
    with store.reader() as reader:
        assert len(reader.numbers(0, 9)) == 2, "a new reader does not see a committed row"
    assert store.head(store.numbers(0, 1)[0]) == (0, 0, 0), "a query without a log has another end"
    store.begin()
    with store.read_transaction():
        number = store.add_query(b"three")
    assert store.key_of(number) == b"three", "a read transaction ends the write transaction around it"
    store.commit()


def check_queries(store: Store) -> None:
    """Check the numbers of queries, and what deleting queries deletes."""
    store.begin()
    numbers = [store.add_query(b"%d" % i) for i in range(4)]
    assert numbers == sorted(set(numbers)), "numbers of queries do not ascend"
    assert numbers[0] > 0, "numbers of queries do not begin above 0"
    pages = [store.numbers(0, 3), store.numbers(numbers[2], 3), store.numbers(numbers[3], 3)]
    assert pages == [numbers[:3], numbers[3:], []], "paging through queries skips or repeats some"
    for number in numbers:
        store.append(number, entry(1))
        store.add_items(number, [(0, "a", None)])
    store.delete_query(numbers[3])
    assert [store.find_query(b"3"), store.key_of(numbers[3])] == [None, None], "a deleted query is found"
    assert store.rows_of_item("a", 0, 9)[-1][0] == numbers[2], "an item of a deleted query is found"
    assert store.count_item("a") == 3, "an item of a deleted query is counted"
    assert store.find_query(b"2") == numbers[2], "deleting a query deletes another one"
    again = store.add_query(b"3")
    assert again > numbers[3], "the number of a deleted query is reused"
    store.reset()
    gone = [store.numbers(0, 9), store.find_query(b"2"), store.key_of(again), store.rows_of_item("a", 0, 9)]
    assert gone == [[], None, None, []], "reset leaves queries"
    new = store.add_query(b"2")
    assert new > again, "reset reuses numbers"
    assert [store.find_query(b"2"), store.numbers(0, 9)] == [new, [new]], "a query added after a reset is not found"
    store.commit()
    refused(store, lambda: store.add_query(b"2"), "a query id that exists")


def check_purge(store: Store) -> None:
    """Check that the rows of deleted queries, and no others, are deleted in bounded steps."""
    store.begin()
    numbers = [store.add_query(b"%d" % i) for i in range(5)]
    for number in numbers:
        for seq in range(1, MANY):
            store.append(number, entry(seq))
        store.add_items(number, [(0, "a", None), (1, "b", None)])
        store.add_candidates(number, 1, 2, b"")
        store.add_snapshot(number, 1, 0, b"")
        store.compact(number, 1, 0, 0)
    store.delete_query(numbers[3])
    store.delete_query(numbers[0])
    store.commit()
    store.begin()
    before = store.usage()
    assert before[:4] == (3, 6, 3 * (MANY - 1), 0), "rows of deleted queries are counted as those of others"
    assert before.deleting >= 2 * MANY, "rows of deleted queries are not counted"
    purge_all(store)
    for number in numbers:
        deleted = number in (numbers[0], numbers[3])
        rows = [len(list(store.log(number, 0))), len(store.items(number)), store.base(number)]
        assert rows == ([0, 0, 0] if deleted else [MANY - 1, 2, 1]), "purge leaves rows, or deletes those of others"
    store.reset()
    new = store.add_query(b"0")
    store.append(new, entry(1))
    assert store.usage()[:4] == (1, 0, 1, 0), "rows of deleted queries are counted as those of others"
    purge_all(store)
    assert [store.find_query(b"0"), store.usage().deleting] == [new, 0], "purge after a reset deletes the wrong rows"
    assert store.entry(new, 1) == entry(1), "purge after a reset deletes the wrong rows"
    store.commit()


def purge_all(store: Store) -> None:
    """Purge until nothing is left; check that no step exceeds its limit."""
    deleted = 1
    while deleted:
        before = store.changes
        deleted = store.purge(100)
        assert max(deleted, store.changes - before) <= 100, "purge deletes more rows than its limit"


def check_items(store: Store) -> None:
    """Check the items of queries, their groups and their erasure."""
    items = [(i, f"item {i}", "G" if i % 3 else None) for i in range(MANY)]
    store.begin()
    p, q = store.add_query(b"p"), store.add_query(b"q")
    store.add_items(p, [(MANY, "last", None)])
    store.add_items(p, items)
    store.add_items(q, [(0, "item 7", None)])
    assert store.items(p) == [*items, (MANY, "last", None)], "items are not returned in the order of their rows"
    assert store.rows_of_item("item 7", 0, 9) == [(p, 7), (q, 0)], "the rows of an item are not found"
    pages = [store.rows_of_item("item 7", 0, 1), store.rows_of_item("item 7", p, 1)]
    assert pages == [[(p, 7)], [(q, 0)]], "paging through the rows of an item skips or repeats some"
    assert [store.count_item("item 7"), store.count_item("stranger")] == [2, 0], "the rows of an item are not counted"
    store.set_group(p, 7, "H")
    assert store.items(p)[7] == (7, "item 7", "H"), "the group of an item is not set"
    store.erase_item(p, 7, 3)
    store.erase_item(p, 5, 4)
    assert store.items(p)[7] == (7, None, None), "an erased item keeps its id or group"
    assert store.rows_of_item("item 7", 0, 9) == [(q, 0)], "an erased item is found"
    assert [store.free_rows(p, 2), store.free_rows(p, 3)] == [[], [7]], "a row is freed too early, or not at all"
    assert [row for row, _, _ in store.items(p)[4:8]] == [4, 5, 6, 8], "a free row is returned"
    store.add_items(p, [(7, "new", None)])
    assert [store.free_rows(p, 9), store.items(p)[6]] == [[5], (7, "new", None)], "a free row cannot be used again"
    store.commit()


def check_deletions(store: Store) -> None:
    """Check the deletions of items that are in progress, and the queries that are exempt from them."""
    store.begin()
    p, q = store.add_query(b"p"), store.add_query(b"q")
    for number in (p, q):
        store.add_items(number, [(0, "a", None)])
    first, second = store.add_deletion("a"), store.add_deletion("b")
    store.advance_deletion(first, p)
    assert store.deletions() == [(first, "a", p), (second, "b", 0)], "the progress of a deletion is not kept"
    store.exempt(first, q)
    store.exempt(first, q)
    assert store.rows_of_item("a", 0, 9, first) == [(p, 0)], "an exempt query is not left out"
    exempt = [store.is_exempt(first, q), store.is_exempt(first, p), store.is_exempt(second, q)]
    assert exempt == [True, False, False], "exempt queries are not told apart"
    assert store.rows_of_item("a", 0, 9, second) == [(p, 0), (q, 0)], "a query is exempt from another deletion"
    store.finish_deletion(first)
    assert store.deletions() == [(second, "b", 0)], "a finished deletion is kept"
    assert store.rows_of_item("a", 0, 9, first) == [(p, 0), (q, 0)], "the exemptions of a finished deletion are kept"
    store.finish_deletion(second)
    assert store.add_deletion("a") > second, "the number of a deletion is reused"
    store.commit()


def check_log(store: Store) -> None:
    """Check the order of the log, the refusal of sequence numbers that exist, and the feedback state."""
    store.begin()
    number, other = store.add_query(b"p"), store.add_query(b"q")
    for seq in range(1, MANY):
        store.append(number, entry(seq, KIND_FEEDBACK if seq % 2 else KIND_IMPRESSION))
    store.append(other, entry(1))
    store.commit()
    assert [each.seq for each in store.log(number, 0)] == [*range(1, MANY)], "the log is not complete and in order"
    assert [each.seq for each in store.log(number, 5, 8)] == [6, 7, 8], "a part of the log is not as asked for"
    descending = [each.seq for each in store.log_descending(number, MANY - 1)]
    assert descending == [*range(MANY - 1, 0, -1)], "the descending log is not complete and in order"
    assert next(iter(store.log_descending(number, 4))) == entry(4), "the descending log begins elsewhere"
    assert next(iter(store.log(number, 3, 4))) == entry(4), "an entry changes when it is stored"
    assert store.entry(number, MANY) is None, "an entry is found that was never written"
    refused(store, lambda: store.append(number, entry(7)), "a sequence number that exists")
    assert store.entry(number, 7) == entry(7, KIND_FEEDBACK), "a refused entry replaces the stored one"
    store.begin()
    store.set_bits(number, 2, b"\1\5")
    store.commit()
    assert store.entry(number, 2) == entry(2)._replace(bits=b"\1\5"), "the feedback state is not set"


def check_compaction(store: Store) -> None:
    """Check snapshots, candidate sets, and what compaction deletes."""
    store.begin()
    number = store.add_query(b"q")
    for seq in range(1, 7):
        store.append(number, entry(seq, candidates=1 + seq // 4))
    for candidates in (1, 2):
        store.add_candidates(number, candidates, 1, bytes([candidates]))
    for seq in (2, 3, 4, 6):
        store.add_snapshot(number, seq, 1_000 + seq, bytes([seq]))
    store.delete_snapshot(number, 3)
    found = [store.snapshot(number), store.snapshot(number, 5), store.snapshot(number, 1)]
    assert found == [(6, b"\6"), (4, b"\4"), None], "the latest snapshot within bounds is not found"
    check_loading(store, number)
    assert store.base(number) == 0, "a query has a base before compaction"
    young = entry(1).time - 1
    assert store.compact(number, 4, young, 9) == 0, "compaction deletes entries that are too young"
    assert store.base(number) == 4, "compaction does not set the base"
    head = store.head(number)
    assert head is not None, "a query has no end"
    assert (head[0], head[2]) == (4, 6), "the end of a log is not as written"
    steps = [store.compact(number, 4, young + 1_000_000, 3) for _ in range(2)]
    assert steps == [3, 4], "compaction does not delete the log in bounded steps"
    assert [each.seq for each in store.log(number, 0)] == [5, 6], "compaction does not delete the log up to the base"
    assert [seq for seq, _ in store.snapshots(number)] == [4, 6], "compaction does not delete older snapshots alone"
    assert [seq for seq, _ in store.snapshots(number, 4)] == [6], "a part of the snapshots is not as asked for"
    deleted = [store.delete_candidates(number, 1) for _ in range(2)]
    assert deleted == [[1], []], "the deleted candidate sets are not returned"
    assert store.candidates(number, 2) == (1, b"\2"), "a candidate set is deleted that was to be kept"
    try:
        store.candidates(number, 1)
    except StoreCorruptError:
        pass
    else:
        raise AssertionError("a missing candidate set is not reported as damage")
    store.commit()


def check_loading(store: Store, number: int) -> None:
    """Check what is loaded of a query with 6 log entries and snapshots at 2, 4 and 6, written in this transaction."""
    for until, snapshot, entries in ((None, b"\6", []), (5, b"\4", [5]), (1, None, [1])):
        loaded = store.load(number, until)
        assert loaded is not None, "a query that exists is not loaded"
        assert (loaded.key, loaded.base, loaded.items) == (b"q", 0, []), "a query is not loaded as it was written"
        assert loaded.snapshot == snapshot, "a query is loaded with another snapshot"
        assert [each.seq for each in loaded.entries] == entries, "a query is loaded with other log entries"
    assert store.load(number + 1) is None, "a query is loaded that does not exist"


def check_requests(store: Store) -> None:
    """Check idempotency keys: they are found until they expire."""
    store.begin()
    p, q = store.add_query(b"p"), store.add_query(b"q")
    for i in range(3):
        store.add_request(p, b"key %d" % i, b"digest", i, 1_000 + i)
    assert store.find_request(p, b"key 1") == (b"digest", 1), "a request is not found by its idempotency key"
    assert store.find_request(p, b"key 3") is None, "a request is found that was never written"
    assert store.find_request(q, b"key 1") is None, "an idempotency key of another query is found"
    store.add_request(p, b"key 0", b"later", 9, 1_005)
    assert store.find_request(p, b"key 0") == (b"later", 9), "an expired idempotency key cannot be used again"
    assert store.expire_requests(1_002) == 1_002, "the oldest request left is not returned"
    left = [store.find_request(p, b"key %d" % i) is not None for i in range(3)]
    assert left == [True, False, True], "requests do not expire by their time"
    assert store.expire_requests(1_006) is None, "there are requests left after all have expired"
    store.commit()


def check_settings(store: Store) -> None:
    """Check versions of the rules and API keys."""
    store.begin()
    for number in (2, 1, 3):
        store.add_version(number, b"rules %d" % number)
    keys = [StoredKey(id, b"digest", "name", "rank read", created, None) for id, created in (("b", 1), ("a", 2))]
    for key in keys:
        store.add_key(key)
    store.revoke_key("a", 5)
    store.revoke_key("a", 9)
    store.commit()
    assert [number for number, _ in store.versions()] == [1, 2, 3], "versions are not in order"
    assert store.versions()[1][1] == b"rules 2", "a version changes when it is stored"
    assert store.all_keys() == [keys[0], keys[1]._replace(revoked=5)], "keys differ, or a later revocation changes one"
    refused(store, lambda: store.add_version(2, b"other"), "a version that exists")
    store.begin()
    store.delete_versions([1, 2])
    store.commit()
    assert store.versions() == [(3, b"rules 3")], "versions are not deleted, or others are"
    refused(store, lambda: store.add_key(keys[0]), "an API key that exists")


def check_usage(store: Store) -> None:
    """Check the counts of what is stored."""
    store.begin()
    number = store.add_query(b"q")
    store.add_items(number, [(0, "a", None), (1, "b", None)])
    store.erase_item(number, 0, 1)
    for seq, kind in enumerate((KIND_IMPRESSION, KIND_FEEDBACK, KIND_IMPRESSION), start=1):
        store.append(number, entry(seq, kind))
    store.add_snapshot(number, 2, 0, b"")
    store.commit()
    usage = store.usage()
    counts = [usage.queries, usage.items, usage.impressions, usage.events, usage.snapshots]
    assert counts == [1, 1, 2, 1, 1], f"usage counts {counts} instead of [1, 1, 2, 1, 1]"


def refused(store: Store, write: Callable[[], object], what: str) -> None:
    """Check that a write is refused as a conflict, or that its query loses; the transaction is rolled back after it."""
    store.begin()
    try:
        write()
        lost = store.commit()
    except StoreConflictError:
        store.rollback()
        return
    assert lost, f"{what} is not refused"


CHECKS = (
    check_transactions,
    check_readers,
    check_queries,
    check_items,
    check_deletions,
    check_log,
    check_compaction,
    check_requests,
    check_settings,
    check_usage,
    check_purge,
    check_summaries,
    check_history,
    check_arms,
)
