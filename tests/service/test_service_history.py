"""Summaries of queries and hourly history: right, counted once, bounded, and erased with what they are about."""

import asyncio
import datetime
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import contextmanager

import numpy as np
import pytest
from serving import serving

import mcfair as mf
from mcfair.errors import RequestError
from mcfair.service.background import summaries as summarizing
from mcfair.service.core import history as history_module
from mcfair.service.core import summaries
from mcfair.service.core.engine import Engine
from mcfair.service.core.history import DAY_MS, DAYS_KEPT, HOURS_KEPT, read_present
from mcfair.service.core.installing import PresentFigures
from mcfair.service.core.summaries import HOUR, summarize
from mcfair.service.core.verification import verify
from mcfair.service.ranker import Ranker
from mcfair.service.stores import open_reader, sqlite_schema

NOON = 1_700_049_600_000 - 1_700_049_600_000 % DAY_MS + 12 * HOUR


class ManualClock:
    """A clock that stands still until it is set."""

    def __init__(self, time=NOON):
        self.time = time

    def __call__(self):
        return self.time


@pytest.fixture
def clock():
    return ManualClock()


@contextmanager
def opened(where="memory:", clock=None, **options):
    """Open a ranker that summarises only when it is asked for figures."""
    with Ranker(where, warm=False, summary_interval=0, clock=clock or ManualClock(), **options) as ranker:
        yield ranker


def visit(ranker, query, lists=1, clicks=0, items=6, groups=2):
    """Rank the items of a query some times, with a click on the first item of some lists; return the last list."""
    candidates = [
        {"id": f"{query} {i}", "group": f"group {i % groups}", "prior": 0.1 * (1 + i % 9)} for i in range(items)
    ]
    for i in range(lists):
        answer = ranker.rank(query, candidates, k=3)
        if i < clicks:
            ranker.click(answer.impression, answer.items[0].id)
    return answer


def counts(ranker, resolution="hour"):
    """Return lists, clicks and retracted clicks of each period by its start, before and after they are booked."""
    asked = ranker.history(resolution, limit=1_200).points
    summarize_all(ranker)
    assert ranker.history(resolution, limit=1_200).points == asked
    points = ranker.history(resolution, limit=1_200).points
    return {int(each.start.timestamp() * 1000): (each.lists, each.clicks, each.retracted) for each in points}


def summarize_all(ranker):
    """Summarise all queries now, as the background does."""
    ranker.worker.summarize()


def compact(ranker):
    """Compact what has expired."""
    return ranker.executor.submit(Engine.compact_expired).result()


# --- figures ---------------------------------------------------------------------------------------------------------


def check_figures(ranker, queries):
    """Compare the figures over all queries with those that follow from the state of each query."""
    states = {query: ranker.query_state(query) for query in queries}
    fair = ranker.fairness()
    assert (fair.queries, fair.visits) == (len(states), sum(each.visits for each in states.values()))
    assert fair.unfairness == pytest.approx(np.mean([each.unfairness for each in states.values()]), rel=1e-12)
    assert fair.floor == pytest.approx(np.mean([each.floor for each in states.values()]), rel=1e-12)
    items = [
        (item, state.query_id, sum(each.exposure for each in state.items))
        for state in states.values()
        for item in state.items
    ]
    total = sum(item.exposure for item, _, _ in items)
    assert {each.group for each in fair.groups} == {item.group for item, _, _ in items}
    for each in fair.groups:
        own = [(item, of_query) for item, _, of_query in items if item.group == each.group]
        assert each.items == len(own)
        assert each.clicks == pytest.approx(sum(item.clicks for item, _ in own), rel=1e-12)
        assert each.exposure_share == pytest.approx(sum(item.exposure for item, _ in own) / total, rel=1e-12)
        merited = sum(item.merit_share * of_query for item, of_query in own)
        assert each.merit_share == pytest.approx(merited / total, rel=1e-12)
    excess = {state.query_id: state.unfairness - state.floor for state in states.values()}
    ordered = sorted((each for each in excess if excess[each] > 0), key=excess.get, reverse=True)
    assert [each.query_id for each in ranker.unfair_queries(limit=100).queries] == ordered
    visited = ranker.unfair_queries("visits", limit=100).queries
    assert [each.visits for each in visited] == sorted((each.visits for each in states.values()), reverse=True)
    check_items(ranker, items)


