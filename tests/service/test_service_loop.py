"""A ranker with an attached event loop: the same guarantees, and a loop that never blocks for long."""

import asyncio
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from deliberate_faults import caught_by
from observing import observed
from serving import serving

from mcfair.errors import RequestError, UnavailableError
from mcfair.service.core.deletions import DELETION_STEP
from mcfair.service.core.engine import Engine
from mcfair.service.core.verification import replay, verify
from mcfair.service.group_commit import TRUSTED_COMMITS, GroupCommit
from mcfair.service.ranker import Ranker
from mcfair.service.stores import SQLiteStore, StoreConflictError, StoreCorruptError, StoreUnavailableError
from mcfair.service.wire import Event, Item, PolicyChange, RankRequest, with_raw_items
from mcfair.service.work_items import resolve_all


def ranking(query="q", n=5):
    return with_raw_items(RankRequest(query=query, items=[Item(str(i)) for i in range(n)], k=2))


def test_a_listener_that_fails_keeps_nobody_from_being_served(in_loop, caplog):
    async def work(ranker, store):
        ranker.executor.batch_listeners.append(lambda operations, seconds: 1 / 0)
        for _ in range(3):
            await asyncio.wait_for(ranker.executor.submit_async(Engine.rank, ranking()), 10)
        return ranker.query_state("q").visits

    assert in_loop(work) == 3
    assert "a listener failed" in caplog.text


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_writer_that_has_died_is_no_longer_ready_and_refuses_everything(tmp_path, caplog):
    class Fatal(SQLiteStore):
        fails = False

        def commit(self):
            if self.fails:
                raise SystemExit(3)
            super().commit()

    store = Fatal(tmp_path / "store.db")
    with Ranker(store, warm=False, summary_interval=0) as ranker, serving(ranker) as client:
        assert client.get("/readyz").status_code == 200
        ranker.rank("q", ["a", "b"])
        store.fails = True
        with pytest.raises(UnavailableError, match="it is not known whether this was recorded"):
            ranker.rank("q", ["a", "b"], deadline=10)
        for _ in range(2):
            with pytest.raises(UnavailableError, match="stopped writing because of a fault"):
                ranker.rank("q", ["a", "b"], deadline=10)
        answer = client.get("/readyz")
        assert answer.status_code == 503
        assert "stopped writing because of a fault" in answer.text
        refused = client.post("/v1/rank", json={"query": "q", "items": [{"id": "a"}]})
        assert (refused.status_code, "stopped writing" in refused.text) == (503, True)
        assert not ranker.ready()
    assert "the writer has stopped" in caplog.text
    with Ranker(tmp_path / "store.db", warm=False) as again:
        assert again.query_state("q").visits == 1


def test_a_batch_that_is_cut_short_says_that_its_first_events_are_recorded(tmp_path):
    class Full(SQLiteStore):
        left = None

        def commit(self):
            if self.left is not None:
                if not self.left:
                    raise StoreUnavailableError("database or disk is full")
                self.left -= 1
            super().commit()

    store = Full(tmp_path / "store.db")
    with Ranker(store, warm=False, summary_interval=0, fit_interval=0, guard_interval=0) as ranker:
        lists = [ranker.rank(f"q{i}", ["a", "b"], k=2) for i in range(400)]
        events = [{"impression": each.impression, "item": "a"} for each in lists]
        store.left = 6
        with pytest.raises(UnavailableError, match="only the first events were recorded: repeat all"):
            ranker.feedback(events)
        store.left = None
        statuses = [each.status for each in ranker.feedback(events)]
        assert set(statuses) == {"applied", "duplicate"}
        assert statuses == sorted(statuses, reverse=True)
        with store.reader() as reader:
            assert verify(reader) + replay(reader)[2] == []


