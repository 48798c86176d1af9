"""The server process: it listens, reports readiness, and shuts down gracefully."""

from __future__ import annotations

import asyncio
import errno
import gc
import signal
import socket
import threading
import time
from collections.abc import Callable
from email.utils import formatdate

from ..errors import SettingError
from .admission import AdmissionControl
from .app import is_loopback, make_app
from .http import Connection, ConnectionRegistry
from .ranker import Ranker

try:
    import uvloop
except ImportError:
    raise SettingError("the service needs uvloop: pip install 'mcfair[service]'") from None

__all__ = ["Server", "bind", "check_bind", "serve"]

BACKLOG = 2_048
TICK_SECONDS = 0.1
GRACE_SECONDS = 30
"""Timeout for requests in flight during shutdown."""


def serve(
    ranker: Ranker,
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    access_log: bool = False,
    drain_seconds: float = 0.0,
    max_in_flight: int = 128,
    admin_token: str | None = None,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then shut down gracefully and close the ranker. A second signal stops at once.

    Parameters
    ----------
    ranker
        The ranker; it is closed at the end.
    host, port
        Address to listen on; port 0 selects a free one.
    access_log
        Whether to log every request to the logger `mcfair.access`.
    drain_seconds
        How long the service drains after the first signal: it processes requests while `/readyz` already responds with
        503, so that a load balancer can direct traffic elsewhere.
    max_in_flight
        Maximum number of concurrent requests; further ones are refused with 503.
    admin_token
        A secret that is accepted like an API key of scope "admin".
    on_ready
        Called with the URL once connections are accepted.

    Raises
    ------
    SettingError
        If the address cannot be bound, or can be reached by others while there are no API keys.
    """
    listener = None
    try:
        check_bind(host, ranker.has_keys)
        listener = bind(host, port)
        app = make_app(
            ranker, admin_token=admin_token, loopback=is_loopback(host), max_in_flight=max_in_flight,
            access_log=access_log,
        )  # fmt: skip
        server = Server(app, ranker, url_of(host, listener), drain_seconds=drain_seconds, on_ready=on_ready)
        # Imported objects live until the end: freeze them, so that no garbage collection scans them during requests.
        gc.collect()
        gc.freeze()
        server.run(listener)
    finally:
        gc.unfreeze()
        if listener is not None:
            listener.close()
        ranker.close()


def check_bind(host: str, has_keys: bool) -> None:
    """Refuse an address that other machines can reach while there are no API keys."""
    if not has_keys and not is_loopback(host):
        raise SettingError(
            f"host = {host!r} is not allowed without API keys: create one with 'mcfair keys add', or use 127.0.0.1"
        )


def bind(host: str, port: int) -> socket.socket:
    """Open a listening socket."""
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
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise SettingError(
                f"port {port} of {host} is in use: stop the other process, or choose another port"
            ) from None
        raise SettingError(f"cannot listen on {host!r}, port {port}: {error}") from None
    listener.setblocking(False)
    return listener


def url_of(host: str, listener: socket.socket) -> str:
    """Return the URL of a listening socket, as seen from this machine."""
    name, port = listener.getsockname()[:2]
    if name in ("0.0.0.0", "::"):
        host = "127.0.0.1" if name == "0.0.0.0" else "::1"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


class Server:
    """Listen until stopped, then drain and shut down gracefully."""

    def __init__(
        self,
        app: AdmissionControl,
        ranker: Ranker,
        url: str,
        *,
        drain_seconds: float = 0.0,
        on_ready: Callable[[str], None] | None = None,
    ) -> None:
        self.app, self.ranker, self.url = app, ranker, url
        self.drain_seconds, self.on_ready = drain_seconds, on_ready
        self.registry = ConnectionRegistry(app)
        self.stop_at: float | None = None
        self.forced = False

    def run(self, listener: socket.socket) -> None:
        """Run the server in an event loop of its own."""
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self.main(listener))

    async def main(self, listener: socket.socket) -> None:
        """Listen, supervise the connections, and shut down gracefully."""
        loop = asyncio.get_running_loop()
        if threading.current_thread() is threading.main_thread():
            for name in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(name, self.handle_signal)
        self.tick()
        listening = await loop.create_server(lambda: Connection(self.registry), sock=listener, backlog=BACKLOG)
        if self.on_ready is not None:
            self.on_ready(self.url)
        self.ranker.executor.attach_loop()
        while self.stop_at is None or time.monotonic() < self.stop_at:
            await self.sleep_tick()
        # Refuse requests before closing the listener: clients that connect now get 503 instead of a reset.
        self.app.closed = True
        await self.sleep_tick()
        listening.close()
        end = time.monotonic() + GRACE_SECONDS
        while self.registry.connections and not self.forced and time.monotonic() < end:
            for connection in list(self.registry.connections):
                connection.close_if_idle()
            await self.sleep_tick()
        for connection in list(self.registry.connections):
            connection.transport.abort()
        await self.ranker.executor.detach_loop()

    async def sleep_tick(self) -> None:
        """Sleep for one tick."""
        await asyncio.sleep(TICK_SECONDS)
        self.tick()

    def tick(self) -> None:
        """Renew the Date header, and expire connections whose deadline has passed."""
        self.registry.date_header = f"date: {formatdate(usegmt=True)}\r\n".encode()
        now = asyncio.get_running_loop().time()
        for connection in [each for each in self.registry.connections if each.deadline < now]:
            connection.expire()

    def handle_signal(self) -> None:
        """Handle a signal: drain at the first one, stop at once at the second."""
        if self.stop_at is None:
            self.drain()
        else:
            self.stop_at, self.forced = 0.0, True

    def drain(self) -> None:
        """Start draining; may be called from any thread."""
        self.app.draining = True
        self.stop_at = time.monotonic() + self.drain_seconds
