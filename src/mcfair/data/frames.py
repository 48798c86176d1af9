"""Tables: the one reader of CSV, TSV, Parquet, JSON lines and data frames, their columns by role, and what they hold.

A column of a table has a role, such as query or item. Every command finds it by the same names, or by `--column`. Files
are looked through before they are parsed, so that no file takes more time or memory than its size suggests.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl

from ..arrays import CountArray, FloatArray
from ..errors import DataError, SettingError, unknown, warn_user
from ..parts import shortened
from .dataset import EPSILON, HIGHEST_GRADE, Dataset
from .letor import KINDS, kind_of, pieces, short_name, whole_lines

ROLES: dict[str, tuple[str, ...]] = {
    "query": (
        *("query", "query_id", "qid", "queryid", "q_id", "query_text", "user_query", "search_term", "search_query"),
        "keyword",
    ),
    "item": (
        *("item", "item_id", "itemid", "doc", "doc_id", "docid", "docno", "document", "document_id"),
        *("product_id", "article_id", "object_id", "sku", "asin"),
    ),
    "grade": ("grade", "label", "rel", "y"),
    "relevance": ("relevance",),
    "score": ("score", "prediction"),
    "prior": ("prior",),
    "provider": tuple(name + end for name in ("provider", "group", "seller", "brand", "vendor") for end in ("", "_id")),
    "rank": ("rank", "position", "pos", "ordinal"),
    "clicked": ("clicked", "click", "is_click", "is_clicked", "clicks"),
    "impression": ("impression", "impression_id", "list_id", "request_id"),
    "session": ("session", "session_id"),
    "time": ("time", "timestamp", "datetime", "date"),
    "propensity": ("propensity", "propensity_score", "pscore"),
}
"""The names that the column of each role may have, the preferred one first; case is ignored."""

CANDIDATES = ("query", "item", "grade", "relevance", "score", "prior", "provider")
"""Roles of the columns of tables of candidates; the others are those of logs."""

REPEATED = re.compile(r"_duplicated_\d+$")  # how Polars renames the later columns of the same name

UNREADABLE = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError)
"""What Polars raises for a file that is damaged or of another kind."""


# --- files ------------------------------------------------------------------------------------------------------------

SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "\\t": "\t", "pipe": "|"}
"""Words for separators, which are the ones that are guessed."""

MOST_COLUMNS = 10_000
DEEPEST = 32  # brackets in brackets: Polars takes time that doubles with each


def scan_table(path: Path, separator: str | None = None, kind: str = "") -> pl.LazyFrame:
    """Return a CSV, TSV, Parquet or JSON-lines file as a table that is read later; text stays text.

    Parameters
    ----------
    path
        The file, possibly compressed by gzip.
    separator
        What separates the columns of a CSV or TSV file: a character, or comma, semicolon, tab or pipe. By default it is
        guessed from the first line, with a warning if it is not the usual one.
    kind
        CSV, TSV, Parquet or JSON lines; by default what the name ends in.

    Raises
    ------
    DataError
        If the name ends otherwise, or the file cannot be read, is damaged, or would take too much memory.
    SettingError
        If the separator is no single character.
    """
    kind = kind or kind_of(path)
    if not kind:
        raise DataError(f"{path}: expected a file that ends in {', '.join(KINDS)}")
    try:
        if kind == "Parquet":
            if not next(pieces(path), b""):
                raise DataError(f"{path}: the file is empty")
            table = pl.scan_parquet(path, glob=False, hive_partitioning=False)
        elif kind == "JSON lines":
            check_json_lines(path)
            table = pl.scan_ndjson(path, infer_schema_length=None)
        else:
            mark = separator_of(path, check_lines(path), "\t" if kind == "TSV" else ",", separator)
            # Text stays text until its role is known: an id 007 is not the number 7, and errors can name the row.
            table = pl.scan_csv(path, infer_schema=False, glob=False, separator=mark)
        table.collect_schema()
    except UNREADABLE as error:
        raise unreadable(path, kind, error) from None
    return table


def unreadable(path: Path, kind: str, error: BaseException) -> DataError:
    """Describe a file that cannot be read."""
    if isinstance(error, OSError) and error.strerror:
        return DataError(f"cannot read {path}: {error.strerror}")
    return DataError(f"{path}: not a {kind} file, or damaged or cut short: {first_line(error)}")


def check_lines(path: Path) -> str:
    """Look through a text file; return its first line."""
    first = ""
    for piece in whole_lines(path):
        if not first:
            first = piece.lstrip(b"\xef\xbb\xbf\r\n").split(b"\n", 1)[0].decode(errors="replace").strip("\r")
    if not first:
        raise DataError(f"{path}: the file is empty")
    return first


def separator_of(path: Path, header: str, usual: str, given: str | None) -> str:
    """Return the separator of the columns: the one that is given, or that the first line suggests."""
    if given is not None:
        mark = SEPARATORS.get(given.lower(), given)
        if len(mark) != 1 or not mark.isascii() or mark in '"\r\n':
            words = ", ".join(list(SEPARATORS)[:3])
            raise SettingError(f"separator = {shortened(given)} is not allowed: expected one character, or {words}")
    else:
        bare = re.sub(r'"[^"]*"', "", header)
        mark = max((usual, *SEPARATORS.values()), key=bare.count)  # the first of equals: the usual one
        if mark != usual:
            warn_user(f"{path}: read with the separator {mark!r}, guessed from its first line; see --separator")
    if header.count(mark) >= MOST_COLUMNS:
        raise DataError(f"{path}: has {header.count(mark) + 1:,} columns, expected at most {MOST_COLUMNS:,}")
    return mark


def check_json_lines(path: Path) -> None:
    """Look through a file of JSON lines: every line is an object, not too deep, and all have not too many names."""
    decoder, names, number = msgspec.json.Decoder(dict[str, msgspec.Raw]), set[str](), 0
    for piece in whole_lines(path):
        for line in piece.removesuffix(b"\n").split(b"\n"):
            number += 1
            if not line or line.isspace():
                continue
            try:
                fields = decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                reason = "too deep" if isinstance(error, RecursionError) else first_line(error)
                raise DataError(
                    f"{path}, line {number}: not a JSON object, or damaged or cut short: {reason}"
                ) from None
            if not names.issuperset(fields):
                names.update(fields)
                if len(names) > MOST_COLUMNS:
                    raise DataError(f"{path}, line {number}: the lines have more than {MOST_COLUMNS:,} names")
            if line.count(b"[") + line.count(b"{") > DEEPEST and depth(msgspec.json.decode(line)) > DEEPEST + 1:
                raise DataError(f"{path}, line {number}: a value has more than {DEEPEST} levels")
    if not number:
        raise DataError(f"{path}: the file is empty")


def depth(value: Any) -> int:
    """Return how many lists and objects are in each other."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


