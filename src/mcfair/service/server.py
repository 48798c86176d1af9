"""The service as a process: it listens, says when it is ready, and stops without losing what it was told."""

from __future__ import annotations

import asyncio
import errno
import gc
import socket
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import msgspec

from ..errors import SettingError
from .apidocs import PROBLEM
from .app import is_loopback, make_app
from .gate import Gate
from .ranker import Ranker
from .wire import Problem

try:
    import httptools  # noqa: F401  # what the protocol below is made of
    import uvicorn
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError:
    raise SettingError("the service needs uvicorn and httptools: pip install 'mcfair[service]'") from None

__all__ = ["Server", "bind", "check_bind", "serve"]

KEEP_ALIVE_SECONDS = 75
HEAD_SECONDS = 30.0
"""How long a connection may be silent before its first request, and how long a head may take."""

HEAD_BYTES = 1 << 16
"""Largest head of a request."""

GRACE_SECONDS = 30
"""How long requests in flight are waited for when the service stops."""


def serve(
    ranker: Ranker,
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    access_log: bool = False,
    drain_seconds: float = 0.0,
    max_in_flight: int = 128,
    admin_token: str | None = None,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then close the ranker. A second signal stops without waiting for anybody.

    Parameters
    ----------
    ranker
        What ranks.
    host, port
        Where to listen; port 0 takes any that is free.
    access_log
        Whether to log each answer, to the logger `mcfair.access`.
    drain_seconds
        How long requests are still answered after the first signal, while `/readyz` already says that the end is near,
        so that whoever distributes the load can turn elsewhere.
    max_in_flight
        How many requests are answered at the same time.
    admin_token
        A secret that is accepted like a key that may do everything.
    ready
        Told the URL once connections are accepted.
    """
    listener = None
    try:
        check_bind(host, ranker.has_keys)
        listener = bind(host, port)
        app = make_app(
            ranker, admin_token=admin_token, loopback=is_loopback(host), max_in_flight=max_in_flight,
            access_log=access_log,
        )  # fmt: skip
        server = Server(app, url_of(host, listener), drain_seconds=drain_seconds, ready=ready)
        # what was imported stays for good: the collector need not look through it again and again, all requests waiting
        gc.collect()
        gc.freeze()
        server.run([listener])
    finally:
        gc.unfreeze()
        if listener is not None:
            listener.close()
        ranker.close()


def check_bind(host: str, has_keys: bool) -> None:
    """Refuse to listen where others can connect while there are no keys."""
    if not has_keys and not is_loopback(host):
        raise SettingError(
            f"host = {host!r} can be reached by others, and there are no keys: make one with 'mcfair keys add', or "
            "listen on 127.0.0.1"
        )


def bind(host: str, port: int) -> socket.socket:
    """Take a port."""
    if not 0 <= port < 1 << 16:
        raise SettingError(f"port = {port} is not allowed: expected 0 to 65535")
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]  # fmt: skip
        listener = socket.socket(family, kind)
    except OSError as error:
        raise SettingError(f"cannot listen on {host!r}, port {port}: {error}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise SettingError(
                f"port {port} of {host} is taken: stop what listens there, or choose another port"
            ) from None
        raise SettingError(f"cannot listen on {host!r}, port {port}: {error}") from None
    listener.setblocking(False)
    return listener


def url_of(host: str, listener: socket.socket) -> str:
    """Say how this machine reaches a listener."""
    name, port = listener.getsockname()[:2]
    if name in ("0.0.0.0", "::"):
        host = "127.0.0.1" if name == "0.0.0.0" else "::1"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


class Server(uvicorn.Server):
    """Uvicorn that announces its end before it stops, and returns in good order after a signal."""

    def __init__(
        self, app: Gate, url: str, *, drain_seconds: float = 0.0, ready: Callable[[str], None] | None = None
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=Protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=GRACE_SECONDS,
            )
        )
        self.app = app
        self.url = url
        self.drain_seconds = drain_seconds
        self.ready = ready
        self.stop_at: float | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, and say so."""
        await super().startup(sockets)
        if self.started and self.ready is not None:
            self.ready(self.url)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take a signal: the first begins the end, the second is the end."""
        if self.stop_at is None:
            self.drain()
        else:
            self.should_exit = self.force_exit = True

    def drain(self) -> None:
        """Begin to stop; from any thread."""
        self.app.draining = True
        self.stop_at = time.monotonic() + self.drain_seconds

    async def on_tick(self, counter: int) -> bool:
        """See ten times a second whether it is time to stop.

        Before the last tick new requests are refused: whoever connects when the listener is closed only sees a reset.
        """
        if self.stop_at is not None and time.monotonic() >= self.stop_at:
            self.should_exit = self.app.closed
            self.app.closed = True
        return await super().on_tick(counter)


class Protocol(HttpToolsProtocol):
    """HTTP that waits for nobody for ever, and takes no head of any size; uvicorn leaves both open.

    There is a deadline for the head of a request, also of the first one, and for the rest of a body after its answer;
    for a body before its answer the application has one.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.head_bytes = 0
        self.in_head = self.in_body = False
        self.deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self.deadline = self.loop.call_later(HEAD_SECONDS, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self.arrived()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes, and see what is still not complete after them."""
        super().data_received(data)
        if self.in_head:
            self.head_bytes += len(data)
            if self.head_bytes > HEAD_BYTES:
                self.send_400_response(f"the head of a request has more than {HEAD_BYTES:,} bytes")
        if self.deadline is None and (self.in_head or (self.in_body and self.cycle.response_complete)):
            self.deadline = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def on_message_begin(self) -> None:
        """Note that a request begins."""
        self.in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Note that the head of a request is there."""
        self.in_head, self.in_body = False, True
        self.arrived()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Note that all of a request is there."""
        self.in_body = False
        self.arrived()
        super().on_message_complete()

    def arrived(self) -> None:
        """Drop the deadline."""
        self.head_bytes = 0
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP with a problem, like everything else."""
        body = msgspec.json.encode(Problem(title="Bad Request", status=400, detail=msg))
        if not self.transport.is_closing():
            self.transport.write(
                b"HTTP/1.1 400 Bad Request\r\ncontent-type: %s\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s"
                % (PROBLEM.encode(), len(body), body)
            )
            self.transport.close()
