"""The soak: a server used steadily while impressions expire all the time; it must not grow, and not lose anything.

python tests/soak.py --minutes 10
"""

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from crash_loop import proof_faults
from service_process import ServerProcess
from shoppers import Books, Shopper, Street


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
        """Look at the own query, which has more than is not summed up yet, but not less."""
        self.insist("POST", "/v1/queries/lookup", {"query": self.own})


def soak(folder, seconds, *, retention=20.0, clients=4, pause=0.02, samples=30, say=lambda line: None):
    """Use a server for a while, then check all it knows."""
    store = Path(folder) / "store.db"
    soaked = Soaked()
    with ServerProcess(store, "--retention", f"{retention}s").ready() as server, server.connect() as connection:
        street = Street(server.port)
        street.up.set()
        shoppers = [Regular(street, i, 0, queries=40, items=40, pause=pause) for i in range(clients)]
        begun = time.monotonic()
        for each in shoppers:
            each.start()
        try:
            for number in range(samples):
                time.sleep(max(0.0, begun + (number + 1) * seconds / samples - time.monotonic()))
                soaked.samples.append(measured(server, store, connection, street, time.monotonic() - begun))
                say(str(soaked.samples[-1]))
        finally:
            street.stop(shoppers)
        soaked.faults += [*street.faults, *sum_faults(connection, [each.sums for each in shoppers])]
        if server.terminate() != 0 or " ERROR " in server.text:
            soaked.faults.append(f"the server ended with {server.child.returncode}: {server.text}")
    soaked.faults += proof_faults(store)
    return soaked


def measured(server, store, connection, street, seconds):
    status = Path(f"/proc/{server.pid}/status").read_text()
    rss = int(status.partition("VmRSS:")[2].split()[0]) * 1024
    log = store.with_name("store.db-wal")
    impressions = connection.get("/v1/usage").json["impressions"]
    return Sample(
        seconds, street.acknowledged.total(), rss, store.stat().st_size, log.stat().st_size if log.exists() else 0,
        impressions,
    )  # fmt: skip


def sum_faults(connection, parts):
    """Compare what the service knows, most of it from bases by now, with the sums of all shoppers."""
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
    parser.add_argument("--retention", type=float, default=20.0, help="seconds")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--pause", type=float, default=0.02, help="seconds between a client's visits; 0 for full load")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mcfair-soak-") as folder:
        soaked = soak(
            folder, 60 * options.minutes, retention=options.retention, clients=options.clients, pause=options.pause,
            say=lambda line: print(line, flush=True),
        )  # fmt: skip
    growth = {what: soaked.growth(what) for what in ("rss", "file", "impressions")}
    print("last third over middle third:", ", ".join(f"{what} {value:.3f}" for what, value in growth.items()))
    print("\n".join([*soaked.faults[:20], f"{len(soaked.faults)} faults"]))
    grown = [what for what, value in growth.items() if value > 1.1]
    if grown:
        sys.exit(f"still growing: {', '.join(grown)}")
    sys.exit(1 if soaked.faults else 0)


if __name__ == "__main__":
    main()