def check_items(ranker, items):
    """Compare the most under- and over-exposed items with all items."""
    gaps = {(item.id, query): item.exposure - item.merit_share * of_query for item, query, of_query in items}
    for order, sign in (("under", -1), ("over", 1)):
        found = ranker.exposed_items(order, limit=100).items
        largest = sorted((sign * gap for gap in gaps.values() if sign * gap > 0), reverse=True)
        assert [abs(each.exposure - each.merited) for each in found] == pytest.approx(largest[: len(found)], rel=1e-9)
        for each in found:
            item = next(item for item, query, _ in items if (item.id, query) == (each.id, each.query_id))
            same = (item.group, item.exposure, item.exposure_share, item.merit_share)
            assert (each.group, each.exposure, each.exposure_share, each.merit_share) == pytest.approx(same)


@pytest.mark.parametrize("rules", [{}, {"half_life": 5_000, "maturation": 60}], ids=["plain", "decay"])
def test_figures_are_those_of_the_queries(clock, rules, monkeypatch):
    monkeypatch.setattr(summarizing, "PAGE", 3)
    monkeypatch.setattr(summarizing, "STEP", 2)
    with opened(clock=clock, **rules) as ranker:
        for i, query in enumerate("abcde"):
            visit(ranker, query, lists=3 + i, clicks=i)
        check_figures(ranker, "abcde")
        visit(ranker, "b", lists=4, clicks=2)  # one query changes, and one is new
        visit(ranker, "f", lists=2)
        clock.time += 30_000
        check_figures(ranker, "abcdef")
        ranker.delete_query("a")
        ranker.delete_item("b 2")
        ranker.change_policy(prior_strength=3)
        check_figures(ranker, "bcdef")


def test_figures_of_an_empty_store():
    with opened() as ranker:
        fair = ranker.fairness()
        assert (fair.queries, fair.unfairness, fair.groups, fair.others) == (0, 0.0, [], None)
        assert ranker.unfair_queries().queries == ranker.exposed_items().items == []
        (point,) = ranker.history().points
        assert (point.lists, point.queries, point.unfairness) == (0, 0, 0.0)


def test_an_item_without_exposure_and_a_query_without_a_shown_list(clock):
    with opened(clock=clock) as ranker:
        ranker.rank("q", ["a", "b"], k=1, defer_exposure=True)
        fair = ranker.fairness()
        assert (fair.queries, fair.unfairness, [each.exposure_share for each in fair.groups]) == (1, 0.0, [0.0])
        assert ranker.exposed_items().items == []


def test_groups_beyond_the_largest_are_summed_up(clock, monkeypatch):
    monkeypatch.setattr(summaries, "QUERY_GROUPS", 6)
    monkeypatch.setattr(summaries, "COUNTED_GROUPS", 5)
    monkeypatch.setattr(summaries, "MAX_GROUPS", 4)
    monkeypatch.setattr(history_module, "HISTORY_GROUPS", 3)
    with opened(clock=clock) as ranker:
        visit(ranker, "q", lists=9, items=8, groups=8)
        fair = ranker.fairness()
        assert (len(fair.groups), fair.others.items) == (4, 4)
        every = [*fair.groups, fair.others]
        assert [sum(each.exposure_share for each in every), sum(each.merit_share for each in every)] == pytest.approx(
            [1, 1]
        )
        for asked, kept in ((100, 3), (2, 2), (0, 0)):
            (point,) = ranker.history(groups=asked).points
            assert (len(point.groups), point.others.items) == (kept, 8 - kept)
            # The total of a history has other parts, and Python from 3.12 on rounds a sum once: last bits differ.
            for got, wanted in zip(point.groups, fair.groups[:kept], strict=True):
                assert (got.group, got.items, got.clicks) == (wanted.group, wanted.items, wanted.clicks)
                shares = (got.exposure, got.exposure_share, got.merit_share)
                assert shares == pytest.approx((wanted.exposure, wanted.exposure_share, wanted.merit_share), rel=1e-12)


