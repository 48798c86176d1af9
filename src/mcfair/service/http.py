"""HTTP/1.1 over one connection: pipelined requests, responses in the same order, and a timeout for every wait.

httptools parses the requests, which go to the application without a framework in between: at a thousand requests per
second a framework costs more than ranking.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from http import HTTPStatus
from typing import Protocol, cast
from urllib.parse import unquote

from ..errors import SettingError
from .wire import MAX_BODY, Problem, encoder

try:
    import httptools
except ImportError:
    raise SettingError("the service needs httptools: pip install 'mcfair[service]'") from None

__all__ = [
    "JSON",
    "PROBLEM",
    "TOO_LARGE",
    "Application",
    "Connection",
    "ConnectionRegistry",
    "Reply",
    "Request",
    "Response",
    "StreamingResponse",
    "encode_head",
    "problem_response",
]

JSON = "application/json"
PROBLEM = "application/problem+json"

KEEP_ALIVE_SECONDS = 75.0
HEAD_SECONDS = 30.0
"""Timeout of a new connection for its first request, of a request head, and of the rest of a body that is discarded
because the response is known already."""

HEAD_BYTES = 1 << 16
"""Maximum size of a request head."""

TOO_LARGE = f"the body is larger than {MAX_BODY:,} bytes"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Request:
    """A request, as far as it has been received."""

    __slots__ = (
        "body",
        "complete",
        "finished",
        "handler",
        "headers",
        "keep_alive",
        "method",
        "path",
        "path_parameters",
        "response",
        "route",
        "started",
        "started_at",
        "version",
    )  # fmt: skip

    def __init__(self, method: str, path: str, headers: dict[bytes, bytes], version: str, keep_alive: bool) -> None:
        self.method, self.path, self.headers, self.version, self.keep_alive = method, path, headers, version, keep_alive
        self.body: bytes | bytearray = b""
        self.complete = self.started = self.finished = False
        self.response: Response | StreamingResponse | None = None
        # set by the application
        self.started_at = 0.0
        self.route = "none"
        self.handler: object = None
        self.path_parameters: dict[str, str] = {}


class Response:
    """A complete response: the part of its head that does not depend on the request, and its body."""

    __slots__ = ("body", "head", "status")

    def __init__(self, status: int, head: bytes, body: bytes = b"") -> None:
        self.status, self.body = status, body
        # a 204 response has neither a body nor a length
        self.head = head if status == 204 else b"%scontent-length: %d\r\n" % (head, len(body))


class StreamingResponse:
    """A response whose body is generated while it is sent."""

    __slots__ = ("chunks", "head", "status")

    def __init__(self, head: bytes, chunks: AsyncGenerator[bytes, None]) -> None:
        self.status, self.head, self.chunks = 200, head, chunks


def encode_head(status: int, media: str | None, **headers: str) -> bytes:
    r"""Encode the status line and the headers that do not depend on the request.

    Examples
    --------
    >>> encode_head(503, "text/plain", retry_after="1")
    b'HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\nretry-after: 1\r\n'
    """
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
    if media is not None:
        lines.append(f"content-type: {media}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n").encode("latin-1")


def problem_response(status: int, detail: str, field: str | None = None, **headers: str) -> Response:
    """Build a problem response (RFC 9457)."""
    body = Problem(title=HTTPStatus(status).phrase, status=status, detail=detail, field=field)
    return Response(status, encode_head(status, PROBLEM, **headers), encoder.encode(body))


class Application(Protocol):
    """Processes requests."""

    io_timeout: float
    """Seconds within which a request body must arrive, and within which a client must read what it was sent."""

    draining: bool
    """Whether every response closes its connection."""

    def admit(self, request: Request) -> Response | None:
        """Admit a request by its head; return a response if no body is needed for it."""

    def begin(self, request: Request, reply: Reply) -> Response | StreamingResponse | None:
        """Dispatch a complete request; return its response, or None if it will follow through `reply`."""

    def finished(self, request: Request, error: Exception | None = None) -> None:
        """Record the end of a request: its response was sent, its client disconnected, or an error occurred."""


Reply = Callable[[Request, Response | StreamingResponse], None]
"""Sends the response of a request that was dispatched before."""


class ConnectionRegistry:
    """State shared by the connections of a server."""

    def __init__(self, app: Application) -> None:
        self.app = app
        self.connections: set[Connection] = set()
        self.date_header = b""  # one encoded line, renewed by the server


class Connection(asyncio.Protocol):
    """One connection. Requests are queued and processed one at a time, so that responses keep their order."""

    def __init__(self, registry: ConnectionRegistry) -> None:
        self.registry, self.app = registry, registry.app
        self.loop = asyncio.get_running_loop()
        self.parser = httptools.HttpRequestParser(self)
        self.requests: deque[Request] = deque()
        self.arriving: Request | None = None
        self.url = b""
        self.headers: dict[bytes, bytes] = {}
        self.in_head = self.reading_paused = False
        self.head_bytes = 0
        self.deadline = math.inf
        self.writable = asyncio.Event()
        self.writable.set()
        self.disconnected = False

    # --- connection and timeouts -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timeout for the first request."""
        self.transport = cast(asyncio.Transport, transport)
        self.registry.connections.add(self)
        self.deadline = self.loop.time() + HEAD_SECONDS

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop the requests that were not dispatched; the others end when their results arrive."""
        self.disconnected = True
        self.registry.connections.discard(self)
        self.writable.set()
        for request in self.requests:
            if not request.started:
                self.finish(request)

    def pause_writing(self) -> None:
        """Stop sending: the client does not read what it was sent (backpressure)."""
        self.writable.clear()
        self.deadline = self.loop.time() + self.app.io_timeout

    def resume_writing(self) -> None:
        """Continue sending."""
        self.writable.set()
        self.reset_deadline()
        self.advance()

    def reset_deadline(self) -> None:
        """Set the deadline of the current wait: for the next request or the rest of this one; none while processing."""
        if not self.requests:
            self.deadline = self.loop.time() + KEEP_ALIVE_SECONDS
        elif self.requests[0].complete:
            self.deadline = math.inf
        else:
            seconds = self.app.io_timeout if self.requests[0].response is None else HEAD_SECONDS
            self.deadline = self.loop.time() + seconds

    def expire(self) -> None:
        """Close the connection after a timeout; a request whose body is missing gets 408 first."""
        request = self.arriving
        if not self.writable.is_set():
            self.transport.abort()
        elif request is not None and request.response is None:
            late = problem_response(408, f"the body did not arrive within {self.app.io_timeout:g} s")
            self.respond_and_close(request, late)
        else:
            self.transport.close()

    def close_if_idle(self) -> None:
        """Close the connection if no request is in progress."""
        if not self.requests:
            self.transport.close()

    # --- receiving ---------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Parse received bytes."""
        self.head_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:  # respond as to a plain request; what follows is another protocol
            self.pause_reading()
        except httptools.HttpParserCallbackError:
            raise  # a bug in our own callbacks
        except httptools.HttpParserError:
            self.refuse("this is not HTTP/1.1")
        if self.in_head and self.head_bytes > HEAD_BYTES:
            self.refuse(f"the request head has more than {HEAD_BYTES:,} bytes")
        if len(self.requests) > 1:
            self.pause_reading()

    def pause_reading(self) -> None:
        """Stop reading from the socket (backpressure)."""
        if not self.reading_paused and not self.transport.is_closing():
            self.reading_paused = True
            self.transport.pause_reading()

    def refuse(self, detail: str) -> None:
        """Respond with 400 to bytes that cannot be parsed, after the earlier requests, and close."""
        self.in_head = False
        self.pause_reading()
        request = self.arriving  # None if the bytes belong to a head
        if request is None:
            request = Request("GET", "", {}, "1.1", keep_alive=False)
            self.requests.append(request)
        self.respond_and_close(request, request.response or problem_response(400, detail))

    def respond_and_close(self, request: Request, response: Response | StreamingResponse) -> None:
        """Respond to an incomplete request and close the connection."""
        request.complete, request.keep_alive = True, False
        self.arriving = None
        self.reply(request, response)

    def on_message_begin(self) -> None:
        """Start a request."""
        self.url, self.headers = b"", {}
        self.in_head = True
        if not self.requests:
            self.deadline = self.loop.time() + HEAD_SECONDS

    def on_url(self, url: bytes) -> None:
        """Receive a part of the URL."""
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Receive a header; the last one of a name is used."""
        self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """Admit the request by its head."""
        self.in_head = False
        if self.transport.is_closing():  # no response could be sent
            return
        parser, version = self.parser, self.parser.get_http_version()
        keep_alive = version != "1.0" and parser.should_keep_alive() and not parser.should_upgrade()
        request = Request(parser.get_method().decode(), parse_path(self.url), self.headers, version, keep_alive)
        self.arriving = request
        self.requests.append(request)
        if self.requests[0] is request:
            self.reset_deadline()
        request.response = self.app.admit(request)
        expecting = request.headers.get(b"expect", b"").lower() == b"100-continue"
        if request.response is not None:
            if expecting:  # the client may or may not send the body now, so the connection cannot be reused
                self.respond_and_close(request, request.response)
            else:
                self.advance()
        elif expecting and self.requests[0] is request:
            self.transport.write(CONTINUE)

    def on_body(self, body: bytes) -> None:
        """Receive a part of the body; discard it if the response is known already."""
        request = self.arriving
        if request is not None and request.response is None:
            if not request.body:
                request.body = body  # usually the whole body, so it is not copied
            else:
                request.body = bytearray(request.body) if isinstance(request.body, bytes) else request.body
                request.body += body
            if len(request.body) > MAX_BODY:
                request.body = b""
                self.reply(request, problem_response(413, TOO_LARGE))

    def on_message_complete(self) -> None:
        """Complete the request, and process it if it is the first in the queue."""
        self.head_bytes = 0  # later bytes of the same segment are not counted: the parser does not report how many
        if self.arriving is not None:
            self.arriving.complete = True
            self.arriving = None
            self.advance()

    # --- responding --------------------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Process the first request in the queue, and the following ones as responses are sent."""
        while self.requests and self.writable.is_set() and not self.disconnected:
            request = self.requests[0]
            if request.response is None:
                if not request.complete or request.started:
                    return
                request.started = True
                self.reset_deadline()
                request.response = self.app.begin(request, self.reply)
                if request.response is None:
                    return
            if isinstance(request.response, StreamingResponse):
                if not request.finished:
                    request.finished = True
                    self.sending = self.loop.create_task(self.send_stream(request, request.response))
                return
            if not request.finished:
                self.write(request, request.response)
            if not request.complete:
                self.reset_deadline()
                return
            self.next_request(request)

    def reply(self, request: Request, response: Response | StreamingResponse) -> None:
        """Set the response of a request, and send it when it is first in the queue."""
        request.response = response
        if self.disconnected:
            self.finish(request)
        else:
            self.advance()

    def write(self, request: Request, response: Response) -> None:
        """Send a complete response."""
        self.transport.write(
            b"".join(
                (
                    response.head,
                    self.registry.date_header,
                    b"\r\n" if self.keeps_alive(request) else b"connection: close\r\n\r\n",
                    b"" if request.method == "HEAD" else response.body,
                )
            )
        )
        self.finish(request)

    async def send_stream(self, request: Request, stream: StreamingResponse) -> None:
        """Send a streaming response; stop if the client disconnects, and abort the connection if the stream fails."""
        error = None
        chunked = request.version != "1.0"  # in HTTP/1.0 the end of the connection ends the response
        try:
            end = b"\r\n" if self.keeps_alive(request) else b"connection: close\r\n\r\n"
            encoding = b"transfer-encoding: chunked\r\n" if chunked else b""
            self.transport.write(b"".join((stream.head, self.registry.date_header, encoding, end)))
            async with aclosing(stream.chunks) as chunks:
                async for chunk in chunks:
                    self.transport.write(b"%x\r\n%s\r\n" % (len(chunk), chunk) if chunked else chunk)
                    await self.writable.wait()
                    if self.disconnected:
                        return
            if chunked:
                self.transport.write(b"0\r\n\r\n")
        except Exception as failure:
            error = failure
            self.transport.abort()
        finally:
            self.app.finished(request, error)
        if error is None:
            self.next_request(request)
            self.advance()

    def keeps_alive(self, request: Request) -> bool:
        """Return whether the connection stays open after a request."""
        request.keep_alive = request.keep_alive and not self.app.draining
        return request.keep_alive

    def next_request(self, request: Request) -> None:
        """Continue with the next request, or close the connection."""
        self.requests.popleft()
        if not request.keep_alive:
            while self.requests:  # pipelined requests after the last response are dropped
                self.finish(self.requests.popleft())
            self.transport.close()
            return
        self.reset_deadline()
        if self.reading_paused and len(self.requests) <= 1:
            self.reading_paused = False
            self.transport.resume_reading()

    def finish(self, request: Request) -> None:
        """Report the end of a request to the application, once."""
        if not request.finished:
            request.finished = True
            self.app.finished(request)


def parse_path(url: bytes) -> str:
    """Return the path of a request target in any of its forms.

    Examples
    --------
    >>> [parse_path(url) for url in (b"/v1/rank?a=b", b"http://host/x%20y", b"*", b"host:443")]
    ['/v1/rank', '/x y', '*', '']
    """
    path = url
    if not url.startswith(b"/") and b":" in url:
        try:
            path = httptools.parse_url(url).path or b""
        except httptools.HttpParserInvalidURLError:
            path = b""
    text = path.partition(b"?")[0].decode("latin-1")
    return unquote(text) if "%" in text else text