class FailingStore(SQLiteStore):
    """A store that fails on demand, like a full disk or a bug."""

    commit_fails = append_fails = 0
    fails_for = None
    interrupted = False

    def __init__(self, path):
        super().__init__(path)
        self.committed_by, self.appended_by = [], []

    def commit(self):
        self.committed_by.append(threading.current_thread().name)
        if self.commit_fails:
            self.commit_fails -= 1
            raise StoreUnavailableError("database or disk is full")
        super().commit()

    def append(self, number, entry, base=None):
        if number == self.fails_for:
            raise StoreConflictError("a bug")
        if self.append_fails:
            self.append_fails -= 1
            raise StoreUnavailableError("disk I/O error")
        super().append(number, entry, base)
        self.appended_by.append(threading.current_thread().name)
        if self.interrupted:
            self.interrupted = False
            raise KeyboardInterrupt


@pytest.fixture(params=["attached", "not attached"])
def in_loop(tmp_path, request):
    """Run a coroutine function with a ranker, attached to its loop or not; check the store afterwards."""

    def run(work, executor=None, **options):
        store = FailingStore(tmp_path / "store.db")
        executor_class = partial(GroupCommit, **{"loop_seconds": 60.0, "batch_seconds": 60.0} | (executor or {}))
        with Ranker(store, warm=False, executor_class=executor_class, **options) as ranker:

            async def main():
                if request.param == "attached":
                    ranker.executor.attach_loop()
                try:
                    return await work(ranker, store)
                finally:
                    ranker.executor.detach_loop()

            result = asyncio.run(main())
            with ranker.executor.store.reader() as reader:
                assert verify(reader) == []
                assert replay(reader)[2] == []
            return result

    return run


async def together(*asked):
    return await asyncio.gather(*asked, return_exceptions=True)


def test_concurrent_operations_share_a_batch(in_loop):
    sizes = []

    async def work(ranker, store):
        ranker.executor.batch_listeners.append(lambda operations, seconds: sizes.append(operations))
        answers = await together(*(ranker.executor.submit_async(Engine.rank, ranking()) for _ in range(100)))
        assert len({answer.impression for answer in answers}) == 100
        return (await ranker.executor.submit_async(observed, "q")).visits

    assert in_loop(work) == 100
    assert sum(sizes) == 101
    assert len(sizes) < 50


def test_everything_is_executed_in_the_order_of_submission(in_loop):
    def visits(engine):
        return observed(engine, "q").visits

    async def work(ranker, store):
        submit = ranker.executor.submit_async
        first, before = submit(Engine.rank, ranking()), submit(visits)
        second, after = submit(Engine.rank, ranking(n=5_000)), submit(visits)
        await together(first, second)
        return await together(before, after)

    assert in_loop(work) == [1, 2]


LOOP, WRITER = "MainThread", "mcfair-writer"


def test_loop_executes_rankings_and_feedback_on_cached_queries_and_the_writer_commits(tmp_path):
    async def work(executor, store):
        await executor.submit_async(Engine.rank, ranking())
        executor.attach_loop()
        store.appended_by, store.committed_by = [], []
        answer = await executor.submit_async(Engine.rank, ranking(), "key")
        click = Event(impression=answer.impression, item=answer.items[0].id)
        assert (await executor.submit_async(Engine.feedback, [click])).results[0].status == "applied"
        executor.detach_loop()

    store = FailingStore(tmp_path / "store.db")
    with Ranker(store, warm=False) as ranker:
        asyncio.run(work(ranker.executor, store))
    assert store.appended_by == [LOOP] * 2
    assert set(store.committed_by) == {WRITER}


