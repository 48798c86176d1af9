"""Measure the service on a large store next to an empty one: `python benchmarks/scale.py [--quick]`.

The large store has one query with millions of live impressions, half of which have expired, and a million other
queries. Requests for other queries are ranked on both stores in turn, in processes of their own, while the large store
compacts what has expired; then again while it purges the large query after its deletion.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import numpy as np
from measuring import machine, show_progress

from mcfair.service.core.engine import Engine
from mcfair.service.core.ranking import CANDIDATES_REUSED
from mcfair.service.core.records import encode
from mcfair.service.ranker import Ranker
from mcfair.service.stores import KIND_IMPRESSION, SQLiteStore
from mcfair.service.wire import RawRankRequest

DAY = 86_400_000
RETENTION = 7 * DAY
HOT, OTHERS, CANDIDATES, RANKS = "hot", 200, 100, 10
CACHE = 64 << 20
BATCH = 50_000

NUMBERS = "(WITH RECURSIVE n(i) AS (VALUES (?1) UNION ALL SELECT i + 1 FROM n WHERE i < ?2) SELECT i FROM n)"
SET = f"(i - 1) / {CANDIDATES_REUSED - 1} * {CANDIDATES_REUSED - 1} + 1"
"""SQL of the numbers of a batch, and of the candidate set that an entry of the large query refers to."""


# --- building the large store ----------------------------------------------------------------------------------------


def build(path, impressions, queries):
    """Write the rows that the engine would have written, in bulk."""
    store = SQLiteStore(path)
    store.db.execute("PRAGMA synchronous = OFF")
    now = time.time_ns() // 1_000_000
    engine = Engine(store, clock=lambda: now)
    fill_hot_query(engine, impressions, now)
    fill_other_queries(engine, queries, now)
    store.maintain()
    store.close()


def request(query, n, k):
    items = [{"id": f"{query} {i}", "prior": 0.1} for i in range(n)]
    return RawRankRequest(query=query, items=msgspec.Raw(msgspec.json.encode(items)), k=k)


def fill_hot_query(engine, impressions, now):
    """Repeat one list: spread over twice the retention, so that the older half has expired."""
    store = engine.store
    engine.rank(request(HOT, CANDIDATES, RANKS))
    ledger = engine.ledger(engine.find_number(HOT, None))
    first, (n, body) = store.entry(ledger.number, 1), store.candidates(ledger.number, 1)
    store.db.execute("DELETE FROM log")
    store.db.execute("DELETE FROM candidates")
    step = 2 * RETENTION / impressions
    log = f"""INSERT INTO log SELECT ?3, i, CAST(?4 + i * ?5 AS INTEGER), {KIND_IMPRESSION}, 1, {SET}, ?6, NULL
              FROM {NUMBERS}"""
    sets = f"INSERT INTO candidates SELECT ?3, i, ?4, ?5 FROM {NUMBERS} WHERE i = {SET}"
    for low, high in batches(1, impressions):
        store.begin()
        store.db.execute(log, (low, high, ledger.number, now - 2 * RETENTION, step, first.body))
        store.db.execute(sets, (low, high, ledger.number, n, body))
        store.commit()
    (block,) = ledger.counts.blocks.values()
    block.F *= impressions
    ledger.seq, ledger.time, ledger.visits = impressions, now, impressions
    ledger.used[: ledger.rows] = impressions
    store.begin()
    store.add_snapshot(ledger.number, impressions, now, encode(ledger.snapshot()))
    store.commit()
    engine.drop_cache()


def batches(first, last):
    """Return ranges of numbers, ends included."""
    return [(low, min(low + BATCH - 1, last)) for low in range(first, last + 1, BATCH)]


def fill_other_queries(engine, queries, now):
    """Repeat one small query under other names."""
    store = engine.store
    engine.rank(request("small", 3, 3))
    number = engine.ledger(engine.find_number("small", None)).number
    first, (n, body) = store.entry(number, 1), store.candidates(number, 1)
    inserts = {
        "queries": ("i, randomblob(16), 0", ()),
        "log": (f"i, 1, ?3 - abs(random()) % {RETENTION}, {KIND_IMPRESSION}, 1, 1, ?4, NULL", (now, first.body)),
        "candidates": ("i, 1, ?3, ?4", (n, body)),
    }
    for low, high in batches(number + 1, number + queries):
        store.begin()
        for table, (columns, values) in inserts.items():
            store.db.execute(f"INSERT INTO {table} SELECT {columns} FROM {NUMBERS}", (low, high, *values))
        for row in range(3):
            columns = f"i, {row}, 'small {row}', NULL, NULL"
            store.db.execute(f"INSERT INTO items SELECT {columns} FROM {NUMBERS}", (low, high))
        store.commit()


# --- measuring -------------------------------------------------------------------------------------------------------


def serve(path):
    """Execute commands from standard input: measure for some seconds, or delete the hot query."""
    items = [[{"id": f"{i} {j}", "prior": 0.1} for j in range(CANDIDATES)] for i in range(OTHERS)]
    with Ranker(path, cache=CACHE) as ranker:
        for i, each in enumerate(items):
            ranker.rank(f"other {i}", each, k=RANKS)
        for line in sys.stdin:
            command = json.loads(line)
            if command == "delete":
                answer = ranker.delete_query(HOT)
            else:
                begun = time.process_time()
                answer = {"seconds": measure(ranker, items, **command), "cpu": time.process_time() - begun}
                answer |= {"memory": memory(), "base": base(ranker)}
            print(json.dumps(answer), flush=True)


def measure(ranker, items, seconds, rate):
    """Rank at fixed times; each request is timed from when it was due."""
    rng, begun, taken = random.Random(0), time.perf_counter(), []
    for i in range(int(seconds * rate)):
        due = begun + i / rate
        time.sleep(max(0.0, due - time.perf_counter()))
        query = rng.randrange(OTHERS)
        ranker.rank(f"other {query}", items[query], k=RANKS)
        taken.append(time.perf_counter() - due)
    return taken


def memory():
    """Return the memory of this process, and its maximum so far, in MB."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return [int(status[name].split()[0]) / 1000 for name in ("VmRSS", "VmHWM")]


