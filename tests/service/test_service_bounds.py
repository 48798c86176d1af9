"""Bounded work: the cost of an operation does not grow with the length of a query's log."""

import queue
import subprocess
import sys
import time
import tracemalloc

import msgspec
import pytest
from observing import explained, observed

from mcfair.errors import RequestError
from mcfair.service.core.compaction import expired_entries, next_base
from mcfair.service.core.engine import Engine
from mcfair.service.core.records import encode
from mcfair.service.core.rules import change_rules
from mcfair.service.core.verification import replay, verify
from mcfair.service.ranker import Ranker
from mcfair.service.stores import SQLiteStore, open_reader
from mcfair.service.wire import Event, PolicyChange, RawRankRequest

START = 1_700_000_000_000
ITEMS = msgspec.Raw(msgspec.json.encode([{"id": item} for item in "abcde"]))


class CountingStore(SQLiteStore):
    """A store that counts the log entries and snapshots that are read from it."""

    entries_read = snapshots_read = 0

    def counted(self, entries):
        for entry in entries:
            self.entries_read += 1
            yield entry

    def log(self, number, after, until=None):
        return self.counted(super().log(number, after, until))

    def log_descending(self, number, until):
        return self.counted(super().log_descending(number, until))

    def snapshot(self, number, until=None):
        self.snapshots_read += 1
        return super().snapshot(number, until)

    def reads(self, work):
        """Return the numbers of log entries and snapshots that some work reads."""
        self.entries_read = self.snapshots_read = 0
        work()
        return self.entries_read, self.snapshots_read


class Clock:
    now = START

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def open_engine(clock, store=None, max_ledger=None, **rules):
    return Engine(
        store or CountingStore(None),
        lambda stored: change_rules(stored, "MCFair(beta=5)", {"retention": 1000.0} | rules),
        clock=clock,
        max_ledger=max_ledger,
    )


def session(engine, query="q", key=None):
    answer = engine.rank(RawRankRequest(query=query, items=ITEMS, k=3), key)
    engine.feedback([Event(impression=answer.impression, item=answer.items[0].id)])
    return answer


def test_compaction_of_a_query_without_expired_entries_reads_one_entry(clock):
    engine = open_engine(clock)
    for _ in range(400):
        session(engine)
    engine.reset_expiry_schedule()
    assert engine.store.reads(engine.compact_expired) == (1, 0)


def test_mass_expiry_is_compacted_in_bounded_steps(clock):
    engine = open_engine(clock)
    for _ in range(500):
        session(engine)
    clock.now += 1_000_000
    session(engine)
    before = observed(engine, "q")
    steps = 0
    while engine.store.base(1) < 1000:
        entries, snapshots = engine.store.reads(lambda: engine.compact_expired(0.0))
        assert entries <= engine.compaction_step + 1
        assert snapshots <= 1
        steps += 1
        assert steps <= 10
        assert verify(engine.store) == []
        assert replay(engine.store)[2] == []
    assert engine.store.usage().impressions == 1
    assert engine.store.number("SELECT count(*) FROM candidates") <= 2
    engine.drop_cache()
    assert observed(engine, "q") == before


@pytest.mark.parametrize("rules", [{}, {"maturation": 60.0}, {"maturation": 60.0, "half_life": 400.0}], ids=str)
def test_a_retry_or_an_explanation_reads_one_snapshot_and_a_few_hundred_entries(clock, rules):
    engine = open_engine(clock, **rules)
    answers = {}
    for i in range(1500):
        clock.now += 200
        answers[str(i)] = session(engine, key=str(i))
    for key, answer in list(answers.items())[::150]:
        for work in (
            lambda key=key: engine.rank(RawRankRequest(query="q", items=ITEMS, k=3), key),
            lambda answer=answer: explained(engine, answer.impression),
        ):
            entries, snapshots = engine.store.reads(work)
            assert entries <= 700
            assert snapshots == 1
    engine.drop_cache()
    entries, snapshots = engine.store.reads(lambda: observed(engine, "q"))
    assert entries <= 300
    assert snapshots == 1


