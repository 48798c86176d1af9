"""Opening a log: its format is guessed from its content, and every reader returns the same rows."""

from __future__ import annotations

import dataclasses
import gzip
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from ..data.frames import first_line, from_arrow, from_pandas
from ..errors import DataError, SettingError, unknown
from .click_log import ClickLog
from .columns import check_mapping
from .readers.flat import read_flat
from .readers.lists import read_lists
from .readers.metarank import is_metarank, read_metarank
from .readers.open_bandit import is_open_bandit, read_open_bandit
from .readers.recorded_run import read_recorded_run
from .readers.service_store import is_store, read_store
from .readers.ubi import is_ubi, read_ubi

__all__ = ["FORMATS", "open_log"]

FORMATS = ("flat", "lists", "ubi", "metarank", "open-bandit", "store", "simulation")

EXPECTED = {
    "store": "the URL of a store",
    "simulation": "the folder of a recorded run",
    "ubi": "a folder with ubi_queries and ubi_events",
    "metarank": "a file of JSON lines",
}
"""Sources of the formats that are not one table."""

DIVISIBLE = ("flat", "open-bandit")
"""Formats whose rows are independent of each other."""

PART_ROWS = 4_000_000
"""Rows of a part of a file."""

SUFFIXES = {".csv": "CSV", ".tsv": "TSV", ".parquet": "Parquet", ".jsonl": "JSON lines", ".ndjson": "JSON lines"}

UNREADABLE = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError)


