"""The commands that run a service: serve it, manage its keys, and show it live with a simulated shop in front of it."""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import re
import secrets
import signal
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from ..errors import SettingError, StoreError, UnavailableError
from .options import with_option_groups
from .parts import Plugins
from .render import status

if TYPE_CHECKING:
    from ..service.client import Client
    from ..service.ranker import Ranker
    from ..service.wire import KeyInfo


# --- options of all commands on stores and rules ---------------------------------------------------------------------

STORE = Annotated[str, typer.Option(help="A path, sqlite:///PATH, or postgresql://USER:PASSWORD@HOST:PORT/DATABASE.")]
DEFAULT_STORE = "sqlite:///mcfair.db"

MAX_SECONDS = 1e10
"""Longest duration, about 300 years; each rule has its own limit below it."""

SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RuleOptions:
    """Rules that differ from those in force."""

    policy: Annotated[str | None, typer.Option(help="Ranking policy, such as 'MCFair(alpha=2, guard=0.95)'.")] = None
    estimator: Annotated[str | None, typer.Option(help="Such as Mixture; auto is that of the policy.")] = None
    examination: Annotated[str | None, typer.Option(help="Severity of position bias, or 1,0.6,0.5.")] = None
    prior_mean: Annotated[float | None, typer.Option(help="Prior relevance of items without a prior.")] = None
    prior_strength: Annotated[float | None, typer.Option(help="Weight of the prior, as pseudo-exposure.")] = None
    prior_certainty: Annotated[float | None, typer.Option(help="Exposure that a prior has in exploration.")] = None
    maturation: Annotated[str | None, typer.Option(help="Age at which lists enter the estimate: 30m, 1d.")] = None
    half_life: Annotated[str | None, typer.Option(help="Time in which counts lose half their weight: 30d.")] = None
    newcomer_exposure: Annotated[str | None, typer.Option(help="Starting exposure of new items: zero or fair.")] = None

    def settings(self) -> dict[str, Any]:
        """Return the rules besides the policy, as `Ranker` takes them, without those that were not given."""
        rules = dataclasses.asdict(self).items()
        given = {name: value for name, value in rules if value is not None and name not in ("policy", "guard")}
        for name in given.keys() & {"maturation", "half_life", "retention"}:
            given[name] = parse_duration(name.replace("_", "-"), given[name])
        if "examination" in given:
            given["examination"] = parse_examination(given["examination"])
        return given


