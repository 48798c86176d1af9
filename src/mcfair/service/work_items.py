"""Operations on their way to the engine, and their results on the way back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from .core.engine import Engine
from .wire import EventResult, FeedbackResults

SMALL_ITEMS, SMALL_EVENTS = 1 << 16, 50
"""Largest operations that an event loop executes: bytes of the items to rank, number of feedback events."""


class Future(Protocol):
    """What gets the result of an operation: a future of a thread or of an event loop, or what acts as one."""

    def done(self) -> bool:
        """Return whether nobody waits for the result any more."""

    def set_result(self, result: Any) -> None:
        """Set the result."""

    def set_exception(self, error: Exception) -> None:
        """Set the error."""


class WorkItem:
    """A queued operation of the engine, the future of its result, and the event loop of that future, if any.

    An operation `on_loop` may be executed by the attached event loop; every other one is left to the writer.

    A batch of feedback is executed in slices, with other work in between. `results` are those of the slices that are
    committed, and `args` has the events that are left.
    """

    __slots__ = ("args", "error", "future", "kwargs", "loop", "on_loop", "result", "results", "work")

    def __init__(
        self,
        work: Callable[..., Any],
        args: Any,
        kwargs: Any,
        future: Future,
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        self.work, self.args, self.kwargs, self.future, self.loop = work, args, kwargs, future, loop
        self.results: list[EventResult] = []
        self.on_loop = False
        self.result: Any = None
        self.error: Exception | None = None

    @property
    def small(self) -> bool:
        """Whether an event loop may execute it without delaying other callbacks noticeably."""
        if self.work is Engine.rank:
            return len(self.args[0].items) <= SMALL_ITEMS
        return self.work is Engine.feedback and len(self.args[0]) <= SMALL_EVENTS

    def needs_more(self) -> bool:
        """Return whether events of a batch are left to apply, after the commit of a slice of it."""
        if self.work is not Engine.feedback or self.error is not None:
            return False
        events, *others = self.args
        self.results += self.result.results
        self.args = (events[len(self.result.results) :], *others)
        self.result = None if self.args[0] else FeedbackResults(self.results)
        return bool(self.args[0])

    def resolve(self) -> None:
        """Set the result or the exception of the future; do nothing if the future was cancelled."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


def resolve_all(items: list[WorkItem]) -> None:
    """Resolve futures from the writer thread; those of one event loop with a single callback."""
    loops: dict[asyncio.AbstractEventLoop, list[WorkItem]] = {}
    for each in items:
        if each.loop is None:
            each.resolve()
        else:
            loops.setdefault(each.loop, []).append(each)
    for loop, those in loops.items():
        with suppress(RuntimeError):  # the loop is closed, and nothing awaits the results
            loop.call_soon_threadsafe(resolve_each, those)


def resolve_each(items: list[WorkItem]) -> None:
    """Resolve futures on the thread of their event loop."""
    for each in items:
        each.resolve()
