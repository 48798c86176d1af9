"""The servers that `service.py` benchmarks, each in a process of its own: `python benchmarks/servers.py NAME …`.

`endpoint` is the baseline of a typed JSON endpoint, `commits` the baseline of a durable write; `service` is the service
itself.
"""

import asyncio
import datetime
import gc
import os
import queue
import signal
import sqlite3
import sys
import threading
import time
from pathlib import Path

import msgspec
import numpy as np
import uvloop
from load import RECORD, on_time

from mcfair.service import wire
from mcfair.service.http import JSON, Connection, ConnectionRegistry, Response, encode_head

ROW = 200
"""Size of a row, in bytes: about that of an impression with its idempotency key."""


# --- baseline: an endpoint ------------------------------------------------------------------------------------------


class Endpoint:
    """Respond to a rank request with its first candidates: decode, encode, nothing else."""

    io_timeout, draining = 30.0, False

    def __init__(self):
        self.decoder, self.encoder = msgspec.json.Decoder(wire.RankRequest), msgspec.json.Encoder()
        self.head = encode_head(200, JSON)

    def admit(self, request):
        pass

    def begin(self, request, reply):
        return Response(200, self.head, self.encoder.encode(first_items(self.decoder.decode(request.body))))

    def finished(self, request, error=None):
        pass


async def listen(port):
    registry = ConnectionRegistry(Endpoint())
    await asyncio.get_running_loop().create_server(lambda: Connection(registry), "127.0.0.1", int(port), backlog=2048)
    await asyncio.Event().wait()


def endpoint(port):
    """Serve the endpoint over the HTTP implementation of the service."""
    gc.collect()
    gc.freeze()  # as the service does
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    uvloop.run(listen(port))


def first_items(request):
    items = [wire.Ranked(item.id, j, 0.123456789 * j) for j, item in enumerate(request.items[: request.k], 1)]
    return wire.Ranking(
        impression="0" * 38, query_id="0" * 32, items=items, policy="MCFair(alpha=1.0, beta=1.0)", version=1,
        expires_at=datetime.datetime.now(datetime.UTC),
    )  # fmt: skip


# --- baseline: a group commit ---------------------------------------------------------------------------------------


class Commits:
    """A thread that writes one row per queued operation, with all queued operations in one transaction."""

    def __init__(self, path, loop):
        self.path, self.loop, self.queue = path, loop, queue.SimpleQueue()
        self.thread = threading.Thread(target=self.write)
        self.thread.start()

    def write(self):
        db = sqlite3.connect(self.path, isolation_level=None)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("CREATE TABLE IF NOT EXISTS rows (body BLOB)")
        body = bytes(ROW)
        while (first := self.queue.get()) is not None:
            batch = [first]
            while not self.queue.empty():
                batch.append(self.queue.get())
            db.execute("BEGIN IMMEDIATE")
            for _ in batch:
                db.execute("INSERT INTO rows VALUES (?)", [body])
            db.execute("COMMIT")
            self.loop.call_soon_threadsafe(acknowledge, batch)
        db.close()

    def close(self):
        self.queue.put(None)
        self.thread.join()


def acknowledge(batch):
    for done in batch:
        done()


async def commits(path, rate, seconds, seed, out):
    """Commit at predetermined random times, each timed from when it was due."""
    writer = Commits(path, asyncio.get_running_loop())
    times = np.cumsum(np.random.default_rng(int(seed)).exponential(1 / rate, int(rate * seconds)))
    records, left = np.zeros(len(times), RECORD), len(times)
    finished = asyncio.Event()

    def begin(when):
        def done():
            nonlocal left
            left -= 1
            records[left] = when, time.monotonic() - when, 200
            if not left:
                finished.set()

        writer.queue.put(done)

    await on_time(times, begin)
    await finished.wait()
    writer.close()
    np.save(out, np.sort(records, order="begun"))


# --- the service ----------------------------------------------------------------------------------------------------


def service(port, path):
    """Serve as `mcfair serve` does."""
    from mcfair.service.ranker import Ranker
    from mcfair.service.server import serve

    serve(Ranker(Path(path)), host="127.0.0.1", port=int(port))


if __name__ == "__main__":
    name, *rest = sys.argv[1:]
    if name == "commits":
        path, rate, seconds, seed, out = rest
        uvloop.run(commits(path, float(rate), float(seconds), seed, out))
    else:
        {"endpoint": endpoint, "service": service}[name](*rest)
