"""From the columns of a log to typed rows: what cannot be used is counted by its reason, never guessed."""

from __future__ import annotations

import polars as pl

from ..data.frames import first_line
from ..errors import DataError

__all__ = ["FAULTS", "TOP_RANK", "typed_rows"]

TOP_RANK = 1000
"""The lowest place in a list that is counted."""

FAULTS = (
    "query missing",
    "item missing",
    "rank missing",
    "rank not a whole number of at least 1",
    f"rank above {TOP_RANK}",
    "clicked missing",
    "clicked not 0 or 1",
    "propensity not above 0 and at most 1",
    "relevance not from 0 to 1",
    "grade not a whole number of at least 0",
    "impression missing",
)
"""Reasons to leave out a row, in the order in which they are looked for."""

OFFSET = r"(:\d\d(?:\.\d+)?)\s*(?:Z|([+-])(\d\d):?(\d\d)?)$"
"""The end of a time with a zone: Z, +02:00, -0530 or +02 after the minutes or seconds."""

YES, NO = ("1", "1.0", "true", "t", "yes", "y"), ("0", "0.0", "false", "f", "no", "n")


def typed_rows(rows: pl.LazyFrame, name: str, first_rank: int | None, single: bool = False) -> pl.LazyFrame:
    """Convert the columns of a log to their types and add `fault`: 0, or the number of a reason to leave the row out.

    Parameters
    ----------
    rows
        The columns of a log under the names of their roles.
    name
        What error messages call the log.
    first_rank
        The number of the first rank, 0 or 1; None if it is to be 1 and a rank of 0 is no fault of the row.
    single
        Whether each row is an impression of its own, which needs no name.

    Returns
    -------
    polars.LazyFrame
        query, item: text; rank: from 1, and 0 for a rank of 0 if `first_rank` is None; clicked: 0 or 1; the optional
        columns; fault.

    Raises
    ------
    DataError
        If the log cannot be read, or a column has a type that no value of its role can have.
    """
    try:
        schema = rows.collect_schema()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(f"{name}: cannot be read: {first_line(error)}") from None
    for role, kind in schema.items():
        check_type(role, kind, name)
    shift = 1 if first_rank == 0 else 0
    rank = number("rank", schema["rank"])
    least = 0 if first_rank is None else 1 - shift
    columns = {
        "query": text("query", schema["query"]),
        "item": text("item", schema["item"]),
        "rank": (rank + shift).cast(pl.Int32, strict=False),
        "clicked": clicked(schema["clicked"]),
    }
    problems = [
        columns["query"].is_null(),
        columns["item"].is_null(),
        pl.col("rank").is_null(),
        (rank.is_null() | (rank != rank.floor()) | (rank < least)).fill_null(True),
        (rank + shift > TOP_RANK).fill_null(False),
        pl.col("clicked").is_null(),
        columns["clicked"].is_null(),
    ]
    for role, low, high in (("propensity", 0.0, 1.0), ("relevance", 0.0, 1.0), ("grade", 0.0, 1000.0)):
        if role in schema:
            value = number(role, schema[role])
            columns[role] = value
            wrong = ~value.is_between(low, high, closed="right" if role == "propensity" else "both")
            problems.append(((wrong | (value != value.floor())) if role == "grade" else wrong).fill_null(True))
        else:
            problems.append(pl.lit(False))
    keys = ["impression"] if "impression" in schema else [each for each in ("session", "time") if each in schema]
    for role in ("impression", "session"):
        if role in schema:
            columns[role] = pl.col(role)
    nameless = pl.all_horizontal(absent(each, schema[each]) for each in keys) if keys and not single else pl.lit(False)
    problems.append(nameless)  # or all rows without a name would become one list
    if "group" in schema:
        columns["group"] = text("group", schema["group"])
    if "time" in schema:
        columns |= {"time": moment(schema["time"]), "stamp": pl.col("time")}  # as logged, it identifies impressions
    fault = pl.lit(0, dtype=pl.UInt8)
    for code in range(len(problems), 0, -1):
        fault = pl.when(problems[code - 1]).then(pl.lit(code, dtype=pl.UInt8)).otherwise(fault)
    return rows.select(fault=fault, **columns)


