"""The two clients, blocking and for asyncio."""

from __future__ import annotations

import inspect
import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing, closing
from functools import wraps
from itertools import chain
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar
from urllib.parse import urlsplit

from ...errors import SettingError
from ..calls import Call, is_visible_ascii
from ..methods import Methods
from ..wire import is_finite
from .exchange import Exchange, decode_lines
from .routing import Instances

if TYPE_CHECKING:
    from .transport import AsyncTransport, BlockingTransport


P = ParamSpec("P")
T = TypeVar("T")


class ClientSettings(ABC):
    """The constructor of both clients; `Client` describes its parameters."""

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
        try:
            import httpcore  # noqa: F401
        except ImportError:
            raise SettingError("the client needs httpcore: pip install 'mcfair[client]'") from None
        given = list(address) if isinstance(address, Sequence) and not isinstance(address, str) else [address]
        addresses = [check_address(each) for each in given]
        if not addresses or len(set(addresses)) < len(addresses):
            raise SettingError(f"address = {addresses!r} is not allowed: expected one URL or several distinct ones")
        positive = {"timeout": timeout, "rank_deadline": rank_deadline}
        for name, value in (
            positive | {"retry_timeout": retry_timeout, "backoff": backoff, "cooldown": cooldown}
        ).items():
            if not (is_finite(value) and value >= 0 and (value or name not in positive)):
                allowed = "a positive number" if name in positive else "a number, at least 0"
                raise SettingError(f"{name} = {value!r} is not allowed: expected {allowed}")
        if key is not None and not (isinstance(key, str) and is_visible_ascii(key)):
            raise SettingError("key is not allowed: expected visible ASCII characters")
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._exchange = Exchange(
            self._connect(headers, build_context(addresses, verify)),
            Instances(addresses, cooldown),
            timeout=timeout,
            retry_timeout=retry_timeout,
            rank_deadline=rank_deadline,
            backoff=backoff,
        )

    @abstractmethod
    def _connect(self, headers: dict[str, str], context: ssl.SSLContext | None) -> AsyncTransport | BlockingTransport:
        """Open the transport to the instances."""


def check_address(address: Any) -> str:
    """Check the URL of an instance; return it without a slash at the end."""
    if isinstance(address, str) and "@" in address:  # not quoted: it probably contains a password
        raise SettingError("address is not allowed with a user or a password: pass an API key as `key`")
    try:
        url = urlsplit(address)
        valid = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
        valid = valid and not (url.query or url.fragment) and address.isascii() and address.isprintable()
    except (AttributeError, TypeError, ValueError):
        valid = False
    if not valid or " " in address:
        raise SettingError(f"address = {address!r} is not allowed: expected a URL such as http://127.0.0.1:8000")
    return str(address).rstrip("/")


def build_context(addresses: list[str], verify: ssl.SSLContext | bool) -> ssl.SSLContext | None:
    """Return the TLS context; None if no address needs one. Loading certificates takes longer than a request."""
    if isinstance(verify, ssl.SSLContext):
        return verify
    if not any(address.startswith("https") for address in addresses):
        return None
    import httpcore

    context = httpcore.default_ssl_context()
    if not verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


# --- blocking --------------------------------------------------------------------------------------------------------


