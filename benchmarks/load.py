"""Make load for a service, from a process of its own: `python benchmarks/load.py`, with a plan as JSON on stdin.

Requests are made beforehand, connections are kept, and answers are barely looked at, because all that is done here is
taken from the service that is measured. In an open loop requests go out at times fixed beforehand, whatever became of
those before them, and each is timed from when it should have gone: a server that stops does not stop the clock.
"""

import asyncio
import json
import sys
import threading
import time
from collections import deque
from pathlib import Path

import msgspec
import numpy as np
import uvloop

RECORD = np.dtype([("begun", "f8"), ("taken", "f8"), ("status", "i2")])
"""Of each request: when it began and how long it took, in seconds, and its status; 0 is no answer, -1 was never sent."""


class Plan(msgspec.Struct):
    """What to send, how fast and for how long."""

    port: int
    seconds: float
    path: str = "/v1/rank"
    rate: float = 0.0  # requests per second of an open loop; 0 is a closed loop
    connections: int = 128
    wait: bool = True  # in an open loop without a free connection: wait for one, or give up
    most: int = 0  # requests at most, 0 if only time counts
    n: int = 100
    k: int = 10
    queries: int = 1000
    first: int = 0  # number of the first query
    new: float = 0.0  # share of requests with a query never seen before
    even: bool = False  # take queries in turn, instead of few often and many seldom
    seed: int = 0
    bodies: str = ""  # a file of bodies to send in turn, one in each line, instead of queries
    out: str = ""  # a file for RECORDs
    answers: str = ""  # a file for the bodies of answers, one in each line


# --- what is sent ----------------------------------------------------------------------------------------------------


def body_of_query(query, n, k):
    """Make a request of candidates that are always the same for the same query."""
    priors = np.random.default_rng(query).random(n).round(3).tolist()
    items = ",".join(f'{{"id":"sku-{query * 31 + i:08d}","prior":{prior}}}' for i, prior in enumerate(priors))
    return f'{{"query":"query number {query}","items":[{items}],"k":{k}}}'.encode()


def head_of(path, size):
    """Write a head without its end: a key may follow."""
    lines = (f"POST {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", f"Content-Length: {size}")
    return "\r\n".join(lines).encode() + b"\r\n"


class Requests:
    """Requests, one after the other: each with a key of its own, of which bodies have none to spare."""

    def __init__(self, plan):
        self.rng = np.random.default_rng(plan.seed)
        self.count = 0
        self.prefix = b"Idempotency-Key: %016x" % self.rng.integers(2**62)
        bodies = Path(plan.bodies).read_bytes().splitlines() if plan.bodies else queries(plan, self.rng)
        self.parts = [(head_of(plan.path, len(body)), b"\r\n\r\n" + body) for body in bodies]

    def take(self):
        head, tail = self.parts[self.count % len(self.parts)]
        self.count += 1
        return b"%b%b%016x%b" % (head, self.prefix, self.count, tail)


def queries(plan, rng):
    """Choose queries as people do, few often and many seldom, with some that are new."""
    most = plan.most or int((plan.rate or 4000) * plan.seconds) + 1
    if plan.even:
        chosen = plan.first + np.arange(most) % plan.queries
    else:
        weights = 1 / np.arange(1, plan.queries + 1)
        chosen = plan.first + rng.choice(plan.queries, most, p=weights / weights.sum())
    new = rng.random(most) < plan.new
    chosen[new] = plan.first + plan.queries + np.arange(new.sum()) + 1_000_000 * (1 + plan.seed)
    known = {query: body_of_query(query, plan.n, plan.k) for query in np.unique(chosen).tolist()}
    return [known[query] for query in chosen.tolist()]


# --- sending ---------------------------------------------------------------------------------------------------------


