"""The service as a process: it listens, says when it is ready, and stops without losing what it was told."""

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
from .app import is_loopback, make_app
from .gate import Gate
from .http import Connection, Hall
from .ranker import Ranker

try:
    import uvloop
except ImportError:
    raise SettingError("the service needs uvloop: pip install 'mcfair[service]'") from None

__all__ = ["Server", "bind", "check_bind", "serve"]

BACKLOG = 2_048
TICK_SECONDS = 0.1
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
        server = Server(app, ranker, url_of(host, listener), drain_seconds=drain_seconds, ready=ready)
        # what was imported stays for good: the collector need not look through it again and again, all requests waiting
        gc.collect()
        gc.freeze()
        server.run(listener)
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
        listener.listen(BACKLOG)
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


class Server:
    """Listens until it is told to stop, which it announces first; then lets everybody finish."""

    def __init__(
        self,
        app: Gate,
        ranker: Ranker,
        url: str,
        *,
        drain_seconds: float = 0.0,
        ready: Callable[[str], None] | None = None,
    ) -> None:
        self.app, self.ranker, self.url = app, ranker, url
        self.drain_seconds, self.ready = drain_seconds, ready
        self.hall = Hall(app)
        self.stop_at: float | None = None
        self.forced = False

    def run(self, listener: socket.socket) -> None:
        """Serve until the end."""
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self.main(listener))

    async def main(self, listener: socket.socket) -> None:
        """Listen, look after the connections, and stop in good order."""
        loop = asyncio.get_running_loop()
        if threading.current_thread() is threading.main_thread():
            for name in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(name, self.signalled)
        self.tick()
        listening = await loop.create_server(lambda: Connection(self.hall), sock=listener, backlog=BACKLOG)
        if self.ready is not None:
            self.ready(self.url)
        self.ranker.decide_here()
        while self.stop_at is None or time.monotonic() < self.stop_at:
            await self.pause()
        # Before the listener closes new requests are refused: whoever connects then would only see a reset.
        self.app.closed = True
        await self.pause()
        listening.close()
        end = time.monotonic() + GRACE_SECONDS
        while self.hall.connections and not self.forced and time.monotonic() < end:
            for connection in list(self.hall.connections):
                connection.shut()
            await self.pause()
        for connection in list(self.hall.connections):
            connection.transport.abort()
        await self.ranker.decide_elsewhere()

    async def pause(self) -> None:
        """Let a little time pass."""
        await asyncio.sleep(TICK_SECONDS)
        self.tick()

    def tick(self) -> None:
        """Set the date, and end what has been waited for long enough."""
        self.hall.date = f"date: {formatdate(usegmt=True)}\r\n".encode()
        now = asyncio.get_running_loop().time()
        for connection in [each for each in self.hall.connections if each.deadline < now]:
            connection.expire()

    def signalled(self) -> None:
        """Take a signal: the first begins the end, the second is the end."""
        if self.stop_at is None:
            self.drain()
        else:
            self.stop_at, self.forced = 0.0, True

    def drain(self) -> None:
        """Begin to stop; from any thread."""
        self.app.draining = True
        self.stop_at = time.monotonic() + self.drain_seconds
