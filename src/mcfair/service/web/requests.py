"""Requests as they arrive over ASGI: the checked head, and the body within a size and a time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Generator, MutableMapping
from typing import Any, Generic, TypeVar

from ...errors import RequestError
from ..declaration import JSON
from ..wire import MAX_BODY, MAX_KEY

T = TypeVar("T")

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

KEY_PATTERN = rf"^[!-~]{{1,{MAX_KEY}}}$"
"""Pattern of an Idempotency-Key: visible ASCII characters."""

KEY = re.compile(KEY_PATTERN)

SINGLE = frozenset(
    {
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"host",
        b"idempotency-key",
        b"transfer-encoding",
    }
)
"""Headers that a request may have once. Two programs on its way could otherwise each use another one."""


VERSIONS = frozenset({"1.0", "1.1", "2", "3"})


class HTTPError(Exception):
    """An error response that is decided before the engine is involved."""

    def __init__(self, status: int, detail: str, field: str | None = None, **headers: str) -> None:
        super().__init__(detail)
        self.status = status
        self.field = field
        self.headers = headers


class ClientDisconnectedError(Exception):
    """The client disconnected before its request was complete."""


class Request:
    """The head of a request; `route` and `parameters` are set when its operation has been found.

    `caller` is the id of its API key, once it is authorized.
    """

    __slots__ = (
        "caller",
        "client",
        "headers",
        "method",
        "parameters",
        "path",
        "query_string",
        "root_path",
        "route",
        "scheme",
        "version",
    )

    def __init__(self, scope: Scope) -> None:
        self.method: str = scope["method"]
        self.caller: str | None = None
        self.version: str = scope.get("http_version", "1.1")
        self.client: str = (scope.get("client") or ("",))[0]
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        # The path includes the path under which the application is mounted, unless the server has removed it.
        self.root_path: str = scope.get("root_path", "").rstrip("/")
        path: str = scope["path"]
        self.path = path[len(self.root_path) :] if path.startswith(self.root_path + "/") else path
        self.scheme: str = scope.get("scheme", "http")
        self.query_string: bytes = scope.get("query_string", b"")
        self.route = "none"
        self.parameters: dict[str, Any] = {}

    def check(self, scope: Scope) -> None:
        """Refuse a head that two programs could read differently (RFC 9112): servers differ in how strict they are."""
        headers, version = self.headers, self.version
        if version not in VERSIONS:
            raise HTTPError(505, "the version of HTTP must be 1.0, 1.1, 2 or 3", connection="close")
        if len(scope["headers"]) != len(headers):
            names = [name for name, _ in scope["headers"]]
            for name in SINGLE.intersection(names):
                if names.count(name) > 1:
                    raise HTTPError(400, f"the header {name.decode()} is repeated", connection="close")
        if b"host" not in headers and version == "1.1":
            raise HTTPError(400, "the Host header is missing", connection="close")
        coding = headers.get(b"transfer-encoding")
        if coding is not None and (coding.lower() != b"chunked" or version != "1.1" or b"content-length" in headers):
            detail = "the body must have either a Content-Length or, in HTTP/1.1, the Transfer-Encoding chunked"
            raise HTTPError(400, detail, connection="close")
        if b"upgrade" in headers and (coding is not None or headers.get(b"content-length", b"0") != b"0"):
            # A server may take the body for the other protocol.
            raise HTTPError(400, "a request with a body must not have an Upgrade header", connection="close")

    @property
    def last(self) -> bool:
        """Whether nothing may follow on the connection: a body that may or may not come, or another protocol."""
        return b"expect" in self.headers or b"upgrade" in self.headers


def check_body_headers(headers: dict[bytes, bytes], expected: bytes = JSON.encode(), limit: int = MAX_BODY) -> None:
    """Check the media type, encoding and declared length of a request body."""
    media = headers.get(b"content-type", b"")
    if media != expected and media.partition(b";")[0].strip().lower() != expected:
        given = repr(media[:80].decode("latin-1")) if media else "none"
        raise HTTPError(415, f"the Content-Type header must be {expected.decode()}, got {given}")
    if headers.get(b"content-encoding", b"identity") != b"identity":
        raise HTTPError(415, "the body must not be compressed")
    declared = headers.get(b"content-length", b"0")
    if not declared.isdigit():
        raise HTTPError(400, "the Content-Length header must be a number", connection="close")
    if len(declared) > 12 or int(declared) > limit:
        raise too_large(limit)


def too_large(limit: int) -> HTTPError:
    """Return the error for a body that is too large."""
    return HTTPError(413, f"the body is larger than {limit:,} bytes")


def idempotency_key(headers: dict[bytes, bytes]) -> str | None:
    """Return the Idempotency-Key of a request, if it has one."""
    given = headers.get(b"idempotency-key")
    if given is None:
        return None
    key = given.decode("latin-1")
    if not KEY.match(key):
        raise RequestError(f"Idempotency-Key: expected 1 to {MAX_KEY} visible ASCII characters", "Idempotency-Key")
    return key


class Started(Generic[T]):
    """An awaitable whose first step was taken, which shows whether it has to wait.

    Parameters
    ----------
    awaitable
        What to start; `result` is its result, once it is `done`.
    """

    def __init__(self, awaitable: Awaitable[T]) -> None:
        self.steps = awaitable.__await__()
        self.done = False
        self.advance(self.steps.__next__)

    def advance(self, step: Callable[..., Any], *error: BaseException) -> None:
        """Execute a step; keep what it waits for, or the result."""
        try:
            self.awaited = step(*error)
        except StopIteration as end:
            self.result: T = end.value
            self.done = True

    def __await__(self) -> Generator[Any, Any, T]:
        while not self.done:
            try:
                yield self.awaited
            except BaseException as error:  # such as a cancellation
                self.advance(self.steps.throw, error)
            else:
                self.advance(self.steps.__next__)
        return self.result


async def read_body(receive: Receive, seconds: float, limit: int = MAX_BODY) -> tuple[bytes, bool]:
    """Read the body of a request, of limited size and within a limited time; return it, and whether that took waiting.

    Most bodies arrive with their heads. They need no timeout, which would cost as much as all other checks together.
    """
    first = Started(receive())
    if first.done and not first.result.get("more_body", False):
        return await join_parts(first, receive, limit), False
    try:
        async with asyncio.timeout(seconds):
            return await join_parts(first, receive, limit), True
    except TimeoutError:
        raise HTTPError(408, f"the body did not arrive within {seconds:g} s", connection="close") from None


async def join_parts(first: Started[Message], receive: Receive, limit: int) -> bytes:
    """Receive a body of limited size."""
    message = await first
    parts: list[bytes] = []
    size = 0
    while True:
        if message["type"] == "http.disconnect":
            raise ClientDisconnectedError
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise too_large(limit)
        parts.append(part)
        if not message.get("more_body", False):
            return part if len(parts) == 1 else b"".join(parts)
        message = await receive()
