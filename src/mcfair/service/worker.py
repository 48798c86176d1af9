"""Who does the work of the service, and when: operations one after the other, in groups that last or do not.

Any thread may ask. A thread of its own, the writer, does what is asked, all that waits in one transaction, and tells
the results when they are on disk.

An event loop may decide itself, because two threads that both compute take turns at Python's lock, and a turn costs
more than a ranking. Then the loop does what is quick and the writer the rest. To wait for the disk is quick as well,
mostly: less than to wake another thread for it and to be woken by that. While it is not, the writer commits, so that a
slow disk stops nobody who does not need it.

Who may use engine and store is never in doubt: with a loop, the writer while `busy` and else the loop; without one, the
writer.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from ..errors import MCFairError, StoreError, UnavailableError
from .engine import Engine
from .stores import Store

__all__ = ["QUEUE", "Worker"]

P = ParamSpec("P")
T = TypeVar("T")

TOGETHER = 256
"""Most operations in one transaction."""

QUEUE = 2_048
SWEEP_EVERY, SWEEP_SECONDS = 0.25, 0.005
"""How often to sweep up what has expired, and for how long at a time: requests wait meanwhile."""

TIDY_EVERY = 5.0
"""How often to let the store tidy up though there is always somebody who waits."""

QUICK_ITEMS, QUICK_EVENTS = 1 << 16, 50
"""Bytes of items that an event loop ranks itself, and events that it takes in; more would keep others waiting."""

TURN_SECONDS = 0.005
"""How long an event loop goes on with that before it lets others have their turn."""

QUICK_COMMIT, REMEMBERED_COMMITS = 0.003, 16
"""An event loop waits for the disk itself as long as that takes no longer, on average over about so many commits."""


class Operation:
    """Something to do with the engine, and whom to tell."""

    __slots__ = ("args", "error", "future", "kwargs", "loop", "result", "work")

    def __init__(self, work: Callable[..., Any], args: Any, kwargs: Any, future: Any, loop: Any) -> None:
        self.work, self.args, self.kwargs, self.future, self.loop = work, args, kwargs, future, loop
        self.result: Any = None
        self.error: Exception | None = None

    @property
    def quick(self) -> bool:
        """Whether it takes no longer than an event loop can wait."""
        if self.work is Engine.rank:
            return len(self.args[0].items) <= QUICK_ITEMS
        return self.work is Engine.feedback and len(self.args[0]) <= QUICK_EVENTS

    def tell(self) -> None:
        """Hand over the result, if somebody still waits for it."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class Turn(NamedTuple):
    """Operations of one transaction that an event loop hands to the writer: done, failed, or still to do."""

    operations: list[Operation]
    done: bool
    error: Exception | None