def base(ranker):
    """Return the number of compacted log entries of the hot query."""
    return ranker.executor.submit(lambda engine: engine.store.base(1)).result()


class Served:
    """A process with a service on one store."""

    def __init__(self, path):
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, command):
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def compare(servers, rounds, seconds, rate, what):
    """Measure both stores in turn; print the quantiles over all rounds and their ratios."""
    answers = {name: [] for name in servers}
    begun = time.perf_counter()
    for i in range(rounds):
        show_progress(f"{what}: round {i + 1} of {rounds}")
        for name, server in servers.items():
            answers[name].append(server.ask({"seconds": seconds, "rate": rate}))
    elapsed = time.perf_counter() - begun
    print(f"\n{what} ({rounds} rounds of {seconds:g} s at {rate} requests/s)")
    quantiles = {}
    for name, each in answers.items():
        taken = [1000 * one for answer in each for one in answer["seconds"]]
        quantiles[name] = np.quantile(taken, (0.5, 0.9, 0.99))
        p50, p90, p99 = quantiles[name]
        cpu = 1000 * sum(answer["cpu"] for answer in each) / len(taken)
        print(
            f"{name:>7}: p50 {p50:.2f} ms, p90 {p90:.2f} ms, p99 {p99:.2f} ms, {cpu:.2f} ms of CPU per request, "
            f"memory {each[-1]['memory'][0]:.0f} MB, at most {each[-1]['memory'][1]:.0f} MB"
        )
    ratios = ", ".join(f"{ratio:.2f}" for ratio in quantiles["large"] / quantiles["empty"])
    compacted = answers["large"][-1]["base"] - answers["large"][0]["base"]
    print(f" ratios: {ratios}; target: p99 at most 2, memory at most {(CACHE >> 20) + 300} MB")
    print(f"         {max(0, compacted) / elapsed:,.0f} log entries compacted per second, in the background")


def main():
    """Build the stores and print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a fiftieth of everything")
    parser.add_argument("--impressions", type=int, default=10_000_000)
    parser.add_argument("--queries", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rate", type=int, default=100, help="requests per second")
    parser.add_argument("--folder", type=Path, help="where the stores are written, about 2 GB")
    parser.add_argument("--build", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve:
        serve(chosen.serve)
        return
    size = 50 if chosen.quick else 1
    if chosen.build:
        build(chosen.build, chosen.impressions // size, chosen.queries // size)
        return
    with tempfile.TemporaryDirectory(prefix="mcfair-scale-", dir=chosen.folder) as folder:
        paths = {name: Path(folder) / f"{name}.db" for name in ("empty", "large")}
        show_progress("building the large store")
        subprocess.run(["nice", sys.executable, *sys.argv, "--build", paths["large"]], check=True)
        show_progress(f"{paths['large'].stat().st_size / 1e6:,.0f} MB")
        print(json.dumps(machine(), indent=1))
        servers = {name: Served(path) for name, path in paths.items()}
        effort = (chosen.rounds, chosen.seconds, chosen.rate)
        compare(servers, *effort, f"{chosen.impressions // size:,} impressions of one query, half of them expired")
        servers["large"].ask("delete")
        compare(servers, *effort, "the large query was deleted")
        for server in servers.values():
            server.close()


if __name__ == "__main__":
    main()
