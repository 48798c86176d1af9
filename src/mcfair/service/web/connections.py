"""Bounds on the connections of uvicorn that it does not have itself.

uvicorn has no deadline for a request head, no limit on its size, on the number of connections or on pipelined requests,
and no deadline for a client that does not read. Its protocol class is extended here by these limits. Parsing and
writing HTTP remain its own work. It writes the head and the body of a response one after the other; here they are sent
together, which halves the system calls and the wake-ups of clients.

A short request for a list, or with feedback, is passed to the application as a call instead of as a task (`Lane`): a
task, its events and its messages cost as much as ranking. It goes through the same checks, and where anything about the
request is out of the ordinary, it is left to uvicorn.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from .requests import Scope
from .responses import Response

CALLED = frozenset({b"/v1/rank", b"/v1/feedback"})
"""Paths of the requests that are answered by a call: those that a service mostly gets."""

OFFER = re.compile(rb"(?<=\n)upgrade:[ \t]*h2c[ \t]*\r\n", re.IGNORECASE)

ARRIVAL_SECONDS = 0.1
"""Time for the body of such a request; a slower one is left to uvicorn."""


class CallableApp(Protocol):
    """An application that answers requests by calls as well."""

    uses_client_address: bool
    """Whether it matters who sent a request: uvicorn reads the headers of trusted proxies on the way to a task."""

    def answer(self, scope: Scope, body: bytes, reply: Callable[[Response], None]) -> None:
        """Process a request whose body has arrived; call `reply` with the response, now or later."""


class ConnectionLimits(NamedTuple):
    """Limits on connections; none of them needs a key to be reached, so none of them is large."""

    connections: int = 1_024
    """Maximum number of connections. A further one replaces the one that has sent no request, or has read nothing of
    its response, for the longest time."""

    head_seconds: float = 30.0
    """Time for a request head, from the begin of the connection or the end of the last response."""

    read_seconds: float = 30.0
    """Time within which a client must read what it was sent."""

    head_bytes: int = 1 << 16
    """Maximum size of a request head, and of the trailers of a chunked body."""

    pipelined: int = 64
    """Maximum number of pipelined requests; the connection is closed after their responses if there are more."""


DEFAULT_LIMITS = ConnectionLimits()


class ConnectionTable:
    """The connections of a server by what they wait for, each since when; in the order of time."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.waiting: dict[BoundedConnection, float] = {}
        """Connections that wait for a request head."""
        self.stalled: dict[BoundedConnection, float] = {}
        """Connections whose clients have not read what they were sent."""
        self.arriving: dict[BoundedConnection, float] = {}
        """Connections on which a part of a request has arrived that may become a call."""

    def expire(self, now: float) -> None:
        """Close every connection that has waited for too long."""
        for table, seconds in ((self.waiting, self.limits.head_seconds), (self.stalled, self.limits.read_seconds)):
            expired = []
            for connection, since in table.items():
                if now - since <= seconds:
                    break
                expired.append(connection)
            for connection in expired:
                del table[connection]
                connection.transport.abort()
        for connection, since in list(self.arriving.items()):
            if now - since > ARRIVAL_SECONDS:
                connection.leave_lane()

    def make_room(self) -> bool:
        """Close the connection that has made no progress for the longest time; return False if there is none."""
        oldest = [next(iter(table.items())) for table in (self.waiting, self.stalled) if table]
        if not oldest:
            return False
        connection, _ = min(oldest, key=lambda entry: entry[1])
        self.remove(connection)
        connection.transport.abort()
        return True

    def remove(self, connection: BoundedConnection) -> None:
        """Remove a connection that is closed."""
        for each in (self.waiting, self.stalled, self.arriving):
            each.pop(connection, None)


class BoundedConfig(Config):
    """Configuration of a server with bounded connections; the options are those of uvicorn."""

    def __init__(self, app: Any, limits: ConnectionLimits, **options: Any) -> None:
        super().__init__(app, http=BoundedConnection, ws="none", **options)
        self.table = ConnectionTable(limits)
        self.called: CallableApp | None = app if hasattr(app, "answer") else None


