"""The store in PostgreSQL, and several instances that share it."""

import datetime
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import psycopg
import pytest
from crash_loop import proof_faults
from cutting_proxy import CuttingProxy
from deliberate_faults import caught_by
from postgres_loop import POINTS, PostgresLoop, RoamingShopper
from postgres_server import PostgresServer, missing, shared_server
from service_process import ServerProcess, free_port, mcfair
from shoppers import LoadRun

from mcfair.errors import RequestError, StoreError, UnavailableError
from mcfair.service.core.verification import replay, verify
from mcfair.service.ranker import Ranker
from mcfair.service.shared_commit import SharedGroupCommit
from mcfair.service.stores import LogEntry, open_reader, open_store
from mcfair.service.stores.contract import check_store
from mcfair.service.stores.postgres import PostgresStore

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


@pytest.fixture
def url():
    return shared_server().new_database()


@pytest.fixture
def pair(url):
    """Two instances over one database."""
    with Ranker(url, warm=False) as first, Ranker(url, warm=False) as second:
        yield first, second


def conflicts_of(ranker):
    """Count the conflicts of an instance from now on."""
    found = []
    ranker.executor.conflict_listeners.append(found.append)
    return found


def assert_sound(url):
    with open_reader(url) as reader:
        assert [verify(reader), replay(reader)[2]] == [[], []]


# --- the store -------------------------------------------------------------------------------------------------------


def test_store_in_postgresql_keeps_the_contract():
    check_store(lambda: open_store(shared_server().new_database()))


def test_instances_that_start_at_the_same_time_create_one_store(url):
    with ThreadPoolExecutor(6) as pool:
        stores = list(pool.map(lambda _: open_store(url), range(6)))
    assert len({store.secret for store in stores}) == 1
    for each in stores:
        each.close()


def test_commits_wait_for_the_disk_whatever_the_database_is_set_to(url):
    name = url.rpartition("/")[2]
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    with closing(open_store(url)) as store:
        assert store.one("SHOW synchronous_commit") == "on"
        assert store.one("SHOW lock_timeout") != "0"
        for durable, setting in ((False, "off"), (True, "on")):
            store.begin(durable=durable)
            store.probe()
            assert store.one("SHOW synchronous_commit") == setting
            store.commit()


def test_a_store_of_a_newer_schema_is_refused(url):
    open_store(url).close()
    with psycopg.connect(url) as db:
        db.execute("UPDATE mcfair.meta SET value = '99' WHERE name = 'schema'")
    with pytest.raises(StoreError, match=r"newer mcfair \(schema 99"):
        open_store(url)


def test_a_database_without_a_store_is_not_created_by_reading(url):
    with pytest.raises(StoreError, match="mcfair serve` creates"), open_reader(url):
        pass


def test_a_log_with_a_gap_is_refused(url):
    """A database that lost commits, such as a standby that was behind, must not be continued from a cache."""
    with closing(open_store(url)) as store:
        store.begin()
        number = store.add_query(b"q")
        store.append(number, LogEntry(1, 0, 0, 1, None, b"", None))
        assert not store.commit()
        store.begin()
        store.append(number, LogEntry(3, 0, 0, 1, None, b"", None))
        assert set(store.commit()) == {number}


def test_passwords_are_never_shown(url):
    secret = "hunter2"
    with_password = url.replace("mcfair@", f"mcfair:{secret}@")
    with closing(open_store(with_password)) as store:
        assert secret not in f"{store} {store!r}"
    for wrong in (
        with_password.replace("/test", "/absent"), with_password + "?nonsense=1",
        with_password.replace("127.0.0.1:", "127.0.0.1:x"), f"mysql://u:{secret}@host/db",
    ):  # fmt: skip
        ran = mcfair("verify", "--store", wrong)
        assert ran.returncode == 1
        assert secret not in ran.stdout + ran.stderr, ran.stderr
        assert ran.stderr.count("\n") == 1, ran.stderr


def test_a_missing_driver_is_reported_with_the_command_that_installs_it():
    script = (
        "import sys; sys.modules['psycopg'] = None; from mcfair.service.stores import open_store; "
        "open_store(sys.argv[1])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, "postgresql://h/d"], capture_output=True, text=True, check=False
    )
    assert "pip install 'mcfair[postgres]'" in ran.stderr


# --- instances -------------------------------------------------------------------------------------------------------


