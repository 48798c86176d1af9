"""Background work in threads of this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ...errors import UnavailableError
from ..core.engine import Engine
from ..core.installing import Install, RuleInstall, Turn, encode_install
from ..core.summaries import StoreFigures
from ..group_commit import GroupCommit
from .worker import Read, Reply, Worker, answer

CHUNK = 1 << 16
"""Size of the chunks of a stream, in bytes."""

READS = 32
"""Reads that are executed or wait for it; further ones are refused."""


class EngineWriter:
    """Installs through the executor of an engine, and waits for the commit."""

    def __init__(self, executor: GroupCommit) -> None:
        self.executor = executor

    def turn(self) -> Turn:
        """See `Writer`."""
        return self.executor.submit(Engine.turn).result()

    def install(self, what: Install) -> None:
        """See `Writer`."""
        self.executor.submit(Engine.install, encode_install(what)).result()

    def install_rules(self, what: RuleInstall) -> bool:
        """See `Writer`."""
        return self.executor.submit(Engine.install_rules, encode_install(what)).result()


class ThreadReads:
    """Executes the reads of an event loop in threads.

    Attributes
    ----------
    up, starts
        Whether reads are executed, and how often that was started.
    """

    up, starts = True, 1

    def __init__(self, worker: Worker, executor: GroupCommit, reads: Mapping[str, Read]) -> None:
        self.worker, self.executor, self.reads = worker, executor, reads
        self.exporter = ThreadPoolExecutor(1, "mcfair-export")
        self.waiting = 0

    async def start(self) -> None:
        """Start; there is nothing to start."""

    async def stop(self) -> None:
        """Stop; the ranker stops its threads itself."""

    @property
    def figures(self) -> StoreFigures | None:
        """The latest figures of all queries, None before the first ones."""
        return self.worker.figures

    async def ask(self, name: str, arguments: dict[str, Any]) -> Reply:
        """Execute a read, and return its encoded result."""
        if self.waiting >= READS:
            raise UnavailableError("too many reads are waiting")
        self.waiting += 1
        try:
            return await asyncio.to_thread(answer, self.worker, self.reads[name], self.executor.now(), arguments)
        finally:
            self.waiting -= 1

    async def stream(self, name: str, arguments: dict[str, Any]) -> AsyncGenerator[bytes, None]:
        """Begin a read whose result is a stream, and return its chunks: one thread reads them all.

        An error before the first chunk is raised here.
        """
        loop = asyncio.get_running_loop()
        lines = self.worker.iterate(self.reads[name].function, self.executor.now(), arguments)
        first = await loop.run_in_executor(self.exporter, next_chunk, lines)
        return self.chunks(lines, first)

    async def chunks(self, lines: Generator[bytes, None, None], chunk: bytes) -> AsyncGenerator[bytes, None]:
        """Iterate over the chunks of a stream."""
        loop = asyncio.get_running_loop()
        try:
            while chunk:
                yield chunk
                chunk = await loop.run_in_executor(self.exporter, next_chunk, lines)
        finally:
            self.exporter.submit(lines.close)


def next_chunk(lines: Iterator[bytes]) -> bytes:
    """Join lines to one chunk; return nothing at the end."""
    taken, size = [], 0
    for line in lines:
        taken.append(line)
        size += len(line)
        if size >= CHUNK:
            break
    return b"".join(taken)