# --- columns by role --------------------------------------------------------------------------------------------------


def find_columns(
    available: Iterable[str],
    given: Mapping[str, str],
    name: str,
    roles: Iterable[str] = tuple(ROLES),
    required: Iterable[str] = (),
) -> dict[str, str]:
    """Find the column of each role, by the mapping that was given or by its name.

    Parameters
    ----------
    available
        Names of the columns of the table.
    given
        Columns by role, as the user named them.
    name
        What error messages call the table.
    roles, required
        Roles that are looked for, and those that must be found.

    Returns
    -------
    dict
        Columns by role.

    Raises
    ------
    DataError
        If a column does not exist, a required one is missing, or several may be meant.
    SettingError
        If a role is unknown.

    Examples
    --------
    >>> find_columns(["q_text", "docno", "position", "Click"], {"query": "q_text"}, "log.csv")
    {'query': 'q_text', 'item': 'docno', 'rank': 'position', 'clicked': 'Click'}
    """
    names, roles = list(available), list(roles)
    if "group" in given and "group" not in roles:
        given = {"provider" if role == "group" else role: column for role, column in given.items()}
    for role, column in given.items():
        if role not in roles:
            raise SettingError(unknown("role of a column", role, roles))
        if column not in names:
            raise DataError(f"{name}: {unknown('column', column, names[:40])}")
    taken, by_lower = set(given.values()), dict[str, list[str]]()
    for each in names:
        if each not in taken:
            by_lower.setdefault(REPEATED.sub("", each.strip().lower()), []).append(each)
    found: dict[str, str] = {}
    for role in roles:
        usual = ROLES[role]
        matches = by_lower.get(usual[0]) or [column for each in usual for column in by_lower.get(each, ())]
        if role in given:
            found[role] = given[role]
        elif len(matches) > 1:
            raise DataError(
                f"{name}: columns {listed(matches)} may all be the {role}; choose one with --column {role}=COLUMN"
            )
        elif matches:
            found[role] = matches[0]
    for role in required:
        if role not in found:
            raise DataError(f"{name}: {missing(role, names)}")
    return found


