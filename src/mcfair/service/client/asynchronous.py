"""The client for asyncio."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from ...service import methods
from ..calls import Call, declared_by
from .exchange import Exchange
from .messages import ClientRequest, ClientResponse, LineDecoder, TransportError
from .settings import build_context, build_headers, build_protocol

__all__ = ["AsyncClient"]

P = ParamSpec("P")
T = TypeVar("T")


def awaitable(declared: Callable[P, Call[T]]) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """Build a method of `AsyncClient` from its declaration."""

    @declared_by(declared, "Coroutine[Any, Any, {}]")
    async def method(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(self._protocol.run(declared(*args, **kwargs)))

    return method


class AsyncClient:
    """A client of the service for asyncio, with the methods of `Client` as coroutines.

    It may be shared by all tasks of one event loop.

    Parameters
    ----------
    address, key, timeout, retry_timeout, rank_deadline, backoff, cooldown, verify
        As in `Client`.

    Raises
    ------
    SettingError
        If httpcore is not installed, or an argument is not allowed.

    Examples
    --------
    >>> async with AsyncClient("http://127.0.0.1:8000") as client:  # doctest: +SKIP
    ...     ranking = await client.rank("red shoes", ["sku1", "sku2", "sku3"], fallback=True)
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
        self._protocol = build_protocol(
            address,
            timeout=timeout,
            retry_timeout=retry_timeout,
            rank_deadline=rank_deadline,
            backoff=backoff,
            cooldown=cooldown,
        )
        headers = build_headers(key)
        from .transport import AsyncTransport

        self._transport = AsyncTransport(headers, build_context(self._protocol, verify))

    rank = awaitable(methods.rank)
    feedback = awaitable(methods.feedback)
    retract = awaitable(methods.retract)
    click = awaitable(methods.click)
    shown = awaitable(methods.shown)
    explain = awaitable(methods.explain)
    query_state = awaitable(methods.query_state)
    fairness = awaitable(methods.fairness)
    usage = awaitable(methods.usage)
    ready = awaitable(methods.ready)
    policy = awaitable(methods.policy)
    change_policy = awaitable(methods.change_policy)
    delete_query = awaitable(methods.delete_query)
    delete_item = awaitable(methods.delete_item)
    reset = awaitable(methods.reset)
    keys = awaitable(methods.keys)
    add_key = awaitable(methods.add_key)
    revoke_key = awaitable(methods.revoke_key)

    @declared_by(methods.export, "Async{}")
    async def export(self) -> AsyncIterator[dict[str, Any]]:  # noqa: D102
        response, lines = await self._run(self._protocol.export()), LineDecoder()
        async with aclosing(self._transport.chunks(response)) as chunks:
            async for chunk in chunks:
                for entry in lines.feed(chunk):
                    yield entry
            for entry in lines.feed(b"\n"):
                yield entry

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        await self.close()

    async def _run(self, exchange: Exchange[T]) -> T:
        """Send the requests of an exchange and wait as it requires; return its result."""
        outcome: ClientResponse | TransportError | None = None
        while True:
            try:
                step = exchange.send(outcome)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            if isinstance(step, ClientRequest):
                outcome = await self._transport.send(step)
            else:
                await asyncio.sleep(step)
