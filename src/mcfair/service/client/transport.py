"""Sending one request within its timeout, blocking or in an event loop, over the connection pools of httpcore."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
import time
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping
from concurrent.futures import Future
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import httpcore

from ...errors import UnavailableError
from .exchange import ClientRequest, Reply, TransportError

FAILURES = (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError, httpcore.UnsupportedProtocol)
UNSENT = (httpcore.ConnectError, httpcore.ConnectTimeout, httpcore.PoolTimeout)
POOL: dict[str, Any] = {"max_connections": 100, "keepalive_expiry": 30.0}
PIECE = 1 << 16
"""Number of bytes that are written at once."""


def prepare(request: ClientRequest, headers: Mapping[str, str]) -> httpcore.Request:
    """Build a request.

    Connecting may take half of the time. A request whose connection was not opened by then was not sent, and there is
    time left for another attempt.
    """
    sent = {"Host": urlsplit(request.address).netloc, **headers, **request.headers}
    if request.content is not None:
        sent |= {"Content-Type": "application/json", "Content-Length": str(len(request.content))}
    seconds = request.timeout
    timeouts = {"connect": seconds / 2, "pool": seconds / 2, "read": seconds, "write": seconds}
    return httpcore.Request(
        request.method,
        request.address + request.path,
        headers=list(sent.items()),
        content=request.content,
        extensions={"timeout": timeouts},
    )


def failed(error: Exception) -> TransportError:
    """Convert an error, noting whether the request may have been sent."""
    reason = f"{type(error).__name__}{f' ({error})' if str(error) else ''}"
    return TransportError(reason, sent=not isinstance(error, UNSENT))


def interrupted(error: Exception) -> UnavailableError:
    """Return the error for an export that was interrupted."""
    return UnavailableError(f"the export was interrupted: {str(error) or type(error).__name__}; start it again")


def is_streamed(request: ClientRequest, response: httpcore.Response) -> bool:
    """Return whether the body of a response is left to be read later."""
    return request.stream and 200 <= response.status < 300


# --- in an event loop ------------------------------------------------------------------------------------------------


class AsyncTransport:
    """Send requests in an event loop. At its timeout a request is cancelled, whatever it waits for."""

    def __init__(self, headers: Mapping[str, str], context: ssl.SSLContext | None) -> None:
        self.headers = headers
        self.pool = httpcore.AsyncConnectionPool(context, **POOL)

    async def send(self, request: ClientRequest) -> Reply:
        """Send a request and read its response within its timeout."""
        try:
            async with asyncio.timeout(request.timeout):
                response = await self.pool.handle_async_request(prepare(request, self.headers))
                if not is_streamed(request, response):
                    try:
                        await response.aread()
                    finally:
                        await response.aclose()
                return response
        except TimeoutError:
            return TransportError(f"no response within {request.timeout:.2g} s", sent=True)
        except FAILURES as error:
            return failed(error)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    async def chunks(self, response: httpcore.Response) -> AsyncGenerator[bytes, None]:
        """Iterate over the body of a streamed response."""
        try:
            async for chunk in response.aiter_stream():
                yield chunk
        except FAILURES as error:
            raise interrupted(error) from error
        finally:
            await response.aclose()

    async def close(self) -> None:
        """Close the connections."""
        await self.pool.aclose()


# --- blocking --------------------------------------------------------------------------------------------------------


class BlockingTransport:
    """Send requests from any thread. Every operation of a socket is limited to the time that its request has left.

    Its coroutines never suspend, so that no event loop is needed. Each process has its own connections: two processes
    must not use one connection after a fork.
    """

    def __init__(self, headers: Mapping[str, str], context: ssl.SSLContext | None) -> None:
        self.headers, self.context = headers, context
        self.backend = DeadlineBackend()
        self.pools: dict[int, httpcore.ConnectionPool] = {}

    @property
    def pool(self) -> httpcore.ConnectionPool:
        """The connections of this process."""
        process = os.getpid()
        if process not in self.pools:
            self.pools.setdefault(process, httpcore.ConnectionPool(self.context, network_backend=self.backend, **POOL))
        return self.pools[process]

    async def send(self, request: ClientRequest) -> Reply:
        """Send a request and read its response within its timeout."""
        self.backend.current.end = monotonic() + request.timeout
        try:
            response = self.pool.handle_request(prepare(request, self.headers))
            if not is_streamed(request, response):
                try:
                    response.read()
                finally:
                    response.close()
            return response
        except FAILURES as error:
            return failed(error)
        finally:
            self.backend.current.end = None  # the body of a stream has a timeout for each read only

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def chunks(self, response: httpcore.Response) -> Generator[bytes, None, None]:
        """Iterate over the body of a streamed response."""
        try:
            yield from response.iter_stream()
        except FAILURES as error:
            raise interrupted(error) from error
        finally:
            response.close()

    def close(self) -> None:
        """Close the connections."""
        self.pool.close()


class DeadlineBackend(httpcore.NetworkBackend):
    """Open connections whose operations end with the request that the thread sends, at `current.end`.

    httpcore limits each single read and write. A server that sends byte by byte would never exceed such a limit.
    """

    def __init__(self) -> None:
        self.backend = httpcore.SyncBackend()
        self.current = threading.local()

    def limit(self, timeout: float | None, error: type[httpcore.TimeoutException]) -> float | None:
        """Return the timeout, or what is left of the request's time if that is shorter; raise if nothing is left."""
        end = getattr(self.current, "end", None)
        if end is None:
            return timeout
        left: float = end - monotonic()
        if left <= 0:
            raise error("the deadline has passed")
        return left if timeout is None else min(timeout, left)

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to the first address of a host that accepts, each with its share of the time."""
        seconds = self.limit(timeout, httpcore.ConnectTimeout)
        end = monotonic() + (seconds or 0.0)
        addresses = resolve(host, port, seconds)
        for position, address in enumerate(addresses):
            share = None if seconds is None else max(0.001, (end - monotonic()) / (len(addresses) - position))
            try:
                stream = self.backend.connect_tcp(address, port, share, local_address, socket_options or ())
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if position == len(addresses) - 1:
                    raise
            else:
                return DeadlineStream(stream, self)
        raise httpcore.ConnectError(f"{host} has no address")


class DeadlineStream(httpcore.NetworkStream):
    """A connection whose operations end with the request that the thread sends."""

    def __init__(self, stream: httpcore.NetworkStream, backend: DeadlineBackend) -> None:
        self.stream, self.backend = stream, backend

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read what has arrived."""
        return self.stream.read(max_bytes, self.backend.limit(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write in pieces, with a new limit for each: a slow reader would restart the timeout of one long write."""
        for start in range(0, len(buffer), PIECE):
            limit = self.backend.limit(timeout, httpcore.WriteTimeout)
            self.stream.write(buffer[start : start + PIECE], limit)

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        """Start TLS; close the connection if that fails, as the caller does not."""
        try:
            limit = self.backend.limit(timeout, httpcore.ConnectTimeout)
            return DeadlineStream(self.stream.start_tls(ssl_context, server_hostname, limit), self.backend)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        self.stream.close()

    def get_extra_info(self, info: str) -> Any:
        """Return a property of the connection."""
        return self.stream.get_extra_info(info)


LOOKUPS: dict[tuple[int, str, int], Future[list[str]]] = {}
"""Names that are being resolved now, by process: a fork does not copy the thread that asks."""


def resolve(host: str, port: int, timeout: float | None) -> list[str]:
    """Return the addresses of a host.

    A thread asks for them, because the system's resolver has no timeout. Calls that wait for the same host share it:
    while names are not resolved, every attempt would leave one behind.
    """
    name, mine = (os.getpid(), host, port), Future[list[str]]()
    found = LOOKUPS.setdefault(name, mine)

    def ask() -> None:
        try:
            answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            mine.set_result(list(dict.fromkeys(str(address[0]) for *_, address in answers)))
        except (OSError, UnicodeError) as error:
            mine.set_exception(error)
        finally:
            del LOOKUPS[name]

    if found is mine:
        threading.Thread(target=ask, name="mcfair-resolver", daemon=True).start()
    try:
        return found.result(timeout)
    except TimeoutError:
        raise httpcore.ConnectTimeout(f"the name {host} was not resolved in time") from None
    except (OSError, UnicodeError) as error:
        raise httpcore.ConnectError(str(error)) from error
