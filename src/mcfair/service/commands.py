"""The commands of the service: serve, and what an operator needs beside it."""

from __future__ import annotations

import contextlib
import logging
import re
import secrets
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from ..errors import SettingError, StoreError

if TYPE_CHECKING:
    from .ranker import Ranker
    from .stores import Store
    from .wire import KeyInfo, PolicyInForce

__all__ = ["add_commands"]

STORE = Annotated[str, typer.Option(help="sqlite:///PATH (three slashes relative, four absolute) or a path.")]
PLUGIN = Annotated[list[str] | None, typer.Option(help="A .py file or module with policies of your own.")]
DEFAULT_STORE = "sqlite:///mcfair.db"

SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def add_commands(app: typer.Typer, import_plugin: Callable[[str], None], status: Callable[[str], Any]) -> None:
    """Add the commands to the command line, which lends them its way to import plugins and to show what goes on."""

    @app.command()
    def serve(
        store: STORE = DEFAULT_STORE,
        policy: Annotated[str | None, typer.Option(help="Who ranks, such as 'MCFair(alpha=2)'.")] = None,
        host: Annotated[str, typer.Option(help="Address to listen on; other than loopback needs keys.")] = "127.0.0.1",
        port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8000,
        examination: Annotated[
            str | None, typer.Option(help="A severity, or probabilities of ranks: 1,0.6,0.5.")
        ] = None,
        prior_mean: Annotated[float | None, typer.Option(help="Prior of items that come without one.")] = None,
        prior_strength: Annotated[float | None, typer.Option(help="Strength of priors, in exposures.")] = None,
        maturing: Annotated[str | None, typer.Option(help="Age at which impressions enter R: 30m, 1d.")] = None,
        half_life: Annotated[str | None, typer.Option(help="Time in which counts lose half their weight.")] = None,
        entry: Annotated[str | None, typer.Option(help="How newcomers enter: zero or fair.")] = None,
        retention: Annotated[str | None, typer.Option(help="How long impressions take feedback.")] = None,
        seed: Annotated[int | None, typer.Option(help="For policies that draw.")] = None,
        max_in_flight: Annotated[int, typer.Option(help="Requests answered at a time; more get 503.")] = 128,
        cache: Annotated[int, typer.Option(help="Memory for queries, in MB; others are read when needed.")] = 256,
        drain: Annotated[str, typer.Option(help="How long to answer on after SIGTERM, not ready any more.")] = "0s",
        access_log: Annotated[bool, typer.Option("--access-log", help="Log every answer, never a query.")] = False,
        plugin: PLUGIN = None,
    ) -> None:
        """Serve lists over HTTP and learn from feedback; what is not said here stays as the store has it."""
        from .ranker import Ranker
        from .server import check_bind
        from .server import serve as listen

        for each in plugin or []:
            import_plugin(each)
        given: dict[str, Any] = {
            "examination": None if examination is None else read_examination(examination), "prior_mean": prior_mean,
            "prior_strength": prior_strength, "maturing": read_time("maturing", maturing),
            "half_life": read_time("half-life", half_life), "entry": entry,
            "retention": read_time("retention", retention), "seed": seed,
        }  # fmt: skip
        settings = {name: value for name, value in given.items() if value is not None}
        drain_seconds = read_time("drain", drain) or 0.0
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        with status("opening the store; the first start on a machine compiles for a minute or so"):
            ranker = Ranker(store, policy=policy, cache=cache << 20, **settings)
        try:
            check_bind(host, ranker.has_keys)
            token = secrets.token_urlsafe(32)
            listen(
                ranker, host, port, access_log=access_log, drain_seconds=drain_seconds, max_in_flight=max_in_flight,
                admin_token=token, ready=partial(announce, ranker, token),
            )  # fmt: skip
        finally:
            ranker.close()

    @app.command()
    def verify(store: STORE = DEFAULT_STORE) -> None:
        """Prove that the counters of a store are those of its base and impressions; a server may be running."""
        from .history import verify as prove
        from .stores import open_reader

        with open_reader(store) as reader, progress(reader.usage().queries) as advance:
            stored, faults = reader.usage(), prove(reader, advance)
        report(faults, f"{store} is not sound: {len(faults)} fault(s)")
        print(f"{stored.queries:,} queries, {stored.impressions:,} impressions, {stored.events:,} events: all sound")

    @app.command()
    def replay(store: STORE = DEFAULT_STORE, plugin: PLUGIN = None) -> None:
        """Make every list of a store's log again from its base, and compare lists and counters to the bit."""
        from .history import replay as again
        from .stores import open_reader

        for each in plugin or []:
            import_plugin(each)
        with open_reader(store) as reader, progress(reader.usage().queries) as advance:
            queries, lists, faults = again(reader, advance)
        report(faults, f"{store} does not repeat itself: {len(faults)} lists or counters of {lists:,} lists differ")
        print(f"{queries:,} queries, {lists:,} lists: all the same, counters included")

    @app.command()
    def backup(
        to: Annotated[Path, typer.Argument(help="File to write, which must not exist.")], store: STORE = DEFAULT_STORE
    ) -> None:  # fmt: skip
        """Write a copy of a store, whole and consistent, while a server may be running."""
        from .stores import open_reader

        with status(f"copying {store}"), open_reader(store) as reader:
            reader.backup(to)
        print(f"{to}: {to.stat().st_size:,} bytes")

    keys = typer.Typer(help="Keys of the service: add, list, revoke.", no_args_is_help=True)
    app.add_typer(keys, name="keys")

    @keys.command("add")
    def add_key(
        name: Annotated[str, typer.Argument(help="What to call it, such as the program that will use it.")],
        scope: Annotated[list[str], typer.Option(help="rank, feedback, read or admin; repeat for several.")],
        store: STORE = DEFAULT_STORE,
    ) -> None:
        """Make a key and print it, this once; only a hash is stored."""
        with admin(store) as books:
            added = books.add_key(name, scope)
        print(added.key)
        sys.stderr.write(f"mcfair: key {added.info.id} ({name}) may {', '.join(added.info.scopes)}; keep it safe\n")

    @keys.command("list")
    def list_keys(store: STORE = DEFAULT_STORE) -> None:
        """List all keys, without their secrets."""
        with admin(store) as books:
            found = books.keys()
        for key in found:
            print(described(key))

    @keys.command("revoke")
    def revoke_key(
        id: Annotated[str, typer.Argument(help="Its id, as listed.")], store: STORE = DEFAULT_STORE
    ) -> None:  # fmt: skip
        """Make a key good for nothing, at once."""
        with admin(store) as books:
            print(described(books.revoke_key(id)))


