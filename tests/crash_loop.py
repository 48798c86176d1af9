"""The crash loop: kill a server repeatedly under load, and check that it loses nothing and counts nothing twice.

Simulated shoppers retry every request until it is acknowledged. At the end every request must have been executed
exactly once, and the state of the service must equal the counts that the shoppers expect.

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
from shoppers import ExpectedCounts, LoadRun, Shopper, difference

from mcfair.service.ranker import Ranker

POINTS = ("after-commit", "between-rows", "in-commit")
MORE_POINTS = (
    *POINTS,
    "before-commit",
    "any",
    "in-checkpoint",
    "starting",
    "any",
    "between-rows",
    "any",
    "after-commit",
)
"""Where to kill, in turn: at points of `crash_server`, at a random time ("any"), and during the start."""

EXPLAINED = 1_000
"""Maximum number of impressions that are explained one by one."""


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
            f"{self.retried.total():,} attempts without a response, {self.explained:,} impressions explained",
        ]
        if self.recoveries:
            worst, middle = max(self.recoveries), statistics.median(self.recoveries)
            lines.append(f"start to ready: median {middle:.2f} s, worst {worst:.2f} s of {len(self.recoveries)}")
        return "\n".join([*lines, *self.faults[:20], f"{len(self.faults)} faults"])


class CrashLoop:
    """A server under load that is killed at given points."""

    def __init__(self, folder, *, clients=4, seed=0, fault=None, faulty=True, fresh=False, log=lambda line: None):
        self.store = Path(folder) / "store.db"
        self.rng = random.Random(seed)
        self.environment = {"MCFAIR_FAULT": fault, "MCFAIR_FAULTY": str(int(faulty))} if fault else {}
        self.is_control = bool(fault) and not faulty
        self.run_state = LoadRun(free_port())
        self.shoppers = [Shopper(self.run_state, number, seed) for number in range(clients)]
        self.report = Report(faults=self.run_state.faults)
        self.fresh, self.log = fresh, log
        self.begin_experiment()

    def begin_experiment(self):
        """Create the store, with an experiment in its rules; its guard stops nothing."""
        arms = [{"name": "b", "policy": "TopK", "share": 0.5}]
        with Ranker(self.store, warm=False, experiment={"name": "e", "arms": arms, "guard": None}):
            pass

    def start(self, crash=None):
        environment = self.environment | ({"MCFAIR_CRASH": crash} if crash else {})
        options = {"port": self.run_state.port, "command": CRASH_SERVER, "fresh": self.fresh}
        return ServerProcess(self.store, **options, environment=environment)

    def run(self, points):
        """Kill the server once at each of the points, then stop the shoppers and check everything."""
        try:
            for each in self.shoppers:
                each.start()
            for point in points:
                crash = f"{point}:{self.rng.randint(30, 200)}" if point not in ("any", "starting") else None
                with self.start(crash) as server:
                    self.kill(server, point)
                    self.run_state.up.clear()
            with self.start() as server:
                self.up(server)
                time.sleep(0.3)
                self.run_state.stop(self.shoppers)
                self.check()
                if server.terminate() != 0:
                    self.report.faults.append(f"the server exited with {server.child.returncode} after SIGTERM")
                self.check_log(server)
        finally:
            self.run_state.given_up.set()
            self.run_state.up.set()
            for each in self.shoppers:
                each.join(60)
        caught = self.environment and self.report.faults
        if not (caught or self.is_control):  # neither needs a proof: the run without overrides has one
            self.report.faults += proof_faults(self.store)
        self.report.acknowledged, self.report.retried = self.run_state.acknowledged, self.run_state.retried
        return self.report

    def up(self, server):
        seconds = server.wait_ready()
        if seconds:
            self.report.recoveries.append(seconds)
            self.run_state.up.set()
        elif server.child.returncode != -9:
            raise AssertionError(f"the server did not start: {server.text}")

    def kill(self, server, point):
        """Kill a server at a point; at a named one the server kills itself."""
        if point == "starting":
            time.sleep(self.rng.uniform(0.0, 2.0))
        else:
            self.up(server)
            if point == "any":
                time.sleep(self.rng.uniform(0.05, 0.7))
            elif server.wait(60) != -9:
                raise AssertionError(f"the server exited with {server.child.returncode}: {server.text}")
        server.kill()
        self.check_log(server)
        self.report.kills[point] += 1
        self.log(f"kill {self.report.kills.total()}, {point}: {self.run_state.acknowledged.total():,} acknowledged, "
                 f"{len(self.report.faults)} faults")  # fmt: skip

    def check_log(self, server):
        """Report errors in the log of a server as faults."""
        if " ERROR " in server.text or "Traceback" in server.text:
            self.report.faults.append(f"the server logged an error: {server.text}")

    # --- checks ------------------------------------------------------------------------------------------------------

    def check(self):
        """Compare the state of the service with the counts that the shoppers expect."""
        expected = ExpectedCounts()
        for shopper in self.shoppers:
            for impression in shopper.impressions:
                expected.add(impression)
        faults, counter = self.report.faults, self.shoppers[0]
        total = expected.visits.total()
        for query in sorted(expected.visits):
            reply, _ = counter.send_until_answered("POST", "/v1/queries/lookup", {"query": query})
            state = reply.json if reply.status == 200 else {"visits": 0, "items": []}
            faults += [f"{query}: {fault}" for fault in expected.faults(state, query)]
        exported, _ = counter.send_until_answered("GET", "/v1/export")
        faults += expected.export_faults(exported.content.splitlines())
        results, _ = counter.send_until_answered("GET", "/v1/experiment")
        faults += expected.arm_faults(results.json)
        share = min(1.0, EXPLAINED / max(1, total))
        with ThreadPoolExecutor(len(self.shoppers)) as pool:
            self.report.explained = sum(pool.map(lambda each: self.repeat_requests(each, share), self.shoppers))
        usage, _ = counter.send_until_answered("GET", "/v1/usage")
        faults += difference("number of impressions", usage.json["impressions"], total)
        for shopper in self.shoppers:
            shopper.connection.http.close()

    def repeat_requests(self, shopper, share):
        """Repeat every rank request with its idempotency key, and explain some of the lists."""
        explained = 0
        for impression in shopper.impressions:
            shopper.rank_again(impression)
            if shopper.rng.random() < share:
                shopper.explain(impression)
                explained += 1
        return explained


def proof_faults(store):
    """Run `mcfair verify` and `mcfair replay`; return the faults they report."""
    with ThreadPoolExecutor(2) as pool:
        runs = pool.map(lambda command: mcfair(command, "--store", store), ("verify", "replay"))
    return [f"{ran.args[-3]}: {ran.stderr}" for ran in runs if ran.returncode]


def main():
    parser = argparse.ArgumentParser(description="Kill a server repeatedly under load, and check that nothing is lost.")
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--store", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--fault", help="run a server with a deliberate fault: see crash_server.py")
    parser.add_argument("--max-seconds", type=float, default=2.0, help="maximum median time from start to ready")
    options = parser.parse_args()
    log = functools.partial(print, flush=True)
    if options.store == "postgresql":
        from postgres_loop import MORE_POINTS as POSTGRES_POINTS
        from postgres_loop import PostgresLoop

        points = [POSTGRES_POINTS[i % len(POSTGRES_POINTS)] for i in range(options.kills)]
        report = PostgresLoop(clients=options.clients, seed=options.seed, fsync=True, fresh=True, log=log).run(points)
    else:
        points = [MORE_POINTS[i % len(MORE_POINTS)] for i in range(options.kills)]
        with tempfile.TemporaryDirectory(prefix="mcfair-crash-") as folder:
            loop = CrashLoop(
                folder, clients=options.clients, seed=options.seed, fault=options.fault, fresh=True, log=log
            )
            report = loop.run(points)
    print(report)
    if statistics.median(report.recoveries) > options.max_seconds:
        sys.exit(f"the median start takes more than {options.max_seconds:g} s")
    sys.exit(1 if report.faults else 0)


if __name__ == "__main__":
    main()
