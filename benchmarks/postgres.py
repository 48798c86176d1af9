"""Throughput of one instance and of two on one PostgreSQL server, with real processes, and where the CPU time goes.

    python benchmarks/postgres.py --seconds 10 --rounds 3

The server is started in a temporary folder, with `fsync`. Load is a closed loop over persistent connections, with as
many connections in all cases. Cases are measured in turn, so that their ratio does not depend on how busy the machine
is. *Routed*: each query belongs to one instance, as clients route them. *Not routed*: both instances rank all queries.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import msgspec
import numpy as np
from load import Plan
from measuring import machine, show_progress

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from postgres_server import PostgresServer, children, missing  # noqa: E402
from service_process import ServerProcess  # noqa: E402

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pids):
    """Return the CPU time that processes have used, without those that have ended."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS


class LoadProcess:
    """A load generator in a process of its own."""

    def __init__(self, folder, **plan):
        self.records = Path(tempfile.mkstemp(dir=folder, suffix=".npy")[1])
        self.child = subprocess.Popen([sys.executable, HERE / "load.py"], stdin=subprocess.PIPE)
        self.child.stdin.write(msgspec.json.encode(Plan(records=str(self.records), **plan)))
        self.child.stdin.close()

    def finish(self):
        if self.child.wait():
            raise RuntimeError("the load generator failed")
        return np.load(self.records)


class Bench:
    """One database and two instances."""

    def __init__(self, folder, seconds, queries, connections, n):
        self.folder, self.seconds, self.queries, self.connections, self.n = folder, seconds, queries, connections, n
        self.database = PostgresServer(fsync=True, shared_buffers="256MB")
        url = self.database.new_database()
        self.instances = [ServerProcess(url).ready(), ServerProcess(url).ready()]

    def measure(self, instances, routed):
        """Return requests per second, and CPU microseconds a request of instances, database and load."""
        share = self.queries // instances if routed else self.queries
        plans = [
            {
                "port": self.instances[i].port, "seconds": self.seconds, "queries": share, "n": self.n,
                "first": i * share if routed else 0, "connections": self.connections // instances, "seed": i,
            }
            for i in range(instances)
        ]  # fmt: skip
        for plan in plans:  # what another instance wrote in the case before is not in the cache
            LoadProcess(self.folder, **plan | {"seconds": 120, "most": share, "even": True}).finish()
        used, before = self.cpu(), os.times()
        records = [each.finish() for each in [LoadProcess(self.folder, **plan) for plan in plans]]
        after = os.times()
        good = sum(int((each["status"] == 200).sum()) for each in records)
        seconds = max(float((each["begun"] + each["taken"]).max() - each["begun"][0]) for each in records)
        taken = np.concatenate([each["taken"] for each in records])
        cpu = [now - then for now, then in zip(self.cpu(), used, strict=True)]
        cpu.append(after.children_user + after.children_system - before.children_user - before.children_system)
        return {
            "requests/s": good / seconds, "p50, ms": float(np.percentile(taken, 50)) * 1e3,
            "p99, ms": float(np.percentile(taken, 99)) * 1e3, "instances, µs": cpu[0] / good * 1e6,
            "database, µs": cpu[1] / good * 1e6, "load, µs": cpu[2] / good * 1e6,
            "cores busy": sum(cpu) / seconds,
        }  # fmt: skip

    def cpu(self):
        backend = self.database.child.pid
        return [cpu_seconds([each.pid for each in self.instances]), cpu_seconds([backend, *children(backend)])]

    def close(self):
        for each in self.instances:
            each.terminate()
        self.database.close()


CASES = {"one instance": (1, True), "two, routed": (2, True), "two, not routed": (2, False)}


def main():
    parser = argparse.ArgumentParser(description="Compare one instance with two on one PostgreSQL server.")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--candidates", type=int, default=100)
    parser.add_argument("--out", type=Path, metavar="FILE", help="JSON file to write")
    options = parser.parse_args()
    if reason := missing():
        sys.exit(reason)
    about = machine()
    print(*(f"{name}: {value}" for name, value in about.items()), sep="\n", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(folder, options.seconds, options.queries, options.connections, options.candidates)
        try:
            found = {case: [] for case in CASES}
            for number in range(options.rounds):
                for case, (instances, routed) in CASES.items():
                    show_progress(f"round {number + 1}: {case}")
                    found[case].append(bench.measure(instances, routed))
        finally:
            bench.close()
    names = list(found["one instance"][0])
    print("\n| | " + " | ".join(names) + " | ratio |\n|---|" + "---:|" * (len(names) + 1))
    one = [each["requests/s"] for each in found["one instance"]]
    for case, rounds in found.items():
        cells = [f"{median(each[name] for each in rounds):,.1f}" for name in names]
        ratio = median(each["requests/s"] / base for each, base in zip(rounds, one, strict=True))
        print(f"| {case} | {' | '.join(cells)} | {ratio:.2f} |")
    if options.out is not None:
        text = json.dumps({"made_with": about, "cases": found}, indent=1, ensure_ascii=False)
        options.out.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
