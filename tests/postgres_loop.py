"""The crash loop on PostgreSQL: two instances under load, of which instances and the database itself are killed.

Shoppers send each request to either instance at random, so that both decide on the same queries. A kill of the database
is SIGKILL to all of its processes. `tests/crash_loop.py --store postgresql` runs it for long.
"""

import random
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from crash_loop import CrashLoop, Report
from postgres_server import PostgresServer
from service_process import CRASH_SERVER, Connection, NoResponseError, ServerProcess, free_port
from shoppers import LoadRun, Shopper

POINTS = ("between-rows", "database", "after-commit")
MORE_POINTS = (*POINTS, "before-commit", "any", "database", "any", "in-commit", "both", "database", "starting")
"""Targets of the kills, in turn: an instance at a point of `crash_server`, at a random time ("any") or at its start,
both instances, or the database."""


class RoamingConnection:
    """Connections to all instances; each request takes one at random."""

    def __init__(self, ports, rng):
        self.connections, self.rng = [Connection(port, timeout=30.0) for port in ports], rng
        self.http = self

    def request(self, *args):
        return self.rng.choice(self.connections).request(*args)

    def close(self):
        for each in self.connections:
            each.http.close()


class RoamingShopper(Shopper):
    """A shopper that sends each request to either instance."""

    def __init__(self, run_state, number, seed, ports, **options):
        super().__init__(run_state, number, seed, **options)
        self.connection = RoamingConnection(ports, random.Random(f"{seed} {number} roaming"))


class PostgresReport(Report):
    """The report of a crash loop, with the times from the start of the database until an instance was ready."""

    def __init__(self, faults):
        super().__init__(faults=faults)
        self.reconnections = []
        self.conflicts = 0

    def __str__(self):
        after = f"{statistics.median(self.reconnections):.2f} s, worst {max(self.reconnections):.2f} s" if (
            self.reconnections) else "never"  # fmt: skip
        return f"{super().__str__()}\nready after the database is back: median {after}; {self.conflicts} conflicts"


class PostgresLoop(CrashLoop):
    """Two instances on one database, of which one after the other is killed."""

    def __init__(self, *, clients=4, seed=0, fsync=False, fresh=False, log=lambda line: None):
        self.database = PostgresServer(fsync=fsync)
        self.store = self.database.new_database()
        self.rng = random.Random(seed)
        self.environment, self.is_control = {}, False
        self.ports = [free_port(), free_port()]
        self.run_state = LoadRun(self.ports[0])
        self.shoppers = [RoamingShopper(self.run_state, number, seed, self.ports) for number in range(clients)]
        self.report = PostgresReport(self.run_state.faults)
        self.servers = [None, None]
        self.fresh, self.log = fresh, log
        self.begin_experiment()

    def run(self, points):
        """Kill something at each of the points, then check everything."""
        try:
            return super().run(points)
        finally:
            for each in self.shoppers:
                each.connection.close()
            for each in self.servers:
                if each is not None:
                    each.kill()
            self.database.close()

    def start(self, crash=None):
        """Start the instances that do not run; return the last of them, which may kill itself."""
        stopped = [place for place in (0, 1) if self.servers[place] is None]
        for place in stopped:
            environment = {"MCFAIR_CRASH": crash} if crash and place == stopped[-1] else {}
            self.servers[place] = ServerProcess(
                self.store,
                port=self.ports[place],
                command=CRASH_SERVER,
                environment=environment,
                fresh=self.fresh,
            )
        return self.servers[stopped[-1]]

    def up(self, server):
        for each in self.servers:
            if each is not server and each.alive:
                assert each.wait_ready(), each.text
        super().up(server)

    def kill(self, server, point):
        if point == "database":
            self.up(server)
            time.sleep(self.rng.uniform(0.2, 1.0))
            self.kill_database()
            self.report.kills[point] += 1
            server.kill()  # the next point needs an instance with its own environment
        elif point == "both":
            self.up(server)
            time.sleep(self.rng.uniform(0.1, 0.5))
            for each in self.servers:
                each.kill()
            self.servers = [None, None]
            self.report.kills[point] += 1
        else:
            super().kill(server, point)
        self.servers = [None if each is server else each for each in self.servers]

    def kill_database(self):
        """Kill the database under load, start it again and measure how long the instances take to be ready."""
        self.database.kill()
        time.sleep(self.rng.uniform(0.0, 0.8))
        self.database.start()
        back = time.monotonic()
        with ThreadPoolExecutor(2) as pool:
            self.report.reconnections += pool.map(lambda port: seconds_until_ready(port, back), self.ports)
        self.log(f"database killed: ready after {self.report.reconnections[-2:]}")
        time.sleep(0.3)

    def check_log(self, server):
        """Report errors in the log of a server as faults; that the database was down is none."""
        known = ("the store cannot be written: ", "Traceback")
        wrong = [line for line in server.lines if " ERROR " in line and known[0] not in line]
        if wrong or known[1] in server.text:
            self.report.faults.append(f"the server logged an error: {server.text}")

    def check(self):
        for port in self.ports:
            with Connection(port) as connection:
                text = connection.get("/metrics").content.decode()
            self.report.conflicts += int(float(text.split("\nmcfair_conflicts_total ")[1].split()[0]))
        super().check()


def seconds_until_ready(port, since):
    """Wait until an instance is ready and reads from the database; return the seconds since a moment."""
    while time.monotonic() < since + 60:
        with suppress(NoResponseError), Connection(port, timeout=5.0) as connection:
            answers = connection.get("/readyz"), connection.post("/v1/queries/lookup", {"query": "absent"})
            if [each.status for each in answers] == [200, 404]:
                return time.monotonic() - since
        time.sleep(0.02)
    raise TimeoutError("the instance is not ready 60 s after the database is back")
