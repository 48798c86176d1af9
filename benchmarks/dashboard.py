"""The dashboard of a large store: CPU time of the walks behind its figures, and milliseconds of its pages.

    python benchmarks/dashboard.py            # 100,000 queries, about ten minutes on an idle core
    python benchmarks/dashboard.py --quick    # 2,000 queries; too few for figures to quote
    python benchmarks/dashboard.py --out docs/results/dashboard.json    # the figures of docs/how-to/watch-fairness.md

The walks run without the rests of the background, so that their CPU time is all that they cost. Then a service with
its background process serves the pages over HTTP, one request at a time and all pages in turn; the first requests after
its start count. The CPU time of a page is the median over its requests of that of both processes: a walk in the
background would have to run half of the time to be in it.
"""

import argparse
import json
import random
import tempfile
import time
import urllib.request
from pathlib import Path
from statistics import median

import msgspec
from measuring import machine, show_progress
from service import running

from mcfair.service.core.engine import Engine
from mcfair.service.ranker import Ranker
from mcfair.service.stores import SQLiteStore
from mcfair.service.wire import Event, RawRankRequest

ITEMS, GROUPS, RANKS, LISTS = 10, 300, 5, 2
"""Items of a query, groups of all items, ranks of a list, and lists of a query."""

BATCH = 500
"""Queries that are written in one transaction."""


def build(path, queries):
    """Fill a store: every query has been ranked some times, and every other one has got a click."""
    rng, store = random.Random(0), SQLiteStore(path)
    store.db.execute("PRAGMA synchronous = OFF")
    store.begin()
    engine = Engine(store)
    store.commit()
    for first in range(0, queries, BATCH):
        store.begin()
        for number in range(first, min(first + BATCH, queries)):
            fill_query(engine, rng, number)
        store.commit()
    store.close()


def fill_query(engine, rng, number):
    """Rank the items of one query."""
    items = [
        {"id": f"sku {number}-{i}", "group": f"seller {rng.randrange(GROUPS)}", "prior": round(rng.random(), 2)}
        for i in range(ITEMS)
    ]
    request = RawRankRequest(query=f"query {number}", items=msgspec.Raw(msgspec.json.encode(items)), k=RANKS)
    for _ in range(LISTS):
        answer = engine.rank(request)
    if number % 2:
        engine.feedback([Event(impression=answer.impression, item=rng.choice(answer.items).id)])


def measure_walks(path):
    """Return the CPU seconds of the first walk and of one in which nothing has changed, and the id of a query."""
    found = {}
    with Ranker(path, summary_interval=0) as ranker:
        for name in ("first", "nothing changed"):
            show_progress(f"walk: {name}")
            begun = time.process_time()
            with ranker.executor.store.reader() as store:
                ranker.worker.summaries.walk(store, ranker.executor.now())
            found[name] = time.process_time() - begun
            print(f"walk, {name}: {found[name]:.1f} s of CPU", flush=True)
        return found, ranker.unfair_queries(limit=1).queries[0].query_id


def measure_pages(path, query_id, rounds):
    """Return milliseconds and CPU milliseconds of every page over some rounds."""
    pages = {
        "overview": "/",
        "queries": "/queries",
        "one query": f"/queries/{query_id}",
        "items and groups, with reasons": "/items",
        "compare": "/compare",
        "compare, with a policy that is replayed": "/compare?policy=TopK",
    }
    taken = {name: [] for name in pages}
    with running("service", path) as service:
        for i in range(rounds):
            show_progress(f"pages: round {i + 1} of {rounds}")
            for name, page in pages.items():
                used, begun = cpu_seconds(service.process.pid), time.perf_counter()
                with urllib.request.urlopen(f"http://127.0.0.1:{service.port}{page}") as answer:
                    answer.read()
                wall = time.perf_counter() - begun
                taken[name].append((1e3 * (cpu_seconds(service.process.pid) - used), 1e3 * wall))
    found = {}
    for name, each in taken.items():
        cpu, wall = zip(*each, strict=True)
        found[name] = {"CPU, ms": median(cpu), "median, ms": median(wall), "worst, ms": max(wall)}
        print(name, *(f"{label} {value:.0f}" for label, value in found[name].items()), sep="; ", flush=True)
    return found


def cpu_seconds(process):
    """Return the CPU time of a process and its children, in nanoseconds' precision; /proc/PID/stat has hundredths."""
    threads = list(Path(f"/proc/{process}/task").iterdir())
    own = sum(int((each / "schedstat").read_text().split()[0]) for each in threads) / 1e9
    return own + sum(cpu_seconds(child) for each in threads for child in (each / "children").read_text().split())


def main():
    """Build a store, measure walks and pages, and write the figures to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--quick", action="store_true", help="2,000 queries")
    parser.add_argument("--rounds", type=int, default=20, help="requests of each page")
    parser.add_argument("--folder", help="folder for the store; must be on a real disk")
    parser.add_argument("--out", type=Path, metavar="FILE", help="JSON file to write")
    options = parser.parse_args()
    queries, about = 2_000 if options.quick else options.queries, machine()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "dashboard.db"
        show_progress(f"building a store of {queries:,} queries")
        build(path, queries)
        walks, query_id = measure_walks(path)
        pages = measure_pages(path, query_id, options.rounds)
    if options.out is not None:
        store = {"queries": queries, "items": ITEMS, "groups": GROUPS, "lists": LISTS * queries}
        figures = {"made_with": about, "store": store, "walks, CPU seconds": walks, "pages": pages}
        options.out.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
