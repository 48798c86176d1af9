"""Benchmark the service under load, next to two baselines: `python benchmarks/service.py [--quick]`.

The baselines are a bare endpoint, which only decodes and encodes the same bytes, and a bare group commit, which only
makes a row durable. All of them alternate within one run. Every request is timed from when it was due, so that waiting
behind a slow request counts (no coordinated omission).
"""

import argparse
import contextlib
import dataclasses
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from functools import partial
from pathlib import Path
from statistics import median

import msgspec
import numpy as np
from load import UNSENT, Plan
from measuring import machine, show_progress

from mcfair.service import wire

HERE = Path(__file__).parent
QUANTILES = {"p50": 50, "p90": 90, "p99": 99, "p99.9": 99.9}
RATE, CALM_RATE = 1000, 200
"""Requests per second; the lower rate is for requests so large that the bare endpoint cannot serve more of them."""

WARM_UP = 0.15
"""Share of a measurement that is discarded at its beginning."""

CAPACITY_CONNECTIONS = 64
CLOSED_CONNECTIONS, AGAINST_RATES = 48, (600, 1000)
"""Connections of the closed loop, and requests per second, at which two versions are compared."""

OVERLOAD_CONNECTIONS = 500
CLICKS = 2
"""Clicks per impression in the feedback benchmark."""


@dataclasses.dataclass(frozen=True)
class Effort:
    """Size of the benchmark."""

    rounds: int
    seconds: float  # of each measurement
    queries: int
    batches: int  # of feedback
    fill_queries: int
    fill_impressions: int


FULL = Effort(rounds=5, seconds=10, queries=1000, batches=40, fill_queries=10_000, fill_impressions=100_000)
QUICK = Effort(rounds=2, seconds=3, queries=200, batches=4, fill_queries=1000, fill_impressions=5000)


# --- processes -------------------------------------------------------------------------------------------------------


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def running(name, *arguments):
    """Run a server of `servers.py` on a free port for the duration of the block."""
    port = free_port()
    return serving(port, [sys.executable, HERE / "servers.py", name, port, *arguments])


def running_checkout(checkout, store):
    """Run the service of another checkout, or of this one, as its command does, for the duration of the block."""
    port, source = free_port(), checkout / "src" if (checkout / "src").is_dir() else checkout
    command = [sys.executable, "-m", "mcfair", "serve", "--store", f"sqlite:///{store}", "--port", port]
    return serving(port, command, {**os.environ, "PYTHONPATH": str(source)})


