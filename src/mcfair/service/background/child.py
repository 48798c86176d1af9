"""Background work in a process of its own: reads that are asked for over a socket, and installs that are sent back."""

from __future__ import annotations

import importlib
import itertools
import logging
import math
import os
import time
import traceback
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import msgspec

from ...errors import MCFairError, PolicyError
from ..core.installing import Install, RuleInstall, Turn, encode_install
from ..core.records import encode
from ..core.summaries import StoreFigures
from ..store_health import UnreadableLog
from ..stores import open_reader
from .frames import Ask, Channel, Done, Hello, NextChunk, Ping, Publish, Ready, Request, ToBackground, failure_of
from .thread import next_chunk
from .worker import Intervals, Read, Worker, answer

LOG_SECONDS = 60.0
"""Minimum interval between two log entries about failures of one kind."""

THREADS = 8
"""Reads that are executed at a time."""

logger = logging.getLogger("mcfair.service")


class ChildProcess:
    """The work of the process: it answers what it is asked, and calls the writer at the other end as `Writer`."""

    def __init__(self, channel: Channel, hello: Hello) -> None:
        self.channel, self.hello = channel, hello
        self.numbers = itertools.count()
        self.logged: dict[str, float] = {}  # when a failure of each kind was logged last
        self.requests: dict[int, Future[Any]] = {}
        self.streams: dict[int, Generator[bytes, None, None]] = {}
        self.threads = ThreadPoolExecutor(THREADS, "mcfair-read")
        self.exporter = ThreadPoolExecutor(1, "mcfair-export")  # the connection of a stream belongs to one thread
        self.worker = Worker(partial(open_reader, hello.url), self, UnreadableLog().log_unreadable, self.publish)

    def start(self) -> None:
        """Import what reads need, and begin; end the process if that fails: it is started again."""
        try:
            from ..web.forwarding import READS

            for each in self.hello.plugins:
                importlib.import_module(each)
            self.reads = READS
            self.channel.send(Ready())
            self.worker.start(Intervals(*self.hello.intervals))
        except BaseException as error:
            logger.error("the background process cannot start: %s", type(error).__name__)
            os._exit(1)

    def handle(self, message: ToBackground) -> None:
        """Handle a message, on the thread that receives."""
        if isinstance(message, Ask) and message.stream:
            self.exporter.submit(self.reply, message.id, partial(self.open_stream, message))
        elif isinstance(message, Ask):
            self.threads.submit(self.reply, message.id, partial(self.read, message))
        elif isinstance(message, NextChunk):
            self.exporter.submit(self.reply, message.id, partial(self.next_chunk, message))
        elif isinstance(message, Ping):
            self.channel.send(Done(message.id))
        elif isinstance(message, Done):
            future = self.requests.pop(message.id)
            if message.failure is None:
                future.set_result(message.result)
            else:
                future.set_exception(message.failure.error())

    # --- reads -------------------------------------------------------------------------------------------------------

    def reply(self, id: int, work: Callable[[], Any]) -> None:
        """Send the result of a read, or why it failed."""
        try:
            done = Done(id, work())
        except Exception as error:
            if not isinstance(error, MCFairError) or (isinstance(error, PolicyError) and error.__cause__):
                self.log(error.__cause__ or error)
            done = Done(id, failure=failure_of(error))
        self.channel.send(done)

    def log(self, error: BaseException) -> None:
        """Log the traceback of a failure, one of each kind in a while, without its message, which may quote data."""
        kind, now = type(error).__name__, time.monotonic()
        if now - self.logged.get(kind, -math.inf) >= LOG_SECONDS:
            self.logged[kind] = now
            logger.error("a read failed: %s\n%s", kind, "".join(traceback.format_tb(error.__traceback__)))

    def read(self, ask: Ask) -> Any:
        """Execute a read."""
        read: Read = self.reads[ask.name]
        return answer(self.worker, read, ask.now, read.convert(ask.arguments))

    def open_stream(self, ask: Ask) -> bytes:
        """Open a stream, and return its first chunk."""
        read = self.reads[ask.name]
        self.streams[ask.id] = self.worker.iterate(read.function, ask.now, read.convert(ask.arguments))
        return self.next_chunk(NextChunk(ask.id))

    def next_chunk(self, message: NextChunk) -> bytes:
        """Return the next chunk of a stream, nothing at its end; or close it."""
        lines = self.streams.get(message.id)
        chunk = b"" if lines is None or message.close else next_chunk(lines)
        if not chunk and lines is not None:
            del self.streams[message.id]
            lines.close()
        return chunk

    # --- the writer --------------------------------------------------------------------------------------------------

    def call(self, name: str, body: bytes = b"") -> Any:
        """Call the writer, and wait for its answer."""
        id, future = next(self.numbers), Future[Any]()
        self.requests[id] = future
        self.channel.send(Request(id, name, body))
        return future.result()

    def turn(self) -> Turn:
        """See `Writer`."""
        return msgspec.convert(self.call("turn"), Turn)

    def install(self, what: Install) -> None:
        """See `Writer`."""
        self.call("install", encode_install(what))

    def install_rules(self, what: RuleInstall) -> bool:
        """See `Writer`."""
        return bool(self.call("install_rules", encode_install(what)))

    def publish(self, figures: StoreFigures) -> None:
        """Publish the figures of all queries."""
        self.channel.send(Publish(encode(figures)))