def test_entries_that_may_still_mature_outlive_compaction_no_longer_than_needed(clock):
    engine = open_engine(clock, maturation=900.0)
    for _ in range(50):
        clock.now += 10_000
        session(engine)
    clock.now += 800_000
    later = [session(engine) for _ in range(3)]
    why = [explained(engine, answer.impression) for answer in later]
    while engine.compact_expired():
        pass
    assert engine.store.base(1) > 0
    assert [explained(engine, answer.impression) for answer in later] == why
    assert verify(engine.store) == []
    assert replay(engine.store)[2] == []
    clock.now += 3_000_000
    for _ in range(5):
        engine.compact_expired()
        clock.now += 1
    assert engine.store.usage().impressions == 0
    state = observed(engine, "q")
    engine.drop_cache()
    assert observed(engine, "q") == state


def test_a_longer_maturation_is_replayed_after_compaction(clock):
    engine = open_engine(clock, maturation=5.0)
    for i in range(300):
        clock.now += 5_000
        session(engine)
        if i in (100, 200):
            engine.change(PolicyChange(maturation=60.0 if i == 100 else 600.0))
        engine.compact_expired()
    assert engine.store.base(1) > 50
    assert verify(engine.store) == []
    assert replay(engine.store)[2] == []


# --- batches of feedback ----------------------------------------------------------------------------------------------


def test_a_batch_of_feedback_is_applied_in_slices_with_other_work_in_between(tmp_path):
    with Ranker(tmp_path / "store.db", cache=0, warm=False, summary_interval=0.0) as ranker:
        lists = [ranker.rank(f"q{i}", ["a", "b", "c"], k=2) for i in range(600)]
        events = [Event(impression=each.impression, item=each.items[0].id) for each in lists]
        executor, finished = ranker.executor, []
        batch = executor.submit(Engine.feedback, events)
        batch.add_done_callback(lambda _: finished.append("batch"))
        for i in range(3):
            other = executor.submit(Engine.rank, RawRankRequest(query=f"other {i}", items=ITEMS, k=2))
            other.add_done_callback(lambda _: finished.append("list"))
        assert [each.status for each in batch.result(60).results] == ["applied"] * 600
        assert finished == ["list"] * 3 + ["batch"]
        again = ranker.feedback(events)
        assert [each.status for each in again] == ["duplicate"] * 600
        with executor.store.reader() as store:
            assert verify(store) + replay(store)[2] == []


def test_a_slice_of_a_batch_uses_few_ledgers(clock):
    engine = open_engine(clock)
    names = [session(engine, f"q{i}").impression for i in range(100)]
    events = [Event(impression=name, item=item) for name in names for item in "ab"]
    done = 0
    while done < len(events):
        found = len(engine.feedback(events[done:], sliced=True).results)
        assert 0 < found <= 64
        done += found
    assert verify(engine.store) == []


def test_events_on_one_impression_are_applied_together_however_long_that_takes(clock, monkeypatch):
    """Those who repeat them after a failure find all of them applied, or none."""
    monkeypatch.setattr("mcfair.service.core.feedback.SLICE_SECONDS", 0.0)
    engine = open_engine(clock)
    names = [engine.rank(RawRankRequest(query="q", items=ITEMS, k=3)).impression for _ in range(3)]
    events = [Event(impression=name, type="shown", ranks=[rank]) for name in names for rank in (1, 2, 3)]
    done = []
    while sum(done) < len(events):
        done.append(len(engine.feedback(events[sum(done) :], sliced=True).results))
    assert done == [3, 3, 3]


