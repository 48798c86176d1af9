"""Responses before they are sent: complete ones, streams, and problems (RFC 9457)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from http import HTTPStatus

from ..wire import Problem, encoder

PROBLEM = "application/problem+json"

Headers = list[tuple[bytes, bytes]]
"""Headers as ASGI has them: lower-case names, and values, both as bytes."""

NO_STORE = {"cache-control": "no-store"}


class Response:
    """A complete response."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: Headers, body: bytes = b"") -> None:
        self.status, self.body = status, body
        # a 204 response has neither a body nor a length
        self.headers = headers if status == 204 else [*headers, (b"content-length", b"%d" % len(body))]


class StreamingResponse:
    """A response whose body is generated while it is sent."""

    __slots__ = ("chunks", "headers", "status")

    def __init__(self, headers: Headers, chunks: AsyncGenerator[bytes, None]) -> None:
        self.status, self.headers, self.chunks = 200, headers, chunks


def closing(headers: Headers) -> Headers:
    """Return headers with a Connection header that closes the connection."""
    return [*(each for each in headers if each[0] != b"connection"), (b"connection", b"close")]


def encode_headers(media: str | None, **headers: str) -> Headers:
    """Encode headers for ASGI.

    Examples
    --------
    >>> encode_headers("text/plain", retry_after="1")
    [(b'content-type', b'text/plain'), (b'retry-after', b'1')]
    """
    named = headers if media is None else {"content-type": media} | headers
    return [(name.replace("_", "-").encode("latin-1"), value.encode("latin-1")) for name, value in named.items()]


def problem_response(status: int, detail: str, field: str | None = None, **headers: str) -> Response:
    """Build a problem response (RFC 9457)."""
    body = Problem(title=HTTPStatus(status).phrase, status=status, detail=detail, field=field)
    return Response(status, encode_headers(PROBLEM, **headers), encoder.encode(body))
