"""The servers that `service.py` benchmarks, each in a process of its own: `python benchmarks/servers.py NAME …`.

`endpoint` is the baseline of a typed JSON endpoint, `commits` the baseline of a durable write; `service` is the service
itself. `python benchmarks/servers.py compare` compares stock servers with that endpoint.
"""

import asyncio
import contextlib
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
import uvicorn
import uvloop
from load import RECORD, on_time

from mcfair.service import wire

ROW = 200
"""Size of a row, in bytes: about that of an impression with its idempotency key."""


# --- baseline: an endpoint ------------------------------------------------------------------------------------------


decoder, encoder = msgspec.json.Decoder(wire.RankRequest), msgspec.json.Encoder()


async def respond(scope, receive, send):
    """Respond to a rank request with its first candidates: an ASGI application that decodes, encodes, nothing else."""
    if scope["type"] == "lifespan":
        while (message := await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": message["type"] + ".complete"})
        return
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break
    content = encoder.encode(first_items(decoder.decode(body)))
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})


def endpoint(port):
    """Serve the endpoint on the server of the service, with the same limits."""
    from mcfair.service.web.connections import DEFAULT_LIMITS
    from mcfair.service.web.server import server_config

    config = server_config(respond, DEFAULT_LIMITS)
    config.host, config.port = "127.0.0.1", int(port)
    gc.collect()
    gc.freeze()  # as the service does
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    uvicorn.Server(config).run()


def stock(port, parser):
    """Serve the endpoint on uvicorn as it comes, with one of its parsers."""
    gc.collect()
    gc.freeze()
    options = {"http": parser, "loop": "uvloop", "ws": "none", "access_log": False, "log_level": "warning"}
    uvicorn.run(respond, port=int(port), **options)


def granian(port, mode):
    """Serve the endpoint on granian, with one of its runtimes."""
    from granian import Granian
    from granian.constants import Interfaces, Loops, RuntimeModes

    sys.path.insert(0, str(Path(__file__).parent))  # its worker process imports this module
    options = {"interface": Interfaces.ASGI, "loop": Loops.uvloop, "runtime_mode": RuntimeModes(mode)}
    Granian("servers:respond", port=int(port), websockets=False, log_enabled=False, **options).serve()


CANDIDATES = {
    "uvicorn, httptools, with our limits": ("endpoint",),
    "uvicorn, httptools": ("stock", "httptools"),
    "uvicorn, h11": ("stock", "h11"),
    "granian, one thread": ("granian", "st"),
    "granian, several threads": ("granian", "mt"),
}


def compare(rounds=5, seconds=5):
    """Compare servers in one run: CPU time per request and latency at 1,000 requests per second, and a closed loop."""
    from service import RATE, Report, medians, milliseconds, running

    with contextlib.ExitStack() as stack:
        servers = {
            name: stack.enter_context(running(kind, *rest)) for name, (kind, *rest) in CANDIDATES.items()
        }  # fmt: skip
        for each in servers.values():
            each.load(rate=RATE, seconds=2, queries=200)
        figures = {name: [] for name in servers}
        for _ in range(int(rounds)):
            for name, each in servers.items():
                cpu = each.cpu
                records = each.load(rate=RATE, seconds=int(seconds), queries=200)
                latency, open_loop = milliseconds(records), 1e6 * (each.cpu - cpu) / len(records)
                cpu, closed = each.cpu, each.load(seconds=int(seconds), connections=16, queries=200)
                figures[name].append(
                    {
                        "CPU, µs": open_loop,
                        "p50, ms": latency["p50"],
                        "p99, ms": latency["p99"],
                        "closed loop: CPU, µs": 1e6 * (each.cpu - cpu) / len(closed),
                        "per s": len(closed) / int(seconds),
                    }
                )
    Report().table(
        f"a typed JSON endpoint, 100 candidates, {RATE:,} requests/s",
        [{"server": name} | medians(each) for name, each in figures.items()],
    )


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
    from mcfair.service.web.server import serve

    serve(Ranker(Path(path), background="process"), host="127.0.0.1", port=int(port))


if __name__ == "__main__":
    name, *rest = sys.argv[1:]
    if name == "commits":
        path, rate, seconds, seed, out = rest
        uvloop.run(commits(path, float(rate), float(seconds), seed, out))
    else:
        {
            "compare": compare, "endpoint": endpoint, "granian": granian, "service": service, "stock": stock
        }[name](*rest)  # fmt: skip