def test_pages_of_queries_and_items(clock):
    with opened(clock=clock) as ranker:
        for i in range(7):
            visit(ranker, f"q{i}", lists=1 + i)
        for method in (ranker.unfair_queries, ranker.exposed_items):
            entries = getattr(method(limit=100), "queries" if method == ranker.unfair_queries else "items")
            pages = []
            more = True
            while more:
                page = method(limit=3, offset=len(pages))
                more = page.more
                pages += getattr(page, "queries" if method == ranker.unfair_queries else "items")
            assert pages == entries
        with pytest.raises(RequestError, match="limit: Expected `int` <= 100, got 101"):
            ranker.unfair_queries(limit=101)
        with pytest.raises(RequestError, match="order: Invalid enum value 'sideways': expected 'under' or 'over'"):
            ranker.exposed_items("sideways")


def test_large_stores_have_the_figures_of_the_last_walk(clock, monkeypatch):
    monkeypatch.setattr(summarizing, "SMALL_STORE", 2)
    with opened(clock=clock) as ranker:
        for query in "abc":
            visit(ranker, query)
        first = ranker.fairness()  # nothing has been summarised: they are computed now
        assert (first.visits, first.as_of.timestamp() * 1000) == (3, clock.time)
        clock.time += 5_000
        visit(ranker, "a")
        assert ranker.fairness() == first
        assert ranker.worker.figures.visits == 3
        summarize_all(ranker)
        later = ranker.fairness()
        assert (later.visits, later.as_of - first.as_of) == (4, datetime.timedelta(seconds=5))
        ranker.delete_query("a")  # gone at once from what names it
        assert len(ranker.unfair_queries("visits").queries) == 2


def test_figures_that_take_too_long_are_those_of_the_last_walk(clock, monkeypatch):
    monkeypatch.setattr(summarizing, "PAGE", 1)
    with opened(clock=clock) as ranker:
        visit(ranker, "q", lists=2)
        summarize_all(ranker)
        walked = ranker.fairness()
        clock.time += 20_000
        for i in range(3):
            visit(ranker, f"q{i}")
        with monkeypatch.context() as patch:
            patch.setattr(summarizing, "ASKED_SECONDS", -1.0)
            assert ranker.fairness() == walked
            assert [point.lists for point in ranker.history().points] == [2]
        assert ranker.fairness().visits == 5
        assert [point.lists for point in ranker.history().points] == [5]


def test_nothing_is_written_while_nothing_changes(clock):
    with opened(clock=clock) as ranker:
        visit(ranker, "q", lists=3)
        store = ranker.executor.store
        summarize_all(ranker)
        changes = store.changes
        clock.time += 10_000
        summarize_all(ranker)
        assert store.changes == changes
        ranker.fairness()
        assert store.changes == changes
        visit(ranker, "q")
        ranker.fairness()
        ranker.history()
        assert store.changes == changes + 1, "a read has written"
        summarize_all(ranker)
        assert ranker.worker.figures.visits == 4


@pytest.mark.parametrize(
    ("rules", "waits"),
    [({"half_life": 4_000}, [9, 300, 100]), ({"maturation": 60}, [9, 1])],
    ids=["decay", "maturation"],
)
def test_figures_that_change_with_time_are_not_computed_for_every_request(clock, rules, waits, monkeypatch):
    """Counts decay in four steps per half-life; what matures may be ten seconds late. A page asks several times."""
    computed = []
    monkeypatch.setattr(summarizing, "summarize", lambda *args: computed.append(1) or summarize(*args))
    with opened(clock=clock, **rules) as ranker:
        visit(ranker, "q", lists=2, clicks=1)
        for wait in (0, *waits[:-1]):
            clock.time += 1_000 * wait
            check_figures(ranker, "q")
            ranker.unfair_queries()
        assert len(computed) == 1
        clock.time += 1_000 * waits[-1]
        check_figures(ranker, "q")
        assert len(computed) == 2


def test_what_is_ranked_during_a_walk_is_found_by_the_next_one(clock, monkeypatch):
    with opened(clock=clock) as ranker:
        for query in "abc":
            visit(ranker, query)
        writer = ranker.worker.writer
        install = writer.install

        def install_late(what):
            if isinstance(what, PresentFigures):
                visit(ranker, "a")
            return install(what)

        with monkeypatch.context() as patch:
            patch.setattr(writer, "install", install_late)
            summarize_all(ranker)
        assert ranker.worker.figures.visits == 3
        summarize_all(ranker)
        assert ranker.worker.figures.visits == 4


