"""Summaries and history of several instances that share a store in PostgreSQL."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psycopg
import pytest
from postgres_server import missing, shared_server

from mcfair.errors import NotFoundError, UnavailableError
from mcfair.service.background import summaries as summarizing
from mcfair.service.core.engine import Engine
from mcfair.service.core.verification import verify
from mcfair.service.ranker import Ranker
from mcfair.service.stores import open_reader

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

QUERIES, LISTS = 7, 12


@pytest.fixture
def url():
    return shared_server().new_database()


def visit(ranker, query, lists=LISTS):
    """Rank the items of a query some times, with a click on every second list; return the clicks that counted."""
    clicks = 0
    for i in range(lists):
        answer = ranker.rank(query, [{"id": item, "group": item} for item in "abc"], k=2)
        if i % 2 == 0:
            clicks += ranker.click(answer.impression, answer.items[0].id).status == "applied"
    return clicks


def counted(ranker):
    """Return the lists and clicks of the whole history."""
    points = ranker.history().points
    return sum(each.lists for each in points), sum(each.clicks for each in points)


def test_instances_count_every_list_and_click_once(url, monkeypatch):
    monkeypatch.setattr(summarizing, "STEP", 2)
    monkeypatch.setattr(summarizing, "REST", 0.0)
    with (
        Ranker(url, warm=False, summary_interval=0.01, retention=1) as first,
        Ranker(url, warm=False, summary_interval=0.01) as second,
        ThreadPoolExecutor(4) as threads,
    ):
        work = [threads.submit(visit, ranker, f"query {i}") for i in range(QUERIES) for ranker in (first, second)]
        while not all(each.done() for each in work):  # both are asked meanwhile, and compaction deletes
            assert first.fairness().queries <= QUERIES
            assert second.fairness().queries <= QUERIES
        clicks = sum(each.result() for each in work)  # on a slow machine some lists expire before
        assert clicks
        assert counted(first) == counted(second) == (2 * QUERIES * LISTS, clicks)
        assert first.fairness().visits == second.fairness().visits == 2 * QUERIES * LISTS
    with open_reader(url) as store:
        assert verify(store) == []


def test_long_logs_are_booked_in_steps(url, monkeypatch):
    monkeypatch.setattr(summarizing, "BOOKED_STEP", 4)
    with Ranker(url, warm=False, summary_interval=0) as ranker:
        for times in (1, 2):  # what is not booked in the first walk would count again in the second one
            clicks = visit(ranker, "q")
            assert counted(ranker) == (times * LISTS, times * clicks)


def test_one_instance_walks_and_another_one_reads_its_figures(url):
    with Ranker(url, warm=False, summary_interval=0) as second:
        with Ranker(url, warm=False, summary_interval=0) as first:
            assert first.executor.submit(Engine.turn).result().leads
            visit(second, "q")
            second.worker.summarize()
            assert second.worker.figures is None
            first.worker.summarize()
            second.worker.summarize()
            assert second.worker.figures == first.worker.figures
            assert second.worker.figures.visits == LISTS
        visit(second, "q")
        end = time.monotonic() + 20  # the server notices the end of a connection a little later
        while second.worker.figures.visits == LISTS and time.monotonic() < end:
            second.worker.summarize()
        assert second.worker.figures.visits == 2 * LISTS


def test_a_step_that_two_instances_computed_counts_once(url):
    with Ranker(url, warm=False, summary_interval=0) as first, Ranker(url, warm=False, summary_interval=0) as second:
        visit(first, "q")
        steps = []
        for ranker in (first, second):
            with ranker.executor.store.reader() as store:
                walk = summarizing.SummaryWalk(store, ranker.executor.engine.now(), 0, print)
                steps.append([update for step in walk.steps() for update in step])
        with ThreadPoolExecutor(2) as threads:
            for future in [
                threads.submit(ranker.executor.submit(Engine.write_summaries, step).result)
                for ranker, step in zip((first, second), steps, strict=True)
            ]:
                future.result()
        assert counted(first) == (LISTS, LISTS // 2)


def test_a_store_of_the_former_schema_is_migrated_and_its_log_booked(url):
    with Ranker(url, warm=False, summary_interval=0) as ranker:
        visit(ranker, "q")
    with psycopg.connect(url) as db:
        db.execute("DROP TABLE mcfair.summaries, mcfair.history")
        db.execute("UPDATE mcfair.meta SET value = '1' WHERE name = 'schema'")
    with Ranker(url, warm=False, summary_interval=0) as ranker:
        assert counted(ranker) == (LISTS, LISTS // 2)
        assert ranker.unfair_queries("visits").queries[0].visits == LISTS
        assert {each.id for each in ranker.exposed_items("over").items} <= set("abc")
        ranker.delete_item("a")
        assert "a" not in {each.group for each in ranker.fairness().groups}
        ranker.reset()
        assert (counted(ranker), ranker.fairness().queries) == ((0, 0), 0)


def test_readers_are_used_again_until_one_fails(url):
    with Ranker(url, warm=False, summary_interval=0, fit_interval=0, guard_interval=0) as ranker:
        visit(ranker, "q")
        readers = ranker.worker.open_reader
        for _ in range(5):
            assert ranker.query_state("q").visits == LISTS
        ((store, _),) = readers.idle
        with pytest.raises(NotFoundError):
            ranker.query_state("unknown")
        assert readers.idle[0][0] is store
        with readers() as one, readers() as two, readers() as three:
            assert one is store
            assert len({id(each) for each in (one, two, three)}) == 3
        assert len(readers.idle) == 2
        with psycopg.connect(url, autocommit=True) as db:  # such as after a restart of the database
            db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid != pg_backend_pid()")
        for _ in range(4):
            with suppress(UnavailableError):
                assert ranker.query_state("q").visits == LISTS
        assert ranker.query_state("q").visits == LISTS
    assert readers.idle == []
