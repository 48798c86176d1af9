"""The service inside a Python program: any thread asks, one thread does the work and makes it last."""

from __future__ import annotations

import asyncio
import hmac
import queue
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from ..errors import MCFairError, StoreError, UnavailableError
from ..policy import Policy
from . import history
from .engine import CACHE, KEY_PREFIX, Engine, hashed
from .rules import make_rules
from .stores import Store, open_store
from .wire import (
    Event,
    EventResult,
    Explanation,
    Fairness,
    Item,
    KeyAdded,
    KeyInfo,
    PolicyChange,
    PolicyInForce,
    QueryState,
    Ranking,
    RankRequest,
    Scope,
    Usage,
    as_events,
    as_item,
    convert,
    unread,
)

__all__ = ["Ranker"]

P = ParamSpec("P")
T = TypeVar("T")

TOGETHER = 256
"""Most operations in one transaction."""

QUEUE = 2_048
SWEEP_EVERY, SWEEP_SECONDS = 0.25, 0.005
"""How often to sweep up what has expired, and for how long at a time: requests wait meanwhile."""

QUICK = frozenset({Engine.rank, Engine.feedback})
QUICK_EVENTS = 50
TURN_SECONDS = 0.005
"""What an event loop does itself, with so many events at most, and for how long at a time: all else waits meanwhile."""

SLOW_COMMIT, SLOW_SECONDS = 0.05, 5.0
"""After a commit that took so long, an event loop does not wait for the disk for so long."""


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
        return self.work in QUICK and (self.work is Engine.rank or len(self.args[0]) <= QUICK_EVENTS)

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