def open_log(source: Any, *, format: str | None = None, columns: Mapping[str, str] | None = None) -> ClickLog:
    """Open a log of any format.

    Parameters
    ----------
    source
        A file, a folder, the URL of a store, or a pandas, Polars or Arrow table.
    format
        One of flat, lists, ubi, metarank, open-bandit, store, simulation; by default it is guessed from the content.
    columns
        Columns by role, where they do not have their usual names.

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
    if format is not None and format not in FORMATS:
        raise SettingError(unknown("format", format, FORMATS))
    given = check_mapping(columns or {})
    if not isinstance(source, str | Path):
        return open_table(as_lazy(source), format, given, "the table", ())
    if format == "store" or (format is None and is_store(str(source))):
        return read_store(str(source))
    path = Path(source)
    if not path.exists():
        raise DataError(f"{path}: there is no such file or folder")
    if path.is_dir():
        return open_folder(path, format, given)
    if format == "metarank" or (format is None and is_metarank(first_bytes(path))):
        return read_metarank(path)
    return open_files(path, (path,), format, given)


def open_folder(path: Path, format: str | None, columns: Mapping[str, str]) -> ClickLog:
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
            f"{', '.join(SUFFIXES)}; got {got}"
        )
    return open_files(path, files, format, columns)


def open_files(path: Path, files: tuple[Path, ...], format: str | None, columns: Mapping[str, str]) -> ClickLog:
    """Open a table in one or more files, as a whole and, if its rows are independent of each other, in parts."""
    tables = [scan(each) for each in files]
    check_types(tables, files, path)
    whole = tables[0] if len(files) == 1 else pl.concat(tables, how="diagonal")
    log = open_table(whole, format, columns, str(path), files)
    if log.format not in DIVISIBLE:
        return log
    like = pl.LazyFrame(schema=whole.collect_schema())  # a file may lack a column that others have
    pieces = [
        pl.concat([like, piece], how="diagonal")
        for table, each in zip(tables, files, strict=True)
        for piece in divided(table, each)
    ]
    parts = tuple(open_table(piece, log.format, columns, str(path), files).rows for piece in pieces)
    return dataclasses.replace(log, parts=parts)


def check_types(tables: list[pl.LazyFrame], files: tuple[Path, ...], path: Path) -> None:
    """Raise DataError if a column has different types in several files, in which ids may be spelled differently."""
    found: dict[str, tuple[pl.DataType, str]] = {}
    for table, each in zip(tables, files, strict=True):
        try:
            schema = table.collect_schema()
        except UNREADABLE as error:
            raise unreadable(str(each), error) from None
        for name, kind in schema.items():
            known, file = found.setdefault(name, (kind, each.name))
            if known != kind:
                raise DataError(f"{path}: column {name!r} has type {known} in {file} and {kind} in {each.name}")


def unreadable(name: str, error: BaseException) -> DataError:
    """Describe a file whose columns cannot be read."""
    if isinstance(error, pl.exceptions.NoDataError):
        return DataError(f"{name}: the file is empty")
    return DataError(f"{name}: damaged, cut short or of another kind: {first_line(error)}")


def divided(table: pl.LazyFrame, path: Path) -> list[pl.LazyFrame]:
    """Return a file in parts of some millions of rows if it can be read from any row on, as Parquet can."""
    if kind_of(path) != "Parquet":
        return [table]
    try:
        rows = table.select(pl.len()).collect().item()
    except UNREADABLE:
        return [table]  # the error is raised when the file is read
    return [table.slice(begin, PART_ROWS) for begin in range(0, rows, PART_ROWS)] or [table]


def open_table(
    table: pl.LazyFrame, format: str | None, columns: Mapping[str, str], name: str, files: tuple[Path, ...]
) -> ClickLog:
    """Open a table as the format that was given, or as the one that its columns suggest."""
    try:
        schema = table.collect_schema()
    except UNREADABLE as error:
        raise unreadable(name, error) from None
    guess = format or guessed(schema, columns)
    readers: dict[str, Callable[..., ClickLog]] = {
        "flat": read_flat,
        "lists": read_lists,
        "open-bandit": read_open_bandit,
    }
    if guess not in readers:
        raise DataError(f"{name}: a log of the format {guess} is not a table; expected {EXPECTED[guess]}")
    return readers[guess](table, columns, name, files)


def guessed(schema: pl.Schema, columns: Mapping[str, str]) -> str:
    """Return the format that the columns of a table suggest."""
    if is_open_bandit(schema) and not columns:
        return "open-bandit"
    item = columns.get("item", "items")
    if isinstance(schema.get(item), pl.List):
        return "lists"
    return "flat"


def kind_of(path: Path) -> str:
    """Return what the name of a file says of its kind, "" if nothing."""
    return SUFFIXES.get(path.with_name(path.name.removesuffix(".gz")).suffix.lower(), "")


def scan(path: Path) -> pl.LazyFrame:
    """Return a file as a table that is read later. Text stays text until its role is known."""
    kind = kind_of(path) or sniffed(path)
    if path.stat().st_size == 0:
        raise DataError(f"{path}: the file is empty")
    if path.suffix == ".gz":
        check_gzip(path)
    try:
        if kind == "Parquet":
            return pl.scan_parquet(path, glob=False, hive_partitioning=False)
        if kind == "JSON lines":
            return scan_json_lines(path)
        return pl.scan_csv(
            path, infer_schema=False, glob=False, separator="\t" if kind == "TSV" else ",", truncate_ragged_lines=False
        )
    except UNREADABLE as error:
        raise DataError(f"{path}: not a {kind} file, or damaged or cut short: {first_line(error)}") from None


def scan_json_lines(path: Path) -> pl.LazyFrame:
    """Return a file of JSON lines; the types of its fields are those of all its lines."""
    return pl.scan_ndjson(path, infer_schema_length=None)


def check_gzip(path: Path) -> None:
    """Raise DataError for a gzip file that is cut short or damaged, which readers may take for a shorter one."""
    try:
        with gzip.open(path) as stream:
            while stream.read(1 << 24):
                pass
    except (OSError, EOFError, ValueError) as error:
        raise DataError(f"{path}: damaged or cut short: {first_line(error)}") from None


def first_bytes(path: Path) -> bytes:
    """Return the first line of a file, or as much of it as is enough to recognise it."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            return stream.readline(1 << 20)
    except (OSError, EOFError):
        return b""


def sniffed(path: Path) -> str:
    """Return the kind of a file with an unknown ending from its first bytes."""
    with path.open("rb") as stream:
        head = stream.read(4096)
    if head[:4] == b"PAR1":
        return "Parquet"
    line = head.split(b"\n", 1)[0]
    try:
        return "JSON lines" if isinstance(msgspec.json.decode(line), dict) else "CSV"
    except msgspec.DecodeError:
        if b"\0" in head:
            raise DataError(f"{path}: expected CSV, TSV, Parquet or JSON lines, got a binary file") from None
        return "TSV" if line.count(b"\t") > line.count(b",") else "CSV"


def as_lazy(table: Any) -> pl.LazyFrame:
    """Return any table as a lazy one of Polars."""
    if isinstance(table, pl.LazyFrame):
        return table
    if hasattr(table, "isna") and hasattr(table, "iloc"):
        names = [str(each) for each in table.columns]
        if twice := sorted({each for each in names if names.count(each) > 1}):
            raise DataError(f"the table: columns occur twice: {', '.join(twice)}")
        return pl.DataFrame(
            {str(name): from_pandas(table.iloc[:, i], str(name), "the table") for i, name in enumerate(table.columns)}
        ).lazy()
    return from_arrow(table, "the table").lazy()
