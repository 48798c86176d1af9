"""What a log is: rows of shown items in the common form, the columns that hold them, and what makes a row unusable."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path

import polars as pl

from ..data import frames
from ..errors import DataError


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ClickLog:
    """A log in the common form: one row for each shown item.

    Attributes
    ----------
    name, format
        What messages call it, and the format that it was read as.
    rows
        Columns query, item and rank, and of clicked, impression, session, time, group, relevance, grade and propensity
        those that the log has. Nothing is read before the rows are counted.
    single
        Whether each row is an impression of its own.
    candidates
        Candidates of queries that need not have been shown: columns query, item and perhaps group and relevance.
    quality
        What the reader found, by name: clicks without a list, for example.
    notes
        Sentences on how the format was understood.
    files
        The files that were read.
    lacking
        What to say of a log without clicks, where they are needed; "" for a log with clicks.
    """

    name: str
    format: str
    rows: pl.LazyFrame
    single: bool = False
    candidates: pl.DataFrame | None = None
    quality: dict[str, int] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    lacking: str = ""


# --- columns ---------------------------------------------------------------------------------------------------------

ROLES = {
    "group" if role == "provider" else role: frames.ROLES[role]
    for role in (
        *("query", "item", "rank", "clicked", "impression", "session", "time", "provider"),
        *("relevance", "grade", "propensity"),
    )
}
"""The roles of a log, with the names that their columns may have; a log calls providers groups."""

REQUIRED = ("query", "item", "rank", "clicked")
"""Roles that an audit needs; clicks only where merit is not given."""


def find_columns(
    available: Iterable[str], given: Mapping[str, str], name: str, required: Iterable[str] = REQUIRED
) -> dict[str, str]:
    """Find the column of each role of a log, as `mcfair.data.frames.find_columns` does."""
    available, roles = list(available), ["provider" if role == "group" else role for role in ROLES]
    named = [each for each in available if each.strip().lower() == "group"]
    if len(named) == 1 and "group" not in given:  # the preferred name in a log
        given = {**given, "group": named[0]}
    found = frames.find_columns(available, given, name, roles, required)
    return {"group" if role == "provider" else role: column for role, column in found.items()}


# --- rows ------------------------------------------------------------------------------------------------------------

TOP_RANK = 1000
"""The lowest place in a list that is counted."""

NO_CLICK = "clicked missing"

BOUNDS = {
    "propensity": (0.0, 1.0, "not above 0 and at most 1"),
    "relevance": (0.0, 1.0, "not from 0 to 1"),
    "grade": (0.0, 1000.0, "not a whole number of at least 0"),
}
"""Roles whose values are numbers, with their bounds and what is wrong beyond them."""

YES, NO = ("true", "t", "yes", "y"), ("false", "f", "no", "n")

OFFSET = r"(:\d\d(?:\.\d+)?)\s*(?:Z|([+-])(\d\d):?(\d\d)?)$"
"""The end of a time with a zone: Z, +02:00, -0530 or +02 after the minutes or seconds."""


def typed_rows(log: ClickLog, first_rank: int | None, missing_click: str) -> pl.LazyFrame:
    """Convert the columns of a log to their types and add `fault`: the first reason to leave the row out, "" if none.

    Parameters
    ----------
    log
        The log.
    first_rank
        The number of the first rank, 0 or 1; None if it is to be 1 and a rank of 0 is no fault of the row.
    missing_click
        "exclude" if a row without a click is a fault, "0" if it means that the item was not clicked.

    Returns
    -------
    polars.LazyFrame
        fault; query, item: text; rank: from 1, and 0 for a rank of 0 if `first_rank` is None; clicked, null without
        such a column; the optional columns, and `stamp`, the time as logged.

    Raises
    ------
    DataError
        If a column has a type that no value of its role can have.
    """
    schema = log.rows.collect_schema()
    for role, kind in schema.items():
        check_type(role, kind, log.name)
    shift = 1 if first_rank == 0 else 0
    rank = number("rank", schema["rank"])
    columns = {role: text(role, schema[role]) for role in ("query", "item", "group") if role in schema}
    columns |= {"rank": (rank + shift).cast(pl.Int32, strict=False), "clicked": pl.lit(None, pl.Boolean)}
    columns |= {role: number(role, schema[role]) for role in BOUNDS if role in schema}
    columns |= {role: pl.col(role) for role in ("impression", "session") if role in schema}
    if "time" in schema:
        columns |= {"time": moment(schema["time"]), "stamp": pl.col("time")}
    faults = {
        "query missing": columns["query"].is_null(),
        "item missing": columns["item"].is_null(),
        "rank missing": bare("rank", schema["rank"]).is_null(),
        "rank not a whole number of at least 1": (
            rank.is_null() | (rank != rank.floor()) | (rank < (0 if first_rank is None else 1 - shift))
        ),
        f"rank above {TOP_RANK}": rank + shift > TOP_RANK,
    }
    if "clicked" in schema:
        columns["clicked"] = clicked(schema["clicked"])
        nothing = bare("clicked", schema["clicked"]).is_null()
        if missing_click == "0":
            columns["clicked"] = pl.when(nothing).then(False).otherwise(columns["clicked"])
        else:
            faults[NO_CLICK] = nothing
        faults["clicked not 0 or 1"] = columns["clicked"].is_null()
    for role, (least, most, wrong) in BOUNDS.items():
        if role in schema:
            value = columns[role]
            good = value.is_between(least, most, closed="right" if role == "propensity" else "both")
            faults[f"{role} {wrong}"] = ~(good & (value == value.floor()) if role == "grade" else good)
    keys = [each for each in ("impression", "session") if each in schema][:1]
    if keys and not log.single:  # or all rows without a name would become one list
        faults["impression missing"] = bare(keys[0], schema[keys[0]]).is_null()
    kind = pl.Enum(["", *faults])
    found = [pl.when(wrong.fill_null(True)).then(pl.lit(reason, kind)) for reason, wrong in faults.items()]
    return log.rows.select(fault=pl.coalesce(*found, pl.lit("", kind)), **columns)


def check_type(role: str, kind: pl.DataType, name: str) -> None:
    """Raise DataError for a column that cannot hold its role, such as a list as an item."""
    if kind.is_nested() or kind == pl.Binary:
        raise DataError(f"{name}: column for the {role} has type {kind}, expected one value in each row")
    usual = kind.is_numeric() or kind in (pl.String, pl.Null)
    if role in ("rank", *BOUNDS) and not usual:
        raise DataError(f"{name}: column for the {role} has type {kind}, expected numbers")
    if role == "clicked" and not (usual or kind == pl.Boolean):
        raise DataError(f"{name}: column for clicked has type {kind}, expected 0 and 1, or true and false")


def text(role: str, kind: pl.DataType) -> pl.Expr:
    """Return ids as text, null where they are empty; whole numbers stored with a decimal point lose it."""
    column = pl.col(role)
    if kind == pl.String:
        return pl.when(column != "").then(column)
    if kind.is_float():
        whole = (column == column.floor()) & column.is_finite()
        exact = pl.when(whole).then(column).cast(pl.Int64, strict=False).cast(pl.String)
        return pl.when(column.is_nan()).then(None).when(whole).then(exact).otherwise(column.cast(pl.String))
    return column.cast(pl.String)


def bare(role: str, kind: pl.DataType) -> pl.Expr:
    """Return a column, without spaces around its texts, and null where these are empty."""
    stripped = pl.col(role).str.strip_chars()
    return pl.when(stripped != "").then(stripped) if kind == pl.String else pl.col(role)


def number(role: str, kind: pl.DataType) -> pl.Expr:
    """Return a column as finite numbers, null where it holds none."""
    value = bare(role, kind).cast(pl.Float64, strict=False)
    return pl.when(value.is_finite()).then(value)


def clicked(kind: pl.DataType) -> pl.Expr:
    """Return clicks as truth values, null where the value is none; a number of clicks above 1 is one click."""
    column = bare("clicked", kind)
    if kind == pl.Boolean:
        return column
    word = column.str.to_lowercase() if kind == pl.String else pl.lit("")
    value = column.cast(pl.Float64, strict=False)
    yes, no = (value >= 1) | word.is_in(YES), (value == 0) | word.is_in(NO)
    return pl.when(yes).then(True).when(no).then(False)


def moment(kind: pl.DataType) -> pl.Expr:
    """Return times as UTC; numbers are seconds since 1970, or smaller units if they are too large for that."""
    column = pl.col("time")
    if isinstance(kind, pl.Datetime) and kind.time_zone:
        column = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    if isinstance(kind, pl.Datetime) or kind == pl.Date:
        return column.cast(pl.Datetime("us"))
    if kind == pl.String:
        return column.map_batches(distinct_moments, return_dtype=pl.Datetime("us"), is_elementwise=True)
    return epoch(column.cast(pl.Float64)) if kind.is_numeric() else pl.lit(None, dtype=pl.Datetime("us"))


def distinct_moments(values: pl.Series) -> pl.Series:
    """Return texts as times; each text is parsed once, because the rows of an impression have the same."""
    told = pl.DataFrame({"text": values.unique()}).select("text", moment=told_moment())
    return values.to_frame("text").join(told, on="text", how="left", maintain_order="left")["moment"]


def told_moment() -> pl.Expr:
    """Return texts as times in UTC, or as numbers since 1970; null where they are neither."""
    value = pl.col("text").str.strip_chars()
    shifted = value.str.replace(r"^(\d{4}-\d\d-\d\d)T", "${1} ").str.replace(OFFSET, "${1}").str.strip_chars()
    forms = ("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M")
    shaped = pl.coalesce(shifted.str.to_datetime(form, time_unit="us", strict=False) for form in forms)
    day = shifted.str.to_datetime("%Y-%m-%d", time_unit="us", strict=False)
    sign = pl.when(value.str.extract(OFFSET, 2) == "-").then(-1).otherwise(1)
    hours, minutes = (value.str.extract(OFFSET, group).cast(pl.Int64).fill_null(0) for group in (3, 4))
    zone = pl.duration(minutes=sign * (60 * hours + minutes))
    return pl.coalesce(shaped - zone, day, epoch(value.cast(pl.Float64, strict=False)))


def epoch(value: pl.Expr) -> pl.Expr:
    """Return numbers of seconds, milliseconds, microseconds or nanoseconds since 1970 as times, up to the year 5138."""
    micros = value * 1e6
    for most, scale in ((1e11, 1e3), (1e14, 1.0), (1e17, 1e-3)):
        micros = pl.when(value > most).then(value * scale).otherwise(micros)
    return pl.when(value.is_between(0, 1e20)).then(micros).cast(pl.Int64, strict=False).cast(pl.Datetime("us"))