def check_type(role: str, kind: pl.DataType, name: str) -> None:
    """Raise DataError for a column that cannot hold its role, such as a list as an item."""
    if kind.is_nested() or kind == pl.Binary:
        raise DataError(f"{name}: column for the {role} has type {kind}, expected one value in each row")
    if role in ("rank", "propensity", "relevance", "grade") and not (kind.is_numeric() or kind in (pl.String, pl.Null)):
        raise DataError(f"{name}: column for the {role} has type {kind}, expected numbers")
    if role == "clicked" and not (kind.is_numeric() or kind in (pl.Boolean, pl.String, pl.Null)):
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


def absent(role: str, kind: pl.DataType) -> pl.Expr:
    """Return whether a value is missing."""
    return (pl.col(role).is_null() | (pl.col(role) == "")) if kind == pl.String else pl.col(role).is_null()


def number(role: str, kind: pl.DataType) -> pl.Expr:
    """Return a column as finite numbers, null where it holds none."""
    column = pl.col(role)
    given = column.str.strip_chars() if kind == pl.String else column
    if kind.is_integer():
        return given.cast(pl.Float64)
    value = given.cast(pl.Float64, strict=False)
    return pl.when(value.is_finite()).then(value)


def clicked(kind: pl.DataType) -> pl.Expr:
    """Return clicks as 0 and 1, null where the value is neither; a number of clicks above 1 is one click."""
    column = pl.col("clicked")
    if kind == pl.Boolean:
        return column.cast(pl.Int8)
    if kind == pl.String:
        word = column.str.strip_chars().str.to_lowercase()
        value = word.cast(pl.Float64, strict=False)
        told = pl.when(word.is_in(YES)).then(1).when(word.is_in(NO)).then(0)
        return told.when(value >= 1).then(1).otherwise(None).cast(pl.Int8)
    value = column.cast(pl.Float64)
    return pl.when(value >= 1).then(1).when(value == 0).then(0).otherwise(None).cast(pl.Int8)


def moment(kind: pl.DataType) -> pl.Expr:
    """Return times as UTC; numbers are seconds since 1970, or smaller units if they are too large for that."""
    column = pl.col("time")
    if kind == pl.Date:
        return column.cast(pl.Datetime("us"))
    if isinstance(kind, pl.Datetime):
        return (column.dt.convert_time_zone("UTC").dt.replace_time_zone(None) if kind.time_zone else column).cast(
            pl.Datetime("us")
        )
    if kind == pl.String:
        return column.map_batches(distinct_moments, return_dtype=pl.Datetime("us"), is_elementwise=True)
    if kind.is_numeric():
        return epoch(column.cast(pl.Float64))
    return pl.lit(None, dtype=pl.Datetime("us"))


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
    return pl.coalesce(shaped - offset(value), day, epoch(value.cast(pl.Float64, strict=False)))


def offset(value: pl.Expr) -> pl.Expr:
    """Return by how much the clock of a time is ahead of UTC, such as two hours for 12:00:00+02:00."""
    sign = pl.when(value.str.extract(OFFSET, 2) == "-").then(-1).otherwise(1)
    hours, minutes = (value.str.extract(OFFSET, group).cast(pl.Int64).fill_null(0) for group in (3, 4))
    return pl.duration(minutes=sign * (60 * hours + minutes))


def epoch(value: pl.Expr) -> pl.Expr:
    """Return numbers of seconds, milliseconds, microseconds or nanoseconds since 1970 as times, up to the year 5138."""
    micros = value * 1e6
    for most, scale in ((1e11, 1e3), (1e14, 1.0), (1e17, 1e-3)):
        micros = pl.when(value > most).then(value * scale).otherwise(micros)
    return pl.when(value.is_between(0, 1e20)).then(micros).cast(pl.Int64, strict=False).cast(pl.Datetime("us"))