def test_an_acknowledged_event_is_used_by_every_instance(pair, url):
    first, second = pair
    answer = first.rank("q", ["a", "b", "c"], k=2)
    assert second.query_state("q").visits == 1
    assert second.feedback([{"impression": answer.impression, "item": "a"}])[0].status == "applied"
    assert first.feedback([{"impression": answer.impression, "item": "a"}])[0].status == "duplicate"
    assert {item.id: item.clicks for item in first.query_state("q").items} == {"a": 1, "b": 0, "c": 0}
    newer = second.rank("q", ["a", "new"], k=2)
    assert first.feedback([{"impression": newer.impression, "item": "new"}])[0].status == "applied"
    assert first.explain(newer.impression).visits == 1
    assert_sound(url)


def test_an_idempotency_key_is_recognised_by_every_instance(pair, url):
    first, second = pair
    second.rank("q", ["a", "b"], key="earlier")  # both have the query in their caches
    answer = first.rank("q", ["a", "b"], key="k")
    assert second.rank("q", ["a", "b"], key="k") == answer
    assert first.query_state("q").visits == 2


def test_feedback_on_several_queries_is_never_lost_by_half_nor_applied_twice(pair):
    first, second = pair
    lists = [first.rank(query, ["a", "b"], k=2) for query in ("p", "q", "r")]
    events = [{"impression": each.impression, "item": "a"} for each in lists]
    assert [each.status for each in second.feedback([events[1]])] == [
        "applied"
    ]  # the cache of the first is out of date
    second.rank("q", ["a", "b"])
    found = conflicts_of(first)
    statuses = first.feedback([*events, {"impression": lists[1].impression, "item": "b"}])
    assert [each.status for each in statuses] == ["applied", "duplicate", "applied", "applied"]
    assert found == [1]
    for query, clicks in (("p", 1), ("q", 2), ("r", 1)):
        assert sum(item.clicks for item in second.query_state(query).items) == clicks


def test_a_large_batch_is_applied_once_while_other_instances_rank(pair, url):
    first, second = pair
    lists = [first.rank(f"q{i}", ["a", "b"], k=2) for i in range(100)]
    for i in range(0, 100, 10):
        second.rank(f"q{i}", ["a", "b"], k=2)
    events = [{"impression": each.impression, "item": "a"} for each in lists]
    results = first.feedback([*events, {"impression": "x"}, *events])
    assert [each.status for each in results] == ["applied"] * 100 + ["unknown_impression"] + ["duplicate"] * 100
    assert_sound(url)


def test_a_query_that_another_instance_deleted_or_reset_is_created_again(pair, url):
    first, second = pair
    for delete in (lambda: second.delete_query("q"), second.reset):
        old = first.rank("q", ["a", "b"])
        delete()
        assert first.feedback([{"impression": old.impression, "item": "a"}])[0].status == "unknown_impression"
        first.rank("q", ["a", "b"])
        assert second.query_state("q").visits == 1
        second.delete_query("q")
    assert_sound(url)


def test_ledgers_of_a_query_that_was_deleted_and_created_again_elsewhere_are_evicted(url):
    with Ranker(url, warm=False, cache=20_000) as first, Ranker(url, warm=False) as second:
        first.rank("q", ["a", "b"])
        second.delete_query("q")
        again = second.rank("q", ["a", "b"])
        assert first.feedback([{"impression": again.impression, "item": "a"}])[0].status == "applied"
        epoch = first.executor.engine.epoch
        for other in range(30):  # more than the cache holds
            first.rank(f"other {other}", ["a", "b"])
        assert first.executor.engine.epoch == epoch  # no fault made it drop its cache
        assert first.rank("q", ["a", "b"]).items
        assert first.query_state("q").visits == 2
    assert_sound(url)


def test_large_ledgers_are_compacted_while_two_instances_rank_them(url):
    now = [1_700_000_000_000]
    options = {"clock": lambda: now[0], "retention": 100.0, "warm": False, "summary_interval": 0}
    with Ranker(url, **options) as first, Ranker(url, **options) as second:
        for i in range(160):
            now[0] += 1_000
            ranker = (first, first, first, second)[i % 4]
            answer = ranker.rank("q", [f"item {j}" for j in range(i % 3 * 700, i % 3 * 700 + 1_500)], k=60)
            ranker.click(answer.impression, answer.items[i % 60].id)
        now[0] += 90_000
        deadline = time.monotonic() + 60
        while (left := first.usage()).impressions > 20 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert left.impressions <= 20
        assert first.query_state("q") == second.query_state("q")
    assert_sound(url)


