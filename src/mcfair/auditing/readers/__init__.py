"""Opening a log: its format is guessed from its content, and every reader returns the same rows."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from ...data.dataset import HIGHEST_GRADE
from ...data.frames import (
    UNREADABLE,
    as_frame,
    check_distinct,
    column_names,
    columns_of,
    first_line,
    listed,
    numbers,
    scan_table,
    texts,
)
from ...data.letor import KINDS, kind_of, pieces
from ...errors import DataError, SettingError, unknown
from ..log import ROLES, ClickLog, find_columns
from .events import is_metarank, is_ubi, read_metarank, read_ubi
from .recorded_run import read_recorded_run
from .tables import is_open_bandit, read_flat, read_lists, read_open_bandit

__all__ = ["FORMATS", "SOURCES", "is_store", "open_log", "scan", "with_catalogue"]

TABLES: dict[str, Callable[..., ClickLog]] = {
    "flat": read_flat,
    "lists": read_lists,
    "open-bandit": read_open_bandit,
}
"""Readers of the formats that are one table."""

SOURCES: dict[str, Callable[[str], ClickLog]] = {}
"""Readers of sources that are no files of logs; the module that knows such a source registers its reader here."""

FORMATS = ("flat", "lists", "ubi", "metarank", "open-bandit", "store", "simulation")

EXPECTED = {
    "store": "the URL of a store",
    "simulation": "the folder of a recorded run",
    "ubi": "a folder with ubi_queries and ubi_events",
    "metarank": "a file of JSON lines",
}
"""Sources of the formats that are not one table."""


def open_log(
    source: Any,
    *,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    separator: str | None = None,
) -> ClickLog:
    """Open a log of any format.

    Parameters
    ----------
    source
        A file, a folder, the URL of a store, or a pandas, Polars or Arrow table.
    format
        One of flat, lists, ubi, metarank, open-bandit, store, simulation; by default it is guessed from the content.
    columns
        Columns by role, where they do not have their usual names.
    separator
        What separates the columns of a CSV file, as for `scan_table`.

    Returns
    -------
    ClickLog

    Raises
    ------
    DataError
        If the log does not exist, cannot be read, or lacks a column.
    SettingError
        If the format or the role of a column is unknown.
    """
    given = dict(columns or {})
    if format is not None and format not in FORMATS:
        raise SettingError(unknown("format", format, FORMATS))
    if wrong := given.keys() - ROLES.keys():
        raise SettingError(unknown("role of a column", min(wrong), ROLES))
    if not isinstance(source, str | Path):
        table = as_frame(source, "the table")
        if not isinstance(table, pl.LazyFrame):
            table = columns_of(table, {each: each for each in column_names(table)}, "the table").lazy()
        return open_table(table, format, given, "the table")
    if format == "store" or (format is None and is_store(str(source))):
        importlib.import_module("mcfair.service.click_log")  # it registers its reader; no other log needs the service
        return SOURCES["store"](str(source))
    path = Path(source)
    if not path.exists():
        raise DataError(f"{path}: there is no such file or folder")
    if path.is_dir():
        return open_folder(path, format, given, separator)
    if not path.is_file():
        raise DataError(f"{path}: expected a file or a folder, got a device or a pipe")
    if format == "metarank" or (format is None and is_metarank(head_of(path, 1 << 20).split(b"\n", 1)[0])):
        return read_metarank(path)
    return open_files(path, (path,), format, given, separator)


def is_store(source: str) -> bool:
    """Return whether a log is the store of a service: a URL of one, or a file of SQLite."""
    if source.startswith(("sqlite:", "postgresql:", "postgres:")):
        return True
    return Path(source).is_file() and head_of(Path(source), 16) == b"SQLite format 3\0"


def open_folder(path: Path, format: str | None, columns: Mapping[str, str], separator: str | None) -> ClickLog:
    """Open a recorded run, the two tables of User Behavior Insights, or a table in several files."""
    if format == "simulation" or (format is None and (path / "run.json").exists()):
        return read_recorded_run(path)
    if format == "ubi" or (format is None and is_ubi(path)):
        return read_ubi(path, scan)
    files = tuple(sorted(each for each in path.iterdir() if each.is_file() and kind_of(each)))
    kinds = sorted({kind_of(each) for each in files})
    if len(kinds) != 1:
        got = f"files of several kinds: {', '.join(kinds)}" if kinds else "no such file"
        raise DataError(
            f"{path}: expected a recorded run (run.json), ubi_queries and ubi_events, or files of one kind among "
            f"{', '.join(KINDS)}; got {got}"
        )
    return open_files(path, files, format, columns, separator)


def open_files(
    path: Path, files: tuple[Path, ...], format: str | None, columns: Mapping[str, str], separator: str | None
) -> ClickLog:
    """Open a table in one or more files."""
    tables = [scan(each, separator) for each in files]
    found: dict[str, tuple[pl.DataType, str]] = {}
    for table, each in zip(tables, files, strict=True):
        for name, kind in table.collect_schema().items():
            known, file = found.setdefault(name, (kind, each.name))
            if known != kind:  # in which ids may be spelled differently
                raise DataError(f"{path}: column {name!r} has type {known} in {file} and {kind} in {each.name}")
    whole = tables[0] if len(files) == 1 else pl.concat(tables, how="diagonal")  # a file may lack a column
    return dataclasses.replace(open_table(whole, format, columns, str(path)), files=files)


def open_table(table: pl.LazyFrame, format: str | None, columns: Mapping[str, str], name: str) -> ClickLog:
    """Open a table as the format that was given, or as the one that its columns suggest."""
    try:
        schema = table.collect_schema()
    except UNREADABLE as error:
        raise DataError(f"{name}: damaged, cut short or of another kind: {first_line(error)}") from None
    guess = "lists" if isinstance(schema.get(columns.get("item", "items")), pl.List) else "flat"
    guess = format or ("open-bandit" if is_open_bandit(schema) and not columns else guess)
    if guess not in TABLES:
        raise DataError(f"{name}: a log of the format {guess} is not a table; expected {EXPECTED[guess]}")
    return TABLES[guess](table, columns, name)


def scan(path: Path, separator: str | None = None) -> pl.LazyFrame:
    """Return a file as a table that is read later; of an unknown ending, as what its first bytes are."""
    return scan_table(path, separator, kind_of(path) or sniffed(path))


def sniffed(path: Path) -> str:
    """Return the kind of a file from its first bytes."""
    head = head_of(path, 4096)
    if head[:4] == b"PAR1":
        return "Parquet"
    try:
        return "JSON lines" if isinstance(msgspec.json.decode(head.split(b"\n", 1)[0]), dict) else "CSV"
    except (msgspec.DecodeError, RecursionError):
        if b"\0" in head:
            raise DataError(f"{path}: expected CSV, TSV, Parquet or JSON lines, got a binary file") from None
        return "CSV"


def head_of(path: Path, size: int) -> bytes:
    """Return the first bytes of a file."""
    return next(pieces(path, size), b"")


# --- the table of items ----------------------------------------------------------------------------------------------


def with_catalogue(log: ClickLog, items: Any) -> ClickLog:
    """Add a table of items to a log.

    Parameters
    ----------
    log
        The log.
    items
        A file or table with a column item, and of group, relevance and grade at least one. With a column query, its
        rows are the candidates of the queries, which may have merit; without, they hold for every query.

    Returns
    -------
    ClickLog

    Raises
    ------
    DataError
        If a column is missing or a value is not allowed.
    """
    named = isinstance(items, str | Path)
    if named and not Path(items).is_file():
        raise DataError(f"{items}: there is no such file")
    name, table = (str(items), scan(Path(items))) if named else ("the table of items", items)
    table = as_frame(table, name)
    names = column_names(table)
    known = {word for role in ("query", "item", "group", "relevance", "grade") for word in ROLES[role]}
    found = find_columns([each for each in names if each.strip().lower() in known], {}, name, required=())
    if "item" not in found or not found.keys() & {"group", "relevance", "grade", "query"}:
        raise DataError(
            f"{name}: expected columns item and group, relevance or grade, and perhaps query; got {listed(names)}"
        )
    merit = [role for role in ("relevance", "grade") if role in found][:1]
    if merit and "query" not in found:
        raise DataError(f"{name}: {merit[0]} belongs to an item of a query; there is no column query")
    kept = {role: found[role] for role in ("query", "item", "group", *merit) if role in found}
    read = columns_of(table, kept, name)
    columns: dict[str, Any] = {}
    for role, column in kept.items():
        if role in merit:
            whole = role == "grade"
            columns[role] = numbers(read[role], column, name, 0, HIGHEST_GRADE if whole else 1, whole=whole)
        else:
            columns[role] = texts(read[role], column, name, optional=role == "group").replace("", None)
    if "query" in kept:
        check_distinct(columns["query"], columns["item"], found["item"], name)
    stated = ", ".join(role for role in kept if role != "item")
    return dataclasses.replace(
        log, candidates=pl.DataFrame(columns), notes=(*log.notes, f"{name} states {stated} of items.")
    )
