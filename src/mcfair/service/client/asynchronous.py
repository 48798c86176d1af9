"""The client for asyncio."""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from ...errors import SettingError, UnavailableError
from ...service import methods
from ..calls import Call, declared_by, is_visible_ascii
from .exchange import Exchange, SansIOClient
from .messages import ClientRequest, ClientResponse, LineDecoder, TransportError
from .routing import Instances

if TYPE_CHECKING:
    pass

__all__ = ["AsyncClient"]

P = ParamSpec("P")
T = TypeVar("T")

MAX_CONNECTIONS = 100


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
        If httpx is not installed, or an argument is not allowed.

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
        addresses = [address] if isinstance(address, str) else list(address)
        httpx = import_httpx()
        if key is not None and not is_visible_ascii(key):
            raise SettingError("key is not allowed: expected visible ASCII characters")
        if not (rank_deadline > 0 and math.isfinite(rank_deadline)):
            raise SettingError(f"rank_deadline = {rank_deadline!r} is not allowed: expected a positive number")
        self._protocol = SansIOClient(
            Instances([check_address(each) for each in check_distinct(addresses)], cooldown),
            timeout=timeout,
            retry_timeout=retry_timeout,
            rank_deadline=rank_deadline,
            backoff=backoff,
        )
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        limits = httpx.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=MAX_CONNECTIONS)
        self._http = httpx.AsyncClient(headers=headers, limits=limits, verify=verify)

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
        async with aclosing(self._export()) as batches:
            async for batch in batches:
                for entry in batch:
                    yield entry

    async def _export(self) -> AsyncGenerator[list[dict[str, Any]], None]:
        """Iterate over the entries of an export, in batches as they arrive."""
        httpx = import_httpx()
        response, lines = await self._run(self._protocol.export()), LineDecoder()
        try:
            async for chunk in response.aiter_bytes():
                yield list(lines.feed(chunk))
            yield list(lines.feed(b"\n"))
        except httpx.RequestError as error:
            reason = str(error) or type(error).__name__
            raise UnavailableError(f"the export was interrupted: {reason}; start it again") from error
        finally:
            await response.aclose()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

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
                outcome = await self._send(step)
            else:
                await asyncio.sleep(step)

    async def _send(self, request: ClientRequest) -> ClientResponse | TransportError:
        """Send a request and read its response within its timeout.

        The timeouts of httpx hold for each read, so a server that sends byte by byte would never exceed them: the
        whole attempt is cancelled instead. Connecting may take half of the time. A request whose connection was not
        opened by then was not sent, and there is time left for another attempt.
        """
        httpx = import_httpx()
        prepared = self._http.build_request(
            request.method,
            request.address + request.path,
            content=request.content,
            headers=dict(request.headers),
            timeout=httpx.Timeout(request.timeout, connect=request.timeout / 2, pool=request.timeout / 2),
        )
        try:
            async with asyncio.timeout(request.timeout):
                response = await self._http.send(prepared, stream=True)
                if request.stream and response.is_success:
                    return ClientResponse(response.status_code, response.headers, b"", response)
                try:
                    return ClientResponse(response.status_code, response.headers, await response.aread())
                finally:
                    await response.aclose()
        except TimeoutError:
            return TransportError(f"no response within {request.timeout:.2g} s", sent=True)
        except httpx.RequestError as error:
            unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
            reason = f"{type(error).__name__}{f' ({error})' if str(error) else ''}"
            return TransportError(reason, sent=not unsent)


def import_httpx() -> Any:
    """Return the module httpx."""
    try:
        import httpx
    except ImportError:
        raise SettingError("the client needs httpx: pip install 'mcfair[client]'") from None
    return httpx


def check_distinct(addresses: list[str]) -> list[str]:
    """Check that there is an address, and that none is given twice."""
    if not addresses or len(set(addresses)) < len(addresses):
        raise SettingError(f"address = {addresses!r} is not allowed: expected one URL or several distinct ones")
    return addresses


def check_address(address: str) -> str:
    """Check the URL of an instance; return it without a slash at the end."""
    httpx = import_httpx()
    try:
        url = httpx.URL(address)
    except httpx.InvalidURL as error:
        raise SettingError(f"address = {address!r} is not allowed: {error}") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise SettingError(f"address = {address!r} is not allowed: expected a URL such as http://127.0.0.1:8000")
    return address.rstrip("/")