def test_loop_commits_while_the_disk_is_quick(tmp_path):
    """The writer commits at first, and again after a commit that took long; a failed commit is left to it as well."""

    async def work(executor, store):
        async def rank(times):
            store.committed_by = []
            for _ in range(times):
                await executor.submit_async(Engine.rank, ranking())
            return store.committed_by

        await rank(1)
        executor.attach_loop()
        executor.quick_commits = 0
        assert await rank(TRUSTED_COMMITS + 2) == [WRITER] * TRUSTED_COMMITS + [LOOP] * 2
        executor.quick_seconds = 0.0  # every commit takes long
        assert await rank(3) == [LOOP] + [WRITER] * 2
        executor.quick_seconds = 60.0
        assert await rank(TRUSTED_COMMITS + 1) == [WRITER] * TRUSTED_COMMITS + [LOOP]
        store.commit_fails = 1
        with pytest.raises(UnavailableError, match="nothing was changed"):
            await rank(1)
        assert executor.store_error is not None
        assert await rank(1) == [WRITER]
        assert executor.store_error is None
        executor.detach_loop()

    store = FailingStore(tmp_path / "store.db")
    executor = partial(GroupCommit, compaction_interval=3600.0, quick_seconds=60.0)
    with Ranker(store, warm=False, executor_class=executor) as ranker:
        asyncio.run(work(ranker.executor, store))
        with store.reader() as reader:
            assert verify(reader) == []
            assert replay(reader)[2] == []


def test_writer_gets_its_turn_beside_a_busy_loop(tmp_path):
    """Maintenance and what blocks is executed while the loop has another batch at every turn."""

    async def work(executor, store):
        await executor.submit_async(Engine.rank, ranking())
        executor.attach_loop()
        executor.quick_commits = TRUSTED_COMMITS
        answers, blocking = [], asyncio.wrap_future(executor.submit(Engine.keys))
        while not blocking.done() or LOOP not in store.committed_by:
            answers.append(await executor.submit_async(Engine.rank, ranking()))
            assert len(answers) < 10_000
        executor.detach_loop()

    store = FailingStore(tmp_path / "store.db")
    with Ranker(store, warm=False, executor_class=partial(GroupCommit, quick_seconds=60.0)) as ranker:
        asyncio.run(work(ranker.executor, store))


OTHERS = [partial(Engine.rank, request=ranking(f"query {i}")) for i in range(DELETION_STEP)]
LARGE = {"query": "large", "n": 2_500}
BLOCKING = {
    "query that is not cached": ([Engine.drop_cache], {}, {}),
    "new query": ([], {"query": "new"}, {}),
    "query with many items": ([partial(Engine.rank, request=ranking(**LARGE))], LARGE, {}),
    "item under deletion": ([*OTHERS, partial(Engine.delete_item, item="3")], {}, {}),
    "policy that was not used before": ([lambda engine: engine.change(PolicyChange(policy="FairCo"))], {}, {}),
    "impressions that mature": ([lambda engine: engine.clock.advance(2_000)], {}, {"maturation": 1.0}),
}


class ManualClock:
    """A clock that only tests advance."""

    now = 1_700_000_000_000

    def __call__(self):
        return self.now

    def advance(self, milliseconds):
        self.now += milliseconds


@pytest.mark.parametrize("what", BLOCKING)
def test_writer_executes_what_would_block_the_loop(tmp_path, what):
    before, request, rules = BLOCKING[what]

    async def work(executor, store):
        for each in (partial(Engine.rank, request=ranking()), *before):
            await executor.submit_async(each)
        executor.attach_loop()
        store.appended_by.clear()
        await executor.submit_async(Engine.rank, ranking(**request))
        executor.detach_loop()

    store = FailingStore(tmp_path / "store.db")
    executor = partial(GroupCommit, compaction_interval=3600.0)
    with Ranker(store, warm=False, executor_class=executor, clock=ManualClock(), **rules) as ranker:
        asyncio.run(work(ranker.executor, store))
        with store.reader() as reader:
            assert verify(reader) == []
            assert replay(reader)[2] == []
    assert set(store.appended_by) == {WRITER}


def test_writer_repeats_the_response_to_a_repeated_request(tmp_path):
    async def work(executor, store):
        executor.attach_loop()
        answers = [await executor.submit_async(Engine.rank, ranking(), "key") for _ in range(3)]
        assert len({answer.impression for answer in answers}) == 1
        executor.detach_loop()

    store = FailingStore(tmp_path / "store.db")
    with Ranker(store, warm=False) as ranker:
        asyncio.run(work(ranker.executor, store))
        assert ranker.query_state("q").visits == 1