def parse_duration(name: str, text: str) -> float:
    """Parse a duration such as 90, 45s, 30m, 12h or 7d to seconds.

    Examples
    --------
    >>> parse_duration("retention", "1.5h")
    5400.0
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smhdw]?)", text)
    seconds = math.inf if found is None else float(found[1]) * SECONDS[found[2] or "s"]
    if seconds > MAX_SECONDS:
        raise SettingError(f"{name} = {text!r} is not allowed: expected a duration such as 45s, 30m, 12h or 7d")
    return seconds


def parse_examination(text: str) -> float | list[float]:
    """Parse a severity, or examination probabilities separated by commas."""
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        raise SettingError(
            f"examination = {text!r} is not allowed: expected a severity such as 1, or probabilities such as 1,0.6,0.5"
        ) from None
    return numbers if "," in text else numbers[0]


# --- the server -------------------------------------------------------------------------------------------------------


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
    max_in_flight: Annotated[
        int, typer.Option(min=1, help="Rankings in flight; others get 503. Feedback has a quarter as many places.")
    ] = 96
    drain: Annotated[str, typer.Option(help="How long to drain after SIGTERM before stopping: 10s.")] = "0s"
    max_connections: Annotated[int, typer.Option(min=1, help="Maximum connections; idle ones are closed first.")] = 1024
    proxy_headers: Annotated[
        bool, typer.Option("--proxy-headers", help="Take client addresses from the headers of trusted proxies.")
    ] = False
    trusted_proxies: Annotated[str, typer.Option(help="Addresses of trusted proxies, separated by commas.")] = (
        "127.0.0.1"
    )
    access_log: Annotated[bool, typer.Option("--access-log", help="Log requests, never query texts.")] = False


@with_option_groups
def serve(
    rules: ServedRules,
    server: ServerOptions,
    plugin: Plugins = None,
    store: STORE = DEFAULT_STORE,
    cache: Annotated[int, typer.Option(min=1, help="Memory for cached queries, in MB.")] = 256,
) -> None:
    """Serve rankings over HTTP and learn from feedback. Rules that are not given stay as stored."""
    from ..service.ranker import Ranker
    from ..service.stores import exists
    from ..service.web.server import bind, check_bind, check_proxies
    from ..service.web.server import serve as listen

    settings, limits = rules.settings(), dataclasses.asdict(server)
    limits["drain_seconds"] = parse_duration("drain", limits.pop("drain"))
    trusted = limits.pop("trusted_proxies")
    if limits.pop("proxy_headers"):
        limits["trusted_proxies"] = check_proxies(trusted)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # An address that cannot be used is refused before the store is opened, which would create it.
    if not exists(store):
        check_bind(server.host, has_keys=False)
    bind(server.host, server.port).close()
    with status("opening the store; the first start on a machine compiles for about a minute"):
        ranker = Ranker(store, policy=rules.policy, cache=cache << 20, background="process", **settings)
    try:
        token = secrets.token_urlsafe(32)
        listen(ranker, admin_token=token, on_ready=partial(announce, ranker, token), **limits)
    finally:
        ranker.close()


def announce(ranker: Ranker, token: str, url: str) -> None:
    """Print the address and the rules of the service, and publish a note for our commands that only we can read."""
    store, rules = ranker.executor.store, ranker.policy()
    store.write_lock_note(msgspec.json.encode({"url": url, "token": token}))
    decay = "none" if rules.half_life is None else f"{rules.half_life:g} s"
    print_line(f"serving on {url} (a dashboard; the API is described at {url}/docs), store {store}")
    print_line(
        f"{rules.policy}, version {rules.version}; examination {rules.examination}, prior strength "
        f"{rules.prior_strength:g}, half-life {decay}, retention {rules.retention / 86_400:g} d"
    )
    if not ranker.has_keys:
        print_line("there are no API keys: only requests from this machine are accepted")


def print_line(sentence: str) -> None:
    """Print a line on stderr at once."""
    print(f"mcfair: {sentence}", file=sys.stderr, flush=True)


# --- keys -------------------------------------------------------------------------------------------------------------

keys = typer.Typer(help="Manage the API keys of the service: add, list, revoke.", no_args_is_help=True)


@keys.command("add")
def add_key(
    name: Annotated[str, typer.Argument(help="Label of the key, such as the program that will use it.")],
    scope: Annotated[list[str], typer.Option(help="rank, feedback, read or admin; repeatable.")],
    store: STORE = DEFAULT_STORE,
) -> None:
    """Create an API key and print it. Only a hash is stored, so it is shown only once."""
    from ..service.calls import key_request

    request = key_request(name, scope)  # type: ignore[arg-type]  # before a store is created for it
    with open_admin(store) as service:
        added = service.add_key(request.name, request.scopes)
    print(added.key)
    print_line(f"created key {added.info.id} ({name}) with scope {', '.join(added.info.scopes)}")


@keys.command("list")
def list_keys(store: STORE = DEFAULT_STORE) -> None:
    """List the API keys, without their secrets."""
    from ..service.core.keys import key_info
    from ..service.stores import open_reader
    from .stores import readable

    with readable(store), open_reader(store) as reader:
        found = [key_info(key) for key in reader.all_keys()]
    for key in found:
        print(describe_key(key))


@keys.command("revoke")
def revoke_key(
    id: Annotated[str, typer.Argument(help="Id of the key, as listed.")], store: STORE = DEFAULT_STORE
) -> None:
    """Revoke an API key."""
    from ..service.stores import open_reader

    with open_reader(store):  # refuses a store that does not exist, where the next line would create one
        pass
    with open_admin(store) as service:
        print(describe_key(service.revoke_key(id)))


def open_admin(store: str) -> Ranker | Client:
    """Open a store for changes: through the running server if there is one, else directly."""
    from ..service.stores import is_shared, locate, read_lock_note

    note = None if is_shared(store) else read_lock_note(locate(store))
    if note is None:
        from ..service.ranker import Ranker

        return Ranker(store, warm=False)
    from ..service.client import Client

    try:
        known = msgspec.json.decode(note, type=dict[str, str])
    except msgspec.MsgspecError:
        raise StoreError(f"{locate(store)} is in use by a process that is not `mcfair serve`: stop it first") from None
    return Client(known["url"], known["token"])


def describe_key(key: KeyInfo) -> str:
    """Describe an API key in one line; what would not be printed as one, in a name of an older store, is escaped."""
    name = key.name if key.name.isprintable() else repr(key.name)
    revoked = "" if key.revoked is None else f", revoked {key.revoked:%Y-%m-%d}"
    return f"{key.id}  {name}: {', '.join(key.scopes)} (created {key.created:%Y-%m-%d}{revoked})"


# --- a live demonstration ---------------------------------------------------------------------------------------------

PAUSE_SECONDS = 0.03
"""Time between two shoppers, so that the demonstration leaves the machine to other work."""

CALL_SECONDS = 10.0
"""Timeout of a shopper's request: the machine of a demonstration may be busy."""

