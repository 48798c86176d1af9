"""The service as a library: every operation, from any thread, without a network."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec

from ..errors import StoreError, UnavailableError
from ..policies.base import Policy
from ..service import methods, reports
from .calls import Call, declared_by
from .clock import Clock
from .engine import CACHE, KEY_PREFIX, MAX_ITEMS, Engine, hash_secret
from .group_commit import QUEUE, GroupCommit
from .rules import change_rules
from .shared_commit import SharedGroupCommit
from .stores import Store, open_store
from .wire import Event, EventResult, Fairness, Item, Ranking, RankRequest, RawRankRequest, Scope, Usage, with_raw_items

__all__ = ["Ranker", "export_lines"]

P = ParamSpec("P")
T = TypeVar("T")


def executed(declared: Callable[P, Call[T]]) -> Callable[Concatenate[Ranker, P], T]:
    """Build a method of `Ranker` from its declaration."""

    @declared_by(declared)
    def method(self: Ranker, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(declared(*args, **kwargs))

    return method


class Ranker:
    """The service as a library. Every method returns once its effect is durable.

    It has the methods of `Client`, with the same arguments and results. They may be called from any thread. Use it as a
    context manager, or call `close` at the end.

    Parameters
    ----------
    store
        `sqlite:///PATH`, a path, `memory:`, or `postgresql://USER:PASSWORD@HOST:PORT/DATABASE`.
    policy
        The ranking policy. If left out, the last policy of the store, or MCFair for a new store.
    max_queued
        Maximum number of queued operations; further ones are refused with UnavailableError.
    cache
        Memory for cached queries, in bytes; queries that do not fit are evicted and loaded again when needed.
    max_items
        Maximum number of items of one query at a time; a request that would exceed it is refused with RequestError.
    warm
        Whether to compile or load all kernels now instead of during the first request.
    clock
        Returns the time in ms.
    executor_class
        Class of the executor. If left out, it depends on whether several instances may share the store.
    **settings
        The other rules, such as `prior_strength=0, half_life=86_400`; see `mcfair.service.rules.Rules`.

    Attributes
    ----------
    executor
        Executes the operations serially with group commit. A server uses it directly: it submits operations from its
        event loop, and reads the state of the queue and of the store.

    Raises
    ------
    StoreError
        If the store cannot be opened, is damaged, or is in use by another process.
    RequestError
        If the policy or a rule is not allowed.

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
        max_queued: int = QUEUE,
        cache: int = CACHE,
        max_items: int = MAX_ITEMS,
        warm: bool = True,
        clock: Callable[[], int] | None = None,
        executor_class: type[GroupCommit] | None = None,
        **settings: Any,
    ) -> None:
        clock = Clock() if clock is None else clock
        opened = open_store(store) if isinstance(store, str | Path) else store
        try:
            opened.begin(exclusive=True)
            rules = partial(change_rules, policy=policy, settings=settings)
            engine = Engine(opened, rules, clock=clock, cache=cache, max_items=max_items)
            opened.commit()
            if warm:
                warm_up(engine)
        except BaseException:
            opened.rollback()
            opened.close()
            raise
        default = SharedGroupCommit if opened.shared else GroupCommit
        self.executor = (executor_class or default)(opened, engine, max_queued)

    def __enter__(self) -> Ranker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- operations: `methods` declares them, `_run` executes them ----------------------------------------------------

    rank = executed(methods.rank)
    feedback = executed(methods.feedback)
    retract = executed(methods.retract)
    click = executed(methods.click)
    shown = executed(methods.shown)
    explain = executed(methods.explain)
    query_state = executed(methods.query_state)
    fairness = executed(methods.fairness)
    usage = executed(methods.usage)
    ready = executed(methods.ready)
    export = executed(methods.export)
    policy = executed(methods.policy)
    change_policy = executed(methods.change_policy)
    delete_query = executed(methods.delete_query)
    delete_item = executed(methods.delete_item)
    reset = executed(methods.reset)
    keys = executed(methods.keys)
    add_key = executed(methods.add_key)
    revoke_key = executed(methods.revoke_key)

    def _run(self, call: Call[T]) -> T:
        """Execute a call; return its fallback, if it has one, when the service is unavailable."""
        try:
            return call.convert(EXECUTION[call.operation](self.executor, **call.arguments))
        except UnavailableError:
            if call.fallback is None:
                raise
            return call.fallback

    def close(self) -> None:
        """Execute what is queued, then close the store; refuse later operations."""
        self.executor.close()

    # --- authentication ----------------------------------------------------------------------------------------------

    @property
    def has_keys(self) -> bool:
        """Whether API keys are required: true once a key has been created, even if all are revoked by now."""
        return bool(self.executor.engine.api_keys)

    def authenticate(self, key: str) -> frozenset[Scope] | None:
        """Return the scopes of an API key.

        Parameters
        ----------
        key
            The key, with its secret.

        Returns
        -------
        frozenset of str, or None
            The scopes; None if the key is unknown or revoked.
        """
        prefix, _, rest = key.partition("_")
        id, _, secret = rest.partition("_")
        stored = self.executor.engine.api_keys.get(id)
        digest = hash_secret(secret)
        good = stored is not None and hmac.compare_digest(stored.digest, digest) and prefix == KEY_PREFIX
        if stored is None or not good or stored.revoked is not None:
            return None
        return frozenset(stored.scopes.split())  # type: ignore[arg-type]