def test_operations_of_both_threads_share_a_transaction(tmp_path):
    sizes = []

    async def work(executor):
        executor.attach_loop()
        executor.batch_listeners.append(lambda operations, seconds: sizes.append(operations))
        await executor.submit_async(Engine.rank, ranking())
        queries = ("q", "q", "new", "q")
        answers = await together(*(executor.submit_async(Engine.rank, ranking(query)) for query in queries))
        assert len({answer.impression for answer in answers}) == 4
        executor.detach_loop()

    executor_class = partial(GroupCommit, loop_seconds=60.0, batch_seconds=60.0)
    with Ranker(tmp_path / "store.db", warm=False, executor_class=executor_class) as ranker:
        asyncio.run(work(ranker.executor))
    assert sizes == [1, 4]


def test_a_call_that_blocks_the_attached_loop_is_executed(tmp_path):
    async def work(ranker):
        ranker.executor.attach_loop()
        await ranker.executor.submit_async(Engine.rank, ranking())
        asked = ranker.executor.submit_async(Engine.rank, ranking())
        ranker.rank("q", ["0", "1"])  # on the thread of the loop, which cannot take its turn meanwhile
        assert (await asked).impression
        ranker.executor.detach_loop()

    with Ranker(tmp_path / "store.db", warm=False) as ranker:
        asyncio.run(work(ranker))
        assert ranker.query_state("q").visits == 3


def test_interrupt_of_the_loop_leaves_the_batch_to_the_writer(tmp_path):
    store = FailingStore(tmp_path / "store.db")
    with Ranker(store, warm=False) as ranker:

        async def main():
            await ranker.executor.submit_async(Engine.rank, ranking())
            ranker.executor.attach_loop()
            store.interrupted = True
            await together(*(ranker.executor.submit_async(Engine.rank, ranking()) for _ in range(3)))

        with pytest.raises(KeyboardInterrupt):
            asyncio.run(main())
        assert ranker.rank("q", ["0"]).impression  # the engine is free again
        assert ranker.query_state("q").visits == 4  # the interrupted ranking failed


def test_other_threads_can_submit_while_a_loop_is_attached(in_loop):
    async def work(ranker, store):
        with ThreadPoolExecutor(8) as pool:
            loop = asyncio.get_running_loop()
            from_threads = [
                loop.run_in_executor(pool, lambda: ranker.rank("q", ["a", "b", "c"], k=1)) for _ in range(50)
            ]
            await together(*from_threads, *(ranker.executor.submit_async(Engine.rank, ranking()) for _ in range(50)))
            alone = loop.run_in_executor(pool, ranker.usage)  # no other request wakes the loop
            assert (await asyncio.wait_for(alone, 10)).impressions == 100
            with pytest.raises(RequestError, match="k"):
                await loop.run_in_executor(pool, lambda: ranker.rank("q", ["a"], k=0))
        return (await ranker.executor.submit_async(observed, "q")).visits

    assert in_loop(work) == 100


@pytest.mark.parametrize("fails", ["commit_fails", "append_fails"])
def test_failed_write_changes_nothing(in_loop, fails):
    async def work(ranker, store):
        await ranker.executor.submit_async(Engine.rank, ranking(), "first")
        setattr(store, fails, 1)
        asked = [ranker.executor.submit_async(Engine.rank, ranking(), str(i)) for i in range(10)]
        refused = await together(*asked)
        assert all(isinstance(each, UnavailableError) for each in refused)
        assert ranker.executor.store_error
        answers = await together(*(ranker.executor.submit_async(Engine.rank, ranking(), str(i)) for i in range(10)))
        assert len({answer.impression for answer in answers}) == 10
        assert ranker.executor.store_error is None
        return (await ranker.executor.submit_async(observed, "q")).visits

    assert in_loop(work) == 11


