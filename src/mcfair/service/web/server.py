"""The server process: uvicorn with bounded connections, readiness while it drains, and a graceful shutdown.

Measured in one run on two shared cores (`python benchmarks/servers.py compare`, a typed JSON endpoint with 100
candidates at 1,000 requests per second), uvicorn with httptools needs the least CPU time per request;
benchmarks/README.md has the table. What uvicorn does not bound itself is bounded by `connections`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import socket
import sys
import time
from collections.abc import Callable
from ipaddress import ip_network
from types import FrameType
from typing import Any

from ...errors import SettingError
from ..ranker import Ranker
from .app import RankingApp, create_app
from .auth import is_loopback

try:
    import httptools  # noqa: F401  # uvicorn's fast parser
    import uvicorn
    import uvloop  # noqa: F401  # uvicorn's fast event loop
except ImportError as missing:
    raise SettingError(f"the service needs {missing.name}: pip install 'mcfair[service]'") from None

from .connections import DEFAULT_LIMITS, BoundedConfig, ConnectionLimits
from .lifecycle import PLACES

BACKLOG = 2_048
TICK_SECONDS = 0.1
GRACE_SECONDS = 30
"""Timeout for requests in flight during shutdown."""

SWITCH_SECONDS = 0.0001
"""Interval after which a thread that computes hands Python's interpreter lock to one that waits for it. The writer
thread needs the lock before and after every commit, and after every statement of what it executes itself, while the
event loop may be busy with other requests, or with refusals under overload."""


def serve(
    ranker: Ranker,
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    access_log: bool = False,
    drain_seconds: float = 0.0,
    max_in_flight: int = PLACES,
    max_connections: int = DEFAULT_LIMITS.connections,
    admin_token: str | None = None,
    trusted_proxies: str | None = None,
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
        As in `create_app`.
    max_connections
        Maximum number of connections; a further one replaces one that has sent no request for the longest time.
    admin_token
        A secret that is accepted like an API key of scope "admin".
    trusted_proxies
        Addresses of proxies, separated by commas, whose X-Forwarded-For names the client; None trusts no proxy.
    on_ready
        Called with the URL once the socket listens, before the first response.

    Raises
    ------
    SettingError
        If the address cannot be bound, or can be reached by others while there are no API keys; or if a limit or the
        address of a proxy is not allowed.
    """
    listener, switch_seconds = None, sys.getswitchinterval()
    try:
        for name, limit in (("max_in_flight", max_in_flight), ("max_connections", max_connections)):
            if limit < 1:
                raise SettingError(f"{name} = {limit} is not allowed: expected at least 1")
        if trusted_proxies is not None:
            check_proxies(trusted_proxies)
        check_bind(host, ranker.has_keys)
        listener = bind(host, port)
        app = create_app(ranker, admin_token=admin_token, max_in_flight=max_in_flight, access_log=access_log)
        server = RankingServer(
            app,
            url_of(host, listener),
            limits=DEFAULT_LIMITS._replace(connections=max_connections),
            drain_seconds=drain_seconds,
            trusted_proxies=trusted_proxies,
            on_ready=on_ready,
        )
        # Imported objects live until the end: freeze them, so that no garbage collection scans them during requests.
        gc.collect()
        gc.freeze()
        sys.setswitchinterval(SWITCH_SECONDS)
        server.run([listener])
    finally:
        sys.setswitchinterval(switch_seconds)
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


def check_proxies(addresses: str) -> str:
    """Refuse what is not the address of a proxy or a network, or *; names are not resolved."""
    for each in addresses.split(","):
        try:
            ip_network("0.0.0.0" if each.strip() == "*" else each.strip())
        except ValueError:
            allowed = "expected addresses or networks, such as 10.0.0.1 or 10.0.0.0/8, separated by commas, or *"
            raise SettingError(f"trusted_proxies = {addresses!r} is not allowed: {allowed}") from None
    return addresses


def bind(host: str, port: int) -> socket.socket:
    """Open a listening socket."""
    if not 0 <= port < 1 << 16:
        raise SettingError(f"port = {port} is not allowed: expected 0 to 65535")
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
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
                f"port {port} of {host} is in use: stop the other process, or choose another port with --port"
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


class RankingServer(uvicorn.Server):
    """uvicorn with bounded connections, which drains before it shuts down.

    Parameters
    ----------
    app
        The application.
    url
        The URL of the socket that will be passed to `run`.
    limits
        Limits on connections.
    drain_seconds, trusted_proxies, on_ready
        As in `serve`.
    """

    config: BoundedConfig

    def __init__(
        self,
        app: RankingApp,
        url: str,
        *,
        limits: ConnectionLimits = DEFAULT_LIMITS,
        drain_seconds: float = 0.0,
        trusted_proxies: str | None = None,
        on_ready: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(server_config(app, limits, trusted_proxies))
        self.app, self.url, self.drain_seconds, self.on_ready = app, url, drain_seconds, on_ready
        self.stop_at: float | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to serve, and to expire connections."""
        # The socket listens already. No response is sent before this returns, and the ranker is not attached to this
        # loop yet, so `on_ready` may wait for operations.
        if self.on_ready is not None:
            self.on_ready(self.url)
        await super().startup(sockets)
        self.expiry = asyncio.create_task(self.expire_connections())

    async def expire_connections(self) -> None:
        """Close connections whose deadline has passed, and all of them after the second signal."""
        while True:
            self.config.table.expire(asyncio.get_running_loop().time())
            if self.force_exit:
                for connection in list(self.server_state.connections):
                    connection.transport.abort()
            await asyncio.sleep(TICK_SECONDS)

    async def on_tick(self, counter: int) -> bool:
        """Return whether to shut down: once the service has drained."""
        if self.stop_at is not None and time.monotonic() >= self.stop_at:
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Refuse requests, finish those in flight, and close all connections."""
        # Refuse requests before closing the listener: clients that connect now get 503 instead of a reset.
        self.app.lifecycle.phase = "stopped"
        await asyncio.sleep(TICK_SECONDS)
        await super().shutdown(sockets)
        self.expiry.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.expiry

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal: drain at the first one, stop at once at the second."""
        if self.stop_at is None:
            self.drain()
        else:
            self.should_exit = self.force_exit = True

    def drain(self) -> None:
        """Start draining; may be called from any thread."""
        self.app.lifecycle.phase = "draining"
        self.stop_at = time.monotonic() + self.drain_seconds


def server_config(app: Any, limits: ConnectionLimits, trusted_proxies: str | None = None) -> BoundedConfig:
    """Return the configuration of uvicorn for an application."""
    return BoundedConfig(
        app,
        limits,
        loop="uvloop",
        lifespan="on",
        backlog=BACKLOG,
        timeout_keep_alive=int(limits.head_seconds) + 1,  # connections are closed before by their own deadline
        timeout_graceful_shutdown=GRACE_SECONDS,
        proxy_headers=trusted_proxies is not None,
        forwarded_allow_ips=trusted_proxies,
        server_header=False,
        access_log=False,  # it would log paths, which may contain data of a client
        log_config=None,
        log_level="error",  # anybody can cause the warnings: one line for each malformed request
    )