def test_figures_are_computed_while_the_store_cannot_be_written(clock, monkeypatch):
    with opened(clock=clock) as ranker:
        visit(ranker, "q", lists=3)

        def refuse(self, *_):
            raise OSError("disk full")

        with monkeypatch.context() as patch:
            patch.setattr(Engine, "write_summaries", refuse)
            summarize_all(ranker)
            assert ranker.worker.figures.visits == 3
            assert ranker.fairness().visits == 3
        assert counts(ranker) == {NOON: (3, 0, 0)}


def test_a_damaged_query_is_left_out(tmp_path, caplog):
    with opened(tmp_path / "s.db") as ranker:
        for query in ("p", "q"):
            visit(ranker, query)
    with sqlite3.connect(tmp_path / "s.db") as db:
        db.execute("UPDATE log SET body = x'00' WHERE query = 1")
    with opened(tmp_path / "s.db") as ranker:
        assert ranker.fairness().queries == 1
    assert caplog.text.count("query 1 cannot be read") == 1


# --- counts ----------------------------------------------------------------------------------------------------------


def test_lists_and_clicks_are_counted_in_their_hours(clock):
    with opened(clock=clock) as ranker:
        old = visit(ranker, "q", lists=3, clicks=2)
        assert counts(ranker) == {NOON: (3, 2, 0)}
        clock.time += HOUR
        for _ in range(2):  # a repeated click is no click
            ranker.click(old.impression, old.items[0].id)
        visit(ranker, "other")
        assert counts(ranker) == {NOON: (3, 2, 0), NOON + HOUR: (1, 1, 0)}
        clock.time += 2 * HOUR
        ranker.retract([{"impression": old.impression, "item": old.items[0].id}])
        hours = {NOON: (3, 2, 0), NOON + HOUR: (1, 1, 0), NOON + 3 * HOUR: (0, 0, 1)}
        assert counts(ranker) == hours
        assert counts(ranker, "day") == {NOON - 12 * HOUR: (4, 3, 1)}
        assert ranker.history(limit=1).points == ranker.history().points[-1:]
        points = {int(each.start.timestamp() * 1000): each for each in ranker.history().points}
        assert points[NOON].queries == 1
        assert points[NOON + HOUR].queries == 2


def test_long_logs_are_booked_in_steps(clock, monkeypatch):
    """Nothing is read ahead of the step that is written, so that the walk can rest, and a step has a query once."""
    monkeypatch.setattr(summarizing, "BOOKED_STEP", 4)
    with opened(clock=clock) as ranker:
        visit(ranker, "first", lists=1)
        visit(ranker, "q", lists=20, clicks=7)
        with ranker.executor.store.reader() as store:
            read = []
            count_lists = store.count_lists
            monkeypatch.setattr(store, "count_lists", lambda *args: read.append(args[:3]) or count_lists(*args))
            ends = []
            for step in summarizing.SummaryWalk(store, clock.time, 0, print).steps():
                assert len({each.number for each in step}) == len(step)
                ends += [each.booked for each in step if each.number == 2]
                assert max((until for number, _, until in read if number == 2), default=0) <= max(ends, default=0) + 4
            assert ends == [4, 8, 12, 16, 20, 24, 27]
        assert counts(ranker) == {NOON: (21, 7, 0)}
        assert ranker.fairness().visits == 21


def test_hours_become_days_and_days_end(clock):
    first = NOON + 12 * HOUR
    with opened(clock=clock, retention=1) as ranker:
        for hour in range(3):
            clock.time = first + hour * HOUR
            visit(ranker, "q", lists=1 + hour, clicks=1)
            summarize_all(ranker)
            unfairness = ranker.fairness().unfairness
        clock.time = first + HOURS_KEPT * DAY_MS + 23 * HOUR
        visit(ranker, "q")
        assert len(counts(ranker)) == 4  # the whole first day is kept in hours
        clock.time += HOUR
        visit(ranker, "q")
        last = clock.time
        assert counts(ranker) == {last - HOUR: (1, 0, 0), last: (1, 0, 0)}
        assert counts(ranker, "day") == {first: (6, 3, 0), last - DAY_MS: (1, 0, 0), last: (1, 0, 0)}
        assert ranker.history("day").points[0].unfairness == unfairness  # that of the last hour
        clock.time = first + DAYS_KEPT * DAY_MS
        visit(ranker, "q")
        assert set(counts(ranker, "day")) == {first, last - DAY_MS, last, clock.time}
        clock.time += DAY_MS
        assert set(counts(ranker, "day")) == {last - DAY_MS, last, clock.time - DAY_MS, clock.time}


