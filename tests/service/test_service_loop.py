"""A ranker that decides in an event loop: the same promises, though two threads take turns."""

import asyncio
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from mcfair.errors import RequestError, UnavailableError
from mcfair.service import group_commit as commit_module
from mcfair.service.engine import Engine
from mcfair.service.history import replay, verify
from mcfair.service.ranker import Ranker
from mcfair.service.stores import SQLiteStore
from mcfair.service.wire import Event, Item, RankRequest, with_raw_items


def ranking(query="q", n=5):
    return with_raw_items(RankRequest(query=query, items=[Item(str(i)) for i in range(n)], k=2))


class FailingStore(SQLiteStore):
    """Fails when it is told to, as a full disk or a fault of ours would."""

    commit_fails = append_fails = 0
    seconds = 0.0
    fails_for = None

    def __init__(self, path):
        super().__init__(path)
        self.committed_by, self.wrote = [], False

    def commit(self):
        if self.wrote:
            self.committed_by.append(threading.current_thread().name)
            self.wrote = False
            time.sleep(self.seconds)
        if self.commit_fails:
            self.commit_fails -= 1
            raise sqlite3.OperationalError("database or disk is full")
        super().commit()

    def append(self, number, entry):
        if number == self.fails_for:
            raise sqlite3.IntegrityError("a fault of ours")
        if self.append_fails:
            self.append_fails -= 1
            raise sqlite3.OperationalError("disk I/O error")
        super().append(number, entry)
        self.wrote = True


@pytest.fixture(params=["quick disk", "slow disk"])
def in_loop(tmp_path, request, monkeypatch):
    """Run a coroutine function with a ranker that decides in its loop; see afterwards that the store is sound."""

    if request.param == "slow disk":
        monkeypatch.setattr(commit_module, "FAST_COMMIT", -1.0)

    def run(work, **options):
        store = FailingStore(tmp_path / "store.db")
        with Ranker(store, warm=False, **options) as ranker:

            async def main():
                ranker.attach_loop()
                try:
                    return await work(ranker, store)
                finally:
                    await ranker.detach_loop()

            result = asyncio.run(main())
            with ranker.store.reader() as reader:
                assert verify(reader) == []
                assert replay(reader)[2] == []
            return result

    return run


async def together(*asked):
    return await asyncio.gather(*asked, return_exceptions=True)


def test_those_who_ask_together_are_written_together(in_loop):
    sizes = []

    async def work(ranker, store):
        ranker.batch_listeners.append(lambda operations, seconds: sizes.append(operations))
        answers = await together(*(ranker.submit_async(Engine.rank, ranking()) for _ in range(100)))
        assert len({answer.impression for answer in answers}) == 100
        return (await ranker.submit_async(Engine.query_state, "q")).visits

    assert in_loop(work) == 100
    assert sum(sizes) == 101
    assert len(sizes) < 50


def test_the_loop_does_what_is_quick_and_the_writer_the_rest_in_the_order_asked(in_loop, monkeypatch):
    where = []

    def noted(self, method=Engine.now):
        where.append(threading.current_thread().name)
        return method(self)

    monkeypatch.setattr(Engine, "now", noted)

    async def work(ranker, store):
        first = ranker.submit_async(Engine.rank, ranking())
        state = ranker.submit_async(Engine.query_state, "q")
        second = ranker.submit_async(Engine.rank, ranking())
        assert [(await state).visits, (await first).items == (await second).items] == [1, False]
        events = [Event(impression=(await first).impression, item=str(i)) for i in range(5)]
        where.clear()
        await ranker.submit_async(Engine.feedback, events)
        await ranker.submit_async(Engine.feedback, events * 100)
        await ranker.submit_async(Engine.rank, ranking(n=100))
        await ranker.submit_async(Engine.rank, ranking(n=5_000))
        return where

    assert in_loop(work) == ["MainThread", "mcfair-writer"] * 2


def test_other_threads_are_served_too(in_loop):
    async def work(ranker, store):
        with ThreadPoolExecutor(8) as pool:
            loop = asyncio.get_running_loop()
            from_threads = [
                loop.run_in_executor(pool, lambda: ranker.rank("q", ["a", "b", "c"], k=1)) for _ in range(50)
            ]
            await together(*from_threads, *(ranker.submit_async(Engine.rank, ranking()) for _ in range(50)))
            alone = loop.run_in_executor(pool, ranker.usage)  # nobody else rouses the loop
            assert (await asyncio.wait_for(alone, 10)).impressions == 100
            with pytest.raises(RequestError, match="k"):
                await loop.run_in_executor(pool, lambda: ranker.rank("q", ["a"], k=0))
        return (await ranker.submit_async(Engine.query_state, "q")).visits

    assert in_loop(work) == 100


