"""Load generator in a process of its own: `python benchmarks/load.py`, with a plan as JSON on stdin.

Requests are built beforehand, connections are persistent, and responses are hardly parsed, because the generator shares
the machine with the service. In an open loop requests are due at predetermined times, independently of earlier ones,
and each is timed from when it was due: a stalled server does not stop the clock (no coordinated omission).
"""

import asyncio
import secrets
import sys
import threading
import time
from collections import deque
from pathlib import Path

import msgspec
import numpy as np
import uvloop

RECORD = np.dtype([("begun", "f8"), ("taken", "f8"), ("status", "i2")])
"""One request: when it was due and its latency, in seconds, and its status."""

LOST, UNSENT = 0, -1
"""In place of a status: there was no response; there was no free connection to send it on."""

RESPONSE_TIMEOUT = 10
"""Timeout of responses after the last request, in seconds."""


class Plan(msgspec.Struct, kw_only=True):
    """The requests to send, their rate and duration."""

    port: int
    seconds: float
    rate: float | None = None  # requests per second of an open loop; None: closed loop
    connections: int = 128
    wait: bool = True  # in an open loop, wait for a free connection; if not, requests are timed from when they are sent
    most: int = 1_000_000  # requests
    path: str = "/v1/rank"
    n: int = 100
    k: int = 10
    first: int = 0  # number of the first query
    queries: int = 1000
    even: bool = False  # cycle through the queries instead of drawing them by a Zipf law
    new: float = 0.0  # share of requests with a new query
    bodies: str = ""  # a file of bodies to send, one per line, instead of rank requests
    seed: int = 0
    records: str = ""  # output file of RECORDs
    answers: str = ""  # output file of response bodies, one per line


# --- requests --------------------------------------------------------------------------------------------------------


def body_of_query(query, n, k):
    """Return a rank request; the candidates depend only on the query."""
    priors = np.random.default_rng(query).random(n).round(3).tolist()
    items = ",".join(f'{{"id":"sku-{31 * query + i:08d}","prior":{prior}}}' for i, prior in enumerate(priors))
    return f'{{"query":"query number {query}","items":[{items}],"k":{k}}}'.encode()


def bodies_of_queries(plan, rng):
    """Return rank requests for queries drawn by a Zipf law, with a share of new ones."""
    count = min(plan.most, int((plan.rate or 3000) * plan.seconds) + 1)
    if plan.even:
        chosen = plan.first + np.arange(count) % plan.queries
    else:
        weights = 1 / np.arange(1, plan.queries + 1)
        chosen = plan.first + rng.choice(plan.queries, count, p=weights / weights.sum())
    new = rng.random(count) < plan.new
    chosen[new] = secrets.randbits(40) + np.arange(new.sum())
    known = {query: body_of_query(query, plan.n, plan.k) for query in np.unique(chosen).tolist()}
    return [known[query] for query in chosen.tolist()]


class Requests:
    """A sequence of requests, each with its own idempotency key."""

    def __init__(self, plan, rng):
        bodies = Path(plan.bodies).read_bytes().splitlines() if plan.bodies else bodies_of_queries(plan, rng)
        head = f"POST {plan.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: "
        key = f"\r\nIdempotency-Key: {secrets.token_hex(8)}"
        self.parts = [(f"{head}{len(body)}{key}".encode(), b"\r\n\r\n" + body) for body in bodies]
        self.count = 0

    def take(self):
        head, body = self.parts[self.count % len(self.parts)]
        self.count += 1
        return b"%b%016x%b" % (head, self.count, body)


# --- sending ---------------------------------------------------------------------------------------------------------


class Connection(asyncio.Protocol):
    """One connection with at most one outstanding request."""

    def __init__(self, load):
        self.load, self.number = load, None
        self.buffer, self.head, self.length = b"", 0, None

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.buffer += data
        if self.length is None:
            self.head = self.buffer.find(b"\r\n\r\n") + 4
            if self.head < 4:
                return
            at = self.buffer.lower().find(b"content-length:")
            self.length = self.head + int(self.buffer[at + 15 : self.buffer.find(b"\r", at)])
        if len(self.buffer) >= self.length:
            answer, self.buffer, self.length = self.buffer, b"", None
            self.load.finish(self, int(answer[9:12]), answer[self.head :])

    def connection_lost(self, error):
        if self.number is not None:
            self.load.finish(self, LOST, b"")
        else:
            self.load.free.remove(self)