def test_a_clock_that_was_ahead_is_overcome(tmp_path, clock, monkeypatch):
    """A restart adopts the corrected time. What was recorded before is of the future then, perhaps for years."""
    monkeypatch.setattr(summarizing, "SMALL_STORE", 0)
    path = tmp_path / "mcfair.db"
    with opened(path, clock, half_life=4_000) as ranker:
        visit(ranker, "q", lists=2)
        summarize_all(ranker)
    with opened(path, ManualClock(clock.time + 30 * DAY_MS)) as ranker:
        visit(ranker, "q", lists=3)
        summarize_all(ranker)
    with opened(path, clock) as ranker:
        clock.time += HOUR
        visit(ranker, "r", lists=4)
        summarize_all(ranker)
        fair = ranker.fairness()
        assert (fair.visits, fair.as_of.timestamp() * 1000) == (9, clock.time)
        assert [point.lists for point in ranker.history("hour").points][-1] == 4
        assert [point.lists for point in ranker.history("day").points][-1] == 6


def test_what_is_booked_late_goes_to_its_day_or_nowhere(clock):
    with opened(clock=clock, retention=9e8) as ranker:
        visit(ranker, "q", lists=2)
        clock.time += DAYS_KEPT * DAY_MS // 2
        visit(ranker, "q")
        middle = clock.time // DAY_MS * DAY_MS
        clock.time = NOON + (DAYS_KEPT + 1) * DAY_MS
        assert counts(ranker, "day") == {middle: (1, 0, 0), clock.time - 12 * HOUR: (0, 0, 0)}


def test_compaction_books_what_it_deletes(clock):
    with opened(clock=clock, retention=10) as ranker:
        visit(ranker, "q", lists=5, clicks=2)
        counts(ranker)
        visit(ranker, "q", lists=4, clicks=1)  # these are not booked when they expire
        visit(ranker, "new", lists=2)
        clock.time += HOUR
        visit(ranker, "q")
        assert compact(ranker) == 14
        assert ranker.usage().impressions == 1
        assert counts(ranker) == {NOON: (11, 3, 0), NOON + HOUR: (1, 0, 0)}
        clock.time += HOUR
        compact(ranker)
        assert sum(lists for lists, _, _ in counts(ranker).values()) == 12


def test_an_update_that_is_written_twice_counts_once(clock):
    with opened(clock=clock) as ranker:
        visit(ranker, "q", lists=5, clicks=2)
        with ranker.executor.store.reader() as store:
            walk = summarizing.SummaryWalk(store, clock.time, 0, print)
            updates = [update for step in walk.steps() for update in step]
        visit(ranker, "q", lists=1)
        for _ in range(2):  # such as after a commit whose end was unknown, or by another instance
            ranker.executor.submit(Engine.write_summaries, updates).result()
        assert ranker.executor.submit(lambda engine: engine.store.periods(HOUR, 0, 2**62, 9)[0][2:5]).result() == (
            5,
            2,
            0,
        )
        assert counts(ranker) == {NOON: (6, 2, 0)}


def test_a_rolled_back_step_leaves_no_counts(clock):
    with opened(clock=clock) as ranker:
        visit(ranker, "q", lists=5, clicks=2)

        def fail(engine, updates):
            Engine.write_summaries(engine, updates)
            raise RuntimeError("a fault after the write")

        with ranker.executor.store.reader() as store:
            walk = summarizing.SummaryWalk(store, clock.time, 0, print)
            updates = [update for step in walk.steps() for update in step]
        with pytest.raises(RuntimeError, match="a fault after"):
            ranker.executor.submit(fail, updates).result()
        assert ranker.executor.submit(lambda engine: engine.store.periods(HOUR, 0, 2**62, 9)).result() == []
        assert counts(ranker) == {NOON: (5, 2, 0)}