# --- execution of the operations -------------------------------------------------------------------------------------


def rank(
    executor: GroupCommit, request: RawRankRequest, key: str | None, begun: float, deadline: float | None
) -> Ranking:
    """Rank, and wait for the result until the deadline."""
    future = executor.submit(Engine.rank, request, key)
    try:
        return future.result(None if deadline is None else max(0.0, deadline - (time.monotonic() - begun)))
    except TimeoutError:
        raise UnavailableError(f"the ranking was not durable within {deadline:g} s; it may still be recorded") from None


def report(executor: GroupCommit, events: list[Event], *, retract: bool = False) -> list[EventResult]:
    """Report or retract events."""
    return executor.submit(Engine.feedback, events, retract=retract).result().results if events else []


def fairness(executor: GroupCommit) -> Fairness:
    """Compute fairness. It reads every query, concurrently with other operations."""
    now = executor.submit(Engine.now).result()
    with readable(executor), executor.store.reader() as store:
        return reports.fairness(store, now)


def usage(executor: GroupCommit) -> Usage:
    """Count what is stored. It reads every row, concurrently with other operations."""
    with readable(executor), executor.store.reader() as store:
        return Usage(**store.usage()._asdict())


def reset(executor: GroupCommit) -> int:
    """Delete every query; return how many there were, counted beforehand and concurrently with other operations."""
    with readable(executor), executor.store.reader() as store:
        queries = reports.count_queries(store)
    executor.submit(Engine.reset).result()
    return queries


def export(executor: GroupCommit) -> Iterator[dict[str, Any]]:
    """Iterate over the entries of an export."""
    with closing(export_lines(executor)) as lines:
        yield from map(msgspec.json.decode, lines)


def export_lines(executor: GroupCommit) -> Generator[bytes, None, None]:
    """Iterate over everything that is stored, as JSON lines."""
    with readable(executor), executor.store.reader() as reader:
        yield from reports.export(reader)


def on_engine(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that submits an operation of the engine and waits for its result."""
    return lambda executor, **arguments: executor.submit(operation, **arguments).result()


EXECUTION: dict[str, Callable[..., Any]] = {
    "rank": rank,
    "feedback": report,
    "retract": partial(report, retract=True),
    "fairness": fairness,
    "export": export,
    "ready": lambda executor: executor.store_error is None and not executor.closing,
    "explain": on_engine(Engine.explain),
    "query_state": on_engine(Engine.query_state),
    "usage": usage,
    "policy": on_engine(Engine.active_policy),
    "change_policy": on_engine(Engine.change),
    "delete_query": on_engine(Engine.delete_query),
    "delete_item": on_engine(Engine.delete_item),
    "reset": reset,
    "keys": on_engine(Engine.keys),
    "add_key": on_engine(Engine.add_key),
    "revoke_key": on_engine(Engine.revoke_key),
}
"""How each operation is executed."""


@contextmanager
def readable(executor: GroupCommit) -> Iterator[None]:
    """Convert errors of reading the store to UnavailableError; log the cause, which may name paths."""
    try:
        yield
    except (StoreError, OSError) as error:
        executor.log_unreadable(error)
        raise UnavailableError("the store cannot be read") from error


def warm_up(engine: Engine) -> None:
    """Compile or load every kernel that a request may need, so that no request waits for it."""
    from .stores import SQLiteStore

    scratch = Engine(SQLiteStore(None), lambda stored: engine.version.rules)
    for policy in ("MCFair", "MMF", "FairCo", "TopK", engine.version.rules.policy):
        for n in (3, 40):
            request = RankRequest(query="warm", items=[Item(str(i)) for i in range(n)], k=2, policy=policy)
            answer = scratch.rank(with_raw_items(request))
            scratch.feedback([Event(impression=str(answer.impression), item=answer.items[0].id)])
    scratch.query_state("warm")
    scratch.store.close()
