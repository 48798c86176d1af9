"""The soak test: a server under steady load, with impressions expiring, must neither grow nor lose anything.

python tests/soak.py --minutes 10
python tests/soak.py --minutes 3 --kill-every 8
"""

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from crash_loop import proof_faults
from service_process import CRASH_SERVER, SERVE, ServerProcess, free_port
from shoppers import ExpectedCounts, LoadRun, Shopper

POINTS = (
    "in-compaction:200",
    "between-rows:400",
    None,
    "in-compaction:500",
    "before-commit:300",
    "in-checkpoint:100",
    None,
)
"""Points at which the server kills itself, in turn; None: it is killed from outside after some time."""


@dataclass
class Sample:
    seconds: float
    operations: int
    rss: int
    file: int
    wal: int
    impressions: int

    def __str__(self):
        return (
            f"{self.seconds:6.0f} s  {self.operations:9,} operations  RSS {self.rss / 1e6:6.1f} MB  "
            f"database {self.file / 1e6:6.2f} MB  write-ahead log {self.wal / 1e6:6.2f} MB  "
            f"{self.impressions:7,} impressions"
        )


@dataclass
class SoakReport:
    samples: list = field(default_factory=list)
    faults: list = field(default_factory=list)
    kills: int = 0

    def growth(self, what):
        """Return the mean of the last third of the samples, relative to the third before."""
        third = len(self.samples) // 3
        values = [getattr(sample, what) for sample in self.samples]
        return statistics.mean(values[-third:]) / statistics.mean(values[-2 * third : -third])


class StatelessShopper(Shopper):
    """A shopper that keeps no impressions: it adds what was acknowledged to its sums at once."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.sums = ExpectedCounts()

    def visit(self):
        super().visit()
        while self.impressions:
            self.sums.add(self.impressions.pop())

    def check_own_query(self):
        """Request the state of the own query; its sums are compared at the end."""
        self.send_until_answered("POST", "/v1/queries/lookup", {"query": self.own})


class Soak:
    """A server with a short retention under steady load, and samples of its size."""

    def __init__(
        self, folder, *, retention=20.0, clients=4, pause=0.02, kill_every=None, fresh=False, log=lambda line: None
    ):
        self.store = Path(folder) / "store.db"
        self.options = ("--retention", f"{retention}s")
        self.kill_every = kill_every
        self.run_state = LoadRun(free_port())
        self.shoppers = [
            StatelessShopper(self.run_state, i, 0, queries=40, items=40, pause=pause) for i in range(clients)
        ]
        self.inspector = Shopper(self.run_state, clients, 0)
        self.report = SoakReport(faults=self.run_state.faults)
        self.fresh, self.log = fresh, log

    def run(self, seconds, samples=30):
        """Run the load for some time, then compare the state of the service with what it acknowledged."""
        self.start()
        begun = time.monotonic()  # the first start on a machine compiles
        try:
            for each in self.shoppers:
                each.start()
            for number in range(samples):
                self.keep_running(begun + (number + 1) * seconds / samples)
                self.report.samples.append(self.measure(time.monotonic() - begun))
                self.log(str(self.report.samples[-1]))
            self.run_state.stop(self.shoppers)
            with self.server.connect() as connection:
                self.report.faults += sum_faults(connection, [each.sums for each in self.shoppers])
            if self.server.terminate() != 0 or " ERROR " in self.server.text:
                self.report.faults.append(f"the server ended with {self.server.child.returncode}: {self.server.text}")
        finally:
            self.run_state.given_up.set()
            self.run_state.up.set()
            self.server.kill()
            self.inspector.connection.http.close()
        self.report.faults += proof_faults(self.store)
        return self.report

    def start(self, point=None):
        self.server = ServerProcess(
            self.store, *self.options, port=self.run_state.port, command=CRASH_SERVER if point else SERVE,
            environment={"MCFAIR_CRASH": point} if point else None, fresh=self.fresh,
        ).ready()  # fmt: skip
        self.until = time.monotonic() + self.kill_every if self.kill_every else float("inf")
        self.run_state.up.set()

    def keep_running(self, end):
        """Wait until `end`; meanwhile kill and restart the server when it is due."""
        while (now := time.monotonic()) < end:
            if now >= self.until or not self.server.alive:
                self.run_state.up.clear()
                self.server.kill()
                if self.server.child.returncode != -9 or " ERROR " in self.server.text:
                    self.report.faults.append(f"not killed, but {self.server.child.returncode}: {self.server.text}")
                self.report.kills += 1
                self.start(POINTS[self.report.kills % len(POINTS)])
            time.sleep(min(0.05, end - now))

    def measure(self, seconds):
        wal = self.store.with_name("store.db-wal")
        usage, _ = self.inspector.send_until_answered("GET", "/v1/usage")
        return Sample(
            seconds, self.run_state.acknowledged.total(), rss_of(self.server.pid), self.store.stat().st_size,
            wal.stat().st_size if wal.exists() else 0, usage.json["impressions"],
        )  # fmt: skip


def rss_of(pid):
    """Return the resident memory of a process in bytes; 0 if the process has just ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    _, found, rest = status.partition("VmRSS:")
    return int(rest.split()[0]) * 1024 if found else 0


def sum_faults(connection, parts):
    """Compare the state of the service, most of it compacted by now, with the sums of all shoppers."""
    expected = ExpectedCounts()
    for part in parts:
        expected.visits += part.visits
        expected.F += part.F
        expected.C += part.C
        expected.names |= part.names
        for query, items in part.known.items():
            expected.known[query] |= items
    for query in sorted(expected.visits):
        reply = connection.post("/v1/queries/lookup", {"query": query})
        yield from (f"{query}: {fault}" for fault in expected.faults(reply.json, query))
    yield from expected.export_faults(connection.get("/v1/export").content.splitlines())


def main():
    parser = argparse.ArgumentParser(description="Run a server under steady load and check that it does not grow.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--retention", type=float, default=20.0, help="seconds; longer than a start takes")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument(
        "--pause", type=float, default=0.02, help="seconds between the visits of a client; 0 for full load"
    )
    parser.add_argument("--kill-every", type=float, help="seconds after which the server is killed and restarted")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mcfair-soak-") as folder:
        soak = Soak(
            folder, retention=options.retention, clients=options.clients, pause=options.pause,
            kill_every=options.kill_every, fresh=True, log=lambda line: print(line, flush=True),
        )  # fmt: skip
        report = soak.run(60 * options.minutes)
    growth = {what: report.growth(what) for what in ("rss", "file", "impressions")}
    print("last third over middle third:", ", ".join(f"{what} {value:.3f}" for what, value in growth.items()))
    print("\n".join([*report.faults[:20], f"{report.kills} kills, {len(report.faults)} faults"]))
    grown = [what for what, value in growth.items() if value > 1.1]
    if grown:
        sys.exit(f"still growing: {', '.join(grown)}")
    sys.exit(1 if report.faults else 0)


if __name__ == "__main__":
    main()