def test_unexpected_error_fails_only_its_own_operation(in_loop):
    async def work(ranker, store):
        await ranker.executor.submit_async(Engine.rank, ranking("bad"))
        store.fails_for = 1
        answers = await together(
            *(ranker.executor.submit_async(Engine.rank, ranking("bad" if i == 4 else "q")) for i in range(10))
        )
        assert isinstance(answers.pop(4), StoreConflictError)
        assert len({answer.impression for answer in answers}) == 9
        store.fails_for = None
        states = await together(*(ranker.executor.submit_async(observed, query) for query in ("bad", "q")))
        return [state.visits for state in states]

    assert in_loop(work) == [1, 9]


@pytest.mark.parametrize("limit", [{"batch_seconds": 0.0, "loop_seconds": 0.0}, {"max_batch": 1}], ids=str)
def test_long_work_is_split_into_batches(in_loop, limit):
    sizes = []

    async def work(ranker, store):
        ranker.executor.batch_listeners.append(lambda operations, seconds: sizes.append(operations))
        await together(*(ranker.executor.submit_async(Engine.rank, ranking()) for _ in range(10)))

    in_loop(work, limit)
    assert sizes == [1] * 10


class HangingStore(SQLiteStore):
    """A store whose commits hang until they are released."""

    def __init__(self, path):
        super().__init__(path)
        self.hanging, self.released = threading.Event(), threading.Event()
        self.released.set()
        self.given_up = False

    def commit(self):
        if not self.released.is_set():
            self.hanging.set()
            self.given_up |= not self.released.wait(20)  # the end of a test that would hang otherwise
        super().commit()


def test_loop_goes_on_while_a_commit_hangs(tmp_path):
    async def work(ranker, store):
        ranker.executor.attach_loop()
        await ranker.executor.submit_async(Engine.rank, ranking())
        store.released.clear()
        waiting = [ranker.executor.submit_async(Engine.rank, ranking()) for _ in range(3)]
        while not store.hanging.is_set():
            await asyncio.sleep(0.001)
        later = ranker.executor.submit_async(Engine.rank, ranking())
        await asyncio.sleep(0.1)  # the loop serves other callbacks, such as health probes
        assert not any(each.done() for each in (*waiting, later))
        store.released.set()
        answers = await together(*waiting, later)
        assert len({answer.impression for answer in answers}) == 4
        ranker.executor.detach_loop()

    store = HangingStore(tmp_path / "store.db")
    with Ranker(store, warm=False) as ranker:
        asyncio.run(work(ranker, store))
        assert not store.given_up
        assert ranker.query_state("q").visits == 5


def test_storage_failure_is_logged_once_with_its_cause_and_answered_without(in_loop, caplog):
    caplog.set_level(logging.WARNING, "mcfair.service")

    async def work(ranker, store):
        await ranker.executor.submit_async(Engine.rank, ranking())
        store.commit_fails = 10**9
        for _ in range(5):
            (refused,) = await together(ranker.executor.submit_async(Engine.rank, ranking()))
            assert isinstance(refused, UnavailableError)
            assert str(refused) == "the store cannot be written, and nothing was changed"
        assert ranker.executor.store_error == "the store cannot be written"
        store.commit_fails = 0
        await ranker.executor.submit_async(Engine.rank, ranking())
        assert ranker.executor.store_error is None
        store.commit_fails = 1
        await together(ranker.executor.submit_async(Engine.rank, ranking()))

    in_loop(work)
    failed = "the store cannot be written: database or disk is full"
    assert [each.getMessage() for each in caplog.records][:3] == [failed, "the store can be written again", failed]


