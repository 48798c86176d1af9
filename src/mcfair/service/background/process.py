"""The background process as the process that serves sees it: started, asked, and started again when it has died."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from ...errors import MCFairError, UnavailableError
from ...parts import PLUGINS
from ..core.engine import Engine
from ..core.summaries import StoreFigures, decode_figures
from ..group_commit import GroupCommit
from .frames import (
    HEADER,
    Ask,
    Done,
    FromBackground,
    Hello,
    NextChunk,
    Ping,
    Publish,
    Ready,
    Request,
    ToBackground,
    encode_frame,
    failure_of,
)
from .thread import READS, ThreadReads
from .worker import Intervals, Reply

START_SECONDS, READ_SECONDS = 15.0, 120.0
"""How long a read waits for the first start of the process, and for its result."""

PING_SECONDS, HUNG_SECONDS = 5.0, 20.0
"""Interval at which the process is asked whether it runs, and how long it may take to answer."""

FIRST_PAUSE, LONGEST_PAUSE, LONG = 0.2, 30.0, 60.0
"""Seconds between the end of the process and its next start: at first, at most, and how long a process must have run
for the pause to be short again."""

logger = logging.getLogger("mcfair.service")


class ProcessReads:
    """Has the reads of an event loop executed by a child process, and installs what that has computed.

    Parameters
    ----------
    url
        The store, as `open_reader` takes it.
    executor
        Installs.
    intervals
        Those of the repeated work.

    Attributes
    ----------
    up, starts
        Whether reads are executed, and how often the process was started.
    figures
        The latest figures of all queries, None before the first ones.
    """

    def __init__(self, url: str, executor: GroupCommit, intervals: Intervals) -> None:
        self.url, self.executor, self.intervals = url, executor, intervals
        self.up, self.starts = False, 0
        self.first = True  # whether the process has never ended
        self.early = 0  # reads that wait for its first start
        self.figures: StoreFigures | None = None
        self.numbers = itertools.count()
        self.waiting: dict[int, asyncio.Future[Any]] = {}
        self.supervisor: asyncio.Task[None] | None = None
        self.installs: set[asyncio.Task[None]] = set()
        self.decoder = msgspec.msgpack.Decoder(FromBackground)

    # --- the life of the process -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the process, and from now on again whenever it has ended."""
        self.ready = asyncio.Event()
        self.supervisor = asyncio.create_task(self.supervise())

    async def stop(self) -> None:
        """End the process."""
        if self.supervisor is not None:
            self.supervisor.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.supervisor

    async def supervise(self) -> None:
        """Keep the process running."""
        loop, pause = asyncio.get_running_loop(), FIRST_PAUSE
        while True:
            begun = loop.time()
            try:
                await self.run()
                logger.error("the background process has ended: reads are refused until it is started again")
            except OSError as error:
                logger.error("the background process cannot be started: %s", error)
            except Exception as error:
                logger.error("the background process is not understood: %s", type(error).__name__)
            pause = FIRST_PAUSE if loop.time() - begun > LONG else min(2.0 * pause, LONGEST_PAUSE)
            await asyncio.sleep(pause)

    async def run(self) -> None:
        """Start the process, and receive its messages until it ends."""
        own, other = socket.socketpair()
        with other:
            process = launch(other.fileno())
        self.starts += 1
        reader, self.writer = await asyncio.open_unix_connection(sock=own)
        try:
            self.send(Hello(self.url, PLUGINS, self.intervals))
            watching = asyncio.create_task(self.watch(process))
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    size = int.from_bytes(await reader.readexactly(HEADER), "big")
                    self.receive(self.decoder.decode(await reader.readexactly(size)))
        finally:
            self.up = self.first = False
            watching.cancel()
            self.writer.close()
            process.kill()  # it only reads, so that nothing has to be ended in order
            process.wait()
            waiting, self.waiting = self.waiting, {}
            for future in waiting.values():
                if not future.done():
                    future.set_exception(down())

    async def watch(self, process: subprocess.Popen[bytes]) -> None:
        """Kill the process if it hangs."""
        while True:
            await asyncio.sleep(PING_SECONDS)
            id = next(self.numbers)
            try:
                await self.wait(id, Ping(id), HUNG_SECONDS)
            except UnavailableError:
                logger.error("the background process has not answered for %g s and is killed", HUNG_SECONDS)
                process.kill()
                return

    # --- messages ----------------------------------------------------------------------------------------------------

    def send(self, message: ToBackground) -> None:
        """Send a message. At most `READS` reads are under way, so that the buffer stays small."""
        self.writer.write(encode_frame(message))

    def receive(self, message: FromBackground) -> None:
        """Handle a message."""
        if isinstance(message, Done):
            future = self.waiting.pop(message.id, None)
            if future is not None and not future.done():
                if message.failure is None:
                    future.set_result(message.result)
                else:
                    future.set_exception(message.failure.error())
        elif isinstance(message, Request):
            task = asyncio.create_task(self.answer(message))
            self.installs.add(task)
            task.add_done_callback(self.installs.discard)
        elif isinstance(message, Publish):
            self.figures = decode_figures(message.figures)
        elif isinstance(message, Ready):
            self.up = True
            self.ready.set()

    async def answer(self, request: Request) -> None:
        """Execute what the process has requested of the writer, and answer; the process may have ended meanwhile."""
        writer = self.writer
        submit = self.executor.submit_async
        try:
            work: Awaitable[Any]
            if request.name == "turn":
                work = submit(Engine.turn)
            elif request.name == "install":
                work = submit(Engine.install, request.body)
            else:
                work = submit(Engine.install_rules, request.body)
            done = Done(request.id, await work)
        except Exception as error:
            if not isinstance(error, MCFairError):
                logger.error("an install has failed: %s", type(error).__name__)
            done = Done(request.id, failure=failure_of(error))
        if not writer.is_closing():
            writer.write(encode_frame(done))

    # --- reads -------------------------------------------------------------------------------------------------------

    async def ask(self, name: str, arguments: dict[str, Any]) -> Reply:
        """Execute a read, and return its encoded result."""
        return msgspec.convert(await self.request(name, arguments, stream=False), Reply)

    async def request(self, name: str, arguments: dict[str, Any], *, stream: bool, id: int | None = None) -> Any:
        """Send a read, and return its result."""
        if len(self.waiting) + self.early >= READS:
            raise UnavailableError("too many reads are waiting")
        if self.supervisor is None:  # a program that has mounted the application does not pass on its lifespan
            await self.start()
        if not self.up and self.first:
            self.early += 1
            try:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.ready.wait(), START_SECONDS)
            finally:
                self.early -= 1
        if not self.up:
            raise down()
        self.executor.store.check_attached()  # the process opens a file by its name, which may be another one by now
        id = next(self.numbers) if id is None else id
        plain: Any = msgspec.to_builtins(arguments, builtin_types=(bytes,))
        return await self.wait(id, Ask(id, name, self.executor.now(), plain, stream))

    async def wait(self, id: int, message: ToBackground, seconds: float = READ_SECONDS) -> Any:
        """Send a message, and wait for what it results in."""
        future = self.waiting[id] = asyncio.get_running_loop().create_future()
        self.send(message)
        try:
            return await asyncio.wait_for(future, seconds)
        except TimeoutError:
            raise UnavailableError(f"the read took longer than {seconds:g} s", seconds) from None
        finally:
            self.waiting.pop(id, None)

    async def stream(self, name: str, arguments: dict[str, Any]) -> AsyncGenerator[bytes, None]:
        """Begin a read whose result is a stream, and return its chunks, each of which is asked for.

        An error before the first chunk is raised here.
        """
        id = next(self.numbers)
        return self.chunks(id, self.starts, await self.request(name, arguments, stream=True, id=id))

    async def chunks(self, id: int, start: int, chunk: bytes) -> AsyncGenerator[bytes, None]:
        """Iterate over the chunks of a stream of the process of one start."""
        try:
            while chunk:
                yield chunk
                if not self.up or start != self.starts:
                    raise down()
                chunk = await self.wait(id, NextChunk(id))
        finally:
            if chunk and self.up and start == self.starts:
                self.send(NextChunk(id, close=True))


Reads: TypeAlias = ThreadReads | ProcessReads
"""Reads of an event loop, in threads or in a child process."""


def down() -> UnavailableError:
    """Return the error of reads while there is no process."""
    return UnavailableError("reads are not executed just now: the background process is being started", 1.0)


def launch(handle: int) -> subprocess.Popen[bytes]:
    """Start the process with an end of a socket. It imports what this process can import, from the same places."""
    path = os.pathsep.join(each or str(Path.cwd()) for each in sys.path)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", __package__, str(handle)],
        pass_fds=[handle],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": path},
    )