@pytest.mark.parametrize("fails", ["commit_fails", "append_fails"])
def test_what_cannot_be_written_was_not_done(in_loop, fails):
    async def work(ranker, store):
        await ranker.submit_async(Engine.rank, ranking(), "first")
        setattr(store, fails, 1)
        asked = [ranker.submit_async(Engine.rank, ranking(), str(i)) for i in range(10)]
        refused = await together(*asked)
        assert all(isinstance(each, UnavailableError) for each in refused)
        assert ranker.store_error
        answers = await together(*(ranker.submit_async(Engine.rank, ranking(), str(i)) for i in range(10)))
        assert len({answer.impression for answer in answers}) == 10
        assert ranker.store_error is None
        return (await ranker.submit_async(Engine.query_state, "q")).visits

    assert in_loop(work) == 11


def test_one_that_fails_by_surprise_does_not_take_the_others_with_it(in_loop):
    async def work(ranker, store):
        await ranker.submit_async(Engine.rank, ranking("bad"))
        store.fails_for = 1
        answers = await together(
            *(ranker.submit_async(Engine.rank, ranking("bad" if i == 4 else "q")) for i in range(10))
        )
        assert isinstance(answers.pop(4), sqlite3.IntegrityError)
        assert len({answer.impression for answer in answers}) == 9
        store.fails_for = None
        states = await together(*(ranker.submit_async(Engine.query_state, query) for query in ("bad", "q")))
        return [state.visits for state in states]

    assert in_loop(work) == [1, 9]


def test_what_takes_long_is_done_in_several_turns(in_loop, monkeypatch):
    monkeypatch.setattr(commit_module, "BATCH_SECONDS", 0.0)
    sizes = []

    async def work(ranker, store):
        ranker.batch_listeners.append(lambda operations, seconds: sizes.append(operations))
        await together(*(ranker.submit_async(Engine.rank, ranking()) for _ in range(10)))

    in_loop(work)
    assert sizes == [1] * 10


def test_the_loop_waits_for_the_disk_only_while_that_is_quick(in_loop, monkeypatch):
    monkeypatch.setattr(commit_module, "FAST_COMMIT", 0.1)

    async def work(ranker, store):
        async def commit():
            await ranker.submit_async(Engine.rank, ranking())
            return store.committed_by[-1]

        assert await commit() == "MainThread"
        store.seconds = 2.0
        assert await commit() == "MainThread"  # nobody knew
        store.seconds = 0.0
        assert await commit() == "mcfair-writer"
        later = [await commit() for _ in range(30)]
        return later[-1], later == sorted(later, reverse=True)

    assert in_loop(work) == ("MainThread", True)


def test_too_many_waiting_are_refused(in_loop):
    async def work(ranker, store):
        asked = [ranker.submit_async(Engine.rank, ranking()) for _ in range(20)]
        with pytest.raises(UnavailableError, match="queue is full"):
            ranker.submit_async(Engine.rank, ranking())
        await together(*asked)
        return (await ranker.submit_async(Engine.query_state, "q")).visits

    assert in_loop(work, max_queued=20) == 20


def test_what_is_pending_when_the_loop_leaves_is_done_by_the_writer(in_loop):
    async def work(ranker, store):
        asked = [ranker.submit_async(Engine.rank, ranking()) for _ in range(20)]
        await ranker.detach_loop()
        assert ranker.loop is None
        answers = await together(*asked, ranker.submit_async(Engine.rank, ranking()))
        assert len({answer.impression for answer in answers}) == 21
        ranker.attach_loop()
        return (await ranker.submit_async(Engine.query_state, "q")).visits

    assert in_loop(work) == 21


def test_closing_from_another_thread_while_the_loop_decides(tmp_path):
    async def main():
        ranker = Ranker(tmp_path / "store.db", warm=False)
        ranker.attach_loop()
        asked = [ranker.submit_async(Engine.rank, ranking()) for _ in range(5)]
        await asyncio.to_thread(ranker.close)
        assert len({(await each).impression for each in asked}) == 5
        with pytest.raises(UnavailableError, match="stopping"):
            ranker.submit_async(Engine.rank, ranking())

    asyncio.run(main())
    with Ranker(tmp_path / "store.db", warm=False) as ranker:
        assert ranker.query_state("q").visits == 5


def test_a_loop_that_ends_without_a_word_leaves_nobody_waiting(tmp_path):
    ranker = Ranker(tmp_path / "store.db", warm=False)

    async def main():
        ranker.attach_loop()
        await ranker.submit_async(Engine.rank, ranking())

    asyncio.run(main())
    ranker.close(10)
    assert not ranker.writer.is_alive()


def test_what_expires_is_swept_while_nobody_asks(in_loop, monkeypatch):
    monkeypatch.setattr(commit_module, "COMPACTION_INTERVAL", 0.02)

    async def work(ranker, store):
        for _ in range(5):
            await ranker.submit_async(Engine.rank, ranking())
        await asyncio.sleep(1.5)
        return (await ranker.submit_async(Engine.usage)).impressions

    assert in_loop(work, retention=1.0) == 0