def missing(role: str, names: list[str]) -> str:
    """Describe a missing column: how it may be named, what there is, and which one was probably meant."""
    by_lower = {each.strip().lower(): each for each in names[:1000]}
    close = [match for usual in ROLES[role] for match in get_close_matches(usual, by_lower, n=1)]
    hint = f"did you mean {by_lower[close[0]]!r}? " if close else ""
    return (
        f"no column for the {role} (such as {', '.join(ROLES[role][:3])}); {hint}name it with --column {role}=COLUMN; "
        f"got {listed(names)}"
    )


def columns_of(df: Any, columns: Mapping[str, str], name: str) -> pl.DataFrame:
    """Return columns of any table as a Polars table with the roles as names; nothing else of a file is read."""
    available = column_names(df)
    for column in columns.values():
        if column not in available:
            raise DataError(f"{name}: {unknown('column', column, available[:40])}")
        if available.count(column) > 1:
            raise DataError(f"{name}: several columns have the name {column!r}")
    if isinstance(df, pl.LazyFrame):
        try:
            return df.select(**{role: pl.col(column) for role, column in columns.items()}).collect()
        except UNREADABLE as error:
            raise unreadable(Path(name), kind_of(Path(name)) or "readable", error) from None
    places = {role: available.index(column) for role, column in columns.items()}
    if isinstance(df, pl.DataFrame):
        return pl.DataFrame({role: df.to_series(place) for role, place in places.items()})
    return pl.DataFrame({role: from_pandas(df.iloc[:, place], columns[role], name) for role, place in places.items()})


def column_names(df: Any) -> list[str]:
    """Return the names of the columns of a table that `as_frame` returned."""
    return df.collect_schema().names() if isinstance(df, pl.LazyFrame) else [str(column) for column in df.columns]


def as_frame(table: Any, name: str, separator: str | None = None) -> Any:
    """Return a table of pandas or Polars as it is, a file as a lazy one, and any other table as one of Polars."""
    if isinstance(table, str | Path):
        return scan_table(Path(table), separator)
    if hasattr(table, "iloc") and hasattr(table, "columns"):  # a column of pandas has no columns
        return table
    return table if isinstance(table, pl.LazyFrame) else from_arrow(table, name)


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
    """Convert a column of pandas, with null for every value that pandas regards as missing."""
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biuf":
        values = pl.Series(column.to_numpy())
        return values.fill_nan(None) if values.dtype.is_float() else values
    try:
        import pyarrow  # type: ignore[import-untyped]

        return pl.Series(pl.from_arrow(pyarrow.array(column, from_pandas=True)))
    except ImportError:
        pass  # without pyarrow, which pandas does not need, value by value
    except (TypeError, ValueError, NotImplementedError):
        pass  # values of several types, which are described below
    missing = column.isna().tolist()
    listed = [None if null else value for value, null in zip(column.tolist(), missing, strict=True)]
    kinds = {type(value) for value in listed} - {type(None)}
    if len(kinds) > 1 and not kinds <= {str, int, float, bool}:
        mixed = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise DataError(f"{name}: column {title!r} holds values of several types: {mixed}")
    try:
        return pl.Series(listed, strict=False)
    except UnicodeEncodeError as error:
        raise DataError(f"{name}: column {title!r} holds text that is no Unicode: {error.object!a}") from None


# --- values of a column ----------------------------------------------------------------------------------------------

LONGEST_ID = 10_000
CONTROLS = r"[\x00-\x1f\x7f-\x9f]"


