"""The crash loop: a server that is killed again and again while it is used, and the proof that it lost nothing.

Shoppers repeat what was not acknowledged until it is, so at the end everything they ever asked for has happened exactly
once, and what the service knows must be what their ledgers say.

    python tests/crash_loop.py --kills 60
"""

import argparse
import functools
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from service_process import CRASH_SERVER, ServerProcess, free_port, mcfair
from shoppers import Books, Shopper, Street, differ

POINTS = ("before-commit", "after-commit", "between-rows", "in-commit", "any")
MORE_POINTS = (*POINTS, "in-checkpoint", "starting", "any", "between-rows", "any", "after-commit")
"""Where to kill, in turn: at points that `crash_server` knows, at any time, and while the server starts."""

EXPLAINED = 1_000
"""Most impressions that are looked at one by one."""


@dataclass
class Report:
    kills: Counter = field(default_factory=Counter)
    recoveries: list = field(default_factory=list)
    acknowledged: Counter = field(default_factory=Counter)
    retried: Counter = field(default_factory=Counter)
    faults: list = field(default_factory=list)
    explained: int = 0

    def __str__(self):
        kills = ", ".join(f"{count} {point}" for point, count in self.kills.items())
        done = ", ".join(f"{count:,} {what}" for what, count in self.acknowledged.items())
        lines = [
            f"{self.kills.total()} kills: {kills}",
            f"{self.acknowledged.total():,} operations acknowledged: {done}",
            f"{self.retried.total():,} tries without an answer, {self.explained:,} impressions explained",
        ]
        if self.recoveries:
            worst, middle = max(self.recoveries), statistics.median(self.recoveries)
            lines.append(f"from start to ready: median {middle:.2f} s, worst {worst:.2f} s of {len(self.recoveries)}")
        return "\n".join([*lines, *self.faults[:20], f"{len(self.faults)} faults"])


class CrashLoop:
    """A server, its shoppers, and who kills it."""

    def __init__(self, folder, *, clients=4, seed=0, broken=None, say=lambda line: None):
        self.store = Path(folder) / "store.db"
        self.dice = random.Random(seed)
        self.environment = {"MCFAIR_BROKEN": broken} if broken else {}
        self.street = Street(free_port())
        self.shoppers = [Shopper(self.street, number, seed) for number in range(clients)]
        self.report = Report(faults=self.street.faults)
        self.say = say

    def start(self, crash=None):
        environment = self.environment | ({"MCFAIR_CRASH": crash} if crash else {})
        return ServerProcess(self.store, port=self.street.port, command=CRASH_SERVER, environment=environment)

    def run(self, points):
        """Kill once at each of the points, then let everybody finish and check everything."""
        try:
            for each in self.shoppers:
                each.start()
            for point in points:
                crash = f"{point}:{self.dice.randint(30, 200)}" if point not in ("any", "starting") else None
                with self.start(crash) as server:
                    self.kill(server, point)
                    self.street.up.clear()
            with self.start() as server:
                self.up(server)
                time.sleep(0.3)
                self.street.stop(self.shoppers)
                self.check()
                if server.terminate() != 0:
                    self.report.faults.append(f"SIGTERM was answered by {server.child.returncode}")
                self.listen(server)
        finally:
            self.street.given_up.set()
            self.street.up.set()
            for each in self.shoppers:
                each.join(60)
        if not (self.environment and self.report.faults):  # a broken server that is found out needs no more proof
            self.report.faults += proof_faults(self.store)
        self.report.acknowledged, self.report.retried = self.street.acknowledged, self.street.retried
        return self.report

    def up(self, server):
        seconds = server.wait_ready()
        if seconds:
            self.report.recoveries.append(seconds)
            self.street.up.set()
        elif server.child.returncode != -9:
            raise AssertionError(f"the server does not start: {server.text}")

    def kill(self, server, point):
        """Kill a server at a point; at one that it knows itself, it has to come to it."""
        if point == "starting":
            time.sleep(self.dice.uniform(0.0, 2.0))
        else:
            self.up(server)
            if point == "any":
                time.sleep(self.dice.uniform(0.05, 0.7))
            elif server.wait(60) != -9:
                raise AssertionError(f"it ended by itself, with {server.child.returncode}: {server.text}")
        server.kill()
        self.listen(server)
        self.report.kills[point] += 1
        self.say(f"kill {self.report.kills.total()}, {point}: {self.street.acknowledged.total():,} acknowledged, "
                 f"{len(self.report.faults)} faults")  # fmt: skip

    def listen(self, server):
        """Whatever a server has to complain about is a fault."""
        if " ERROR " in server.text or "Traceback" in server.text:
            self.report.faults.append(f"the server complained: {server.text}")

    # --- what must hold ----------------------------------------------------------------------------------------------

    def check(self):
        """Compare everything the service knows with the ledgers."""
        books = Books()
        for shopper in self.shoppers:
            for impression in shopper.impressions:
                books.add(impression)
        faults, counter = self.report.faults, self.shoppers[0]
        total = books.visits.total()
        for query in sorted(books.visits):
            reply, _ = counter.insist("POST", "/v1/queries/lookup", {"query": query})
            state = reply.json if reply.status == 200 else {"visits": 0, "items": []}
            faults += [f"{query}: {fault}" for fault in books.faults(state, query)]
        exported, _ = counter.insist("GET", "/v1/export")
        faults += books.export_faults(exported.content.splitlines())
        share = min(1.0, EXPLAINED / max(1, total))
        with ThreadPoolExecutor(len(self.shoppers)) as pool:
            self.report.explained = sum(pool.map(lambda each: self.ask_again(each, share), self.shoppers))
        usage, _ = counter.insist("GET", "/v1/usage")
        faults += differ("number of impressions", usage.json["impressions"], total)
        for shopper in self.shoppers:
            shopper.connection.http.close()

    def ask_again(self, shopper, share):
        """Ask for every list again by its key, and for some why they are as they are."""
        explained = 0
        for impression in shopper.impressions:
            shopper.rank_again(impression)
            if shopper.dice.random() < share:
                shopper.explain(impression)
                explained += 1
        return explained


def proof_faults(store):
    """Have the service's own proofs made; return what they complain of."""
    with ThreadPoolExecutor(2) as pool:
        runs = pool.map(lambda command: mcfair(command, "--store", store), ("verify", "replay"))
    return [f"{ran.args[-3]}: {ran.stderr}" for ran in runs if ran.returncode]


def main():
    parser = argparse.ArgumentParser(description="Kill a server again and again, and see that nothing is lost.")
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--broken", help="run a server that is broken on purpose: see crash_server.py")
    parser.add_argument("--most-seconds", type=float, default=2.0, help="median time from start to ready")
    options = parser.parse_args()
    say = functools.partial(print, flush=True)
    points = [MORE_POINTS[i % len(MORE_POINTS)] for i in range(options.kills)]
    with tempfile.TemporaryDirectory(prefix="mcfair-crash-") as folder:
        loop = CrashLoop(folder, clients=options.clients, seed=options.seed, broken=options.broken, say=say)
        report = loop.run(points)
    print(report)
    if statistics.median(report.recoveries) > options.most_seconds:
        sys.exit(f"a start takes more than {options.most_seconds:g} s")
    sys.exit(1 if report.faults else 0)


if __name__ == "__main__":
    main()
