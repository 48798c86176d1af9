"""HTTP/1.1 over one connection: requests in, answers out in the same order, and nobody is waited for without end.

httptools parses. What it has parsed goes to an application without any framework between, because at a thousand
requests a second what lies between costs more than to rank.
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
    "Answer",
    "Application",
    "Connection",
    "Hall",
    "Request",
    "Stream",
    "head_of",
    "refusal",
]

JSON = "application/json"
PROBLEM = "application/problem+json"

KEEP_ALIVE_SECONDS = 75.0
HEAD_SECONDS = 30.0
"""How long a connection may be silent before its first request, how long a head may take, and the rest of a body whose
answer is known already."""

HEAD_BYTES = 1 << 16
"""Largest head of a request."""

TOO_LARGE = f"the body is larger than {MAX_BODY:,} bytes"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Request:
    """A request, as far as it has arrived."""

    __slots__ = (
        "answer", "began", "body", "complete", "handler", "headers", "keep_alive", "method", "over", "parts", "path",
        "route", "started", "version",
    )  # fmt: skip

    def __init__(self, method: str, path: str, headers: dict[bytes, bytes], version: str, keep_alive: bool) -> None:
        self.method, self.path, self.headers, self.version, self.keep_alive = method, path, headers, version, keep_alive
        self.body: bytes | bytearray = b""
        self.complete = self.started = self.over = False
        self.answer: Answer | Stream | None = None
        # what the application notes of it
        self.began = 0.0
        self.route = "none"
        self.handler: object = None
        self.parts: dict[str, str] = {}


class Answer:
    """An answer that is all there: its head, as far as that does not depend on the request, and its body."""

    __slots__ = ("body", "head", "status")

    def __init__(self, status: int, head: bytes, body: bytes = b"") -> None:
        self.status, self.body = status, body
        # there is no body to speak of after 204
        self.head = head if status == 204 else b"%scontent-length: %d\r\n" % (head, len(body))


class Stream:
    """An answer that is made while it is sent."""

    __slots__ = ("chunks", "head", "status")

    def __init__(self, head: bytes, chunks: AsyncGenerator[bytes, None]) -> None:
        self.status, self.head, self.chunks = 200, head, chunks


def head_of(status: int, media: str | None, **headers: str) -> bytes:
    r"""Write the status line and the headers that do not depend on the request.

    Examples
    --------
    >>> head_of(503, "text/plain", retry_after="1")
    b'HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\nretry-after: 1\r\n'
    """
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
    if media is not None:
        lines.append(f"content-type: {media}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n").encode("latin-1")


def refusal(status: int, detail: str, field: str | None = None, **headers: str) -> Answer:
    """Make a problem as RFC 9457 has it."""
    body = Problem(title=HTTPStatus(status).phrase, status=status, detail=detail, field=field)
    return Answer(status, head_of(status, PROBLEM, **headers), encoder.encode(body))


class Application(Protocol):
    """Who answers."""

    patience: float
    """Seconds in which a body must arrive, or a client take what it is sent."""

    draining: bool
    """Whether each answer is to be the last on its connection."""

    def admit(self, request: Request) -> Answer | None:
        """Look at the head of a request; give the answer if that is enough for one."""

    def begin(self, request: Request, reply: Callable[[Request, Answer | Stream], None]) -> Answer | Stream | None:
        """Look at a request that is all there; give the answer, or nothing and reply later."""

    def sent(self, request: Request, error: Exception | None = None) -> None:
        """Hear that a request is over: answered, given up by its client, or broken off by an error."""


class Hall:
    """What the connections of a server share."""

    def __init__(self, app: Application) -> None:
        self.app = app
        self.connections: set[Connection] = set()
        self.date = b""  # as a line of a head


class Connection(asyncio.Protocol):
    """One connection. Its requests stand in a queue, and only the first is worked on."""

    def __init__(self, hall: Hall) -> None:
        self.hall, self.app = hall, hall.app
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
        self.lost = False

    # --- the connection ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first request."""
        self.transport = cast(asyncio.Transport, transport)
        self.hall.connections.add(self)
        self.deadline = self.loop.time() + HEAD_SECONDS

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of what nobody works on; the rest is let go of when it is done."""
        self.lost = True
        self.hall.connections.discard(self)
        self.writable.set()
        for request in self.requests:
            if not request.started:
                self.end(request)

    def pause_writing(self) -> None:
        """Stop, because the client does not take what it was sent."""
        self.writable.clear()
        self.deadline = self.loop.time() + self.app.patience

    def resume_writing(self) -> None:
        """Go on."""
        self.writable.set()
        self.wait()
        self.advance()

    def wait(self) -> None:
        """Say until when to wait: for the next request, for the rest of this one, or for our own work."""
        if not self.requests:
            self.deadline = self.loop.time() + KEEP_ALIVE_SECONDS
        elif self.requests[0].complete:
            self.deadline = math.inf
        else:
            seconds = self.app.patience if self.requests[0].answer is None else HEAD_SECONDS
            self.deadline = self.loop.time() + seconds

    def expire(self) -> None:
        """End the waiting: for a head, for a body, for the client to take its answer, or for the next request."""
        request = self.arriving
        if not self.writable.is_set():
            self.transport.abort()
        elif request is not None and request.answer is None:
            self.cut(request, refusal(408, f"the body did not arrive within {self.app.patience:g} s"))
        else:
            self.transport.close()

    def shut(self) -> None:
        """Close once everything is answered."""
        if not self.requests:
            self.transport.close()

    # --- what comes in -----------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Take bytes in."""
        self.head_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:  # it is answered as what it also is; what follows is something else
            self.pause_reading()
        except httptools.HttpParserCallbackError:
            raise  # that is our own fault
        except httptools.HttpParserError:
            self.refuse("this is not HTTP/1.1")
        if self.in_head and self.head_bytes > HEAD_BYTES:
            self.refuse(f"the head of a request has more than {HEAD_BYTES:,} bytes")
        if len(self.requests) > 1:
            self.pause_reading()

    def pause_reading(self) -> None:
        """Take no more bytes for now."""
        if not self.reading_paused and not self.transport.is_closing():
            self.reading_paused = True
            self.transport.pause_reading()

    def refuse(self, detail: str) -> None:
        """Answer what cannot be read further, after what came before it, and close."""
        self.in_head = False
        self.pause_reading()
        request = self.arriving  # its body is what cannot be read, or else a head
        if request is None:
            request = Request("GET", "", {}, "1.1", keep_alive=False)
            self.requests.append(request)
        self.cut(request, request.answer or refusal(400, detail))

    def cut(self, request: Request, answer: Answer | Stream) -> None:
        """Answer a request though it is not all there, and close."""
        request.complete, request.keep_alive = True, False
        self.arriving = None
        self.reply(request, answer)

    def on_message_begin(self) -> None:
        """Begin a request."""
        self.url, self.headers = b"", {}
        self.in_head = True
        if not self.requests:
            self.deadline = self.loop.time() + HEAD_SECONDS

    def on_url(self, url: bytes) -> None:
        """Take a part of the first line."""
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; if it is there twice, the last one counts."""
        self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """Have the head looked at."""
        self.in_head = False
        if self.transport.is_closing():  # nobody would hear the answer
            return
        parser, version = self.parser, self.parser.get_http_version()
        keep_alive = version != "1.0" and parser.should_keep_alive() and not parser.should_upgrade()
        request = Request(parser.get_method().decode(), path_of(self.url), self.headers, version, keep_alive)
        self.arriving = request
        self.requests.append(request)
        if self.requests[0] is request:
            self.wait()
        request.answer = self.app.admit(request)
        expecting = request.headers.get(b"expect", b"").lower() == b"100-continue"
        if request.answer is not None:
            if expecting:  # who knows whether the body still comes
                self.cut(request, request.answer)
            else:
                self.advance()
        elif expecting and self.requests[0] is request:
            self.transport.write(CONTINUE)

    def on_body(self, body: bytes) -> None:
        """Take a part of the body, or throw it away if there is an answer without it."""
        request = self.arriving
        if request is not None and request.answer is None:
            if not request.body:
                request.body = body  # mostly that is all
            else:
                request.body = bytearray(request.body) if isinstance(request.body, bytes) else request.body
                request.body += body
            if len(request.body) > MAX_BODY:
                request.body = b""
                self.reply(request, refusal(413, TOO_LARGE))

    def on_message_complete(self) -> None:
        """Have the request answered, when it is its turn."""
        self.head_bytes = 0  # what follows in the same piece is not counted, for nobody knows how much it is
        if self.arriving is not None:
            self.arriving.complete = True
            self.arriving = None
            self.advance()

    # --- what goes out -----------------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Work on the first request, and on those behind it when it is answered."""
        while self.requests and self.writable.is_set() and not self.lost:
            request = self.requests[0]
            if request.answer is None:
                if not request.complete or request.started:
                    return
                request.started = True
                self.wait()
                request.answer = self.app.begin(request, self.reply)
                if request.answer is None:
                    return
            if isinstance(request.answer, Stream):
                if not request.over:
                    request.over = True
                    self.sending = self.loop.create_task(self.send(request, request.answer))
                return
            if not request.over:
                self.write(request, request.answer)
            if not request.complete:
                self.wait()
                return
            self.leave(request)

    def reply(self, request: Request, answer: Answer | Stream) -> None:
        """Answer a request."""
        request.answer = answer
        if self.lost:
            self.end(request)
        else:
            self.advance()

    def write(self, request: Request, answer: Answer) -> None:
        """Send an answer."""
        self.transport.write(
            b"".join(
                (
                    answer.head,
                    self.hall.date,
                    b"\r\n" if self.stays(request) else b"connection: close\r\n\r\n",
                    b"" if request.method == "HEAD" else answer.body,
                )
            )
        )
        self.end(request)

    async def send(self, request: Request, stream: Stream) -> None:
        """Send a stream in chunks, and stop when nobody listens any more; one that fails is cut off."""
        error = None
        chunked = request.version != "1.0"  # else the end of the connection is the end of the answer
        try:
            end = b"\r\n" if self.stays(request) else b"connection: close\r\n\r\n"
            encoding = b"transfer-encoding: chunked\r\n" if chunked else b""
            self.transport.write(b"".join((stream.head, self.hall.date, encoding, end)))
            async with aclosing(stream.chunks) as chunks:
                async for chunk in chunks:
                    self.transport.write(b"%x\r\n%s\r\n" % (len(chunk), chunk) if chunked else chunk)
                    await self.writable.wait()
                    if self.lost:
                        return
            if chunked:
                self.transport.write(b"0\r\n\r\n")
        except Exception as failure:
            error = failure
            self.transport.abort()
        finally:
            self.app.sent(request, error)
        if error is None:
            self.leave(request)
            self.advance()

    def stays(self, request: Request) -> bool:
        """Whether the connection stays open after a request."""
        request.keep_alive = request.keep_alive and not self.app.draining
        return request.keep_alive

    def leave(self, request: Request) -> None:
        """Go on to the next request, or close."""
        self.requests.popleft()
        if not request.keep_alive:
            while self.requests:  # what came behind it is not answered any more
                self.end(self.requests.popleft())
            self.transport.close()
            return
        self.wait()
        if self.reading_paused and len(self.requests) <= 1:
            self.reading_paused = False
            self.transport.resume_reading()

    def end(self, request: Request) -> None:
        """Tell the application, once, that a request is over."""
        if not request.over:
            request.over = True
            self.app.sent(request)


def path_of(url: bytes) -> str:
    """Take the path out of the first line of a request, whatever form it has there.

    Examples
    --------
    >>> [path_of(url) for url in (b"/v1/rank?a=b", b"http://host/x%20y", b"*", b"host:443")]
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
