"""The soak: a server used steadily while impressions expire all the time; it must not grow, and not lose anything.

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
from shoppers import Books, Shopper, Street

POINTS = (
    "in-compaction:200",
    "between-rows:400",
    None,
    "in-compaction:500",
    "before-commit:300",
    "in-checkpoint:100",
    None,
)
"""Where a server that is to be killed dies by itself, in turn; at none, it is killed when its time is over."""


@dataclass
class Sample:
    seconds: float
    operations: int
    rss: int
    file: int
    log: int
    impressions: int

    def __str__(self):
        return (
            f"{self.seconds:6.0f} s  {self.operations:9,} operations  RSS {self.rss / 1e6:6.1f} MB  "
            f"database {self.file / 1e6:6.2f} MB  write-ahead log {self.log / 1e6:6.2f} MB  "
            f"{self.impressions:7,} impressions"
        )


@dataclass
class Soaked:
    samples: list = field(default_factory=list)
    faults: list = field(default_factory=list)
    kills: int = 0

    def growth(self, what):
        """Mean over the last third, as a multiple of that over the third before."""
        third = len(self.samples) // 3
        values = [getattr(sample, what) for sample in self.samples]
        return statistics.mean(values[-third:]) / statistics.mean(values[-2 * third : -third])


class Regular(Shopper):
    """Somebody who keeps no receipts: what was acknowledged is summed up at once."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.sums = Books()

    def visit(self):
        super().visit()
        while self.impressions:
            self.sums.add(self.impressions.pop())

    def look(self):
        """Look at the own query; its sums are compared at the end."""
        self.insist("POST", "/v1/queries/lookup", {"query": self.own})


class Soak:
    """A server with a short memory, regulars who use it, and what becomes of it."""

    def __init__(self, folder, *, retention=20.0, clients=4, pause=0.02, kill_every=None, say=lambda line: None):
        self.store = Path(folder) / "store.db"
        self.options = ("--retention", f"{retention}s")
        self.kill_every = kill_every
        self.street = Street(free_port())
        self.regulars = [Regular(self.street, i, 0, queries=40, items=40, pause=pause) for i in range(clients)]
        self.inspector = Shopper(self.street, clients, 0)  # who only asks
        self.soaked = Soaked(faults=self.street.faults)
        self.say = say

    def run(self, seconds, samples=30):
        """Use the server for a while, then compare all it knows with what it has acknowledged."""
        begun = time.monotonic()
        self.start()
        try:
            for each in self.regulars:
                each.start()
            for number in range(samples):
                self.keep_running(begun + (number + 1) * seconds / samples)
                self.soaked.samples.append(self.measured(time.monotonic() - begun))
                self.say(str(self.soaked.samples[-1]))
            self.street.stop(self.regulars)
            with self.server.connect() as connection:
                self.soaked.faults += sum_faults(connection, [each.sums for each in self.regulars])
            if self.server.terminate() != 0 or " ERROR " in self.server.text:
                self.soaked.faults.append(f"the server ended with {self.server.child.returncode}: {self.server.text}")
        finally:
            self.street.given_up.set()
            self.street.up.set()
            self.server.kill()
            self.inspector.connection.http.close()
        self.soaked.faults += proof_faults(self.store)
        return self.soaked

    def start(self, point=None):
        self.server = ServerProcess(
            self.store, *self.options, port=self.street.port, command=CRASH_SERVER if point else SERVE,
            environment={"MCFAIR_CRASH": point} if point else None,
        ).ready()  # fmt: skip
        self.until = time.monotonic() + self.kill_every if self.kill_every else float("inf")
        self.street.up.set()

    def keep_running(self, end):
        """Wait; kill the server and start it again when its time is over."""
        while (now := time.monotonic()) < end:
            if now >= self.until or not self.server.alive:
                self.street.up.clear()
                self.server.kill()
                if self.server.child.returncode != -9 or " ERROR " in self.server.text:
                    self.soaked.faults.append(f"not killed, but {self.server.child.returncode}: {self.server.text}")
                self.soaked.kills += 1
                self.start(POINTS[self.soaked.kills % len(POINTS)])
            time.sleep(min(0.05, end - now))

    def measured(self, seconds):
        log = self.store.with_name("store.db-wal")
        return Sample(
            seconds, self.street.acknowledged.total(), rss_of(self.server.pid), self.store.stat().st_size,
            log.stat().st_size if log.exists() else 0, self.inspector.insist("GET", "/v1/usage")[0].json["impressions"],
        )  # fmt: skip


def rss_of(pid):
    """Memory of a process in bytes; that of a process that is just gone is 0."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    _, found, rest = status.partition("VmRSS:")
    return int(rest.split()[0]) * 1024 if found else 0


def sum_faults(connection, parts):
    """Compare what the service knows, most of it from bases by now, with the sums of all regulars."""
    books = Books()
    for part in parts:
        books.visits += part.visits
        books.F += part.F
        books.C += part.C
        books.names |= part.names
        for query, items in part.known.items():
            books.known[query] |= items
    for query in sorted(books.visits):
        reply = connection.post("/v1/queries/lookup", {"query": query})
        yield from (f"{query}: {fault}" for fault in books.faults(reply.json, query))
    yield from books.export_faults(connection.get("/v1/export").content.splitlines())


def main():
    parser = argparse.ArgumentParser(description="Use a server for a while and see that it does not grow.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--retention", type=float, default=20.0, help="seconds; more than a start takes")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--pause", type=float, default=0.02, help="seconds between a client's visits; 0 for full load")
    parser.add_argument("--kill-every", type=float, help="seconds after which the server is killed and started again")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mcfair-soak-") as folder:
        soak = Soak(
            folder, retention=options.retention, clients=options.clients, pause=options.pause,
            kill_every=options.kill_every, say=lambda line: print(line, flush=True),
        )  # fmt: skip
        soaked = soak.run(60 * options.minutes)
    growth = {what: soaked.growth(what) for what in ("rss", "file", "impressions")}
    print("last third over middle third:", ", ".join(f"{what} {value:.3f}" for what, value in growth.items()))
    print("\n".join([*soaked.faults[:20], f"{soaked.kills} kills, {len(soaked.faults)} faults"]))
    grown = [what for what, value in growth.items() if value > 1.1]
    if grown:
        sys.exit(f"still growing: {', '.join(grown)}")
    sys.exit(1 if soaked.faults else 0)


if __name__ == "__main__":
    main()