KILLED = """
    import sys, threading, time
    from mcfair.service.background import summaries as summarizing
    from mcfair.service.ranker import Ranker
    summarizing.STEP, summarizing.REST = 2, 0.0
    ranker = Ranker(sys.argv[1], warm=False, summary_interval=0.001)
    for i in range(10**6):
        answer = ranker.rank(f"query {i % 9}", ["a", "b", "c"], k=2)
        if i % 3 == 0:
            ranker.click(answer.impression, answer.items[0].id)
        print(i, flush=True)
"""


def test_kill_at_any_moment_counts_nothing_twice(tmp_path):
    path = tmp_path / "s.db"
    for lists in (5, 40, 90):
        command = [sys.executable, "-c", textwrap.dedent(KILLED), str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            for _ in range(lists):
                assert process.stdout.readline()
            os.kill(process.pid, signal.SIGKILL)
        with open_reader(path) as store:
            assert verify(store) == []
        with Ranker(path, warm=False, summary_interval=0) as ranker:
            usage = ranker.usage()
            fair = ranker.fairness()
            points = ranker.history().points
            assert fair.visits == usage.impressions
            assert sum(each.lists for each in points) == usage.impressions
            assert sum(each.clicks for each in points) == usage.events == sum(each.clicks for each in fair.groups)


# --- erasure ---------------------------------------------------------------------------------------------------------


def test_reset_erases_the_history(clock):
    with opened(clock=clock) as ranker:
        visit(ranker, "q", lists=5)
        with ranker.executor.store.reader() as store:
            walk = summarizing.SummaryWalk(store, clock.time, 0, print)
            list(walk.steps())
            present = walk.present()
        ranker.reset()
        ranker.executor.submit(Engine.write_present, present, 1).result()  # of a walk that began before
        assert ranker.fairness().queries == 0
        assert counts(ranker) == {NOON: (0, 0, 0)}


def test_a_group_without_items_is_erased_from_the_history(clock):
    with opened(clock=clock) as ranker:
        for _ in range(3):
            ranker.rank("q", [{"id": "a", "group": "kept"}, {"id": "b", "group": "secret"}])
            summarize_all(ranker)
            clock.time += HOUR
        before = ranker.history().points
        ranker.delete_item("b")
        summarize_all(ranker)
        after = ranker.history().points
        assert all("secret" not in str(each) for each in after)
        for old, new in zip(before[:-1], after[:-1], strict=True):  # the last hour has figures of now
            assert [each.group for each in new.groups] == ["kept"]
            assert new.others.exposure == next(each.exposure for each in old.groups if each.group == "secret")
        assert b"secret" not in b"".join(
            each.body or b""
            for resolution in (0, HOUR)
            for each in ranker.executor.submit(
                lambda engine, length: engine.store.periods(length, 0, 2**62, 99), resolution
            ).result()
        )


def test_items_whose_deletion_is_under_way_are_left_out(clock, monkeypatch):
    monkeypatch.setattr("mcfair.service.core.deletions.DELETION_STEP", 1)
    with opened(clock=clock) as ranker:
        for query in "abc":
            ranker.rank(query, [{"id": "gone", "group": "secret"}, {"id": "kept", "group": "G"}], k=1)
        ranker.fairness()
        summarize_all(ranker)
        with ranker.executor.store.reader() as store:
            present = read_present(store)

        def delete(engine):
            engine.delete_item("gone")
            engine.compact_expired = lambda seconds: 0  # the deletion stays under way
            return len(engine.deletions)

        assert ranker.executor.submit(delete).result() == 1
        assert [each.group for each in ranker.fairness().groups] == ["G"]
        assert "gone" in str(present) or present.under or present.over
        found = [each.id for order in ("under", "over") for each in ranker.exposed_items(order).items]
        assert "gone" not in found


# --- stores ----------------------------------------------------------------------------------------------------------


def as_schema_3(path):
    """Turn a store into one of the schema before summaries and history."""
    with sqlite3.connect(path) as db:
        db.execute("DROP TABLE summaries")
        db.execute("DROP TABLE history")
        db.execute("PRAGMA user_version = 3")


def test_a_store_of_the_former_schema_is_migrated_and_its_log_booked(tmp_path, clock):
    path = tmp_path / "s.db"
    with opened(path, clock, retention=2 * HOUR / 1000) as ranker:
        visit(ranker, "q", lists=3, clicks=1)
        clock.time += 3 * HOUR
        compact(ranker)
        visit(ranker, "q", lists=2)
        visit(ranker, "p", lists=1)
    as_schema_3(path)
    clock.time += HOUR
    with opened(path, clock) as ranker:
        # What was compacted before is part of the counters, but not of the history.
        assert counts(ranker) == {NOON + 3 * HOUR: (3, 0, 0), NOON + 4 * HOUR: (0, 0, 0)}
        assert ranker.fairness().visits == 6
        check_figures(ranker, "pq")
    with open_reader(path) as store:
        assert verify(store) == []
    assert sqlite_schema.SCHEMA_VERSION == 4


def test_verify_finds_a_history_that_is_ahead_of_the_log(tmp_path, clock):
    with opened(tmp_path / "s.db", clock) as ranker:
        visit(ranker, "q", lists=3)
        visit(ranker, "p", lists=3)
        summarize_all(ranker)
    for change, fault in (
        ("booked = booked + 1 WHERE query = 1", "query 1: history has counted entry 4, but the log ends with 3"),
        ("booked = 3, visits = 9 WHERE query = 1", "query 1: the summary has 9 visits, but there were 3"),
    ):
        with sqlite3.connect(tmp_path / "s.db") as db:
            db.execute(f"UPDATE summaries SET {change}")
        with open_reader(tmp_path / "s.db") as store:
            assert verify(store) == [fault]


def test_backup_and_export_have_the_history(tmp_path, clock):
    with opened(tmp_path / "s.db", clock) as ranker:
        visit(ranker, "q", lists=3, clicks=1)
        summarize_all(ranker)
        points = [each.to_dict() for each in ranker.history(groups=100).points]
        lines = [line for line in ranker.export() if "resolution" in line]
        assert lines == points
        with open_reader(tmp_path / "s.db") as reader:
            reader.backup(tmp_path / "copy.db")
    with opened(tmp_path / "copy.db", clock) as ranker:
        assert [each.to_dict() for each in ranker.history(groups=100).points] == points


# --- HTTP ------------------------------------------------------------------------------------------------------------


def test_clients_have_the_methods_of_the_ranker(clock):
    async def asked(url):
        async with mf.AsyncClient(url) as client:
            return [
                await client.history("day", groups=1),
                await client.unfair_queries("visits"),
                await client.exposed_items(),
            ]

    with opened(clock=clock) as ranker, serving(ranker) as http:
        visit(ranker, "q", lists=4, clicks=1)
        expected = [ranker.history("day", groups=1), ranker.unfair_queries("visits"), ranker.exposed_items()]
        with mf.Client(str(http.base_url)) as client:
            assert [
                client.history("day", groups=1),
                client.unfair_queries("visits"),
                client.exposed_items(),
            ] == expected
        assert asyncio.run(asked(str(http.base_url))) == expected


def test_history_over_http(clock):
    with opened(clock=clock) as ranker, serving(ranker) as client:
        assert "mcfair_unfairness" not in client.get("/metrics").text
        visit(ranker, "q", lists=4, clicks=1)
        assert client.get("/v1/history?resolution=day&limit=1").json()["points"][0]["lists"] == 4
        found = client.get("/v1/queries", params={"order": "visits"}).json()["queries"]
        assert found[0]["query_id"] == ranker.query_state("q").query_id
        assert client.get("/v1/items?order=over&limit=1").json()["items"][0]["query_id"] == found[0]["query_id"]
        for path in (
            "history?limit=0",
            "history?limit=x",
            "queries?order=",
            "items?offset=-1",
            "history?a=1",
            "history?%ff",
        ):
            assert client.get(f"/v1/{path}").status_code == 400, path
        repeated = client.get("/v1/history?limit=1&limit=2")
        assert (repeated.status_code, repeated.json()["detail"]) == (400, "a parameter of the query string is repeated")
        text = client.get("/metrics").text
        for name in ("mcfair_unfairness ", "mcfair_fairness_floor ", "mcfair_summary_age_seconds 0.0"):
            assert f"\n{name}" in text
        shares = ranker.fairness().groups[0]
        assert f'mcfair_group_exposure_share{{group="{shares.group}"}} {shares.exposure_share}' in text
        assert f'mcfair_group_merit_share{{group="{shares.group}"}} {shares.merit_share}' in text
