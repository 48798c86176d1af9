"""The commands on stores: verify, replay, backup, restore and migrate."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from ..errors import MCFairError, StoreError
from .parts import Plugins
from .render import bar, status
from .serve import DEFAULT_STORE, STORE

__all__ = ["backup", "migrate", "readable", "replay", "restore_backup", "verify"]


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
    force: Annotated[
        bool, typer.Option("--force", help="Replace an existing store, and keep it under another name.")
    ] = False,
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
    except MCFairError as error:
        # The file at fault, or the database without its password and options.
        if any(describe(name).rpartition("/")[2] in str(error) for name in (store, *others)):
            raise
        fault = "is damaged" if isinstance(error, StoreCorruptError) else "cannot be read"
        raise StoreError(f"{describe(store)} {fault}: {error}") from error
    except Exception as error:
        raise StoreError(
            f"{describe(store)} is damaged: {type(error).__name__}: {' '.join(str(error).split())}"
        ) from error


@contextlib.contextmanager
def counted(total: int, what: str = "queries") -> Iterator[Callable[[int], None]]:
    """Show a bar on stderr that advances by a query, or by the given number of rows."""
    with bar() as shown:
        task = None if shown is None else shown.add_task(what, total=total)
        yield lambda done: None if shown is None else shown.advance(task, 1 if what == "queries" else done)