def test_damaged_data_fails_alone_and_is_logged_once(in_loop, caplog):
    async def work(ranker, store):
        for query in ("good", "bad"):
            await ranker.executor.submit_async(Engine.rank, ranking(query))

        def damage(engine):
            engine.store.db.execute("UPDATE log SET candidates = -candidates WHERE query = 2")
            engine.drop_cache()

        await ranker.executor.submit_async(damage)
        for _ in range(3):
            answers = await together(
                *(ranker.executor.submit_async(Engine.rank, ranking(query)) for query in ("good", "bad", "good"))
            )
            assert isinstance(answers[1], StoreCorruptError)
            assert answers[0].impression != answers[2].impression
            assert ranker.executor.store_error is None
        await ranker.executor.submit_async(damage)  # which undoes it

    in_loop(work)
    assert len([each for each in caplog.records if "stored data cannot be read: query 2" in each.getMessage()]) == 1


def test_export_that_is_left_early_is_no_error_and_holds_nothing(tmp_path, caplog):
    with Ranker(tmp_path / "store.db", warm=False) as ranker:
        for i in range(20):
            ranker.rank(f"q{i}", ["a", "b"])
        lines = ranker.export()
        assert next(lines)
        lines.close()
        assert caplog.records == []
        assert ranker.executor.store.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0


def test_full_queue_refuses_operations(in_loop):
    async def work(ranker, store):
        asked = [ranker.executor.submit_async(Engine.rank, ranking()) for _ in range(20)]
        with pytest.raises(UnavailableError, match="queue is full"):
            ranker.executor.submit_async(Engine.rank, ranking())
        await together(*asked)
        return (await ranker.executor.submit_async(observed, "q")).visits

    assert in_loop(work, max_queued=20) == 20


def test_writer_executes_pending_operations_after_detaching(in_loop):
    async def work(ranker, store):
        asked = [ranker.executor.submit_async(Engine.rank, ranking()) for _ in range(20)]
        ranker.executor.detach_loop()
        assert ranker.executor.attached is None
        answers = await together(*asked, ranker.executor.submit_async(Engine.rank, ranking()))
        assert len({answer.impression for answer in answers}) == 21
        ranker.executor.attach_loop()
        return (await ranker.executor.submit_async(observed, "q")).visits

    assert in_loop(work) == 21


def test_closing_from_another_thread_while_a_loop_is_attached(tmp_path):
    async def main():
        ranker = Ranker(tmp_path / "store.db", warm=False)
        ranker.executor.attach_loop()
        asked = [ranker.executor.submit_async(Engine.rank, ranking()) for _ in range(5)]
        await asyncio.to_thread(ranker.close)
        assert len({(await each).impression for each in asked}) == 5
        with pytest.raises(UnavailableError, match="stopping"):
            ranker.executor.submit_async(Engine.rank, ranking())

    asyncio.run(main())
    with Ranker(tmp_path / "store.db", warm=False) as ranker:
        assert ranker.query_state("q").visits == 5


def test_closing_after_the_loop_ended_without_detaching(tmp_path):
    ranker = Ranker(tmp_path / "store.db", warm=False)

    async def main():
        ranker.executor.attach_loop()
        await ranker.executor.submit_async(Engine.rank, ranking())

    asyncio.run(main())
    ranker.executor.close(10)
    assert not ranker.executor.writer.is_alive()


def test_compaction_runs_while_idle(in_loop):
    async def work(ranker, store):
        for _ in range(5):
            await ranker.executor.submit_async(Engine.rank, ranking())
        await asyncio.sleep(1.5)
        return ranker.usage().impressions

    assert in_loop(work, {"compaction_interval": 0.02}, retention=1.0) == 0