def texts(column: pl.Series, title: str, name: str, *, optional: bool = False) -> pl.Series:
    """Return ids or labels as text; null or empty is allowed only if they are optional.

    Ids with control characters are kept, with a warning: they are often an accident, and look like others.
    """
    kind = column.dtype
    if kind.is_float():
        column = column.fill_nan(None)
        refuse((column != column.floor()).fill_null(False), "got {}, expected a whole number", title, name, column)
        column = column.cast(pl.Int64, strict=False)
    elif not (kind.is_integer() or kind in (pl.String, pl.Categorical, pl.Enum, pl.Null)):
        raise DataError(f"{name}: column {title!r} has type {kind}, expected text or whole numbers")
    text = column.cast(pl.String)
    if not optional:
        nothing = text.is_null() | (text == "")
        refuse(nothing.fill_null(True), "the value is missing", title, name)
    if not kind.is_numeric():
        long = (text.str.len_bytes() > LONGEST_ID).fill_null(False)
        refuse(long, f"got {{}}, expected at most {LONGEST_ID:,} bytes", title, name, text)
        odd = text.filter(text.str.contains(CONTROLS).fill_null(False)).unique(maintain_order=True)
        if odd.len():
            ids = "1 id has" if odd.len() == 1 else f"{odd.len():,} ids have"
            warn_user(f"{name}: column {title!r}: {ids} control characters, such as {shortened(odd[0])}")
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
        value = "" if values is None else shortened(values[row])
        raise DataError(f"{name}: column {title!r}, row {row + 1} of {wrong.len():,}: {problem.format(value)}")


