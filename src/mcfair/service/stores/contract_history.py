"""The part of the contract of stores that concerns summaries of queries and history."""

from __future__ import annotations

from .history_store import StoredPeriod, StoredSummary
from .store import KIND_FEEDBACK, KIND_IMPRESSION, LogEntry, Store


def check_summaries(store: Store) -> None:
    """Check that no log entry can be booked twice, and that deleted and outdated summaries are left out."""
    store.begin()
    p, q = store.add_query(b"p"), store.add_query(b"q")
    for seq in range(1, 5):
        store.append(p, LogEntry(seq, seq, KIND_IMPRESSION, 1, 1, b"", None))
    store.add_items(p, [(0, "a", "G"), (1, "b", None)])
    store.commit()
    assert store.summaries(0, 9) == [(p, 4, None), (q, 0, None)], "queries without a summary are not as written"
    assert store.booked(p) is None, "a query is booked before anything was"
    assert [store.item(p, 0), store.item(p, 1), store.item(p, 2)] == [("a", "G"), ("b", None), None], "an item differs"
    lists = [store.count_lists(p, 0, 4, 2), store.count_lists(p, 1, 3, 100), store.count_lists(q, 0, 4, 2)]
    assert lists == [[(0, 1), (2, 2), (4, 1)], [(0, 2)], []], "lists are not counted by their times"
    feedback = LogEntry(5, 5, KIND_FEEDBACK, 1, None, b"flips", None)
    store.begin()
    store.append(p, feedback)
    assert store.feedback(p, 0, 5) == store.feedback(p, 4, 9) == [feedback], "feedback is not found in the log"
    assert store.count_lists(p, 0, 5, 100) == [(0, 4)], "feedback is counted as a list"
    store.rollback()
    store.begin()
    assert store.book([(q, None, 0), (p, None, 2)]) == {p, q}, "queries are not booked"
    again = [store.book([(p, None, 3)]), store.book([(p, 1, 3)]), store.booked(p)]
    assert again == [set(), set(), 2], "log entries can be booked twice"
    assert store.book([(p, 2, 4), (q, 1, 2)]) == {p}, "the queries whose booking was moved are not returned"
    summary = StoredSummary(p, 9, 4, 1, 5, 4, b"figures")
    store.add_summaries([summary, StoredSummary(q + 1, 0, 0, 1, 5, 0, b"")])
    store.commit()
    pages = [store.summaries(0, 1), store.summaries(p, 9)]
    stored = [[(p, 4, summary._replace(booked=4))], [(q, 0, StoredSummary(q, 0, 0, 0, 0, 0, b""))]]
    assert pages == stored, "summaries are not as written, or paging skips or repeats some"
    store.begin()
    store.add_snapshot(p, 4, 4, b"")
    store.compact(p, 4, 9, 9)
    store.add_summaries([summary._replace(seq=3, body=b"outdated")])
    assert store.summaries(0, 1) == stored[0], "a summary replaces one although the log was compacted beyond it"
    store.delete_query(p)
    store.add_summaries([summary._replace(body=b"deleted")])
    assert [store.book([(p, 4, 5)]), store.book([(p, None, 5)])] == [set(), set()], "a deleted query can be booked"
    assert [each[0] for each in store.summaries(0, 9)] == [q], "the summary of a deleted query is found"
    while store.purge(100):
        pass
    assert store.booked(p) is None, "purge leaves the summary of a deleted query"
    store.reset()
    assert store.summaries(0, 9) == [], "reset leaves summaries"
    store.commit()


def check_history(store: Store) -> None:
    """Check the periods of the history."""
    store.begin()
    for start in (30, 10, 20):
        store.add_to_period(10, start, 1, 2, 3)
    store.add_to_period(10, 20, 5, 5, 5)
    store.set_figures(10, 20, b"figures")
    store.set_figures(10, 40, b"old")
    store.set_figures(10, 40, b"new")
    store.erase_figures(10, 30, b"erased")
    store.add_to_period(60, 0, 1, 0, 0)
    store.commit()
    expected = [
        StoredPeriod(10, 10, 1, 2, 3, None),
        StoredPeriod(10, 20, 6, 7, 8, b"figures"),
        StoredPeriod(10, 30, 1, 2, 3, b"erased"),
        StoredPeriod(10, 40, 0, 0, 0, b"new"),
    ]
    assert store.periods(10, 0, 99, 9) == expected, "the periods of the history are not as written, or not in order"
    assert store.periods(10, 20, 40, 1) == expected[2:3], "a part of the history is not as asked for"
    store.begin()
    store.delete_periods(10, 30)
    assert store.periods(10, 0, 99, 9) == expected[2:], "the periods before a time are not deleted, or others are"
    assert store.periods(60, 0, 99, 9) == [StoredPeriod(60, 0, 1, 0, 0, None)], "periods of other lengths are deleted"
    store.rollback()
    assert store.periods(10, 0, 99, 9) == expected, "rollback keeps a change of the history"
    store.begin()
    store.reset()
    store.commit()
    assert store.periods(10, 0, 99, 9) + store.periods(60, 0, 99, 9) == [], "reset leaves history"
