"""A service under steady load does not grow: expired entries are compacted, however busy it is."""

import sys
import time
from collections import deque
from functools import partial

import pytest
from crash_loop import proof_faults
from service_process import CRASH_SERVER, ServerProcess
from shoppers import LoadRun, Shopper
from soak import Soak

from mcfair.service.core.engine import Engine
from mcfair.service.core.rules import change_rules
from mcfair.service.group_commit import GroupCommit
from mcfair.service.ranker import Ranker
from mcfair.service.stores import SQLiteStore
from mcfair.service.wire import Item, RankRequest, with_raw_items

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory of other processes is read from /proc")

REQUEST = with_raw_items(RankRequest(query="red shoes", items=[Item("a"), Item("b"), Item("c")], k=2))


def test_steady_load_neither_grows_nor_loses_anything(tmp_path):
    soaked = Soak(tmp_path, retention=1.5, pause=0.04).run(7, samples=14)
    print(*soaked.samples, sep="\n")
    assert soaked.faults == []
    assert soaked.samples[-1].operations > 300
    assert soaked.samples[-1].impressions < soaked.samples[-1].operations / 4  # most have expired
    assert soaked.growth("file") < 2
    assert soaked.growth("impressions") < 2
    assert soaked.growth("rss") < 1.5
    assert max(sample.wal for sample in soaked.samples) < 100e6


def test_crash_during_compaction(tmp_path):
    """Kill the server when everything has expired and half of it is compacted in a transaction that never commits."""
    store, retention = tmp_path / "store.db", ("--retention", "4s")
    crash = {"MCFAIR_CRASH": "in-compaction:0"}
    with ServerProcess(store, *retention, command=CRASH_SERVER, environment=crash).ready() as server:
        shopper = Shopper(LoadRun(server.port), 0, seed=5)
        end = time.monotonic() + 2
        while time.monotonic() < end and len(shopper.impressions) < 80:
            shopper.visit()
        assert server.wait() == -9
    shopper.connection.http.close()
    with ServerProcess(store, *retention, port=server.port).ready() as server, server.connect() as connection:
        while connection.get("/v1/usage").json["impressions"]:
            shopper.check_own_query()
            time.sleep(0.05)
        shopper.check_own_query()
        assert server.terminate() == 0
    shopper.connection.http.close()
    assert shopper.run_state.faults == []
    assert proof_faults(store) == []


def test_idempotency_keys_expire_as_fast_as_they_arrive():
    now, rate, retention = 1_700_000_000_000, 500, 2
    store = SQLiteStore(None)
    engine = Engine(store, lambda rules: change_rules(rules, None, {"retention": float(retention)}), clock=lambda: now)
    for second in range(8):
        for i in range(rate):
            engine.rank(REQUEST, f"{second} {i}")
        now += 1_000
        engine.compact_expired()
    left = store.number("SELECT count(*) FROM requests")
    store.close()
    assert left <= 2 * rate * retention


def test_compaction_runs_under_constant_load():
    executor = partial(GroupCommit, compaction_interval=0.1)
    with Ranker("memory:", warm=False, executor_class=executor, retention=1.0) as ranker:
        waiting = deque(ranker.executor.submit(Engine.rank, REQUEST) for _ in range(600))
        total, end = 600, time.monotonic() + 3
        while time.monotonic() < end:
            waiting.popleft().result()
            waiting.append(ranker.executor.submit(Engine.rank, REQUEST))
            total += 1
        assert ranker.executor.queue_depth > 0
        left = ranker.usage().impressions
    assert left < total * 0.9