class Lane:
    """A request that is answered by a call, in the place of uvicorn's cycle of request and response."""

    __slots__ = ("body", "connection", "disconnected", "keep_alive", "more_body", "response_complete", "scope")

    message_event = asyncio.Event()  # nothing waits for it
    response_started = False

    def __init__(self, connection: BoundedConnection, scope: Any, keep_alive: bool) -> None:
        self.connection, self.scope, self.keep_alive = connection, scope, keep_alive
        self.body = bytearray()
        self.more_body = True
        self.disconnected = self.response_complete = False

    def respond(self, response: Response) -> None:
        """Write the response, unless the client has left."""
        self.response_complete = True
        if not self.disconnected:
            self.connection.write_response(response, self.keep_alive)


def without_offer(data: bytes) -> bytes:
    r"""Return received bytes without an offer of HTTP/2 in the head that they begin with.

    Java's client offers it with every request, and goes on in HTTP/1.1 unless the server agrees. The parser would take
    a body after such an offer for HTTP/2.

    Examples
    --------
    >>> without_offer(b"POST / HTTP/1.1\r\nUpgrade: h2c\r\nHost: x\r\n\r\nbody")
    b'POST / HTTP/1.1\r\nHost: x\r\n\r\nbody'
    """
    head, end, rest = data.partition(b"\r\n\r\n")
    return OFFER.sub(b"", head + end[:2], 1) + end[2:] + rest if end else data


