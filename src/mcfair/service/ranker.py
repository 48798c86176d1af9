"""The service as a library: every operation, from any thread, without a network."""

from __future__ import annotations

import hmac
import math
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from ..errors import SettingError, UnavailableError
from ..policies.base import Policy
from .background.thread import EngineWriter
from .background.worker import DEFAULT_INTERVALS, Intervals, Worker
from .calls import Call
from .compiling import COMMON, warm_up
from .core.clock import Clock
from .core.engine import Engine
from .core.engine_state import CACHE, MAX_ITEMS
from .core.keys import KEY_PREFIX, hash_secret
from .core.rules import change_rules
from .group_commit import QUEUE, GroupCommit
from .large_ledgers import LargeLedgers
from .methods import Methods
from .operations import OPERATIONS, submission
from .shared_commit import SharedGroupCommit
from .stores import SQLiteStore, Store, open_store
from .wire import Feedback, FeedbackResults, Scope

T = TypeVar("T")


class Ranker(Methods):
    """The service as a library. Every method returns once its effect is durable.

    It has the methods of `Client`, with the same arguments and results. They may be called from any thread, and raise
    RequestError if an argument is not allowed and UnavailableError if the store cannot be written or the queue is full.
    Use it as a context manager, or call `close` at the end.

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
    fit_interval
        Interval, in seconds, at which it is checked whether the prior of a pooled estimator is to be fitted again; 0
        leaves that to the caller.
    guard_interval
        Interval, in seconds, at which the guard of a running experiment tests its arms; 0 leaves that to the
        caller, see `guard_experiment`.
    summary_interval
        Interval, in seconds, at which changed queries are summarised for the history and the figures over all queries;
        0 leaves that to those who ask for them.
    background
        Where this work is done: in a thread; or in a child process of the server that `mcfair.service.create_app` is
        run on, from its start to its end. What the methods of a ranker read is computed by the thread of the caller.
    warm
        Whether to compile or load all kernels now instead of during the first request.
    clock
        Returns the time in ms. If left out, a clock that follows that of this machine, or of the database where several
        instances may share the store: they then agree, whatever the clocks of their machines say.
    executor_class
        Class of the executor. If left out, it depends on whether several instances may share the store.
    **settings
        The other rules, such as `prior_strength=0, half_life=86_400`; see `mcfair.service.core.rules.Rules`.

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
    SettingError
        If another argument is not allowed.

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
        fit_interval: float = DEFAULT_INTERVALS.fits,
        guard_interval: float = DEFAULT_INTERVALS.guard,
        summary_interval: float = DEFAULT_INTERVALS.summaries,
        background: Literal["thread", "process"] = "thread",
        warm: bool = True,
        clock: Callable[[], int] | None = None,
        executor_class: type[GroupCommit] | None = None,
        **settings: Any,
    ) -> None:
        for name, value, least in (("max_queued", max_queued, 1), ("cache", cache, 0), ("max_items", max_items, 1)):
            if not (isinstance(value, int) and value >= least):
                raise SettingError(f"{name} = {value!r} is not allowed: expected a whole number, at least {least}")
        for name, seconds in (("fit", fit_interval), ("guard", guard_interval), ("summary", summary_interval)):
            if not (isinstance(seconds, int | float) and 0.0 <= seconds < math.inf):
                raise SettingError(f"{name}_interval = {seconds!r} is not allowed: expected seconds, at least 0")
        opened = open_store(store) if isinstance(store, str | Path) else store
        try:
            opened.begin(exclusive=True)
            clock = Clock(opened.wall_time) if clock is None else clock
            change = partial(change_rules, policy=policy, settings=settings)
            engine = Engine(opened, change, clock=clock, cache=cache, max_items=max_items)
            opened.commit()
            if warm:
                rules = engine.version.rules
                arms = [] if rules.experiment is None else [arm.policy for arm in rules.experiment.arms]
                engine.require_compiled(warm_up(rules, [*COMMON, rules.policy, *arms]))
        except BaseException:
            opened.rollback()
            opened.close()
            raise
        default = SharedGroupCommit if opened.shared else GroupCommit
        self.executor = (executor_class or default)(opened, engine, max_queued)
        if background == "process" and not (isinstance(store, str | Path) and str(store) != "memory:"):
            background = "thread"  # another process cannot read it
        self.url, self.background, self.intervals = (
            str(store),
            background,
            Intervals(summary_interval, fit_interval, guard_interval),
        )
        self.worker = Worker(opened.reader, EngineWriter(self.executor), self.executor.log_unreadable)
        if background == "thread":
            self.worker.start(self.intervals)
        in_memory = isinstance(opened, SQLiteStore) and opened.path is None  # a reader of it would be a copy
        self.large_ledgers = None if in_memory else LargeLedgers(self.executor)

    def __enter__(self) -> Ranker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- operations: `Methods` has them, `_run` executes them ---------------------------------------------------------

    def _run(self, call: Call[T]) -> T:
        """Execute a call; return its fallback, if it has one, when the service is unavailable."""
        try:
            result = call.convert(self._execute(call))
        except UnavailableError:
            if call.fallback is None:
                raise
            return call.fallback
        return self._run(result) if isinstance(result, Call) else result

    def _execute(self, call: Call[Any]) -> Any:
        """Execute the operation of a call, and wait for its result until the deadline of the call."""
        operation, executor = OPERATIONS[call.operation], self.executor
        if isinstance(body := call.arguments.get("body"), Feedback) and not body.events:
            return FeedbackResults([])
        if operation.runs == "background":
            return self.worker.read(operation.function, executor.now(), call.arguments)
        work, args, kwargs = submission(operation, call.arguments)
        future = executor.submit(work, *args, **kwargs)
        left = None if call.deadline is None else max(0.0, call.begun + call.deadline - time.monotonic())
        try:
            return future.result(left)
        except TimeoutError:
            text = f"the {call.operation} was not durable within {call.deadline:g} s; it may still be recorded"
            raise UnavailableError(text) from None

    def ready(self) -> bool:  # noqa: D102
        return self.executor.store_error is None and not self.executor.closing

    def export(self) -> Iterator[dict[str, Any]]:  # noqa: D102
        with closing(self.worker.iterate(OPERATIONS["export"].function, self.executor.now(), {})) as lines:
            yield from map(msgspec.json.decode, lines)

    def guard_experiment(self) -> dict[str, str]:
        """Test the arms of the running experiment now, and stop those that are worse than the control.

        The guard does this every `guard_interval` seconds. A simulation, in which time does not pass, calls it.

        Returns
        -------
        dict
            Why each arm that was stopped is, by name.

        Raises
        ------
        UnavailableError
            If the store cannot be written, or the ranker is closed while an experiment runs.

        Examples
        --------
        >>> with Ranker("memory:", guard_interval=0, warm=False) as ranker:
        ...     ranker.guard_experiment()
        {}
        """
        return self.worker.stop_harmful_arms()

    def close(self) -> None:
        """Execute what is queued, then close the store; refuse later operations."""
        self.worker.stop()
        if self.large_ledgers is not None:
            self.large_ledgers.stop()
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
        return self.scopes_of(id) if good else None

    def scopes_of(self, id: str) -> frozenset[Scope] | None:
        """Return the scopes of the API key of an id, which is no secret; None if the key is unknown or revoked."""
        stored = self.executor.engine.api_keys.get(id)
        if stored is None or stored.revoked is not None:
            return None
        return frozenset(stored.scopes.split())  # type: ignore[arg-type]

    def sign(self, content: bytes, purpose: bytes) -> bytes:
        """Return a signature that only a holder of the secret of the store can compute, another for each purpose."""
        return self.executor.engine.ids.keyed_hash(content, 32, purpose)
