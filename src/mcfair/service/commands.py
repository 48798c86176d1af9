"""The commands of the service: serve, verify, replay, backup, restore and keys."""

from __future__ import annotations

import contextlib
import logging
import math
import re
import secrets
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from ..errors import MCFairError, SettingError, StoreError

if TYPE_CHECKING:
    from .ranker import Ranker
    from .stores import Store
    from .wire import ActivePolicy, KeyInfo

__all__ = ["add_commands"]

STORE = Annotated[
    str,
    typer.Option(
        help="Store: sqlite:///PATH (three slashes relative, four absolute), a path, or "
        "postgresql://USER:PASSWORD@HOST:PORT/DATABASE."
    ),
]
PLUGIN = Annotated[list[str] | None, typer.Option(help="A .py file or module that registers policies; repeatable.")]
DEFAULT_STORE = "sqlite:///mcfair.db"

EXAMINATION = Annotated[
    str | None, typer.Option(help="Severity of position bias, or examination probabilities: 1,0.6,0.5.")
]
PRIOR_MEAN = Annotated[float | None, typer.Option(help="Prior relevance of items without a prior.")]
PRIOR_STRENGTH = Annotated[float | None, typer.Option(help="Weight of the prior, as pseudo-exposure.")]
PRIOR_CERTAINTY = Annotated[float | None, typer.Option(help="Exposure that a prior counts for in exploration.")]
MATURATION = Annotated[str | None, typer.Option(help="Age at which impressions enter the relevance estimate: 30m, 1d.")]
HALF_LIFE = Annotated[str | None, typer.Option(help="Time in which counts lose half their weight: 30d.")]
NEWCOMER_EXPOSURE = Annotated[str | None, typer.Option(help="Starting exposure of new items: zero or fair.")]

MAX_SECONDS = 1e10
"""Longest duration, about 300 years; each rule has its own limit below it."""

SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def add_commands(app: typer.Typer, import_plugin: Callable[[str], None], status: Callable[[str], Any]) -> None:
    """Add the commands to the command line, given its functions to import plugins and to show a status."""

    @app.command()
    def serve(
        store: STORE = DEFAULT_STORE,
        policy: Annotated[str | None, typer.Option(help="Ranking policy, such as 'MCFair(alpha=2)'.")] = None,
        host: Annotated[
            str, typer.Option(help="Address to listen on; any but loopback requires API keys.")
        ] = "127.0.0.1",
        port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on; 0 selects a free one.")] = 8000,
        examination: EXAMINATION = None,
        prior_mean: PRIOR_MEAN = None,
        prior_strength: PRIOR_STRENGTH = None,
        prior_certainty: PRIOR_CERTAINTY = None,
        maturation: MATURATION = None,
        half_life: HALF_LIFE = None,
        newcomer_exposure: NEWCOMER_EXPOSURE = None,
        retention: Annotated[str | None, typer.Option(help="How long impressions accept feedback: 7d.")] = None,
        seed: Annotated[int | None, typer.Option(help="Seed of randomised policies.")] = None,
        max_in_flight: Annotated[int, typer.Option(min=1, help="Maximum concurrent requests; others get 503.")] = 128,
        cache: Annotated[int, typer.Option(min=1, help="Memory for cached queries, in MB.")] = 256,
        drain: Annotated[str, typer.Option(help="How long to drain after SIGTERM before stopping: 10s.")] = "0s",
        max_connections: Annotated[
            int, typer.Option(min=1, help="Maximum connections; idle ones are closed first.")
        ] = 1024,
        proxy_headers: Annotated[
            bool, typer.Option("--proxy-headers", help="Take client addresses from the headers of trusted proxies.")
        ] = False,
        trusted_proxies: Annotated[
            str, typer.Option(help="Addresses of the proxies that --proxy-headers trusts, separated by commas.")
        ] = "127.0.0.1",
        access_log: Annotated[
            bool, typer.Option("--access-log", help="Log every request; query texts are never logged.")
        ] = False,
        plugin: PLUGIN = None,
    ) -> None:
        """Serve rankings over HTTP and learn from feedback. Rules that are not given stay as stored."""
        from .ranker import Ranker
        from .web.server import check_proxies
        from .web.server import serve as listen

        for each in plugin or []:
            import_plugin(each)
        settings = parse_rules(
            examination=examination, prior_mean=prior_mean, prior_strength=prior_strength, half_life=half_life,
            prior_certainty=prior_certainty, maturation=maturation, newcomer_exposure=newcomer_exposure,
            retention=retention, seed=seed,
        )  # fmt: skip
        drain_seconds = parse_duration("drain", drain) or 0.0
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        trusted = check_proxies(trusted_proxies) if proxy_headers else None
        check_address(store, host, port)
        with status("opening the store; the first start on a machine compiles for about a minute"):
            ranker = Ranker(store, policy=policy, cache=cache << 20, **settings)
        try:
            token = secrets.token_urlsafe(32)
            listen(
                ranker, host, port, access_log=access_log, drain_seconds=drain_seconds, max_in_flight=max_in_flight,
                max_connections=max_connections, trusted_proxies=trusted,
                admin_token=token, on_ready=partial(announce, ranker, token),
            )  # fmt: skip
        finally:
            ranker.close()

    @app.command()
    def verify(store: STORE = DEFAULT_STORE) -> None:
        """Verify that the counters of a store follow from its base snapshots and log; a server may be running."""
        from .core.verification import verify as verify_store
        from .stores import describe, open_reader

        with readable(store), open_reader(store) as reader, progress(reader.usage().queries) as advance:
            stored, faults = reader.usage(), verify_store(reader, advance)
        report(faults, f"{describe(store)} is inconsistent")
        print(f"{stored.queries:,} queries, {stored.impressions:,} impressions, {stored.events:,} events: consistent")

    @app.command()
    def replay(store: STORE = DEFAULT_STORE, plugin: PLUGIN = None) -> None:
        """Repeat every ranking in the log of a store, and compare lists and counters to the bit."""
        from .core.verification import replay as replay_store
        from .stores import describe, open_reader

        for each in plugin or []:
            import_plugin(each)
        with readable(store), open_reader(store) as reader, progress(reader.usage().queries) as advance:
            queries, lists, faults = replay_store(reader, advance)
        report(faults, f"{describe(store)} cannot be reproduced in {lists:,} lists and the counters")
        print(f"{queries:,} queries, {lists:,} lists: all reproduced, counters included")

    @app.command()
    def backup(
        to: Annotated[Path, typer.Argument(help="File to write, which must not exist.")], store: STORE = DEFAULT_STORE
    ) -> None:  # fmt: skip
        """Write a consistent copy of a store to a new file; a server may be running."""
        from .stores import describe, open_reader

        with readable(store, str(to)), status(f"copying {describe(store)}"), open_reader(store) as reader:
            reader.backup(to)
        print(f"{to}: {to.stat().st_size:,} bytes")

    @app.command("restore")
    def restore_backup(
        file: Annotated[Path, typer.Argument(help="Backup to restore.")],
        store: STORE = DEFAULT_STORE,
        force: Annotated[
            bool, typer.Option("--force", help="Replace an existing store, and keep it under another name.")
        ] = False,
    ) -> None:
        """Restore a backup as a store, verified before and after; the server must be stopped."""
        from .core.verification import verify as verify_store
        from .stores import locate, restore

        with readable(str(file), store), status(f"restoring {file}"):
            replaced = restore(file, store, force=force, check=verify_store)
        print(f"{locate(store)}: restored from {file}")
        if replaced is not None:
            print(f"{replaced}: the store that was replaced")

    @app.command()
    def migrate(
        source: Annotated[str, typer.Argument(help="Store to read, as for --store; its server must be stopped.")],
        target: Annotated[str, typer.Argument(help="New store to write: sqlite:///PATH or postgresql://….")],
    ) -> None:
        """Move a store to another database, verified to the bit; repeat the command if it was interrupted."""
        from .migration import migrate as move
        from .stores import describe, open_reader

        with readable(source), open_reader(source) as reader:
            stored = reader.usage()
        total = 3 * (sum(stored) - stored.bytes)
        with readable(target, source), progress(total, "rows") as advance:
            rows = move(source, target, advance)
        print(f"{describe(target)}: {rows:,} rows, equal to those of {describe(source)}")

    keys = typer.Typer(help="Manage the API keys of the service: add, list, revoke.", no_args_is_help=True)
    app.add_typer(keys, name="keys")

    @keys.command("add")
    def add_key(
        name: Annotated[str, typer.Argument(help="Label of the key, such as the program that will use it.")],
        scope: Annotated[list[str], typer.Option(help="rank, feedback, read or admin; repeatable.")],
        store: STORE = DEFAULT_STORE,
    ) -> None:
        """Create an API key and print it. Only a hash is stored, so it is shown only once."""
        with open_admin(store) as service:
            added = service.add_key(name, scope)
        print(added.key)
        sys.stderr.write(f"mcfair: created key {added.info.id} ({name}) with scope {', '.join(added.info.scopes)}\n")

    @keys.command("list")
    def list_keys(store: STORE = DEFAULT_STORE) -> None:
        """List the API keys, without their secrets."""
        from .core.keys import key_info
        from .stores import open_reader

        with readable(store), open_reader(store) as reader:
            found = [key_info(key) for key in reader.all_keys()]
        for key in found:
            print(describe_key(key))

    @keys.command("revoke")
    def revoke_key(
        id: Annotated[str, typer.Argument(help="Id of the key, as listed.")], store: STORE = DEFAULT_STORE
    ) -> None:  # fmt: skip
        """Revoke an API key."""
        from .stores import open_reader

        with open_reader(store):  # refuses a store that does not exist, where the next line would create one
            pass
        with open_admin(store) as service:
            print(describe_key(service.revoke_key(id)))


# --- serving ---------------------------------------------------------------------------------------------------------


