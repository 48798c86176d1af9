"""The blocking client."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from ...service import methods
from ..calls import Call, declared_by
from .exchange import Exchange
from .messages import ClientRequest, ClientResponse, LineDecoder, TransportError
from .settings import build_context, build_headers, build_protocol

__all__ = ["Client"]

P = ParamSpec("P")
T = TypeVar("T")


def blocking(declared: Callable[P, Call[T]]) -> Callable[Concatenate[Client, P], T]:
    """Build a method of `Client` from its declaration."""

    @declared_by(declared)
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(self._protocol.run(declared(*args, **kwargs)))

    return method


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
        If httpcore is not installed, or an argument is not allowed.

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
        self._protocol = build_protocol(
            address,
            timeout=timeout,
            retry_timeout=retry_timeout,
            rank_deadline=rank_deadline,
            backoff=backoff,
            cooldown=cooldown,
        )
        headers = build_headers(key)
        from .transport import BlockingTransport

        self._transport = BlockingTransport(headers, build_context(self._protocol, verify))

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
        response, lines = self._run(self._protocol.export()), LineDecoder()
        with closing(self._transport.chunks(response)) as chunks:
            for chunk in chunks:
                yield from lines.feed(chunk)
            yield from lines.feed(b"\n")

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def _run(self, exchange: Exchange[T]) -> T:
        """Send the requests of an exchange and wait as it requires; return its result."""
        outcome: ClientResponse | TransportError | None = None
        while True:
            try:
                step = exchange.send(outcome)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            if isinstance(step, ClientRequest):
                outcome = self._transport.send(step)
            else:
                time.sleep(step)