def test_events_of_one_query_are_applied_in_slices_of_limited_time(clock):
    engine = open_engine(clock)
    names = [engine.rank(RawRankRequest(query="q", items=ITEMS, k=3)).impression for _ in range(500)]
    events = [Event(impression=name, type="shown", ranks=[1, 2, 3] * 1_000) for name in names]
    took, done = [], 0
    while done < len(events):
        begun = time.perf_counter()
        done += len(engine.feedback(events[done:], sliced=True).results)
        took.append(time.perf_counter() - begun)
    assert sorted(took)[len(took) // 2] < 0.02
    assert len(took) > 10


# --- large ledgers ----------------------------------------------------------------------------------------------------


def rank_large(engine, lists, n=4_000, k=100):
    return [engine.rank(RawRankRequest(query="q", items=many(i % 4 * n, n), k=k)) for i in range(lists)]


def test_a_snapshot_of_a_large_ledger_is_encoded_outside_of_the_operation_that_takes_it(clock):
    engine = open_engine(clock)
    engine.apart = queue.Queue(4)
    rank_large(engine, 512)
    assert list(engine.store.snapshots(1)) == []
    rank_large(engine, 3)  # it may have moved on, but forward
    job = engine.apart.get_nowait()
    assert engine.apart.empty()
    body = job.encoded()
    engine.install_snapshot(job, body)
    assert [seq for seq, _ in engine.store.snapshots(1)] == [512]
    assert body == encode(engine.repository.ledger(1, engine.store.entry(1, 513)).snapshot())
    before = observed(engine, "q")
    engine.drop_cache()
    assert engine.store.reads(lambda: observed(engine, "q")) == (3, 1)
    assert observed(engine, "q") == before
    assert verify(engine.store) + replay(engine.store)[2] == []


def test_a_snapshot_of_a_ledger_that_was_dropped_is_not_written(clock):
    engine = open_engine(clock)
    engine.apart = queue.Queue(4)
    rank_large(engine, 512)
    job = engine.apart.get_nowait()
    engine.drop_cache()  # as after entries that it has recorded were not committed
    rank_large(engine, 1)
    engine.install_snapshot(job, job.encoded())
    assert list(engine.store.snapshots(1)) == []


def test_a_slice_of_compaction_does_not_load_large_ledgers(clock):
    engine = open_engine(clock)
    rank_large(engine, 300)
    clock.now += 2_000_000
    begun = time.thread_time()
    step = next_base(engine.repository, expired_entries(engine.repository, 1, clock.now, 128), clock.now)
    whole = time.thread_time() - begun
    engine.apart = queue.Queue(4)
    begun = time.thread_time()
    assert engine.compact_expired(0.002) == 0
    assert time.thread_time() - begun < whole / 4
    assert engine.apart.get_nowait() == 1
    assert engine.install_base(step, clock.now)
    assert engine.store.base(1) == 128
    assert not engine.install_base(step, clock.now)  # what it was computed from is no longer true
    assert verify(engine.store) + replay(engine.store)[2] == []


@pytest.mark.parametrize("cache", [0, 1 << 28])
def test_large_ledgers_are_compacted_while_they_are_ranked(tmp_path, cache):
    now = [START]
    with Ranker(tmp_path / "store.db", clock=lambda: now[0], cache=cache, retention=100.0, warm=False) as ranker:
        for i in range(700):
            now[0] += 1_000
            items = [f"item {j}" for j in range(i % 3 * 700, i % 3 * 700 + 1_500)]
            answer = ranker.rank("q1" if i % 10 == 0 else "q0", items, k=60)
            ranker.click(answer.impression, answer.items[i % 60].id)
        now[0] += 90_000
        deadline = time.monotonic() + 60
        while (left := ranker.usage()).impressions > 20 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert left.impressions <= 20
        seen, before = None, [ranker.query_state(f"q{i}") for i in range(2)]
        while seen != before and time.monotonic() < deadline:  # items that are idle by now are still deleted
            time.sleep(1.0)
            seen, before = before, [ranker.query_state(f"q{i}") for i in range(2)]
    with open_reader(tmp_path / "store.db") as store:
        assert verify(store) + replay(store)[2] == []
    with Ranker(tmp_path / "store.db", clock=lambda: now[0], warm=False) as ranker:
        assert [ranker.query_state(f"q{i}") for i in range(2)] == before


# --- memory of one query ---------------------------------------------------------------------------------------------


def many(first, n):
    return msgspec.Raw(msgspec.json.encode([{"id": f"item {i}"} for i in range(first, first + n)]))


@pytest.mark.parametrize(
    "rules", [{}, {"half_life": 100.0}, {"half_life": 100.0, "maturation": 10.0}], ids=["plain", "decay", "maturation"]
)
def test_counts_of_one_query_that_would_be_too_large_are_refused_before_they_are_allocated(clock, rules):
    engine = open_engine(clock, max_ledger=20_000_000, **rules)
    for first in range(0, 8_000, 2_000):
        engine.rank(RawRankRequest(query="q", items=many(first, 2_000), k=2))
    before, size = observed(engine, "q"), engine.ledgers[1].nbytes
    tracemalloc.start()
    with pytest.raises(RequestError, match=r"the counts of 8,\d00 items at 1,000 ranks need .* MB, and at most 19 MB"):
        engine.rank(RawRankRequest(query="q", items=many(0, 1_000), k=1_000))
    with pytest.raises(RequestError, match="shorter lists"):
        engine.rank(RawRankRequest(query="q", items=many(7_900, 1_000), k=1_000))
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()
    assert (observed(engine, "q"), engine.ledgers[1].nbytes) == (before, size)
    assert engine.rank(RawRankRequest(query="q", items=many(0, 1_000), k=2)).items


def test_a_query_that_is_accepted_fits_into_its_bound_with_every_time_bucket(clock):
    engine = open_engine(clock, max_ledger=4_000_000, half_life=100.0, retention=2_000.0)
    for _ in range(200):
        clock.now += 12_500
        engine.rank(RawRankRequest(query="q", items=many(0, 1_000), k=10))
    assert len(engine.ledgers[1].counts.blocks) > 40
    assert engine.ledgers[1].counts.nbytes < 4_000_000 * 1.1  # arrays have some spare rows


@pytest.mark.parametrize("letter", ["a", "\u0416", "\u20ac", "\U0001f45f"])
def test_the_size_of_a_ledger_is_that_of_its_ids_and_groups(clock, letter):
    engine = open_engine(clock)
    length = 250 // len(letter.encode())

    def items():
        return [{"id": f"{i:05}" + length * letter, "group": f"{i:05}" + length * letter} for i in range(2_000)]

    engine.rank(RawRankRequest(query="warm", items=msgspec.Raw(msgspec.json.encode(items())), k=1))
    raw = msgspec.Raw(msgspec.json.encode(items()))
    tracemalloc.start()
    engine.rank(RawRankRequest(query="q", items=raw, k=1))
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    ledger = engine.ledgers[2]
    assert 0.7 * used < ledger.nbytes < 1.5 * used
    engine.delete_item("00000" + length * letter)
    loaded = engine.repository.ledger(2)
    assert (ledger.text_bytes, len(ledger.index)) == (loaded.text_bytes, 1_999)


LARGE_QUERIES = """
import gc, sys
from mcfair.service.ranker import Ranker

def resident():
    with open("/proc/self/status") as lines:
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

gc.disable()
k, cache = int(sys.argv[1]), 128 << 20
with Ranker(sys.argv[2], cache=cache, summary_interval=0.0) as ranker:  # summaries have memory of their own
    def rank(query, first):
        items = [{"id": f"item {i}", "group": f"seller {i % 50}"} for i in range(first, first + 4_000)]
        return ranker.rank(query, items, k=k, key=f"{query}-{first}")
    ranker.feedback([{"impression": rank("warm", 0).impression, "item": "item 0"}])
    before = resident()
    for lists in range(25):
        found = [rank(f"q{lists}", first) for first in range(0, 16_000, 4_000)]
        ranker.feedback([{"impression": each.impression, "type": "shown"} for each in found])
    print((resident() - before) / cache)
"""


@pytest.mark.parametrize("k", [10, 200])
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_large_queries_hold_no_more_memory_than_the_cache_even_without_the_garbage_collector(tmp_path, k):
    command = [sys.executable, "-c", LARGE_QUERIES, str(k), str(tmp_path / "store.db")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert float(ran.stdout) <= 1.2


def test_what_is_cached_besides_ledgers_is_bounded_in_bytes(clock):
    engine = open_engine(clock)
    items = msgspec.json.encode([{"id": f"item {i}"} for i in range(1_000)])
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for k in range(1, 1_001):
        engine.repository.examinations.p(0, k)
    answers = [engine.rank(RawRankRequest(query=f"q{i}", items=msgspec.Raw(items), k=1)) for i in range(100)]
    for answer in answers:
        engine.evict(engine.ids.position(answer.impression).number)
    for answer in answers:
        position = engine.ids.position(answer.impression)
        entry = engine.find_impression(position)
        engine.repository.repeat_decision(engine.repository.ledger(position.number, entry), entry)  # as for a retry
    for i in range(2_000):
        engine.repository.with_policy(engine.version, f"MCFair({i % 900 * ' '}alpha={i})")
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert held < 1.2 * (engine.repository.nbytes + engine.cached_bytes) + 1_000_000
    assert engine.repository.nbytes < 8 << 20


# --- what the rules keep stored --------------------------------------------------------------------------------------


def test_a_maturation_that_was_set_by_mistake_does_not_keep_the_log(clock):
    engine = open_engine(clock)
    session(engine, "before")
    engine.change(PolicyChange(maturation=1e8, retention=1e8))
    session(engine, "during")
    engine.change(PolicyChange(maturation=0.0, retention=1000.0))
    for _ in range(5):
        for _ in range(20):
            session(engine, "after")
        clock.now += 86_400_000
        for _ in range(10):
            engine.compact_expired()
    assert [len(list(engine.store.log(number, 0))) for number in (1, 2, 3)] == [0, 2, 0]  # "during" was promised long
    for _ in range(3):
        session(engine, "during")
    engine.change(PolicyChange(maturation=500.0))
    session(engine, "after")
    before = [observed(engine, query) for query in ("before", "during", "after")]
    engine.drop_cache()
    assert [observed(engine, query) for query in ("before", "during", "after")] == before
    assert verify(engine.store) + replay(engine.store)[2] == []


def test_rules_can_be_changed_again_and_again(clock):
    engine = Engine(CountingStore(None), clock=clock, max_versions=20)
    engine.change(PolicyChange(retention=1000.0, examination=0.5))
    for seed in range(1, 100):
        engine.change(PolicyChange(seed=seed))
        if seed % 7 == 0:
            session(engine)
            clock.now += 600_000
        engine.compact_expired()
    assert len(engine.repository.versions) < 20
    restarted = Engine(engine.store, clock=clock)
    assert restarted.version.number == 101
    assert observed(restarted, "q") == observed(engine, "q")
    assert verify(engine.store) + replay(engine.store)[2] == []


def test_versions_that_impressions_refer_to_are_kept(clock):
    engine = Engine(CountingStore(None), clock=clock, max_versions=10)
    answer = session(engine)
    for seed in range(1, 10):
        engine.change(PolicyChange(seed=seed))
        engine.compact_expired()
    assert len(explained(engine, answer.impression).items) == 3
    with pytest.raises(RequestError, match="the store has 10 versions of the rules, and no more are allowed"):
        engine.change(PolicyChange(seed=10))
    clock.now += 8 * 86_400_000
    engine.compact_expired()
    assert engine.change(PolicyChange(seed=10)).version == 11