def parse_duration(name: str, text: str | None) -> float | None:
    """Parse a duration such as 90, 45s, 30m, 12h or 7d to seconds.

    Examples
    --------
    >>> parse_duration("retention", "1.5h")
    5400.0
    """
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smhdw]?)", text)
    seconds = math.inf if found is None else float(found[1]) * SECONDS[found[2] or "s"]
    if seconds > MAX_SECONDS:
        raise SettingError(f"{name} = {text!r} is not allowed: expected a duration such as 45s, 30m, 12h or 7d")
    return seconds


def parse_rules(**given: Any) -> dict[str, Any]:
    """Parse the options of rules; leave out those that were not given."""
    parsed = {name: value for name, value in given.items() if value is not None}
    for name in parsed.keys() & {"maturation", "half_life", "retention"}:
        parsed[name] = parse_duration(name.replace("_", "-"), parsed[name])
    if "examination" in parsed:
        parsed["examination"] = parse_examination(parsed["examination"])
    return parsed


def parse_examination(text: str) -> float | list[float]:
    """Parse a severity, or examination probabilities separated by commas."""
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        raise SettingError(
            f"examination = {text!r} is not allowed: expected a severity such as 1, or probabilities such as 1,0.6,0.5"
        ) from None
    return numbers if "," in text else numbers[0]


def announce(ranker: Ranker, token: str, url: str) -> None:
    """Print the address of the service on stderr, and publish it for our commands in a note that only we can read."""
    ranker.executor.store.write_lock_note(msgspec.json.encode({"url": url, "token": token}))
    sys.stderr.write(greeting(url, ranker.policy(), ranker.executor.store, ranker.has_keys))
    sys.stderr.flush()


def greeting(url: str, rules: ActivePolicy, store: Store, has_keys: bool) -> str:
    """Return the start-up message: address, store, rules, and whether keys are required."""
    decay = "none" if rules.half_life is None else f"{rules.half_life:g} s"
    return (
        f"mcfair: serving on {url} (see {url}/docs), store {store}\n"
        f"mcfair: {rules.policy}, version {rules.version}; examination {rules.examination}, prior strength "
        f"{rules.prior_strength:g}, half-life {decay}, retention {rules.retention / 86_400:g} d\n"
        + ("" if has_keys else "mcfair: there are no API keys: only requests from this machine are accepted\n")
    )


def check_address(store: str, host: str, port: int) -> None:
    """Refuse an address that cannot be used before the store is opened, which would create it."""
    from .stores import exists
    from .web.server import bind, check_bind

    if not exists(store):
        check_bind(host, has_keys=False)
    bind(host, port).close()


def report(faults: list[str], failure: str) -> None:
    """Raise StoreError with the first fault and the number of the others, if there are any."""
    if faults:
        others = f" (and {len(faults) - 1:,} more faults)" if len(faults) > 1 else ""
        raise StoreError(f"{failure}: {faults[0]}{others}")


@contextlib.contextmanager
def readable(store: str, *others: str) -> Iterator[None]:
    """Convert every failure to read a store to one line: damaged data may lead to any error.

    An error that names the store, or one of the others that the command uses, is complete.
    """
    from .stores import StoreCorruptError, describe

    try:
        yield
    except MCFairError as error:
        if any(name.rpartition("/")[2] in str(error) for name in (store, *others)):  # the file at fault
            raise
        fault = "is damaged" if isinstance(error, StoreCorruptError) else "cannot be read"
        raise StoreError(f"{describe(store)} {fault}: {error}") from error
    except Exception as error:
        raise StoreError(
            f"{describe(store)} is damaged: {type(error).__name__}: {' '.join(str(error).split())}"
        ) from error


@contextlib.contextmanager
def progress(total: int, what: str = "queries") -> Iterator[Callable[[int], None]]:
    """Show a progress bar on stderr if it is a terminal; it advances by a query, or by the given number of rows."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.advance(task, 1 if what == "queries" else done)


# --- keys ------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def open_admin(store: str) -> Iterator[Any]:
    """Open a store for changes: through the running server if there is one, else directly."""
    from .stores import is_shared, locate, read_lock_note

    note = None if is_shared(store) else read_lock_note(locate(store))
    if note is None:
        from .ranker import Ranker

        with Ranker(store, warm=False) as ranker:
            yield ranker
        return
    from .client import Client

    try:
        known = msgspec.json.decode(note, type=dict[str, str])
    except msgspec.MsgspecError:
        raise StoreError(f"{locate(store)} is in use by a process that is not `mcfair serve`: stop it first") from None
    with Client(known["url"], known["token"]) as client:
        yield client


def describe_key(key: KeyInfo) -> str:
    """Describe an API key in one line; what would not be printed as one, in a name of an older store, is escaped."""
    name = key.name if key.name.isprintable() else repr(key.name)
    revoked = "" if key.revoked is None else f", revoked {key.revoked:%Y-%m-%d}"
    return f"{key.id}  {name}: {', '.join(key.scopes)} (created {key.created:%Y-%m-%d}{revoked})"
