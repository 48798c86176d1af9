"""Tables as datasets: data frames of pandas, Polars and Arrow, and CSV, Parquet and JSON-lines files.

A column of a table has a role: query, item, grade, relevance, score or provider.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ..arrays import FloatArray
from ..errors import DataError, unknown
from .dataset import Dataset
from .files import short_name
from .grades import EPSILON, HIGHEST_GRADE

__all__ = ["build_dataset", "load_table", "read_table"]

NAMES = {
    "query": ("query", "qid", "query_id", "queryid"),
    "item": ("item", "item_id", "itemid", "doc", "docid", "doc_id", "document", "document_id", "docno", "product_id"),
    "grade": ("grade", "label", "rel", "y"),
    "relevance": ("relevance",),
    "score": ("score", "prediction", "prior"),
    "provider": tuple(name + end for name in ("provider", "group", "seller", "brand", "vendor") for end in ("", "_id")),
}
"""The names that the column of each role may have in a file, the preferred one first; case is ignored."""

REPEATED = re.compile(r"_duplicated_\d+$")  # how Polars renames the later columns of the same name

READERS: dict[str, tuple[str, Callable[[Path], pl.DataFrame]]] = {
    # Text stays text until its role is known: an id 007 is not the number 7, and errors can name the row.
    ".csv": ("CSV", lambda path: pl.read_csv(path, infer_schema=False, glob=False)),
    ".tsv": ("TSV", lambda path: pl.read_csv(path, infer_schema=False, glob=False, separator="\t")),
    ".parquet": ("Parquet", lambda path: pl.read_parquet(path, glob=False, hive_partitioning=False)),
    ".jsonl": ("JSON-lines", lambda path: pl.read_ndjson(path, infer_schema_length=None)),
}
"""The kind of a file by how its name ends, and the function that reads it."""


def load_table(path: Path, epsilon: float = EPSILON) -> Dataset:
    """Read a CSV, TSV, Parquet or JSON-lines file whose columns have the usual names.

    Raises
    ------
    DataError
        If the file cannot be read, a column is missing or ambiguous, or a value is wrong; or if epsilon, which applies
        to grades, is given for a table of relevance.
    """
    table = read_table(path)
    columns = find_columns(table.columns, str(path))
    file = path.with_name(path.name.removesuffix(".gz"))
    data = build_dataset(table, columns, short_name(file.with_suffix("")), str(path))
    if epsilon == EPSILON:
        return data
    if "relevance" in columns:
        raise DataError(f"{path}: epsilon = {epsilon} applies to grades, but the table has a column of relevance")
    return data.with_relevance(epsilon)


def read_table(path: Path) -> pl.DataFrame:
    """Read a CSV, TSV, Parquet or JSON-lines file, possibly compressed by gzip; text in it stays text.

    Raises
    ------
    DataError
        If its name ends otherwise, or it cannot be read.
    """
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    if suffix not in READERS:
        raise DataError(f"{path}: expected a file that ends in {', '.join(READERS)}")
    kind, read = READERS[suffix]
    try:
        return read(path)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise DataError(f"{path}: not a {kind} file, or damaged or cut short: {first_line(error)}") from None


def find_columns(columns: list[str], name: str) -> dict[str, str]:
    """Find the column of each role by its name; the preferred name of a role wins over its other names."""
    by_lower: dict[str, list[str]] = {}
    for column in columns:
        by_lower.setdefault(REPEATED.sub("", column.strip().lower()), []).append(column)
    found: dict[str, str] = {}
    for role, names in NAMES.items():
        matches = by_lower.get(names[0]) or [column for each in names for column in by_lower.get(each, ())]
        if len(matches) > 1:
            raise DataError(f"{name}: columns {listed(matches)} may all be the {role}; rename all but one of them")
        if matches:
            found[role] = matches[0]
    if "query" not in found:
        raise no_column("query", columns, name)
    if "grade" not in found and "relevance" not in found and by_lower.get("prior"):
        found["relevance"] = by_lower["prior"][0]  # what is believed of the items stands in for what is true
    if "grade" not in found and "relevance" not in found:
        raise DataError(
            f"{name}: no column grade (or {', '.join(NAMES['grade'][1:])}) or relevance; got {listed(columns)}"
        )
    return found


def no_column(role: str, columns: list[str], name: str) -> DataError:
    """Return the error for a table without a column of a role, with a hint if it looks like another separator."""
    other = next((mark for mark in ";\t|" if len(columns) == 1 and mark in columns[0]), None)
    hint = "" if other is None else f"; is the separator {other!r}? CSV files have commas, TSV files tabs"
    return DataError(f"{name}: no column {role} (or {', '.join(NAMES[role][1:])}); got {listed(columns)}{hint}")


def build_dataset(df: Any, columns: dict[str, str], name: str, source: str = "") -> Dataset:
    """Build a dataset from a table; `columns` maps roles to columns, `source` is what errors call the table."""
    title, name = name, source or name
    if ("grade" in columns) == ("relevance" in columns):
        got = "both" if "grade" in columns else "neither"
        raise DataError(f"{name}: expected a column of either grades or relevance, got {got}")
    table = columns_of(df, columns, name)
    if table.is_empty():
        raise DataError(f"{name}: the table holds no rows")

    queries = texts(table["query"], columns["query"], name)
    rows = pl.DataFrame({"query": queries}).with_row_index("row")
    first = rows.select(pl.col("row").first().over("query")).to_series().to_numpy()
    order = np.argsort(first, kind="stable")  # queries by their first rows, and the rows of a query in order
    starts = np.flatnonzero(np.diff(first[order], prepend=-1))
    fields: dict[str, Any] = {
        "offsets": np.append(starts, order.size),
        "query_ids": queries.gather(order[starts]).to_list(),
    }
    if "item" in columns:
        items = texts(table["item"], columns["item"], name)
        check_distinct(queries, items, columns["item"], name)
        fields["item_ids"] = items.gather(order).to_list()
    if "grade" in columns:
        grades = numbers(table["grade"], columns["grade"], name, 0, HIGHEST_GRADE, whole=True)
        fields["y"] = grades[order]
    else:
        R = numbers(table["relevance"], columns["relevance"], name, 0, 1)[order]
        fields |= {"R": R, "y": R > 0, "y_max": 1}
    if "score" in columns:
        fields["scores"] = numbers(table["score"], columns["score"], name)[order]
    if "provider" in columns:
        providers = texts(table["provider"], columns["provider"], name, optional=True)
        fields["providers"] = providers.gather(order).to_list()
    return Dataset(**fields, name=title)


# ---------------------------------------------------------------------------------------------------------------------
# Tables of any library


def columns_of(df: Any, columns: dict[str, str], name: str) -> pl.DataFrame:
    """Return the columns of any table as a Polars table with the roles as names."""
    pandas = hasattr(df, "isna") and hasattr(df, "iloc") and hasattr(df, "columns")
    if not pandas:
        df = as_frame(df, name)
    available = [str(column) for column in df.columns]
    for column in columns.values():
        if column not in available:
            raise DataError(f"{name}: {unknown('column', column, available)}")
        if available.count(column) > 1:
            raise DataError(f"{name}: several columns have the name {column!r}")
    places = {role: available.index(column) for role, column in columns.items()}
    if not pandas:
        return pl.DataFrame({role: df.to_series(place) for role, place in places.items()})
    return pl.DataFrame({role: from_pandas(df.iloc[:, place], columns[role], name) for role, place in places.items()})


def as_frame(table: Any, name: str) -> Any:
    """Return a pandas table as it is, and any other as a Polars table."""
    if hasattr(table, "iloc") and hasattr(table, "columns"):  # a column of pandas has no columns
        return table
    return table.collect() if isinstance(table, pl.LazyFrame) else from_arrow(table, name)


def from_arrow(df: Any, name: str) -> pl.DataFrame:
    """Convert an Arrow table, or any object that exports one; a Polars data frame is returned as it is."""
    if isinstance(df, pl.DataFrame):
        return df
    try:
        if hasattr(df, "__arrow_c_stream__"):
            return pl.DataFrame(df)
        if hasattr(df, "__arrow_c_array__"):
            return pl.DataFrame(pl.from_arrow(df))
    except (TypeError, ValueError, pl.exceptions.PolarsError) as error:
        raise DataError(f"{name}: cannot convert {type(df).__name__}: {first_line(error)}") from None
    raise DataError(f"{name}: expected a pandas, Polars or Arrow table, got {type(df).__name__}")


def from_pandas(column: Any, title: str, name: str) -> pl.Series:
    """Convert a column of pandas, with null for every value that pandas regards as missing, without pyarrow."""
    missing = column.isna().tolist()
    values = [None if null else value for value, null in zip(column.tolist(), missing, strict=True)]
    kinds = {type(value) for value in values} - {type(None)}
    if len(kinds) > 1 and not kinds <= {str, int, float, bool}:
        mixed = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise DataError(f"{name}: column {title!r} holds values of several types: {mixed}")
    return pl.Series(values, strict=False)


# ---------------------------------------------------------------------------------------------------------------------
# Columns


def texts(column: pl.Series, title: str, name: str, *, optional: bool = False) -> pl.Series:
    """Return ids or labels as text; null or empty is allowed only if they are optional."""
    kind = column.dtype
    if kind.is_float():
        column = column.fill_nan(None)
        refuse((column != column.floor()).fill_null(False), "got {}, expected a whole number", title, name, column)
        column = column.cast(pl.Int64, strict=False)
    elif not (kind.is_integer() or kind in (pl.String, pl.Categorical, pl.Enum, pl.Null)):
        raise DataError(f"{name}: column {title!r} has type {kind}, expected text or whole numbers")
    text = column.cast(pl.String)
    if not optional:
        missing = text.is_null() | (text == "")
        refuse(missing.fill_null(True), "the value is missing", title, name)
    return text


def numbers(
    column: pl.Series, title: str, name: str, low: float = -np.inf, high: float = np.inf, *, whole: bool = False
) -> FloatArray:
    """Return a column of finite numbers, or of text that holds them."""
    kind = column.dtype
    if not (kind.is_numeric() or kind in (pl.String, pl.Boolean, pl.Null)):
        raise DataError(f"{name}: column {title!r} has type {kind}, expected numbers")
    refuse(column.is_null(), "the value is missing", title, name)
    given = column.str.strip_chars() if kind == pl.String else column
    values = given.cast(pl.Float64, strict=False)
    allowed = "a whole number" if whole else "a finite number"
    if np.isfinite(low):
        allowed = f"{allowed.replace('finite ', '')} from {low} to {high}"
    good = values.is_finite() & values.is_between(low, high)
    if whole:
        good &= values == values.floor()
    refuse(~good.fill_null(False), f"got {{}}, expected {allowed}", title, name, column)
    return values.to_numpy()


def check_distinct(queries: pl.Series, items: pl.Series, title: str, name: str) -> None:
    """Refuse an item that occurs twice in a query."""
    pairs = pl.DataFrame({"query": queries, "item": items}).to_struct()
    if not (again := ~pairs.is_first_distinct()).any():
        return
    query = queries[int(again.arg_max() or 0)]
    refuse(again, f"item {{}} occurs twice in query {query!r}", title, name, items)


def refuse(wrong: pl.Series, problem: str, title: str, name: str, values: pl.Series | None = None) -> None:
    """Raise DataError for the first row at which `wrong` holds; rows are counted from 1."""
    if wrong.any():
        row = int(wrong.arg_max() or 0)
        value = "" if values is None else repr(values[row])
        raise DataError(f"{name}: column {title!r}, row {row + 1} of {wrong.len():,}: {problem.format(value)}")


def first_line(error: BaseException) -> str:
    """Return the first line of the text of an error; Polars appends hints and context."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def listed(columns: list[str]) -> str:
    """Return the names of columns for a message; there may be many."""
    return ", ".join(map(repr, columns[:20])) + (", …" if len(columns) > 20 else "")