@contextlib.contextmanager
def serving(port, command, environment=None):
    """Run a server on a port for the duration of the block."""
    process = subprocess.Popen([*map(str, command)], env=environment, stdout=subprocess.DEVNULL)
    try:
        while process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.1)
        else:
            sys.exit(f"{' '.join(map(str, command))} did not start")
        yield Server(port, process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


class Server:
    """A running server."""

    def __init__(self, port, process):
        self.port, self.process = port, process

    def load(self, answers=False, **plan):
        """Generate load; return records, and response bodies if requested."""
        with tempfile.TemporaryDirectory() as folder:
            files = {"records": f"{folder}/records.npy", "answers": f"{folder}/answers" if answers else ""}
            content = msgspec.json.encode(Plan(port=self.port, **plan, **files))
            subprocess.run([sys.executable, str(HERE / "load.py")], input=content, check=True)
            records = np.load(files["records"])
            return (records, Path(files["answers"]).read_bytes().splitlines()) if answers else records

    def ask(self, path, kind):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}") as answer:
            return msgspec.json.decode(answer.read(), type=kind)

    @property
    def memory(self):
        """Resident memory in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(re.search(r"VmRSS:\s+(\d+)", status)[1])

    @property
    def cpu(self):
        """CPU time used by the process and its children, in seconds."""
        return sum(cpu_ticks(process) for process in self.process_tree()) / os.sysconf("SC_CLK_TCK")

    def process_tree(self):
        """Return the ids of the process and of all its descendants."""
        children = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                children.setdefault(int(path.read_text().rpartition(")")[2].split()[1]), []).append(int(path.parts[2]))
        found = [self.process.pid]
        for each in found:
            found += children.get(each, [])
        return found


def cpu_ticks(process):
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def commits(folder, seconds, seed):
    """Generate load on the bare group commit."""
    records = Path(folder) / "commits.npy"
    command = ["commits", Path(folder) / "commits.db", RATE, seconds, seed, records]
    subprocess.run([sys.executable, str(HERE / "servers.py"), *map(str, command)], check=True)
    return np.load(records)


# --- figures ---------------------------------------------------------------------------------------------------------


def milliseconds(records):
    """Return latency quantiles of successful requests, and the share of failed ones."""
    measured = records[records["begun"] >= records["begun"][0] + WARM_UP * np.ptp(records["begun"])]
    good = measured[measured["status"] == 200]
    times = np.percentile(good["taken"], list(QUANTILES.values())) * 1e3 if len(good) else np.full(4, np.nan)
    return dict(zip(QUANTILES, times.tolist(), strict=True)) | {"errors": 1 - len(good) / max(1, len(measured))}


def medians(figures):
    return {name: median(each[name] for each in figures) for name in figures[0]}


class Report:
    """Tables in Markdown, printed at once and collected for the file."""

    def __init__(self):
        self.tables, self.targets = {}, []

    def table(self, title, rows, note=""):
        lines = [list(rows[0]), ["---"] * len(rows[0]), *([shown(value) for value in row.values()] for row in rows)]
        print(f"\n**{title}**\n", *(f"| {' | '.join(line)} |" for line in lines), sep="\n")
        print(*([f"\n{note}"] if note else []), flush=True)
        self.tables[title] = rows

    def target(self, figure, value, limit, at_least=False):
        met = value >= limit if at_least else value <= limit
        self.targets.append(
            {
                "figure": figure,
                "value": value,
                "target": f"{'≥' if at_least else '≤'} {shown(limit)}",
                "verdict": "met" if met else "not met",
            }
        )


def shown(value):
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


# --- latency ---------------------------------------------------------------------------------------------------------


def latency(report, effort, folder):
    """Measure latency in an open loop at a fixed rate: the service and the baselines."""
    few = {"queries": effort.queries}
    many = {"queries": effort.queries // 5, "n": 1000}  # few enough to fit into the cache
    fast, calm = ({"rate": rate, "seconds": effort.seconds} for rate in (RATE, CALM_RATE))
    with contextlib.ExitStack() as stack:
        bare = stack.enter_context(running("endpoint"))
        # One service per mix, so that none evicts the queries of another from the cache.
        hundred, thousand, fresh = (
            stack.enter_context(running("service", folder / f"{name}.db")) for name in ("hundred", "thousand", "fresh")
        )
        show_progress("latency: warming up")
        for server, mix in ((bare, few), (bare, many), (hundred, few), (thousand, many), (fresh, few)):
            server.load(seconds=60, most=mix["queries"], even=True, connections=16, **mix)
        turns = {
            "bare endpoint, n = 100": partial(bare.load, **fast, **few),
            "bare group commit": partial(commits, folder, effort.seconds),
            "service, n = 100": partial(hundred.load, **fast, **few),
            "calm: service, n = 100": partial(hundred.load, **calm, **few),
            "calm: service, n = 100, 4 of 5 queries new": partial(fresh.load, **calm, **few, new=0.8),
            "calm: bare endpoint, n = 1,000": partial(bare.load, **calm, **many),
            "calm: service, n = 1,000": partial(thousand.load, **calm, **many),
        }
        figures = {name: [] for name in turns}
        for i in range(effort.rounds):
            show_progress(f"latency: round {i + 1} of {effort.rounds}")
            for name, turn in turns.items():
                figures[name].append(milliseconds(turn(seed=i)))
    found = {name: medians(rounds) for name, rounds in figures.items()}
    report.table(
        f"Milliseconds at {RATE:,} requests/s, calm: {CALM_RATE}; {effort.rounds} rounds of {effort.seconds:g} s",
        [{"": name} | each for name, each in found.items()],
    )
    endpoint, commit, ours = (found[name] for name in list(turns)[:3])
    for quantile, allowance in (("p50", 1.0), ("p99", 3.0)):
        limit = endpoint[quantile] + commit[quantile] + allowance
        report.target(f"{quantile} in ms, n = 100: endpoint + commit + {allowance:g}", ours[quantile], limit)
    added = found["calm: service, n = 1,000"]["p50"] - found["calm: service, n = 100"]["p50"]
    report.target("p50 in ms that n = 1,000 adds", added, 2.0)


# --- feedback --------------------------------------------------------------------------------------------------------


def feedback(report, effort, folder):
    """Measure the throughput of clicks on real impressions, in full batches."""
    wanted = effort.batches * wire.MAX_EVENTS // CLICKS
    with running("service", folder / "feedback.db") as service:
        show_progress(f"feedback: {wanted:,} impressions")
        queries = {"queries": effort.queries, "most": wanted, "connections": CAPACITY_CONNECTIONS}
        _, answers = service.load(seconds=600, answers=True, **queries)
        rankings = [msgspec.json.decode(each, type=wire.Ranking) for each in answers]
        events = [
            wire.Event(impression=each.impression, item=item.id) for each in rankings for item in each.items[:CLICKS]
        ]
        batches = [events[i : i + wire.MAX_EVENTS] for i in range(0, len(events), wire.MAX_EVENTS)]
        bodies = folder / "batches"
        bodies.write_bytes(b"\n".join(msgspec.json.encode(wire.Feedback(events=batch)) for batch in batches))
        show_progress(f"feedback: {len(batches)} batches")
        before = service.cpu
        records, answers = service.load(
            seconds=600, answers=True, path="/v1/feedback", bodies=str(bodies), most=len(batches), connections=4
        )
        cpu = service.cpu - before
    statuses = [
        each.status for text in answers for each in msgspec.json.decode(text, type=wire.FeedbackResults).results
    ]
    seconds = float((records["begun"] + records["taken"]).max() - records["begun"][0])
    figures = {
        "events": len(events),
        "applied": statuses.count("applied"),
        "events/s": len(events) / seconds,
        "CPU, µs an event": cpu / len(events) * 1e6,
        "ms a batch, median": float(np.median(records["taken"])) * 1e3,
    }
    report.table(
        f"Feedback: clicks in batches of {wire.MAX_EVENTS:,}, {CLICKS} an impression, 4 connections", [figures]
    )
    report.target("feedback events/s", figures["events/s"], 10_000.0, at_least=True)


# --- overload --------------------------------------------------------------------------------------------------------


def overload(report, effort, folder):
    """Measure five times the capacity, then the recovery at 30 % of it."""
    with running("service", folder / "overload.db") as service:
        queries = {"queries": effort.queries}
        service.load(seconds=60, most=effort.queries, even=True, connections=16, **queries)
        show_progress("overload: capacity")
        used = service.cpu
        records = service.load(seconds=effort.seconds / 2, connections=CAPACITY_CONNECTIONS, **queries)
        capacity = len(records) / float((records["begun"] + records["taken"]).max() - records["begun"][0])
        cpu = (service.cpu - used) / len(records)
        calm = {"rate": 0.3 * capacity, "seconds": effort.seconds, **queries}
        before = windows(service.load(seed=1, **calm))
        show_progress(f"overload: five times {capacity:,.0f} requests/s")
        flood = service.load(
            seed=2, rate=5 * capacity, seconds=effort.seconds, connections=OVERLOAD_CONNECTIONS, wait=False, **queries
        )
        show_progress("overload: after it")
        after = service.load(seed=3, **calm)
    sent = flood[flood["status"] != UNSENT]
    share = {name: float(np.mean(sent["status"] == status)) for name, status in (("answered", 200), ("503", 503))}
    during = milliseconds(sent)
    report.table(
        f"Overload: {OVERLOAD_CONNECTIONS} connections with one request each; others are not sent",
        [
            {
                "capacity, requests/s": capacity,
                "CPU, µs a request": cpu * 1e6,
                "offered, requests/s": 5 * capacity,
                "found a connection": len(sent) / len(flood),
                "of those answered": share["answered"],
                "refused with 503": share["503"],
                "answered/s": float(np.sum(sent["status"] == 200)) / effort.seconds,
                "p50, ms": during["p50"],
                "p99, ms": during["p99"],
            }
        ],
    )
    later = windows(after)
    seconds = next((i for i, p99 in enumerate(later) if p99 <= max(before)), float("inf"))
    report.table(
        "p99 of each second at 30 % of capacity, in ms",
        [
            {"": name, "least": min(each), "median": median(each), "most": max(each), "s until normal": wait}
            for name, each, wait in (("before", before, ""), ("after", later, seconds))
        ],
        "Normal: at most the highest value before the overload; inf if it was not reached.",
    )
    report.target("seconds until normal after overload", seconds, 5)


def windows(records, seconds=1.0):
    """Return the p99 latency of each second, in ms."""
    second = ((records["begun"] - records["begun"][0]) // seconds).astype(int)
    return [float(np.percentile(records["taken"][second == i], 99)) * 1e3 for i in range(second[-1])]


# --- size ------------------------------------------------------------------------------------------------------------


def size(report, effort, folder):
    """Measure bytes per item and per impression, in memory and in the file."""
    items, file = 20, folder / "size.db"
    with running("service", file) as service:

        def state():
            log = file.with_name("size.db-wal").stat().st_size  # it is reused, so it does not grow with the data
            return service.memory, service.ask("/v1/usage", wire.Usage).bytes - log, log

        fill = {"n": items, "queries": effort.fill_queries, "even": True, "seconds": 600, "connections": 64}
        service.load(**fill | {"first": 10**7, "most": 100})
        states = [state()]
        for count in (effort.fill_queries, effort.fill_impressions - effort.fill_queries):
            show_progress(f"size: {count:,} impressions")
            service.load(**fill, most=count)
            states.append(state())
    start, first, second = (np.array(each[:2], float) for each in states)
    impression = (second - first) / (effort.fill_impressions - effort.fill_queries)
    item = (first - start - effort.fill_queries * impression) / (effort.fill_queries * items)
    report.table(
        f"Bytes: {effort.fill_queries:,} queries of {items} items, {effort.fill_impressions:,} impressions of 10",
        [
            {"": name, "a query's item": float(item[i]), "an impression": float(impression[i])}
            for i, name in enumerate(("memory", "database"))
        ],
        "The fixed cost of a query is spread over its items; an impression includes its idempotency key. "
        f"The write-ahead log has {states[-1][2] / 1e6:.1f} MB besides: it is reused and does not grow with the data.",
    )


# --- two versions ----------------------------------------------------------------------------------------------------


def against(report, effort, folder, checkout):
    """Measure the CPU time of a durable rank, capacity and latency beside another version and a bare endpoint."""
    queries = {"queries": effort.queries}
    with contextlib.ExitStack() as stack:
        servers = {
            "bare endpoint": stack.enter_context(running("endpoint")),
            "other version": stack.enter_context(running_checkout(checkout, folder / "other.db")),
            "this version": stack.enter_context(running_checkout(HERE.parent, folder / "this.db")),
        }
        show_progress("against: warming up")
        for server in servers.values():
            server.load(seconds=60, most=2 * effort.queries, even=True, connections=16, **queries)
        figures = {name: [] for name in servers}
        for i in range(effort.rounds):
            show_progress(f"against: round {i + 1} of {effort.rounds}")
            for name, server in servers.items():
                found = {}
                used = server.cpu
                closed = server.load(seed=i, seconds=effort.seconds, connections=CLOSED_CONNECTIONS, **queries)
                found["closed loop: CPU, µs"] = 1e6 * (server.cpu - used) / len(closed)
                found["capacity, per s"] = len(closed) / float(
                    (closed["begun"] + closed["taken"]).max() - closed["begun"][0]
                )
                for rate in AGAINST_RATES:
                    used = server.cpu
                    records = server.load(seed=i, rate=rate, seconds=effort.seconds, **queries)
                    found[f"{rate}/s: CPU, µs"] = 1e6 * (server.cpu - used) / len(records)
                    timed = milliseconds(records)
                    found |= {f"{rate}/s: {name}, ms": timed[name] for name in ("p50", "p99")}
                figures[name].append(found)
    found = {name: medians(rounds) for name, rounds in figures.items()}
    least = {name: min(each[name] for each in figures["this version"]) for name in found["this version"]}
    least_other = {name: min(each[name] for each in figures["other version"]) for name in least}
    rows = [{"": name} | each for name, each in found.items()]
    rows.append(
        {"": "this / other"}
        | {name: each / found["other version"][name] for name, each in found["this version"].items()}
    )
    rows.append({"": "this / other, least"} | {name: each / least_other[name] for name, each in least.items()})
    report.table(f"A durable rank of 100 candidates; {effort.rounds} rounds of {effort.seconds:g} s", rows)


SECTIONS = {each.__name__: each for each in (latency, feedback, overload, size)}


def main():
    parser = argparse.ArgumentParser(
        description="Benchmark the service under load, next to a bare endpoint and a bare group commit."
    )
    parser.add_argument("--quick", action="store_true", help="a smaller benchmark of about two minutes")
    parser.add_argument("--only", choices=SECTIONS, action="append", help="run only this section; repeatable")
    parser.add_argument("--against", type=Path, help="only compare with another checkout of mcfair, or its src folder")
    parser.add_argument("--folder", help="folder for the stores; must be on a real disk")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "service.json", help="JSON file to write")
    options = parser.parse_args()
    effort, report, about = QUICK if options.quick else FULL, Report(), machine()
    print(*(f"{name}: {value}" for name, value in about.items()), sep="\n", flush=True)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        if options.against:
            against(report, effort, Path(folder), options.against)
        for name in [] if options.against else options.only or SECTIONS:
            SECTIONS[name](report, effort, Path(folder))
    if report.targets:
        report.table("Targets", report.targets)
    about |= {"load average at the end": [round(load, 2) for load in os.getloadavg()], "quick": options.quick}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(
        json.dumps({"made_with": about, "tables": report.tables}, indent=1, ensure_ascii=False) + "\n"
    )
    show_progress(f"written to {options.out}")


if __name__ == "__main__":
    main()
