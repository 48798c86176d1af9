"""Reading: one pass over the rows of a log, which may exceed memory, to numbers in buckets and the names behind them.

A row becomes the number of its (query, item, group), the hash of its impression, its rank, its click and what else is
counted; texts are kept once. Faults of rows are counted here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import datetime
from functools import reduce
from typing import Any

import numpy as np
import polars as pl

from ..arrays import IntArray
from ..data.frames import first_line
from ..errors import DataError
from .cleaning import FAULTS, typed_rows
from .click_log import ClickLog
from .encoding import KeyCodes
from .periods import Periods
from .row_buckets import BUCKETS, Columns, RowBuckets

__all__ = ["Reading", "Survey", "impression_keys", "read_rows"]

SLICE = 500_000
"""Rows that are read at a time."""

UNREADABLE = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError)

UNDATED = np.iinfo(np.int32).min
"""The hour of a row without a time."""


@dataclasses.dataclass(eq=False)
class Survey:
    """Rows that were read, what is wrong with them, the ranks of the others, and the period."""

    rows: int = 0
    zeros: int = 0
    undated: int = 0
    top: int = -1
    faults: IntArray = dataclasses.field(default_factory=lambda: np.zeros(len(FAULTS) + 1, np.int64))
    begin: datetime | None = None
    end: datetime | None = None

    def add(self, other: Survey) -> None:
        """Add the survey of other rows."""
        self.rows += other.rows
        self.zeros += other.zeros
        self.undated += other.undated
        self.top = max(self.top, other.top)
        self.faults += other.faults
        self.begin = min((each for each in (self.begin, other.begin) if each), default=None)
        self.end = max((each for each in (self.end, other.end) if each), default=None)

    def periods(self) -> Periods | None:
        """Return the periods of the log, None if it has no times."""
        return Periods.of(self.begin, self.end) if self.begin and self.end else None

    def check(self, name: str, first_rank: int | None) -> None:
        """Raise DataError for a log without usable rows, or with ranks of 0 that may be meant otherwise."""
        if not self.rows:
            raise DataError(f"{name}: the log holds no rows")
        if first_rank is None and self.zeros:
            raise DataError(
                f"{name}: {self.zeros:,} rows have rank 0; if the first rank is number 0, say so with "
                "--first-rank 0; if these rows are to be left out, use --first-rank 1"
            )
        if self.top < 0:
            code = int(np.argmax(self.faults[1:])) + 1
            raise DataError(
                f"{name}: none of {self.rows:,} rows can be used; of {self.faults[code]:,}: {FAULTS[code - 1]}"
            )


@dataclasses.dataclass(frozen=True, eq=False)
class Reading:
    """The names behind the numbers of rows, and the survey of a log.

    `names` has the query, the item and perhaps the group of each variant, with hashes of all of them, of the pair and
    of the query; `identified` is whether the log identifies impressions.
    """

    names: pl.DataFrame
    survey: Survey
    identified: bool


def impression_keys(columns: list[str]) -> list[str]:
    """Return the columns that, with the query, identify an impression: its id, else the session and the time."""
    if "impression" in columns:
        return ["impression"]
    return [each for each in ("session", "stamp") if each in columns]


def keyed(typed: pl.LazyFrame, single: bool) -> pl.LazyFrame:
    """Replace what identifies rows and impressions by hashes of 64 bits; keep the texts of names."""
    columns = typed.collect_schema().names()
    labels = [each for each in ("query", "item", "group") if each in columns]
    keys = [] if single else impression_keys(columns)
    wanted: dict[str, Any] = {"key": combined([pl.col(each).hash(seed) for seed, each in enumerate(labels, start=1)])}
    if keys:
        own = [pl.col(each).hash(seed) for seed, each in enumerate(keys, start=4)]
        wanted["list"] = combined([query_key(), *own])
    if "time" in columns:
        hour = pl.col("time").dt.epoch("s").floordiv(3600).cast(pl.Int32)
        wanted |= {"hour": hour.fill_null(UNDATED), "time": pl.col("time")}
    merit = next((each for each in ("relevance", "grade") if each in columns), None)
    if merit:
        wanted["merit"] = pl.col(merit)
    if "propensity" in columns:
        wanted["propensity"] = pl.col("propensity")
    return typed.select("fault", *labels, pl.col("rank").cast(pl.Int16, strict=False), "clicked", **wanted)


def combined(hashes: list[pl.Expr]) -> pl.Expr:
    """Return one hash of several."""
    return reduce(lambda a, b: a ^ b, hashes)


def query_key() -> pl.Expr:
    """Return a hash of the query."""
    return pl.col("query").hash(1)


def pair_key() -> pl.Expr:
    """Return a hash of the query and the item."""
    return query_key() ^ pl.col("item").hash(2)


def read_rows(log: ClickLog, first_rank: int | None, rows: RowBuckets) -> Reading:
    """Read a log once.

    Two of a million names have the same hash with a probability of one in ten million.

    Parameters
    ----------
    log
        The log.
    first_rank
        The number of the first rank, 0 or 1; by default 1.
    rows
        Gets the rows: columns variant, list (the key of the impression, if the log identifies impressions), rank,
        clicked, and of hour, merit and propensity those that the log has.

    Returns
    -------
    Reading

    Raises
    ------
    DataError
        If the log cannot be read to its end, or a column has a type that no value of its role can have.
    """
    table = keyed(typed_rows(log.rows, log.name, first_rank, log.single), log.single)
    columns = table.collect_schema().names()
    codes, names, survey = KeyCodes(), [], Survey()
    of_variant = np.empty(0, np.uint8)
    for batch in batches(table, log):
        good = surveyed(batch, survey)
        variant, fresh = codes.encode(signed(good["key"]))
        if fresh.size:
            labels = [each for each in ("query", "item", "group", "key") if each in columns]
            found = good.select(labels)[fresh].with_columns(query_key=query_key(), pair_key=pair_key())
            names.append(found)
            # Without impressions, pairs may be divided in any way; their queries may be few and long.
            whole = found["query_key" if "list" in columns else "pair_key"].to_numpy()
            of_variant = np.append(of_variant, (whole % BUCKETS).astype(np.uint8))
        kept = {name: each for name, each in numbers(good).items() if name in columns}
        rows.add(of_variant[variant], {"variant": variant, **kept})
    return Reading(pl.concat(names) if names else pl.DataFrame(), survey, "list" in columns)


def batches(rows: pl.LazyFrame, log: ClickLog) -> Iterator[pl.DataFrame]:
    """Yield the rows in batches, in their order, which sums of fractions depend on; a damaged file is one line."""
    try:
        yield from rows.collect_batches(chunk_size=SLICE, maintain_order=True, engine="streaming")
    except UNREADABLE as error:
        raise DataError(f"{log.name}: damaged, cut short or not {log.format}: {first_line(error)}") from None


def surveyed(batch: pl.DataFrame, survey: Survey) -> pl.DataFrame:
    """Return the usable rows of a batch; add the batch to the survey."""
    fault = batch["fault"].to_numpy()
    good = batch.filter(fault=0) if fault.any() else batch
    found = Survey(rows=batch.height, faults=np.bincount(fault, minlength=len(FAULTS) + 1))
    if good.height:
        found.top = int(good["rank"].max())  # type: ignore[arg-type]  # ranks are numbers
        found.zeros = int((good["rank"] == 0).sum())
    if "time" in batch.columns:
        found.begin, found.end = batch["time"].min(), batch["time"].max()  # type: ignore[assignment]
        found.undated = good["time"].null_count()
    survey.add(found)
    return good


def signed(keys: pl.Series) -> IntArray:
    """Return hashes as signed numbers, whose bits are the same."""
    return keys.to_numpy().view(np.int64)


def numbers(rows: pl.DataFrame) -> Columns:
    """Return the columns of rows that are counted, as arrays."""
    found: Columns = {}
    if "list" in rows.columns:
        found["list"] = signed(rows["list"])
    for name, kind in (
        ("rank", np.int16),
        ("clicked", np.int8),
        ("hour", np.int32),
        ("merit", np.float64),
        ("propensity", np.float64),
    ):
        if name in rows.columns:
            found[name] = rows[name].to_numpy().astype(kind, copy=False)
    return found
