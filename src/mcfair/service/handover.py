"""Operations on their way between threads: queued for the writer, and returned with their results."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from .core.engine import Engine

__all__ = ["AttachedLoop", "WorkItem", "resolve_all"]

SMALL_ITEMS, SMALL_EVENTS = 1 << 16, 50
"""Largest operations that an event loop waits for: bytes of the items to rank, number of feedback events."""


class WorkItem:
    """A queued operation of the engine, the future of its result, and the event loop of that future, if any."""

    __slots__ = ("args", "error", "future", "kwargs", "loop", "result", "work")

    def __init__(
        self,
        work: Callable[..., Any],
        args: Any,
        kwargs: Any,
        future: Any,
        loop: AttachedLoop | asyncio.AbstractEventLoop | None,
    ) -> None:
        self.work, self.args, self.kwargs, self.future, self.loop = work, args, kwargs, future, loop
        self.result: Any = None
        self.error: Exception | None = None

    @property
    def small(self) -> bool:
        """Whether an event loop may wait for it without delaying other callbacks noticeably."""
        if self.work is Engine.rank:
            return len(self.args[0].items) <= SMALL_ITEMS
        return self.work is Engine.feedback and len(self.args[0]) <= SMALL_EVENTS

    def resolve(self) -> None:
        """Set the result or the exception of the future; do nothing if the future was cancelled."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class AttachedLoop:
    """An event loop that collects its operations, hands them to the writer together, and waits for it.

    It hands over one batch at a time: what it collects meanwhile becomes the next one. `waits` holds a lock while the
    loop waits. Whichever thread removes it decides, and removing it is atomic: the writer, which releases the lock, or
    the loop, which has given up and will be called back.

    Parameters
    ----------
    loop
        The event loop. The writer calls `end_wait` and `give_back`, the thread of the loop everything else.
    inbox, lock
        The queue of the writer, and the lock under which operations are collected and queued.
    wait_seconds
        Maximum time that the loop waits for a batch.
    writer_is_idle
        Returns whether the writer waits for work; if not, the loop does not wait for the writer.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        inbox: queue.SimpleQueue[WorkItem | None],
        lock: threading.Lock,
        wait_seconds: float,
        writer_is_idle: Callable[[], bool],
    ) -> None:
        self.loop, self.inbox, self.lock = loop, inbox, lock
        self.wait_seconds, self.writer_is_idle = wait_seconds, writer_is_idle
        self.collected: list[WorkItem] = []
        self.handed_over = 0  # operations that the writer has not returned yet
        self.waits: list[threading.Lock] = []
        self.returned: list[WorkItem] = []

    def collect(self, item: WorkItem) -> None:
        """Collect an operation: those of one iteration are handed over together. The caller holds the lock."""
        self.collected.append(item)
        if len(self.collected) == 1 and not self.handed_over:
            self.loop.call_soon(self.hand_over)

    def hand_over(self) -> None:
        """Queue what was collected; wait for it unless the writer is busy or an operation is large."""
        if not self.collected:  # queued already: the loop was detached
            return
        waits = self.writer_is_idle() and all(item.small for item in self.collected)
        ended = threading.Lock()  # a condition variable would cost more than everything else here
        if waits:
            ended.acquire()
            self.waits.append(ended)
        with self.lock:
            self.handed_over += len(self.collected)
            self.queue_collected()
        if not waits:
            return
        if not ended.acquire(timeout=self.wait_seconds):
            try:
                self.waits.pop()
                return
            except IndexError:  # the writer has just removed it
                ended.acquire()
        self.take_back(self.returned)

    def queue_collected(self) -> None:
        """Queue what was collected. The caller holds the lock."""
        for item in self.collected:
            self.inbox.put(item)
        self.collected = []

    def take_back(self, items: list[WorkItem]) -> None:
        """Resolve the futures of operations that the writer has finished, and hand over the next ones."""
        self.handed_over -= len(items)
        resolve_each(items)
        if self.collected and not self.handed_over:
            self.loop.call_soon(self.hand_over)  # after the callbacks of the futures, which send responses

    def end_wait(self, returned: list[WorkItem]) -> bool:
        """End the wait of the loop on the writer's thread, and return operations to it; return False if none waits."""
        try:
            ended = self.waits.pop()
        except IndexError:
            return False
        self.returned = returned
        ended.release()
        return True

    def give_back(self, items: list[WorkItem]) -> None:
        """Return finished operations to the loop from the writer's thread."""
        if not self.end_wait(items):
            self.loop.call_soon_threadsafe(self.take_back, items)


def resolve_all(items: list[WorkItem]) -> None:
    """Resolve futures from the writer thread; those of one event loop with a single callback."""
    loops: dict[AttachedLoop | asyncio.AbstractEventLoop, list[WorkItem]] = {}
    for each in items:
        if each.loop is None:
            each.resolve()
        else:
            loops.setdefault(each.loop, []).append(each)
    for loop, those in loops.items():
        with suppress(RuntimeError):  # the loop is closed, and nothing awaits the results
            if isinstance(loop, AttachedLoop):
                loop.give_back(those)
            else:
                loop.call_soon_threadsafe(resolve_each, those)


def resolve_each(items: list[WorkItem]) -> None:
    """Resolve futures on the thread of their event loop."""
    for each in items:
        each.resolve()