class Load:
    """Send requests over several connections, and record their latencies."""

    def __init__(self, plan):
        self.plan, self.rng = plan, np.random.default_rng(plan.seed)
        self.requests = Requests(plan, self.rng)
        self.records = np.zeros(min(plan.most, int((plan.rate or 50_000) * plan.seconds) + 1), RECORD)
        self.begun, self.taken, self.status = (self.records[name] for name in RECORD.names)
        self.count = self.open = 0
        self.free, self.waiting, self.answers = deque(), deque(), []
        self.end = np.inf

    async def run(self):
        loop, plan = asyncio.get_running_loop(), self.plan
        for _ in range(plan.connections):
            _, connection = await loop.create_connection(lambda: Connection(self), "127.0.0.1", plan.port)
            self.free.append(connection)
        if plan.rate is None:
            self.end = time.monotonic() + plan.seconds
            for _ in range(plan.connections):
                self.go_on(self.free.popleft())
            await asyncio.sleep(0)
        else:
            times = np.cumsum(self.rng.exponential(1 / plan.rate, len(self.records) - 1))
            await on_time(times, self.begin)
        while (self.open or self.waiting) and time.monotonic() < self.last + RESPONSE_TIMEOUT:
            await asyncio.sleep(0.01)

    def begin(self, when):
        """Send a request that is due, or queue it until a connection is free."""
        number, self.count = self.count, self.count + 1
        self.begun[number] = self.last = when
        if self.free:
            self.send(self.free.popleft(), number)  # round robin: the server closes idle connections
        elif self.plan.wait:
            self.waiting.append(number)
        else:
            self.status[number] = UNSENT

    def go_on(self, connection):
        """Send the next request of a closed loop."""
        self.last = time.monotonic()
        if self.count < len(self.records) and self.last < self.end:
            number, self.count = self.count, self.count + 1
            self.begun[number] = self.last
            self.send(connection, number)
        else:
            self.free.append(connection)

    def send(self, connection, number):
        self.open += 1
        connection.number = number
        if not self.plan.wait:
            self.begun[number] = time.monotonic()
        connection.transport.write(self.requests.take())

    def finish(self, connection, status, body):
        number, connection.number = connection.number, None
        self.taken[number] = time.monotonic() - self.begun[number]
        self.status[number] = status
        self.open -= 1
        if self.plan.answers:
            self.answers.append(body)
        if status == LOST:
            return
        if self.plan.rate is None:
            self.go_on(connection)
        elif self.waiting:
            self.send(connection, self.waiting.popleft())
        else:
            self.free.append(connection)

    def save(self):
        np.save(self.plan.records, self.records[: self.count])
        if self.plan.answers:
            Path(self.plan.answers).write_bytes(b"\n".join(self.answers))


async def on_time(times, begin):
    """Call `begin` at each of the times.

    Timers of an event loop have a resolution of a millisecond, which would dominate the measurement: a thread sleeps
    instead.
    """
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    due = (times + time.monotonic() + 0.05).tolist()
    position = 0

    def catch_up():
        nonlocal position
        now = time.monotonic()
        while position < len(due) and due[position] <= now:
            begin(due[position])
            position += 1
        if position == len(due):
            done.set()

    def wake():
        for here, following in zip(due, [*due[1:], np.inf], strict=True):
            now = time.monotonic()
            if here > now:
                time.sleep(here - now)
            if following > time.monotonic():  # else one call handles both
                loop.call_soon_threadsafe(catch_up)

    thread = threading.Thread(target=wake)
    thread.start()
    await done.wait()
    thread.join()


async def main():
    load = Load(msgspec.json.decode(sys.stdin.buffer.read(), type=Plan))
    await load.run()
    load.save()


if __name__ == "__main__":
    uvloop.run(main())