RETRY_SECONDS = 1.0


def live_demo(seconds: float | None, browser: bool) -> None:
    """Serve a simulated shop until Ctrl-C, or for some seconds; open its dashboard if there is a display."""
    import webbrowser

    from ..service.ranker import Ranker
    from ..service.shop import FIRST
    from ..service.web.server import serve

    stopped = threading.Event()
    threads: list[threading.Thread] = []

    def open_shop(url: str) -> None:
        print_line(f"the shop is open: {url}/ (Ctrl-C closes it)")
        threads.append(threading.Thread(target=send_shoppers, args=(url, stopped, seconds), daemon=True))
        if browser and has_display():
            threads.append(threading.Thread(target=webbrowser.open, args=(f"{url}/",), daemon=True))
        for each in threads:
            each.start()

    with status("opening the shop; the first start on a machine compiles for about a minute"):
        ranker = Ranker("memory:", policy=FIRST)
    try:
        serve(ranker, port=0, on_ready=open_shop)
    except KeyboardInterrupt:  # the server has shut down gracefully before it passes the signal on
        pass
    finally:
        stopped.set()
        if threads:
            threads[0].join(CALL_SECONDS)
    print_line("the shop is closed")


def send_shoppers(url: str, stopped: threading.Event, seconds: float | None) -> None:
    """Send one shopper after the other; after some seconds, end the process as Ctrl-C does."""
    from ..service.client import Client
    from ..service.shop import Shop

    end = float("inf") if seconds is None else time.monotonic() + seconds
    with Client(url, timeout=CALL_SECONDS, rank_deadline=CALL_SECONDS, retry_timeout=RETRY_SECONDS) as client:
        shop = Shop(client, report=print_line)
        while not stopped.wait(PAUSE_SECONDS):
            if time.monotonic() >= end:
                os.kill(os.getpid(), signal.SIGINT)
                return
            try:
                shop.visit()
            except UnavailableError as error:
                if stopped.wait(RETRY_SECONDS):  # the server is shutting down
                    return
                print_line(f"a shopper was not served: {error}")


def has_display() -> bool:
    """Return whether a browser could open a window; without one, some systems would start one in the terminal."""
    if sys.platform in ("darwin", "win32"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