class Connection(asyncio.Protocol):
    """One connection with at most one request on its way."""

    def __init__(self, load):
        self.load, self.transport, self.number, self.buffer, self.length = load, None, None, b"", None

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.buffer += data
        if self.length is None:
            head = self.buffer.find(b"\r\n\r\n")
            if head < 0:
                return
            lower = self.buffer[:head].lower()
            at = lower.find(b"content-length:")
            self.length = head + 4 + (int(lower[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0)
            self.head = head
        if len(self.buffer) >= self.length:
            buffer, self.buffer, self.length = self.buffer, b"", None
            self.load.finish(self, int(buffer[9:12]), buffer[self.head + 4 :])

    def connection_lost(self, error):
        self.load.lose(self)


class Load:
    """Sends requests over a number of connections, and keeps how long each took."""

    def __init__(self, plan):
        self.plan, self.requests = plan, Requests(plan)
        size = plan.most or int((plan.rate or 50_000) * plan.seconds * 1.2) + 1000
        self.records = np.zeros(size, RECORD)
        self.begun, self.taken, self.status = (self.records[name] for name in RECORD.names)
        self.answers, self.free, self.waiting = [], deque(), deque()
        self.count = self.open = 0
        self.origin = 0.0
        self.done = asyncio.Event()

    async def connect(self):
        loop = asyncio.get_running_loop()
        for _ in range(self.plan.connections):
            _, connection = await loop.create_connection(lambda: Connection(self), "127.0.0.1", self.plan.port)
            self.free.append(connection)

    def begin(self, when):
        """Send a request that was due at some time, or let it wait for a connection."""
        number, self.count = self.count, self.count + 1
        self.begun[number] = when
        if self.free:
            self.send(self.free.pop(), number)
        elif self.plan.wait:
            self.waiting.append(number)
        else:
            self.status[number] = -1

    def send(self, connection, number):
        self.open += 1
        connection.number = number
        if not self.plan.wait:  # who does not wait for a connection is timed from when it is sent
            self.begun[number] = time.monotonic()
        connection.transport.write(self.requests.take())

    def finish(self, connection, status, body):
        number, connection.number = connection.number, None
        self.taken[number] = time.monotonic() - self.begun[number]
        self.status[number] = status
        self.open -= 1
        if self.plan.answers:
            self.answers.append(body)
        if self.waiting:
            self.send(connection, self.waiting.popleft())
        elif self.next is None:
            self.free.append(connection)
        else:
            self.next(connection)

    def lose(self, connection):
        """Count a request whose connection broke as unanswered; the connection is not made again."""
        if connection.number is not None:
            self.taken[connection.number] = time.monotonic() - self.begun[connection.number]
            self.open -= 1

    next = None

    async def run_open(self):
        """Send at times drawn beforehand, as many people would who know nothing of each other."""
        times = np.cumsum(self.requests.rng.exponential(1 / self.plan.rate, int(self.plan.rate * self.plan.seconds)))
        await on_time(times, self.begin)
        await self.drain()

    async def run_closed(self):
        """Send the next request over a connection as soon as the last one is answered."""
        end = time.monotonic() + self.plan.seconds
        most = self.plan.most or len(self.records)

        def go_on(connection):
            if self.count < most and (now := time.monotonic()) < end:
                number, self.count = self.count, self.count + 1
                self.begun[number] = now
                self.send(connection, number)
            else:
                self.free.append(connection)

        self.next = go_on
        for _ in range(len(self.free)):
            go_on(self.free.popleft())
        await self.drain(self.plan.seconds)

    async def drain(self, seconds=0.0):
        """Wait for what is still on its way, for so long as an answer may take."""
        end = time.monotonic() + seconds + 10
        while (self.open or self.waiting) and time.monotonic() < end:
            await asyncio.sleep(0.02)


async def on_time(times, begin):
    """Call `begin` at each time with when it was due.

    A loop's own timers are good to a millisecond, which would be most of what is measured: a thread sleeps instead.
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
        while position < len(due):
            rest = due[position] - time.monotonic()
            if rest > 0:
                time.sleep(rest)
            seen = position
            loop.call_soon_threadsafe(catch_up)
            while seen == position < len(due):
                time.sleep(0.0001)

    thread = threading.Thread(target=wake)
    thread.start()
    await done.wait()
    thread.join()


async def main(plan):
    load = Load(plan)
    await load.connect()
    begun = time.monotonic()
    await (load.run_open() if plan.rate else load.run_closed())
    records = load.records[: load.count]
    if plan.out:
        np.save(plan.out, records)
    if plan.answers:
        Path(plan.answers).write_bytes(b"\n".join(load.answers))
    answered = records[records["status"] > 0]
    span = float((answered["begun"] + answered["taken"]).max() - begun) if len(answered) else 0.0
    print(json.dumps({"count": len(records), "seconds": span}))


if __name__ == "__main__":
    uvloop.run(main(msgspec.json.decode(sys.stdin.buffer.read(), type=Plan)))
