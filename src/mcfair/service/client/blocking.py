"""The blocking client: an event loop in a thread of its own.

An asyncio task can be cancelled at any moment, a blocking read cannot. The loop therefore makes the deadline of `rank`
hold against any server, and the client safe to share among threads.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from ...errors import MCFairError, UnavailableError
from ...service import methods
from ..calls import Call, declared_by
from .asynchronous import AsyncClient

__all__ = ["Client"]

P = ParamSpec("P")
T = TypeVar("T")


def blocking(declared: Callable[P, Call[T]]) -> Callable[Concatenate[Client, P], T]:
    """Build a method of `Client` from its declaration."""

    @declared_by(declared)
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        call, running = declared(*args, **kwargs), self._running
        return running.wait(running.client._run(running.client._protocol.run(call)))

    return method


class LoopThread:
    """An event loop in a thread, started at the first use, and the client that it runs."""

    def __init__(self, client: AsyncClient) -> None:
        self.client = client
        self.lock = threading.Lock()
        self.closed = False
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=run_loop, args=[self.loop], name="mcfair-client", daemon=True)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and wait for its result; cancel it if the wait is interrupted."""
        with self.lock:  # `stop` takes it too, so nothing is submitted to a loop that has ended
            if self.closed:
                work.close()
                raise MCFairError("the client is closed")
            if not self.thread.is_alive():
                self.thread.start()
            future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except CancelledError:
            raise UnavailableError("the client was closed during the call") from None
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """Stop the loop; cancel what it runs."""
        with self.lock:
            if not self.closed:
                self.closed = True
                if self.thread.is_alive():
                    self.loop.call_soon_threadsafe(self.loop.stop)
                else:
                    self.loop.close()

    def close(self) -> None:
        """Close the connections and stop the loop."""
        with suppress(MCFairError):
            self.wait(self.client.close())
        self.stop()
        if self.thread.is_alive():
            self.thread.join()


def run_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop until it is stopped, cancel its tasks, and close it."""
    try:
        loop.run_forever()
        loop.run_until_complete(cancel_tasks())
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


async def cancel_tasks() -> None:
    """Cancel all other tasks of the loop."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def next_or_none(batches: AsyncGenerator[T, None]) -> T | None:
    """Return the next value of an asynchronous generator; None at its end."""
    return await anext(batches, None)


class Client:
    """A client of the service.

    Connection errors, timeouts and the statuses 408, 429, 502, 503 and 504 are retried with exponential backoff, which
    respects Retry-After. Retries are safe: `rank` sends an idempotency key, and all other requests are idempotent.
    `add_key` and `reset` are not; they are retried only if they certainly were not executed.

    A client may be shared by any number of threads, and should be: it keeps connections open. After a fork it opens
    connections of its own in the new process.

    Parameters
    ----------
    address
        URL of the service, such as http://127.0.0.1:8000, or the URLs of several instances that share a store. With
        several, the requests of one query go to one instance, as long as it does not fail.
    key
        The API key, if the service requires one.
    timeout
        Timeout of an attempt in seconds; for an export, of each read.
    retry_timeout
        No attempt starts later than this number of seconds after the first one; 0 disables retries. `rank` has a
        deadline instead.
    rank_deadline
        Maximum duration of `rank` in seconds: connection, request, response, retries and waits.
    backoff
        Maximum wait before the first retry in seconds; it doubles with every further one.
    cooldown
        Seconds for which an instance that failed is tried last.
    verify
        Whether to verify TLS certificates, or the `ssl.SSLContext` to verify them with.

    Raises
    ------
    SettingError
        If httpx is not installed, or an argument is not allowed.

    Examples
    --------
    >>> with Client("http://127.0.0.1:8000") as client:  # doctest: +SKIP
    ...     ranking = client.rank("red shoes", ["sku1", "sku2", "sku3"], fallback=True)
    ...     client.click(ranking.impression, ranking.items[0].id)
    """

    def __init__(
        self,
        address: str | Sequence[str],
        key: str | None = None,
        *,
        timeout: float = 5.0,
        retry_timeout: float = 30.0,
        rank_deadline: float = 0.3,
        backoff: float = 0.1,
        cooldown: float = 1.0,
        verify: ssl.SSLContext | bool = True,
    ) -> None:
        self._build = partial(
            AsyncClient,
            address,
            key,
            timeout=timeout,
            retry_timeout=retry_timeout,
            rank_deadline=rank_deadline,
            backoff=backoff,
            cooldown=cooldown,
            verify=verify,
        )
        self._loops: dict[int, LoopThread] = {}
        self._start()

    rank = blocking(methods.rank)
    feedback = blocking(methods.feedback)
    retract = blocking(methods.retract)
    click = blocking(methods.click)
    shown = blocking(methods.shown)
    explain = blocking(methods.explain)
    query_state = blocking(methods.query_state)
    fairness = blocking(methods.fairness)
    usage = blocking(methods.usage)
    ready = blocking(methods.ready)
    policy = blocking(methods.policy)
    change_policy = blocking(methods.change_policy)
    delete_query = blocking(methods.delete_query)
    delete_item = blocking(methods.delete_item)
    reset = blocking(methods.reset)
    keys = blocking(methods.keys)
    add_key = blocking(methods.add_key)
    revoke_key = blocking(methods.revoke_key)

    @declared_by(methods.export)
    def export(self) -> Iterator[dict[str, Any]]:  # noqa: D102
        running = self._running
        batches = running.client._export()
        try:
            while (batch := running.wait(next_or_none(batches))) is not None:
                yield from batch
        finally:
            with suppress(MCFairError):  # the client may have been closed
                running.wait(batches.aclose())

    def close(self) -> None:
        """Close the connections. Calls in progress are cancelled."""
        self._running.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    @property
    def _running(self) -> LoopThread:
        """The event loop of this process. Threads do not survive a fork, so a new process starts its own."""
        return self._loops.get(os.getpid()) or self._start()

    def _start(self) -> LoopThread:
        """Create the event loop of this process; of several threads that do so, one succeeds."""
        created = LoopThread(self._build())
        running = self._loops.setdefault(os.getpid(), created)
        weakref.finalize(self, created.stop)  # for a client that is not closed
        return running