class Worker:
    """Has an engine do what is asked for, and makes it last.

    Parameters
    ----------
    store, engine
        What it works with; nobody else may use them.
    most_waiting
        Operations that may wait; more are refused with `UnavailableError`.
    """

    def __init__(self, store: Store, engine: Engine, most_waiting: int = QUEUE) -> None:
        self.store, self.engine, self.limit = store, engine, most_waiting
        self.on_batch: list[Callable[[int, float], None]] = []
        self.trouble: str | None = None
        self.closing = self.doubtful = False
        self.door = threading.Lock()
        self.waiting: queue.SimpleQueue[Operation | Turn | None] = queue.SimpleQueue()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.pending: deque[Operation] = deque()  # only the loop touches this and what follows
        self.busy = self.due = self.leaving = self.worked = False
        self.idle = True
        self.commit_seconds = 0.0
        self.writer = threading.Thread(target=self.write, name="mcfair-writer", daemon=True)
        self.writer.start()

    # --- asking ------------------------------------------------------------------------------------------------------

    def submit(self, work: Callable[Concatenate[Engine, P], T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Have the engine do something; the result is there when it is on disk."""
        future: Future[T] = Future()
        self.put(Operation(work, args, kwargs, future, None))
        return future

    def ask(
        self, work: Callable[Concatenate[Engine, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:  # fmt: skip
        """Do the same from an event loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        operation = Operation(work, args, kwargs, future, loop)
        if loop is self.loop:
            self.accept(operation)
        else:
            self.put(operation)
        return future

    def put(self, operation: Operation) -> None:
        """Queue an operation, or refuse it."""
        with self.door:  # so that nothing comes behind the end
            self.check_open()
            if self.loop is None:
                self.waiting.put(operation)
            else:
                self.loop.call_soon_threadsafe(self.accept_or_refuse, operation)

    def check_open(self) -> None:
        """Refuse what would come behind the end, or wait behind too many."""
        if self.closing:
            raise UnavailableError("the service is stopping")
        if self.depth >= self.limit:
            raise UnavailableError(f"{self.limit:,} operations are waiting already")

    @property
    def depth(self) -> int:
        """Operations waiting."""
        return self.waiting.qsize() if self.loop is None else len(self.pending)

    # --- deciding in an event loop -----------------------------------------------------------------------------------

    def decide_here(self) -> None:
        """Use the engine in the running event loop from now on."""
        with self.door:
            self.loop, self.busy = asyncio.get_running_loop(), True
            self.waiting.put(Turn([], True, None))  # when the writer has come to this, all that was before it is done
        self.nudge()

    async def decide_elsewhere(self) -> None:
        """Leave the engine to the writer again, with all that is pending."""
        self.leaving = True
        while self.busy:
            await asyncio.sleep(0.001)
        with self.door:
            self.loop, self.leaving = None, False
            for operation in self.pending:
                self.waiting.put(operation)
            self.pending.clear()
            self.waiting.put(Turn([], True, None))  # so that the writer notices

    def accept(self, operation: Operation) -> None:
        """Take an operation in the loop that decides."""
        self.check_open()
        self.pending.append(operation)
        self.decide_soon()

    def accept_or_refuse(self, operation: Operation) -> None:
        """Take an operation of another thread, which has been told that it was queued."""
        try:
            if self.loop is None:
                self.put(operation)
            else:
                self.accept(operation)
        except UnavailableError as error:
            operation.error = error
            operation.tell()

    def decide(self) -> None:
        """Do what is pending, as far as it is quick; leave the rest to the writer."""
        self.due = False
        if self.busy or self.leaving or not self.pending:
            return
        self.busy = self.worked = True
        group: list[Operation] = []
        if self.pending[0].quick:
            error = self.perform(self.quick_ones(group))
            if error is not None:  # that concerns all who wait
                group.extend(self.pending)
                self.pending.clear()
            if error is None and self.commit_seconds < QUICK_COMMIT:
                self.finish_here(group)
            else:
                self.waiting.put(Turn(group, True, error))
        else:
            while self.pending and len(group) < TOGETHER and not self.pending[0].quick:
                group.append(self.pending.popleft())
            self.waiting.put(Turn(group, False, None))

    def quick_ones(self, group: list[Operation]) -> Iterator[Operation]:
        """Move pending operations into a group one by one, as long as they are quick and there is time."""
        end = time.perf_counter() + TURN_SECONDS
        while self.pending and len(group) < TOGETHER and self.pending[0].quick:
            group.append(self.pending.popleft())
            yield group[-1]
            if time.perf_counter() > end:
                return

    def finish_here(self, group: list[Operation]) -> None:
        """Wait for the disk in the loop, and go on with what is pending in its next round."""
        with self.timed(group):
            self.finish(group, None)
        self.busy = False
        tell_each(group)
        self.decide_soon()

    def decide_soon(self) -> None:
        """Have the loop decide in its next round, so that what else arrives in this one comes with it."""
        if self.pending and not self.busy and not self.due and self.loop is not None:
            self.due = True
            self.loop.call_soon(self.decide)

    def turned(self, operations: list[Operation]) -> None:
        """Tell what has become of a turn, and begin the next one."""
        self.busy = False
        tell_each(operations)
        self.decide()

    def nudge(self) -> None:
        """Give the writer a turn now and then though there is nothing to do, so that it can sweep."""
        if self.loop is not None:
            if not self.busy and not self.leaving:
                self.busy, self.idle, self.worked = True, not self.worked, False
                self.waiting.put(Turn([], True, None))
            self.loop.call_later(SWEEP_EVERY, self.nudge)

    # --- writing -----------------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Do what is queued, group by group: one transaction each, and only then the answers."""
        self.next_sweep, self.next_tidy = time.monotonic() + SWEEP_EVERY, time.monotonic() + TIDY_EVERY
        stopping = False
        while not stopping:
            taken = self.take()
            stopping = None in taken
            operations = [each for each in taken if isinstance(each, Operation)]
            if operations:
                with self.timed(operations):
                    self.do(operations)
                    tell_all(operations)
            for each in taken:
                if isinstance(each, Turn):
                    self.take_turn(each)
            if self.loop is None and not stopping:
                self.sweep_if_due(idle=not operations)

    def take(self) -> list[Operation | Turn | None]:
        """Wait for what is to do and take all there is, up to a group's worth; nothing if it is time to sweep."""
        taken: list[Operation | Turn | None] = []
        patience = max(0.0, self.next_sweep - time.monotonic()) if self.loop is None else None
        with suppress(queue.Empty):
            taken.append(self.waiting.get(timeout=patience))
            while len(taken) < TOGETHER:
                taken.append(self.waiting.get_nowait())
        return taken

    def take_turn(self, turn: Turn) -> None:
        """Finish what the loop has begun, and let it go on."""
        with self.timed(turn.operations):
            if turn.done:
                self.finish(turn.operations, turn.error)
            else:
                self.do(turn.operations)
        told = turn.operations
        if time.monotonic() >= self.next_sweep:
            tell_all(told)
            told = []
            self.sweep_if_due(idle=self.idle and not turn.operations)
        try:
            if self.loop is None:
                tell_all(told)
            else:
                self.loop.call_soon_threadsafe(self.turned, told)
        except RuntimeError:  # the loop was closed and has left nothing in good order
            self.loop = None
            tell_all(told)

    @contextmanager
    def timed(self, operations: list[Operation]) -> Iterator[None]:
        """Tell listeners how long a group took."""
        begun = time.perf_counter()
        yield
        if operations:
            for listener in self.on_batch:
                listener(len(operations), time.perf_counter() - begun)

    def do(self, operations: list[Operation]) -> None:
        """Do operations in one transaction: all that did not fail by themselves last, or none."""
        self.finish(operations, self.perform(operations))

    def perform(self, operations: Iterable[Operation]) -> Exception | None:
        """Do operations in a transaction that is still open afterwards; return what made that impossible."""
        try:
            self.store.begin()
            self.recover()
            self.changes_before = self.store.changes
            for each in operations:
                each.error = None
                try:
                    each.result = each.work(self.engine, *each.args, **each.kwargs)
                except StoreError:
                    raise
                except MCFairError as error:
                    each.error = error
        except Exception as error:
            return error
        return None

    def finish(self, operations: list[Operation], error: Exception | None) -> None:
        """Make what was done last, or undo it."""
        try:
            if error is not None:
                raise error
            if operations:
                wrote = self.store.changes > self.changes_before
                begun = time.perf_counter()
                self.store.commit()
                if wrote:  # who only reads learns nothing about the disk
                    self.trouble = None
                    self.commit_seconds += (time.perf_counter() - begun - self.commit_seconds) / REMEMBERED_COMMITS
        except Exception as error:
            self.undo(error)
            if is_out_of_order(error):
                for each in operations:
                    each.error = UnavailableError(f"nothing was done, because it could not be written down: {error}")
            elif len(operations) > 1:  # one of them is at fault, and the others shall not suffer
                for each in operations:
                    self.do([each])
            else:
                operations[0].error = error

    def undo(self, error: Exception) -> None:
        """Go back to what the store has, and say what is wrong with it, if it is to blame."""
        self.trouble = f"{type(error).__name__}: {error}" if is_out_of_order(error) else None
        self.doubtful = True
        try:
            self.store.rollback()
            self.recover()
        except (MCFairError, sqlite3.Error) as further:
            self.trouble = f"{self.trouble or type(error).__name__}; {further}"

    def recover(self) -> None:
        """After something failed, forget what is not in the store; if that fails as well, try again next time."""
        if self.doubtful:
            self.engine.forget()
            self.doubtful = False

    def sweep_if_due(self, idle: bool) -> None:
        """Fold what has expired, and tidy up, best while nobody waits; after trouble, see whether it is over."""
        if time.monotonic() < self.next_sweep:
            return
        try:
            self.store.begin()
            self.recover()
            if self.trouble is not None:
                self.store.probe()
            self.engine.sweep(SWEEP_SECONDS)
            self.store.commit()
            if idle or time.monotonic() >= self.next_tidy:
                self.store.tidy()
                self.next_tidy = time.monotonic() + TIDY_EVERY
            self.trouble = None
        except Exception as error:
            self.undo(error)
        self.next_sweep = time.monotonic() + SWEEP_EVERY

    def close(self, timeout: float | None = None) -> None:
        """Do what is queued, then close the store. What comes later is refused."""
        if self.loop is not None and not self.loop.is_closed():
            asyncio.run_coroutine_threadsafe(self.decide_elsewhere(), self.loop).result(timeout)
        with self.door:
            if self.closing:
                return
            self.closing = True
            for operation in self.pending:  # of a loop that came to no good end
                self.waiting.put(operation)
            self.waiting.put(None)
        self.writer.join(timeout)
        self.store.close()


def is_out_of_order(error: Exception) -> bool:
    """Whether an error is that of the disk or the database, and not of what was asked for."""
    return isinstance(error, (sqlite3.Error, OSError)) and not isinstance(error, sqlite3.IntegrityError)


def tell_all(operations: list[Operation]) -> None:
    """Hand over all results: those for one event loop at once."""
    loops: dict[Any, list[Operation]] = {}
    for each in operations:
        if each.loop is None:
            each.tell()
        else:
            loops.setdefault(each.loop, []).append(each)
    for loop, those in loops.items():
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(tell_each, those)


def tell_each(operations: list[Operation]) -> None:
    """Hand over results in the event loop."""
    for each in operations:
        each.tell()
