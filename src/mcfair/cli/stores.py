"""The commands on stores: verify, replay, backup, restore, migrate and import."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import MCFairError, SettingError, StoreError
from .audit import LOG, GivenReading
from .options import with_option_groups
from .parts import Plugins
from .render import bar, encoded, stages, status
from .serve import DEFAULT_STORE, STORE, open_admin


def verify(store: STORE = DEFAULT_STORE) -> None:
    """Verify that the counters of a store follow from its base snapshots and log; a server may be running."""
    from ..service.core.verification import verify as verify_store
    from ..service.stores import describe, open_reader

    with readable(store), open_reader(store) as reader, counted(reader.usage().queries) as advance:
        stored, faults = reader.usage(), verify_store(reader, advance)
    report(faults, f"{describe(store)} is inconsistent")
    counts = f"{stored.queries:,} queries, {stored.impressions:,} impressions, {stored.events:,} other log entries"
    print(f"{counts}: consistent")


def replay(plugin: Plugins = None, store: STORE = DEFAULT_STORE) -> None:
    """Repeat every ranking in the log of a store, and compare lists and counters to the bit."""
    from ..service.core.verification import replay as replay_store
    from ..service.stores import describe, open_reader

    with readable(store), open_reader(store) as reader, counted(reader.usage().queries) as advance:
        queries, lists, faults = replay_store(reader, advance)
    report(faults, f"{describe(store)} cannot be reproduced in {lists:,} lists and the counters")
    print(f"{queries:,} queries, {lists:,} lists: all reproduced, counters included")


def backup(
    to: Annotated[Path, typer.Argument(help="File to write, which must not exist.")], store: STORE = DEFAULT_STORE
) -> None:
    """Write a consistent copy of a store to a new file; a server may be running."""
    from ..service.stores import describe, open_reader

    with readable(store, str(to)), status(f"copying {describe(store)}"), open_reader(store) as reader:
        reader.backup(to)
    print(f"{to}: {to.stat().st_size:,} bytes")


def restore_backup(
    file: Annotated[Path, typer.Argument(help="Backup to restore.")],
    store: STORE = DEFAULT_STORE,
    force: Annotated[bool, typer.Option("--force", help="Replace a store; it is kept under another name.")] = False,
) -> None:
    """Restore a backup as a store, verified before and after; the server must be stopped."""
    from ..service.core.verification import verify as verify_store
    from ..service.stores import locate, restore

    with readable(str(file), store), status(f"restoring {file}"):
        replaced = restore(file, store, force=force, check=verify_store)
    print(f"{locate(store)}: restored from {file}")
    if replaced is not None:
        print(f"{replaced}: the store that was replaced")


def migrate(
    source: Annotated[str, typer.Argument(help="Store to read, as for --store; its server must be stopped.")],
    target: Annotated[str, typer.Argument(help="New store to write: sqlite:///PATH or postgresql://….")],
) -> None:
    """Move a store to another database, verified to the bit; repeat the command if it was interrupted."""
    from ..service.migration import migrate as move
    from ..service.stores import describe, open_reader

    with readable(source), open_reader(source) as reader:
        stored = reader.usage()
    total = 3 * (sum(stored) - stored.bytes)
    with readable(target, source), counted(total, "rows") as advance:
        rows = move(source, target, advance)
    print(f"{describe(target)}: {rows:,} rows, equal to those of {describe(source)}")


@with_option_groups
def import_log(
    log: LOG,
    reading: GivenReading,
    store: STORE = DEFAULT_STORE,
    url: Annotated[str | None, typer.Option(help="Import into the service at this address instead.")] = None,
    key: Annotated[str | None, typer.Option(envvar="MCFAIR_KEY", help="API key of that service (scope admin).")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what would be imported; write nothing.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of sentences.")] = False,
) -> None:
    """Import a click log into a store, so that a service does not begin without history; repeating it adds nothing."""
    from ..service.client import Client
    from ..service.histories import open_sources, read_source

    if url is not None and store != DEFAULT_STORE:
        raise SettingError("store and url are not allowed together: name one target")
    found = []
    with stages() as progress:
        for opened in open_sources(log, reading):
            source, histories = read_source(opened, reading)
            outcomes: Counter[str] = Counter()
            refused: Counter[str] = Counter()
            if not dry_run:
                with open_admin(store) if url is None else Client(url, key) as service:
                    for batch in histories.batches():
                        results = service.import_history(source, batch)
                        # A query may come in several parts; it is counted by the first.
                        outcomes.update(r.status for r, each in zip(results, batch, strict=True) if each.part == 0)
                        refused.update(str(r.detail) for r in results if r.status == "refused")
                        progress(opened.name, outcomes.total(), histories.queries)
            found.append(
                {
                    "name": opened.name,
                    "format": opened.format,
                    "source": source,
                    "rows": histories.counts.rows,
                    "queries": histories.queries,
                    "items": histories.items,
                    "impressions": histories.impressions,
                    "shown": histories.shown_total,
                    "clicks": histories.clicks_total,
                    "excluded": histories.excluded,
                    "quality": histories.counts.quality,
                    "imported": outcomes["imported"],
                    "duplicate": outcomes["duplicate"],
                    "refused": refused,
                }
            )
    if json:
        sys.stdout.write(encoded({"dry_run": dry_run, "sources": found}))
        return
    for each in found:
        show_import(each, dry_run)


def show_import(found: dict[str, Any], dry_run: bool) -> None:
    """Print in sentences what was imported from a source, or would be."""
    print("{name}: read as {format}, {rows:,} rows".format_map(found))
    for reason, number in found["excluded"].items():
        print(f"left out: {number:,} rows ({reason})")
    what = (
        "{queries:,} queries, {items:,} items of queries, {impressions:,} impressions with {shown:,} items shown, "
        "{clicks:,} clicks"
    ).format_map(found)
    if dry_run:
        print(f"would import {what}; queries that have counts of this source already are left as they are")
        return
    print(what + ": {imported:,} queries imported, {duplicate:,} had been imported before".format_map(found))
    for reason, number in found["refused"].items():
        print(f"refused: {number:,} queries ({reason})")


# --- what the commands share -----------------------------------------------------------------------------------------


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
    from ..service.stores import StoreCorruptError, describe

    try:
        yield
    except Exception as error:
        ours, what = isinstance(error, MCFairError), " ".join(str(error).split())
        # The file at fault, or the database without its password and options.
        if ours and any(describe(name).rpartition("/")[2] in what for name in (store, *others)):
            raise
        damaged = not ours or isinstance(error, StoreCorruptError)
        about = what if ours else f"{type(error).__name__}: {what}"
        raise StoreError(f"{describe(store)} {'is damaged' if damaged else 'cannot be read'}: {about}") from error


@contextlib.contextmanager
def counted(total: int, what: str = "queries") -> Iterator[Callable[[int], None]]:
    """Show a bar on stderr that advances by a query, or by the given number of rows."""
    with bar() as shown:
        task = None if shown is None else shown.add_task(what, total=total)
        yield lambda done: None if shown is None else shown.advance(task, 1 if what == "queries" else done)