class ResponseTransport:
    """A transport that holds the head of a response back until the first part of its body is written."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.transport, self.head = transport, b""
        self.is_closing, self.abort = transport.is_closing, transport.abort

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)

    def write(self, data: bytes) -> None:
        """Write data, together with the head that was held back before."""
        if self.head:
            data, self.head = self.head + data, b""
        elif data.startswith(b"HTTP/") and not data.startswith(b"HTTP/1.1 100 "):
            self.head = data
            return
        self.transport.write(data)

    def flush(self) -> None:
        """Write a head that was held back: a response without a body has ended."""
        if self.head:
            self.write(b"")

    def close(self) -> None:
        """Close the transport after everything that was written has been sent."""
        self.flush()
        self.transport.close()


class BoundedConnection(HttpToolsProtocol):
    """A connection of uvicorn with limits."""

    config: BoundedConfig

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the deadline for the first request head; make room if there are too many connections."""
        self.responses = ResponseTransport(transport)
        super().connection_made(self.responses)  # type: ignore[arg-type]
        self.table = self.config.table
        self.unparsed = 0  # bytes since the last event of the parser
        self.running: RequestResponseCycle | Lane | None = None  # `cycle` is the newest request, which may have to wait
        if len(self.connections) > self.table.limits.connections and not self.table.make_room():
            transport.abort()
        else:
            self.table.waiting[self] = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from the table, and end the request that is being processed."""
        self.table.remove(self)
        if self.running is not None and not self.running.response_complete:
            # uvicorn notifies only the newest one; an earlier one would write its response to a closed socket
            self.running.disconnected = True
            self.running.message_event.set()
        super().connection_lost(exc)

    # --- receiving ---------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Parse received bytes; refuse a head or trailers that are too large."""
        if (
            b"h2c" in data
            and data.startswith((b"POST ", b"PUT "))
            and (self.cycle is None or self.cycle.response_complete)
        ):
            data = without_offer(data)
        self.unparsed += len(data)
        super().data_received(data)
        if isinstance(self.cycle, Lane) and self.cycle.more_body and not self.cycle.disconnected:
            self.table.arriving.setdefault(self, self.loop.time())
        if self.unparsed > self.table.limits.head_bytes:
            self.send_400_response("The request head is too large.")

    def on_headers_complete(self) -> None:
        """Begin a request. The deadline for its body is that of the application."""
        self.unparsed = 0
        self.table.waiting.pop(self, None)
        # An exception refuses the request as malformed: see `send_400_response`.
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self.table.limits.head_bytes:
            raise OverflowError("the request head is too large")
        if len(self.pipeline) >= self.table.limits.pipelined:
            raise OverflowError("too many pipelined requests")
        if self.transport.is_closing():  # a call may have been answered while the bytes after it are parsed
            raise ConnectionError("nothing is executed after the last response")
        if self.may_be_called():
            self.scope["method"], self.scope["path"] = "POST", self.url.decode("ascii")
            lane = Lane(self, dict(self.scope), self.parser.should_keep_alive())
            self.running = self.cycle = lane  # type: ignore[assignment]
        else:
            super().on_headers_complete()
        self.headers = []  # trailers would be added to the headers of the request otherwise

    def may_be_called(self) -> bool:
        """Return whether the request whose head has arrived is a plain one for a serving operation."""
        return (
            self.url in CALLED
            and (app := self.config.called) is not None
            and not (self.config.proxy_headers and app.uses_client_address)
            and (self.cycle is None or self.cycle.response_complete)
            and not self.flow.write_paused
            and not self.expect_100_continue
            and not self.root_path
            and self.parser.get_method() == b"POST"
            and self.parser.get_http_version() == "1.1"
            and not self.parser.should_upgrade()
        )

    def leave_lane(self) -> None:
        """Leave a request to uvicorn whose body is long, or takes its time."""
        self.table.arriving.pop(self, None)
        body, self.cycle, self.running = self.cycle.body, None, None  # type: ignore[assignment]
        super().on_headers_complete()
        super().on_body(bytes(body))

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self.running = cycle
        super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        """Receive a part of a body."""
        self.unparsed = 0
        super().on_body(body)
        if isinstance(self.cycle, Lane) and len(self.cycle.body) > HIGH_WATER_LIMIT:
            self.leave_lane()

    def on_message_complete(self) -> None:
        """End a request; the bytes that follow belong to the next head."""
        self.unparsed = 0
        super().on_message_complete()
        lane: Any = self.cycle
        if isinstance(lane, Lane) and not lane.response_complete and self.config.called is not None:
            self.table.arriving.pop(self, None)
            self.config.called.answer(lane.scope, bytes(lane.body), lane.respond)

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be parsed, and close; requests before it get their responses first.

        The newest request is at fault if its body is not complete; otherwise the fault is in what follows it.
        """
        newest = self.cycle
        if newest is not None and not newest.response_complete and not newest.more_body:
            newest.keep_alive = False
            self.flow.pause_reading()
            return
        if newest is not None and not newest.response_complete:
            newest.disconnected = True
            newest.message_event.set()
            if self.pipeline or newest.response_started:  # a response now would be taken for that of another request
                self.transport.close()
                return
        if not self.transport.is_closing():
            super().send_400_response(msg)
            self.table.stalled[self] = self.loop.time()

    # --- sending -----------------------------------------------------------------------------------------------------

    def write_response(self, response: Response, keep_alive: bool) -> None:
        """Write the response to a request that was answered by a call, all at once."""
        parts = [STATUS_LINE[response.status]]
        for name, value in (*self.server_state.default_headers, *response.headers):
            parts += name, b": ", value, b"\r\n"
            keep_alive = keep_alive and name != b"connection"
        if not keep_alive and (b"connection", b"close") not in response.headers:
            parts.append(b"connection: close\r\n")
        parts += b"\r\n", response.body
        self.responses.transport.write(b"".join(parts))
        if not keep_alive:
            self.transport.close()
        self.on_response_complete()

    def on_response_complete(self) -> None:
        """Start the deadline for the next request head, or for reading the last response."""
        self.responses.flush()
        if self.transport.is_closing():
            self.table.stalled.setdefault(self, self.loop.time())
        elif not self.pipeline:
            self.table.waiting[self] = self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Stop sending (backpressure), and start the deadline for reading."""
        self.table.stalled[self] = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Continue sending."""
        if not self.transport.is_closing():
            self.table.stalled.pop(self, None)
        super().resume_writing()