class Ranker:
    """Ranks fairly and learns from feedback; an answer comes after what it says is on disk.

    Parameters
    ----------
    store
        `sqlite:///PATH`, a path, or `memory:`.
    policy
        Who ranks; what the store had last if left out, at first MCFair.
    most_waiting
        Operations that may wait; more are refused with `UnavailableError`.
    cache
        Memory for queries, in bytes; what does not fit is read back when it is needed.
    warm
        Whether to load compiled code now, so that the first request does not wait for it.
    **settings
        Other fields of `Rules`, such as `prior_strength=0, half_life=86_400`.

    Examples
    --------
    >>> with Ranker("memory:", policy="MCFair(alpha=1, beta=10)") as ranker:
    ...     answer = ranker.rank("red shoes", ["sku1", "sku2", {"id": "sku3", "prior": 0.4}], k=2)
    ...     [item.id for item in answer.items]
    ...     ranker.feedback([{"impression": answer.impression, "item": answer.items[0].id}])[0].status
    ['sku3', 'sku1']
    'applied'
    """

    def __init__(
        self,
        store: str | Path | Store = "sqlite:///mcfair.db",
        *,
        policy: Policy | str | None = None,
        most_waiting: int = QUEUE,
        cache: int = CACHE,
        warm: bool = True,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        **settings: Any,
    ) -> None:
        self.store = open_store(store) if isinstance(store, str | Path) else store
        self.on_batch: list[Callable[[int, float], None]] = []
        self.trouble: str | None = None
        self.closing = self.doubtful = False
        self.door = threading.Lock()
        self.limit = most_waiting
        try:
            self.store.begin()
            self.engine = Engine(
                self.store, lambda stored: make_rules(stored, policy, settings), clock=clock, cache=cache
            )
            self.store.commit()
            if warm:
                warm_up(self.engine)
        except BaseException:
            self.store.rollback()
            self.store.close()
            raise
        self.waiting: queue.SimpleQueue[Operation | Turn | None] = queue.SimpleQueue()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.pending: deque[Operation] = deque()  # only the loop touches this and what follows
        self.busy = self.due = self.leaving = self.worked = False
        self.idle = True
        self.slow_until = 0.0
        self.writer = threading.Thread(target=self.write, name="mcfair-writer", daemon=True)
        self.writer.start()

    def __enter__(self) -> Ranker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
    #
    # Two threads that both compute take turns at Python's lock, and a turn costs more than a ranking. So an event loop
    # can do itself what is quick. To wait for the disk is quick as well, mostly: less than to wake another thread for
    # it and to be woken by that. After a commit that was not, the writer commits for a while, so that a slow disk stops
    # nobody who does not need it. Who may use engine and store is never in doubt: with a loop, the writer while `busy`
    # and else the loop; without, the writer.

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
        """Do what is pending, as far as it is quick, and hand it to the writer."""
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
            if error is None and time.monotonic() >= self.slow_until:
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
        begun = time.monotonic()
        with self.timed(group):
            self.finish(group, None)
        if time.monotonic() - begun > SLOW_COMMIT:
            self.slow_until = time.monotonic() + SLOW_SECONDS
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
        self.next_sweep = time.monotonic() + SWEEP_EVERY
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
            if self.loop is not None:
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
                self.store.commit()
                if wrote:  # who only reads learns nothing about the disk
                    self.trouble = None
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
        """Fold what has expired, and tidy up while nobody waits; after trouble, see whether it is over."""
        if time.monotonic() < self.next_sweep:
            return
        try:
            self.store.begin()
            self.recover()
            if self.trouble is not None:
                self.store.probe()
            self.engine.sweep(SWEEP_SECONDS)
            self.store.commit()
            if idle:
                self.store.tidy()
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

    # --- what there is to ask ----------------------------------------------------------------------------------------

    def rank(
        self,
        query: str,
        items: Sequence[Item | str | dict[str, Any]],
        k: int = 10,
        *,
        policy: Policy | str | None = None,
        explain: bool = False,
        defer_exposure: bool = False,
        shadow: bool = False,
        key: str | None = None,
    ) -> Ranking:
        """Rank candidates and write the impression down.

        Parameters
        ----------
        query
            Its text, which is stored nowhere: what it has is kept under a keyed hash of it.
        items
            Candidates: ids, or items with a `prior` relevance from 0 to 1 and a `group`.
        k
            Length of the list, at most the number of items.
        policy
            Another policy than the one in force, for this list.
        explain
            Whether to give the terms of each score.
        defer_exposure
            Credit nothing until `shown` arrives.
        shadow
            Return the items as they came, and write down what would have been done.
        key
            Idempotency key: the same call with the same key again gives the same answer and changes nothing.
        """
        request = convert(RankRequest, {
            "query": query, "items": [as_item(item) for item in items], "k": k,
            "policy": None if policy is None else str(policy), "explain": explain,
            "defer_exposure": defer_exposure, "shadow": shadow,
        })  # fmt: skip
        return self.submit(Engine.rank, unread(request), key).result()

    def feedback(self, events: Sequence[Event | dict[str, Any]]) -> list[EventResult]:
        """Report what happened to impressions: `{"impression": …, "item": …}` is a click."""
        return self.submit(Engine.feedback, as_events(events)).result().results

    def click(self, impression: str, item: str) -> EventResult:
        """Report a click on an item of an impression."""
        return self.feedback([Event(impression=impression, item=item)])[0]

    def shown(self, impression: str, ranks: Sequence[int] | None = None) -> EventResult:
        """Report which ranks of an impression were seen, all if they are not given."""
        seen = None if ranks is None else list(ranks)
        return self.feedback([Event(impression=impression, type="shown", ranks=seen)])[0]

    def retract(self, events: Sequence[Event | dict[str, Any]]) -> list[EventResult]:
        """Take back what was reported: fraud, returns. The same event reported again does not count any more."""
        return self.submit(Engine.feedback, as_events(events), retract=True).result().results

    def explain(self, impression: str) -> Explanation:
        """Say why a list was as it was."""
        return self.submit(Engine.explain, impression).result()

    def query_state(self, query: str | None = None, *, query_id: str | None = None) -> QueryState:
        """Tell what was observed of a query."""
        return self.submit(Engine.query_state, query, query_id).result()

    def policy(self) -> PolicyInForce:
        """Say how lists are made now."""
        return self.submit(Engine.in_force).result()

    def change_policy(self, **changes: Any) -> PolicyInForce:
        """Make lists otherwise from now on: fields of `Rules`."""
        return self.submit(Engine.change, convert(PolicyChange, changes)).result()

    def delete_query(self, query: str | None = None, *, query_id: str | None = None) -> None:
        """Forget a query."""
        self.submit(Engine.delete_query, query, query_id).result()

    def delete_item(self, item: str) -> int:
        """Forget an item in every query; say in how many it was."""
        return self.submit(Engine.delete_item, item).result()

    def reset(self) -> int:
        """Forget every query; say how many there were."""
        return self.submit(Engine.reset).result()

    def usage(self) -> Usage:
        """Say how much is stored."""
        return self.submit(Engine.usage).result()

    def add_key(self, name: str, scopes: list[Scope]) -> KeyAdded:
        """Make a key for the network interface."""
        return self.submit(Engine.add_key, name, scopes).result()

    def keys(self) -> list[KeyInfo]:
        """Every key, without its secret."""
        return self.submit(Engine.keys).result()

    def revoke_key(self, id: str) -> KeyInfo:
        """Make a key good for nothing."""
        return self.submit(Engine.revoke_key, id).result()

    # --- what does not go through the writer -------------------------------------------------------------------------

    def fairness(self) -> Fairness:
        """Tell fairness over all queries; reads all of them, beside the writer."""
        now = self.submit(Engine.now).result()
        with readable(), self.store.reader() as store:
            return history.fairness(store, now)

    def export(self) -> Iterator[bytes]:
        """Give everything as lines of JSON."""
        with readable(), self.store.reader() as store:
            yield from history.export(store)

    @property
    def has_keys(self) -> bool:
        """Whether keys are asked for: once there was one, even if all are revoked by now."""
        return bool(self.engine.stored_keys)

    def authenticate(self, key: str) -> frozenset[Scope] | None:
        """Say what a key is good for; None if it is good for nothing."""
        prefix, _, rest = key.partition("_")
        id, _, secret = rest.partition("_")
        stored = self.engine.stored_keys.get(id)
        digest = hashed(secret)
        good = stored is not None and hmac.compare_digest(stored.digest, digest) and prefix == KEY_PREFIX
        if stored is None or not good or stored.revoked is not None:
            return None
        return frozenset(stored.scopes.split())  # type: ignore[arg-type]


def is_out_of_order(error: Exception) -> bool:
    """Whether an error is that of the disk or the database, and not of what was asked for."""
    return isinstance(error, (sqlite3.Error, OSError)) and not isinstance(error, sqlite3.IntegrityError)


@contextmanager
def readable() -> Iterator[None]:
    """Say of a store that cannot be read that the service is unavailable."""
    try:
        yield
    except (StoreError, sqlite3.Error, OSError) as error:
        raise UnavailableError(f"the store cannot be read: {error}") from error


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


def warm_up(engine: Engine) -> None:
    """Compile, or load, every kernel that a request may need, so that no request waits for it."""
    from .stores import SQLiteStore

    scratch = Engine(SQLiteStore(None), lambda stored: engine.version.rules)
    for policy in ("MCFair", "MMF", "FairCo", "TopK", engine.version.rules.policy):
        for n in (3, 40):
            request = RankRequest(query="warm", items=[Item(str(i)) for i in range(n)], k=2, policy=policy)
            answer = scratch.rank(unread(request))
            scratch.feedback([Event(impression=answer.impression, item=answer.items[0].id)])
    scratch.query_state("warm")
    scratch.store.close()