def first_line(error: BaseException) -> str:
    """Return the first line of the text of an error; Polars appends hints and context."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def listed(columns: list[str]) -> str:
    """Return the names of columns for a message; there may be many."""
    return ", ".join(map(repr, columns[:20])) + (", …" if len(columns) > 20 else "")


# --- datasets --------------------------------------------------------------------------------------------------------


def load_table(
    path: Path,
    epsilon: float = EPSILON,
    *,
    columns: Mapping[str, str] | None = None,
    separator: str | None = None,
) -> Dataset:
    """Read a CSV, TSV, Parquet or JSON-lines file whose columns have the usual names, or the given ones.

    Raises
    ------
    DataError
        If the file cannot be read, a column is missing or ambiguous, or a value is wrong; or if epsilon, which applies
        to grades, is given for a table of relevance.
    """
    table = scan_table(path, separator)
    names = column_names(table)
    found = find_columns(names, columns or {}, str(path), CANDIDATES, required=("query",))
    if prior := found.pop("prior", None):
        if "grade" not in found and "relevance" not in found:
            found["relevance"] = prior  # what is believed of the items stands in for what is true
        else:
            found.setdefault("score", prior)
    if "grade" not in found and "relevance" not in found:
        raise DataError(f"{path}: {missing('grade', names)}; or a column of relevance")
    file = path.with_name(path.name.removesuffix(".gz"))
    data = build_dataset(table, found, short_name(file.with_suffix("")), str(path))
    if epsilon == EPSILON:
        return data
    if "relevance" in found:
        raise DataError(f"{path}: epsilon = {epsilon} applies to grades, but the table has a column of relevance")
    return data.with_relevance(epsilon)


def build_dataset(df: Any, columns: dict[str, str], name: str, source: str = "") -> Dataset:
    """Build a dataset from a table; `columns` maps roles to columns, `source` is what errors call the table."""
    title, name = name, source or name
    if ("grade" in columns) == ("relevance" in columns):
        got = "both" if "grade" in columns else "neither"
        raise DataError(f"{name}: expected a column of either grades or relevance, got {got}")
    table = columns_of(as_frame(df, name), columns, name)
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


# --- candidates: tables of items to rank -----------------------------------------------------------------------------


def read_candidates(
    table: Any, name: str = "the table", *, columns: Mapping[str, str] | None = None, separator: str | None = None
) -> pl.DataFrame:
    """Return the candidates of a table: columns query and item, and where they exist relevance and provider.

    Scores outside of 0 to 1 are scaled within each query, see `as_relevance`.

    Parameters
    ----------
    table
        A pandas, Polars or Arrow table, or the path of a file, with columns query, item and optionally score (or
        relevance, prior or grade) and provider, or other usual names of these roles.
    name
        What errors call the table.
    columns, separator
        Columns by role where they have other names; what separates the columns of a CSV file.

    Raises
    ------
    DataError
        If a column is missing or a value is wrong.

    Examples
    --------
    >>> table = pl.DataFrame({"qid": ["a", "a", "a"], "docno": ["x", "y", "z"], "score": [7.5, 5.0, 2.5]})
    >>> read_candidates(table).rows()
    [('a', 'x', 1.0), ('a', 'y', 0.5), ('a', 'z', 0.0)]
    """
    frame = as_frame(table, name, separator)
    found = find_columns(column_names(frame), columns or {}, name, CANDIDATES, required=("query", "item"))
    value = next((role for role in ("score", "relevance", "prior", "grade") if role in found), None)
    kept = {role: found[role] for role in ("query", "item", "provider", value) if role in found}
    read = columns_of(frame, kept, name)  # type: ignore[arg-type]
    if read.is_empty():
        raise DataError(f"{name}: the table holds no rows")
    parts = {
        role: texts(read[role], found[role], name, optional=role == "provider")
        for role in ("query", "item", "provider")
        if role in found
    }
    check_distinct(parts["query"], parts["item"], found["item"], name)
    if value is None:
        return pl.DataFrame(parts)
    scaled = as_relevance(parts["query"], pl.Series(numbers(read[value], found[value], name)))
    return pl.DataFrame({"query": parts["query"], "item": parts["item"], "relevance": scaled} | parts)


def as_relevance(queries: pl.Series, scores: pl.Series) -> pl.Series:
    """Return scores as relevance from 0 to 1.

    Scores that all lie there are returned as they are. Others are scaled within each query, so that its lowest score
    becomes 0 and its highest 1; where all are equal they become 0.5.

    Examples
    --------
    >>> as_relevance(pl.Series(["a", "a", "b"]), pl.Series([12.0, 2.0, 7.0])).to_list()
    [1.0, 0.0, 0.5]
    """
    if scores.is_between(0, 1).all():
        return scores
    low, high = pl.col("score").min().over("query"), pl.col("score").max().over("query")
    scaled = pl.when(high > low).then((pl.col("score") - low) / (high - low)).otherwise(0.5)
    halves = scores / 2  # the difference of any two is finite
    return pl.DataFrame({"query": queries, "score": halves}).select(scaled).to_series()


# --- TREC: judgements (qrels) and rankings (runs), as tables and as text files ----------------------------------------

QRELS = ("query_id", "iteration", "doc_id", "relevance")
RUN = ("query_id", "Q0", "doc_id", "rank", "score", "tag")
"""The columns of the two kinds of files."""


def qrels_table(data: Dataset) -> pl.DataFrame:
    """Return the grades of all items as a table of judgements: query_id, doc_id, relevance."""
    ids = [str(i) for n in data.sizes.tolist() for i in range(n)] if data.item_ids is None else data.item_ids
    names = np.repeat([data.query_id(q) for q in range(data.queries)], data.sizes)
    return pl.DataFrame(
        {
            "query_id": pl.Series(names.tolist(), dtype=pl.String),
            "doc_id": pl.Series(list(ids), dtype=pl.String),
            "relevance": data.y,
        }
    )


def write_table(table: pl.DataFrame, path: Path) -> None:
    """Write a table as a .csv or .parquet file, whole or not at all.

    Raises
    ------
    DataError
        If it cannot be written; a file that was there is then as it was.
    """
    write = table.write_csv if path.suffix.lower() == ".csv" else table.write_parquet
    write_whole(path, write)


def write_whole(path: Path, write: Callable[[Path], Any]) -> None:
    """Write a file by a function of a path: to a draft beside it, which then takes its place."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        write(draft)
        draft.replace(path)
    except (OSError, pl.exceptions.PolarsError) as error:  # a full disk is an error of Polars
        reason = getattr(error, "strerror", None) or first_line(error)
        raise DataError(f"cannot write {path}: {reason}") from None
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def write_trec(table: pl.DataFrame, path: str | Path, tag: str = "mcfair") -> Path:
    """Write judgements (with a column relevance) or a run (with columns rank and score) as a text file of TREC.

    Parameters
    ----------
    table
        From `Dataset.to_qrels` or `Trace.to_run`.
    path
        The file; it is overwritten.
    tag
        Name of the run, its last column.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    DataError
        If an id holds white space, which separates the columns of the file, or the file cannot be written.
    """
    for column in ("query_id", "doc_id"):
        spaced = table[column].str.contains(r"\s|^$")
        if spaced.any():
            value = table[column][int(spaced.arg_max() or 0)]
            raise DataError(
                f"{column} {value!r} cannot be written to a TREC file: ids must not be empty or have spaces"
            )
    if "relevance" in table.columns:
        table = table.select("query_id", pl.lit("0").alias("iteration"), "doc_id", "relevance")
    else:
        table = table.select("query_id", pl.lit("Q0"), "doc_id", "rank", "score", pl.lit(tag).alias("tag"))
    write_whole(
        Path(path), lambda draft: table.write_csv(draft, include_header=False, separator=" ", quote_style="never")
    )
    return Path(path)