def test_compaction_runs_more_often_until_it_has_caught_up():
    now = 1_700_000_000_000
    executor = partial(GroupCommit, compaction_interval=3600.0, compaction_seconds=0.0)  # one step at a time
    options = {"warm": False, "clock": lambda: now, "executor_class": executor, "summary_interval": 0}
    with Ranker("memory:", retention=60.0, **options) as ranker:
        for query in range(3):
            ranker.rank(f"query {query}", ["a", "b"])
        now += 61_000
        rests, bounds = [], []
        for _ in range(5):  # the writer waits for an hour, so nothing else uses the engine
            begun = time.monotonic()
            ranker.executor.maintain(idle=True)
            ended = time.monotonic()
            rests.append(ranker.executor.next_compaction - ended)
            bounds.append(9 * (ended - begun))
        assert all(rest <= bound for rest, bound in zip(rests[:3], bounds, strict=False))  # a tenth of the time
        assert [round(each, -1) for each in rests[3:]] == [3600, 3600]
        assert ranker.usage().impressions == 0


class RecordingStore(SQLiteStore):
    """Records of each transaction that writes whether its commit waits for the disk, and how many lists it adds."""

    def __init__(self, path):
        super().__init__(path)
        self.commits = []

    def begin(self, **options):
        super().begin(**options)
        self.before, self.lists = self.changes, 0

    def append(self, number, entry, revision=None):
        super().append(number, entry, revision)
        self.lists += 1

    def commit(self):
        if self.changes > self.before:
            self.commits.append((self.one("PRAGMA synchronous") == 2, self.lists))
        return super().commit()


def test_what_is_acknowledged_waits_for_the_disk_and_compaction_does_not(tmp_path):
    now = 1_700_000_000_000
    executor = partial(GroupCommit, compaction_interval=3600.0, compaction_seconds=60.0)  # nothing is left to do
    store = RecordingStore(tmp_path / "store.db")
    options = {"warm": False, "clock": lambda: now, "executor_class": executor, "summary_interval": 0}
    with Ranker(store, retention=60.0, **options) as ranker:
        for _ in range(2):
            store.commits.clear()
            ranker.rank("query", ["a", "b"])
            now += 61_000
            ranker.executor.maintain(idle=True)
            ranker.rank("other", ["a", "b"])
            assert store.commits == [(True, 1), (False, 0), (True, 1)]
            assert ranker.usage().impressions == 1
            now += 61_000
            store.commits.clear()
            ranker.executor.begin_episode(OSError("the disk was full"))
            ranker.executor.maintain(idle=True)  # whether it can be written is known after it waited
            assert store.commits == [(True, 0)]


# --- deliberate faults -----------------------------------------------------------------------------------------------


class CacheKeptAfterFailedCommit(GroupCommit):
    """Keeps the engine's cache after a failed commit."""

    faulty = True
    calls = 0

    def recover(self):
        type(self).calls += 1
        if self.faulty:
            self.cache_stale = False
        super().recover()


class AcknowledgedBeforeCommit(GroupCommit):
    """Resolves the futures of a batch before the commit."""

    faulty = True
    calls = 0

    def commit_batch(self, items, error):
        type(self).calls += 1
        if self.faulty:
            resolve_all(items)
        super().commit_batch(items, error)


FAULTS = {
    CacheKeptAfterFailedCommit: "^3 visits instead of 2",
    AcknowledgedBeforeCommit: "^a request was acknowledged although its commit failed",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_deliberate_fault_of_the_group_commit_is_caught(fault, tmp_path):
    def check(faulty):
        store = FailingStore(tmp_path / f"{faulty}.db")
        executor_class = type(fault.__name__, (fault,), {"faulty": faulty, "calls": 0})
        executor = partial(executor_class, compaction_interval=3600.0)  # a compaction could consume the failure
        with Ranker(store, warm=False, executor_class=executor) as ranker:
            ranker.rank("q", ["a", "b"])
            store.commit_fails = 1
            try:
                ranker.rank("q", ["a", "b"])
                acknowledged = True
            except UnavailableError:
                acknowledged = False
            assert not acknowledged, "a request was acknowledged although its commit failed"
            ranker.rank("q", ["a", "b"])
            visits = ranker.executor.submit(observed, "q").result().visits
            assert visits == 2, f"{visits} visits instead of 2"
            assert executor_class.calls > 0, "the override was never called"

    caught_by(check, FAULTS[fault])