class Client(ClientSettings, Methods):
    """A client of the service.

    Connection errors, timeouts and the statuses 408, 429, 502, 503 and 504 are retried with exponential backoff, which
    respects Retry-After. Retries are safe: `rank` sends an idempotency key, and all other requests are idempotent.
    `add_key` and `reset` are not; they are retried only if they certainly were not executed.

    Every method raises RequestError if an argument is not allowed or the API key is missing or lacks the scope, and
    UnavailableError if the service is still unavailable after the retries; the call may be repeated later.

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
        If httpcore is not installed, or an argument is not allowed.

    Examples
    --------
    >>> with Client("http://127.0.0.1:8000") as client:  # doctest: +SKIP
    ...     ranking = client.rank("red shoes", ["sku1", "sku2", "sku3"], fallback=True)
    ...     client.click(ranking.impression, ranking.items[0].id)
    """

    def _connect(self, headers: dict[str, str], context: ssl.SSLContext | None) -> BlockingTransport:
        from .transport import BlockingTransport

        self._transport = BlockingTransport(headers, context)
        return self._transport

    def ready(self) -> bool:  # noqa: D102
        return complete(self._exchange.ready())

    def export(self) -> Iterator[dict[str, Any]]:  # noqa: D102
        rest, response = b"", complete(self._exchange.export())
        with closing(self._transport.chunks(response)) as chunks:
            for chunk in chain(chunks, [b"\n"]):
                entries, rest = decode_lines(rest, chunk)
                yield from entries

    def close(self) -> None:
        """Close the connections; refuse later calls."""
        self._exchange.closed = True
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, call: Call[T]) -> T:
        return complete(self._exchange.run(call))


def complete(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine over a blocking transport, which never suspends it; return its result."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise RuntimeError("a blocking transport has suspended a coroutine")


# --- for asyncio -----------------------------------------------------------------------------------------------------


def like(method: Callable[..., Any], returns: str) -> Callable[[T], T]:
    """Copy the documentation and the signature of a method of `Methods`; `returns` formats the type of its result."""

    def copy(own: T) -> T:
        signature = inspect.signature(method)
        wraps(method, updated=())(own)  # type: ignore[arg-type]
        returned = returns.format(signature.return_annotation)
        own.__signature__ = signature.replace(return_annotation=returned)  # type: ignore[attr-defined]
        return own

    return copy


def awaitable(
    method: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """Return a method of `Methods` as a coroutine: there, executing a call returns something to await."""

    @like(method, "Coroutine[Any, Any, {}]")
    async def coroutine(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await method(self, *args, **kwargs)  # type: ignore[misc, no-any-return]

    return coroutine


class AsyncClient(ClientSettings):
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

    rank = awaitable(Methods.rank)
    rerank = awaitable(Methods.rerank)
    feedback = awaitable(Methods.feedback)
    retract = awaitable(Methods.retract)
    click = awaitable(Methods.click)
    shown = awaitable(Methods.shown)
    explain = awaitable(Methods.explain)
    query_state = awaitable(Methods.query_state)
    fairness = awaitable(Methods.fairness)
    history = awaitable(Methods.history)
    unfair_queries = awaitable(Methods.unfair_queries)
    exposed_items = awaitable(Methods.exposed_items)
    usage = awaitable(Methods.usage)
    compare = awaitable(Methods.compare)
    experiment = awaitable(Methods.experiment)
    policy = awaitable(Methods.policy)
    change_policy = awaitable(Methods.change_policy)
    import_history = awaitable(Methods.import_history)
    delete_query = awaitable(Methods.delete_query)
    delete_item = awaitable(Methods.delete_item)
    reset = awaitable(Methods.reset)
    keys = awaitable(Methods.keys)
    add_key = awaitable(Methods.add_key)
    revoke_key = awaitable(Methods.revoke_key)

    @like(Methods.ready, "Coroutine[Any, Any, {}]")
    async def ready(self) -> bool:  # noqa: D102
        return await self._exchange.ready()

    @like(Methods.export, "Async{}")
    async def export(self) -> AsyncIterator[dict[str, Any]]:  # noqa: D102
        rest, response = b"", await self._exchange.export()
        async with aclosing(self._transport.chunks(response)) as chunks:
            async for chunk in chunks:
                entries, rest = decode_lines(rest, chunk)
                for entry in entries:
                    yield entry
        for entry in decode_lines(rest, b"\n")[0]:
            yield entry

    def _connect(self, headers: dict[str, str], context: ssl.SSLContext | None) -> AsyncTransport:
        from .transport import AsyncTransport

        self._transport = AsyncTransport(headers, context)
        return self._transport

    async def close(self) -> None:
        """Close the connections; refuse later calls."""
        self._exchange.closed = True
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _run(self, call: Call[T]) -> Coroutine[Any, Any, T]:
        return self._exchange.run(call)