AHEAD = """
import sys, time
real = time.time_ns
time.time_ns = lambda: real() + int(sys.argv[2]) * 86_400 * 10**9
time.time = lambda: time.time_ns() / 1e9
from mcfair.service.ranker import Ranker
with Ranker(sys.argv[1], warm=False) as ranker:
    for work in range(int(sys.argv[3])):
        time.sleep(0.5)
        print(ranker.rank("q", ["a", "b"], key="k").impression, ranker.query_state("q").visits, flush=True)
"""


@pytest.mark.parametrize("days", [8, -8])
def test_instances_agree_on_the_time_whatever_their_machines_say(url, days):
    command = [sys.executable, "-c", AHEAD, url, str(days)]
    with Ranker(url, warm=False) as ranker:
        answer = ranker.rank("q", ["a", "b"], key="k")
        ran = subprocess.run([*command, "1"], capture_output=True, text=True, check=True)
        assert ran.stdout.split() == [answer.impression, "1"]
    # Alone, it leads: what has expired, it deletes.
    ran = subprocess.run([*command, "4"], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == [answer.impression, "1"] * 4
    with Ranker(url, warm=False) as ranker:
        assert ranker.rank("q", ["a", "b"], key="k") == answer
        assert ranker.click(answer.impression, "a").status == "applied"
        assert ranker.rank("q", ["a", "b"]).expires_at - answer.expires_at < datetime.timedelta(hours=1)
    assert_sound(url)


def test_an_item_that_one_instance_deletes_is_gone_for_all(pair, url):
    first, second = pair
    for query in range(40):  # more than are deleted at once
        first.rank(f"q{query}", ["a", "b"])
    second.delete_item("a")
    for query in range(40):
        assert [item.id for item in first.query_state(f"q{query}").items] == ["b"]
    first.rank("q0", ["a", "b"])
    assert {item.id for item in second.query_state("q0").items} == {"a", "b"}
    assert_sound(url)


def test_rules_that_one_instance_changes_are_used_by_all(pair, url):
    first, second = pair
    first.rank("q", ["a", "b"])
    second.rank("q", ["a", "b"])
    first.change_policy(policy="TopK")
    assert second.rank("q", ["a", "b"]).policy == first.policy().policy
    with pytest.raises(RequestError):
        second.change_policy(policy="absent")
    assert_sound(url)


def test_a_key_that_one_instance_revokes_is_refused_by_all_within_a_second(pair):
    first, second = pair
    key = first.add_key("shop", ["rank"])
    end = time.monotonic() + 1.0
    while second.authenticate(key.key) is None:
        assert time.monotonic() < end, "a new key is not known after 1 s"
        time.sleep(0.01)
    first.revoke_key(key.info.id)
    end = time.monotonic() + 1.0
    while second.authenticate(key.key) is not None:
        assert time.monotonic() < end, "a revoked key is accepted after 1 s"
        time.sleep(0.01)


def test_one_instance_compacts_and_another_takes_over_when_it_dies(url):
    first, second, third = (open_store(url) for _ in range(3))
    assert [first.leads(), second.leads(), first.leads()] == [True, False, True]
    first.close()
    end = time.monotonic() + 5.0
    while not second.leads():
        assert time.monotonic() < end
        time.sleep(0.01)
    assert not third.leads()
    second.close()
    third.close()


def test_expired_lists_are_compacted_while_two_instances_rank(url):
    settings = {"retention": 1.0, "warm": False}
    with Ranker(url, **settings) as first, Ranker(url, **settings) as second:
        end = time.monotonic() + 4.0
        visits = 0
        while time.monotonic() < end:
            for each in (first, second):
                answer = each.rank("q", ["a", "b", "c"], k=2)
                visits += 1
                other = second if each is first else first
                assert other.feedback([{"impression": answer.impression, "item": "a"}])[0].status in (
                    "applied", "not_in_impression"
                )  # fmt: skip
        assert first.query_state("q").visits == visits
        assert first.usage().impressions < visits
    assert_sound(url)


def test_a_compaction_that_changes_no_base_is_a_conflict_too(url):
    """It deletes entries before the base that could still mature: a cache that relies on them is out of date."""
    now = [1_700_000_000_000]
    settings = {"clock": lambda: now[0], "retention": 60.0, "maturation": 60.0, "warm": False}

    def compact(ranker):
        return ranker.executor.submit(lambda engine: [engine.compact_expired(), engine.store.head(1)]).result()[1]

    with Ranker(url, **settings) as leader:
        compact(leader)
        with Ranker(url, **settings) as other:
            answer = other.rank("q", ["a", "b"], k=2)
            now[0] += 50_000
            other.feedback([{"impression": answer.impression, "item": "a"}])
            now[0] += 11_000
            assert compact(leader) == (2, 1, 2), "both entries are in the base, and the feedback may still mature"
            assert other.query_state("q").visits == 1
            now[0] += 60_000
            assert compact(leader) == (2, 2, 2)
            found = conflicts_of(other)
            other.rank("q", ["a", "b"], k=2)
            assert found == [1]
            assert leader.query_state("q").visits == 2
    assert_sound(url)


def conflicts_at(*servers):
    """Return how many conflicts servers have counted."""
    conflicts = 0.0
    for server in servers:
        with server.connect() as connection:
            text = connection.get("/metrics").content.decode()
        conflicts += float(text.split("\nmcfair_conflicts_total ")[1].split()[0])
    return conflicts


def test_two_server_processes_rank_the_same_hot_queries(url):
    ports = [free_port(), free_port()]
    run_state = LoadRun(ports[0])
    with ServerProcess(url, port=ports[0]) as first, ServerProcess(url, port=ports[1]) as second:
        first.ready()
        second.ready()
        run_state.up.set()
        shoppers = [RoamingShopper(run_state, number, 3, ports, queries=2) for number in range(6)]
        for each in shoppers:
            each.start()
        until = time.monotonic() + 60
        while time.monotonic() < until and not (conflicts_at(first, second) and run_state.acknowledged.total() > 300):
            time.sleep(0.1)
        run_state.stop(shoppers)
        conflicts = conflicts_at(first, second)
        for each in shoppers:
            each.check_own_query()
            each.connection.close()
        assert [server.terminate() for server in (first, second)] == [0, 0]
        assert " ERROR " not in first.text + second.text
    assert run_state.faults == []
    assert conflicts > 0
    assert run_state.acknowledged.total() > 300
    assert proof_faults(url) == []


def test_nothing_is_lost_or_doubled_when_instances_and_the_database_are_killed():
    report = PostgresLoop(seed=2).run(POINTS)
    print(report)
    assert report.faults == []
    assert report.kills.total() == len(POINTS)
    assert report.kills["database"] == 1
    assert max(report.reconnections) < 120


# --- commits with an unknown end -------------------------------------------------------------------------------------


class CutAtCommit(PostgresStore):
    """Loses the connection at the commit of a batch, before or after it reached the database."""

    proxy = what = None

    def write_rows(self, won, commit):
        if self.what is not None and commit and won:
            self.proxy.cut(self.what)
            self.what = None
        super().write_rows(won, commit)


@pytest.mark.parametrize(("what", "recorded"), [("replies", True), ("requests", False)])
def test_a_commit_with_an_unknown_end_is_resolved_by_the_idempotency_key(url, what, recorded):
    proxy = CuttingProxy(shared_server().port)
    store = CutAtCommit(url.replace(f":{shared_server().port}/", f":{proxy.port}/"))
    with closing(proxy), Ranker(store, warm=False) as ranker:
        first = ranker.rank("q", ["a", "b"], key="one")
        store.proxy, store.what = proxy, what
        with pytest.raises(UnavailableError, match="not known whether this was recorded"):
            ranker.rank("q", ["a", "b"], key="two")
        with open_reader(url) as reader:
            stored = len(list(reader.log(reader.numbers(0, 1)[0], 0)))
        assert stored == (2 if recorded else 1), "the cut was at another moment"
        again = ranker.rank("q", ["a", "b"], key="two")
        assert ranker.query_state("q").visits == 2
        assert again.impression != first.impression
        assert ranker.rank("q", ["a", "b"], key="two") == again
    assert_sound(url)


def test_a_backend_that_is_terminated_costs_one_refusal(url):
    with Ranker(url, warm=False) as ranker:
        ranker.rank("q", ["a", "b"], key="one")
        with psycopg.connect(url, autocommit=True) as db:
            db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'mcfair'")
        for _ in range(20):
            try:
                ranker.rank("q", ["a", "b"], key="two")
                break
            except UnavailableError:
                time.sleep(0.05)
        assert ranker.query_state("q").visits == 2
        assert ranker.ready()


def test_a_database_that_hangs_is_given_up_and_used_again_when_it_responds():
    server = PostgresServer()
    store = PostgresStore(server.new_database(), timeout=1.0)
    with closing(server), Ranker(store, warm=False) as ranker:
        ranker.rank("q", ["a", "b"], key="one")
        server.signal(signal.SIGSTOP)
        try:
            with pytest.raises(UnavailableError):
                ranker.rank("q", ["a", "b"], key="two")
            assert not ranker.ready()
        finally:
            server.signal(signal.SIGCONT)
        end = time.monotonic() + 20.0
        while True:
            try:
                ranker.rank("q", ["a", "b"], key="two")
                break
            except UnavailableError:
                assert time.monotonic() < end, "the database responds, but is not used"
                time.sleep(0.05)
        assert ranker.query_state("q").visits == 2


# --- deliberate faults -----------------------------------------------------------------------------------------------


class EarlyAcknowledgement(SharedGroupCommit):
    """Keeps the results of a batch although its commit failed, as if they had been sent before it."""

    faulty = True

    def refuse(self, items, error):
        if not self.faulty:
            super().refuse(items, error)


def test_acknowledging_before_the_commit_is_caught(url):
    def check(faulty):
        proxy = CuttingProxy(shared_server().port)
        database = shared_server().new_database()
        store = CutAtCommit(database.replace(f":{shared_server().port}/", f":{proxy.port}/"))
        executor = type("Executor", (EarlyAcknowledgement,), {"faulty": faulty})
        acknowledged = Counter()
        with closing(proxy), Ranker(store, warm=False, executor_class=executor) as ranker:
            for i in range(6):
                store.proxy, store.what = proxy, "requests" if i == 3 else None
                for _ in range(20):
                    try:
                        ranker.rank("q", ["a", "b"], key=f"k{i}")
                        acknowledged["q"] += 1
                        break
                    except UnavailableError:
                        time.sleep(0.05)
            visits = ranker.query_state("q").visits
        assert visits == acknowledged["q"] == 6, f"lost: {visits} of {acknowledged['q']} acknowledged rankings"

    caught_by(check, "lost: 5 of 6 acknowledged")


class ClaimsIgnored(PostgresStore):
    """Treats every claim as successful: two instances overwrite each other."""

    faulty = True

    def claim(self, pending):
        lost = super().claim(pending)
        return set() if self.faulty else lost


class KeysAssumedNew(PostgresStore):
    """Assumes that idempotency keys are new and never checks it."""

    faulty = True

    def claim(self, pending):
        for each in pending if self.faulty else ():
            each.assumed_new.clear()
        return super().claim(pending)


class RevisionIgnored(PostgresStore):
    """Appends to a query although it was compacted since it was loaded."""

    faulty = True

    def append(self, number, entry, revision=None):
        super().append(number, entry, None if self.faulty else revision)


def rank_in_turn(store_class):
    """Rank the same candidates on both instances in turn: the cache of the other one is always out of date."""
    with instances(store_class) as (rankers, database):
        for _ in range(5):
            for each in rankers:
                each.rank("q", ["a", "b"], k=2)
        visits = rankers[0].query_state("q").visits
        assert visits == 10, f"lost: {visits} visits for 10 acknowledged rankings"
        assert_sound(database)


def repeat_elsewhere(store_class):
    """Repeat a request on another instance, whose cache is current."""
    with instances(store_class) as ((first, second), _):
        answer = first.rank("q", ["a", "b"], key="k")
        assert second.query_state("q").visits == 1
        again = second.rank("q", ["a", "b"], key="k")
        assert again == answer, "doubled: the same key has two impressions"


def compact_elsewhere(store_class):
    """Rank the same candidates again after another instance has compacted the entry that introduced them."""
    now = [1_700_000_000_000]
    with instances(store_class, clock=lambda: now[0], retention=10.0) as (rankers, database):
        leads = [each.executor.submit(lambda engine: engine.store.leads()).result() for each in rankers]
        leader, other = sorted(rankers, key=lambda each: -leads[rankers.index(each)])
        other.rank("q", ["a", "b"])
        now[0] += 20_000
        leader.executor.submit(lambda engine: engine.compact_expired()).result()
        assert leader.usage().impressions == 0
        other.rank("q", ["a", "b"])
        with open_reader(database) as reader:
            faults = verify(reader)
        assert not faults, f"lost: {faults[0]}"


@contextmanager
def instances(store_class, **settings):
    """Yield two instances over a new database, which may also fail to close."""
    database = shared_server().new_database()
    rankers = [Ranker(store_class(database), warm=False, **settings) for _ in range(2)]
    try:
        yield rankers, database
    finally:
        for each in rankers:
            each.close()


FAULTS = {
    ClaimsIgnored: (rank_in_turn, "^lost: "),
    KeysAssumedNew: (repeat_elsewhere, "^doubled: "),
    RevisionIgnored: (compact_elsewhere, "^lost: .*candidate set 1 is missing"),
}
"""Each fault with the check that catches it, and why."""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_deliberate_fault_of_optimistic_concurrency_is_caught(fault):
    check, reason = FAULTS[fault]
    caught_by(lambda faulty: check(type(fault.__name__, (fault,), {"faulty": faulty})), reason)