def read_trec(source: Any, columns: tuple[str, ...]) -> pl.DataFrame:
    """Read a file of TREC, or take a table of any library whose columns have the usual names.

    Parameters
    ----------
    source
        Path of the text file, or a pandas, Polars or Arrow table.
    columns
        The columns of the file, `QRELS` or `RUN`.
    """
    value = columns[-1] if columns == QRELS else "score"
    if not isinstance(source, str | Path):
        return columns_by_name(source, value)
    try:
        lines = b"".join(whole_lines(Path(source))).decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"cannot read {source}: {error}") from None
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        fields = line.split()
        if len(fields) != len(columns):
            wanted = " ".join(columns)
            raise DataError(f"{source}, line {number}: got {len(fields)} columns, expected {len(columns)}: {wanted}")
        rows.append((fields[0], fields[2], fields[columns.index(value)]))
    table = pl.DataFrame(rows, schema=["query_id", "doc_id", value], orient="row")
    try:
        return table.with_columns(pl.col(value).cast(pl.Float64))
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{source}: column {value} does not hold numbers: {first_line(error)}") from None


def columns_by_name(table: Any, value: str) -> pl.DataFrame:
    """Return query_id, doc_id and the column of values of a table of any library; ids are text."""
    name = type(table).__name__
    frame = as_frame(table, name)
    role = "grade" if value == "relevance" else "score"
    names = column_names(frame)
    given = {role: "relevance"} if role == "grade" and "relevance" in names else {}
    found = find_columns(names, given, name, ("query", "item", role), required=("query", "item", role))
    read = columns_of(frame, found, name)
    ids = {new: texts(read[old], found[old], name) for old, new in (("query", "query_id"), ("item", "doc_id"))}
    return pl.DataFrame(ids | {value: numbers(read[role], found[role], name)})


def data_from_trec(qrels: Any, run: Any, name: str) -> Dataset:
    """Build a dataset from judgements, and from a run if its documents are the candidates; see `Dataset.from_trec`."""
    judged = read_trec(qrels, QRELS).with_columns(pl.col("relevance").clip(0))
    columns = {"query": "query_id", "item": "doc_id", "grade": "relevance"}
    if run is None:
        return build_dataset(judged, columns, name)
    grades = judged.unique(maintain_order=True)
    check_distinct(grades["query_id"], grades["doc_id"], "doc_id", f"{name}, judgements")
    ranked = read_trec(run, RUN).filter(pl.col("query_id").is_in(grades["query_id"].implode()))
    if ranked.is_empty():
        raise DataError(f"{name}: no query of the judgements occurs in the run")
    kept = ranked.join(grades, on=["query_id", "doc_id"], how="left", maintain_order="left")
    data = build_dataset(kept.with_columns(pl.col("relevance").fill_null(0)), columns | {"score": "score"}, name)
    highest = int(np.max(grades["relevance"].to_numpy()))  # also of documents that the run lacks: R is that of any run
    return dataclasses.replace(data, y_max=max(highest, data.y_max), R=None, fingerprint="")  # type: ignore[arg-type]


def run_table(data: Dataset, lists: CountArray, arrivals: CountArray, visit: int) -> pl.DataFrame:
    """Return the list of one visit to each query as a table: query_id, doc_id, rank and a score that falls with it."""
    sessions = pl.DataFrame({"session": np.arange(arrivals.size), "query": arrivals.astype(np.int64)})
    chosen = sessions.group_by("query", maintain_order=True).agg(pl.col("session").get(visit, null_on_oob=True))
    chosen = chosen.drop_nulls().sort("query")
    queries, shown = chosen["query"].to_numpy(), lists[chosen["session"].to_numpy()]
    row, rank = np.nonzero(shown >= 0)
    places = shown[row, rank]
    ids = data.item_ids
    names = places.astype(str) if ids is None else [ids[i] for i in (data.offsets[queries[row]] + places).tolist()]
    return pl.DataFrame(
        {
            "query_id": pl.Series([data.query_id(q) for q in queries[row].tolist()], dtype=pl.String),
            "doc_id": pl.Series(list(map(str, names)), dtype=pl.String),
            "rank": rank + 1,
            "score": (lists.shape[1] - rank).astype(np.float64),
        }
    )