# --- serving ---------------------------------------------------------------------------------------------------------


def read_time(name: str, text: str | None) -> float | None:
    """Read a time such as 90, 45s, 30m, 12h or 7d, in seconds.

    Examples
    --------
    >>> read_time("retention", "1.5h")
    5400.0
    """
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw]?)", text)
    if found is None:
        raise SettingError(f"{name} = {text!r} is not allowed: expected a time such as 45s, 30m, 12h or 7d")
    return float(found[1]) * SECONDS[found[2] or "s"]


def read_examination(text: str) -> float | list[float]:
    """Read a severity, or probabilities of ranks."""
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        raise SettingError(
            f"examination = {text!r}: expected a severity such as 1, or probabilities of ranks such as 1,0.6,0.5"
        ) from None
    return numbers if "," in text else numbers[0]


def announce(ranker: Ranker, token: str, url: str) -> None:
    """Say where the service listens: to people on stderr, and to our own commands where only its owner can read it."""
    ranker.store.say(msgspec.json.encode({"url": url, "token": token}))
    sys.stderr.write(greeting(url, ranker.policy(), ranker.store, ranker.has_keys))
    sys.stderr.flush()


def greeting(url: str, rules: PolicyInForce, store: Store, has_keys: bool) -> str:
    """Say what is served, where, by which rules, and to whom."""
    decay = "for ever" if rules.half_life is None else f"half-life {rules.half_life:g} s"
    return (
        f"mcfair: serving on {url} (see {url}/docs), store {store}\n"
        f"mcfair: {rules.policy}, version {rules.version}; examination {rules.examination}, priors weigh "
        f"{rules.prior_strength:g}, counts last {decay}, impressions take feedback for {rules.retention / 86_400:g} d\n"
        + ("" if has_keys else "mcfair: there are no keys, so only this machine may connect\n")
    )


def report(faults: list[str], failure: str) -> None:
    """Say what is wrong, if anything is, and fail."""
    for fault in faults:
        sys.stderr.write(f"mcfair: {fault}\n")
    if faults:
        raise StoreError(failure)


@contextlib.contextmanager
def progress(total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar on stderr; nothing where nobody watches."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("queries", total=total)
        yield lambda _: bar.advance(task)


# --- keys ------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def admin(store: str) -> Iterator[Any]:
    """Reach a store for changes: through the server that has it open, if there is one."""
    from .stores import holder, locate

    path = locate(store)
    note = holder(path)
    if note is None:
        from .ranker import Ranker

        with Ranker(path, warm=False) as ranker:
            yield ranker
        return
    from .client import Client

    try:
        known = msgspec.json.decode(note, type=dict[str, str])
    except msgspec.MsgspecError:
        raise StoreError(f"{path} is in use by a process that is not `mcfair serve`: stop it first") from None
    with Client(known["url"], known["token"]) as client:
        yield client


def described(key: KeyInfo) -> str:
    """Describe a key in one line."""
    revoked = "" if key.revoked is None else f", revoked {key.revoked:%Y-%m-%d}"
    return f"{key.id}  {key.name}: {', '.join(key.scopes)} (made {key.created:%Y-%m-%d}{revoked})"
