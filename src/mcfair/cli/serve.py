"""The command that serves rankings."""

from __future__ import annotations

import dataclasses
import logging
import secrets
import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from .options import PluginOptions, with_option_groups
from .render import status
from .service_options import DEFAULT_STORE, STORE, RuleOptions, parse_duration

if TYPE_CHECKING:
    from ..service.ranker import Ranker
    from ..service.stores import Store
    from ..service.wire import ActivePolicy

__all__ = ["serve"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServedRules(RuleOptions):
    """The rules of a service."""

    retention: Annotated[str | None, typer.Option(help="How long impressions accept feedback: 7d.")] = None
    seed: Annotated[int | None, typer.Option(help="Seed of randomised policies.")] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """The HTTP server and its limits."""

    host: Annotated[str, typer.Option(help="Address to listen on; any but loopback requires API keys.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on; 0 selects a free one.")] = 8000
    max_in_flight: Annotated[int, typer.Option(min=1, help="Maximum concurrent requests; others get 503.")] = 128
    drain: Annotated[str, typer.Option(help="How long to drain after SIGTERM before stopping: 10s.")] = "0s"
    max_connections: Annotated[int, typer.Option(min=1, help="Maximum connections; idle ones are closed first.")] = 1024
    proxy_headers: Annotated[
        bool, typer.Option("--proxy-headers", help="Take client addresses from the headers of trusted proxies.")
    ] = False
    trusted_proxies: Annotated[
        str, typer.Option(help="Addresses of the proxies that --proxy-headers trusts, separated by commas.")
    ] = "127.0.0.1"
    access_log: Annotated[
        bool, typer.Option("--access-log", help="Log every request; query texts are never logged.")
    ] = False


@with_option_groups
def serve(
    rules: ServedRules,
    server: ServerOptions,
    plugins: PluginOptions,
    store: STORE = DEFAULT_STORE,
    cache: Annotated[int, typer.Option(min=1, help="Memory for cached queries, in MB.")] = 256,
) -> None:
    """Serve rankings over HTTP and learn from feedback. Rules that are not given stay as stored."""
    from ..service.ranker import Ranker
    from ..service.web.server import check_proxies
    from ..service.web.server import serve as listen

    plugins.load()
    settings, drain_seconds = rules.settings(), parse_duration("drain", server.drain)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    trusted = check_proxies(server.trusted_proxies) if server.proxy_headers else None
    check_address(store, server.host, server.port)
    with status("opening the store; the first start on a machine compiles for about a minute"):
        ranker = Ranker(store, policy=rules.policy, cache=cache << 20, **settings)
    try:
        token = secrets.token_urlsafe(32)
        listen(
            ranker,
            server.host,
            server.port,
            access_log=server.access_log,
            drain_seconds=drain_seconds,
            max_in_flight=server.max_in_flight,
            max_connections=server.max_connections,
            trusted_proxies=trusted,
            admin_token=token,
            on_ready=partial(announce, ranker, token),
        )
    finally:
        ranker.close()


def announce(ranker: Ranker, token: str, url: str) -> None:
    """Print the address of the service on stderr, and publish it for our commands in a note that only we can read."""
    ranker.executor.store.write_lock_note(msgspec.json.encode({"url": url, "token": token}))
    sys.stderr.write(greeting(url, ranker.policy(), ranker.executor.store, ranker.has_keys))
    sys.stderr.flush()


def greeting(url: str, rules: ActivePolicy, store: Store, has_keys: bool) -> str:
    """Return the start-up message: address, store, rules, and whether keys are required."""
    decay = "none" if rules.half_life is None else f"{rules.half_life:g} s"
    return (
        f"mcfair: serving on {url} (a dashboard; the API is described at {url}/docs), store {store}\n"
        f"mcfair: {rules.policy}, version {rules.version}; examination {rules.examination}, prior strength "
        f"{rules.prior_strength:g}, half-life {decay}, retention {rules.retention / 86_400:g} d\n"
        + ("" if has_keys else "mcfair: there are no API keys: only requests from this machine are accepted\n")
    )


def check_address(store: str, host: str, port: int) -> None:
    """Refuse an address that cannot be used before the store is opened, which would create it."""
    from ..service.stores import exists
    from ..service.web.server import bind, check_bind

    if not exists(store):
        check_bind(host, has_keys=False)
    bind(host, port).close()
