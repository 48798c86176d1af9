"""TREC's formats: judgements (qrels) and rankings (runs), as tables and as text files."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ..errors import DataError
from .dataset import Dataset
from .frames import as_frame, build_dataset, check_distinct, columns_of, first_line, listed, numbers, texts

__all__ = ["data_from_trec", "qrels_table", "read_trec", "write_trec"]

QRELS = ("query_id", "iteration", "doc_id", "relevance")
RUN = ("query_id", "Q0", "doc_id", "rank", "score", "tag")
"""The columns of the two kinds of files."""

ALIASES = {"qid": "query_id", "q_id": "query_id", "docno": "doc_id", "docid": "doc_id", "label": "relevance"}
"""Names of these columns in other libraries, and ours."""


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
    try:
        table.write_csv(path, include_header=False, separator=" ", quote_style="never")
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror or error}") from None
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
        lines = Path(source).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {source}: {getattr(error, 'strerror', None) or error}") from None
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
    table = as_frame(table, name)
    available = [str(column) for column in table.columns]
    columns = {}
    for role in ("query_id", "doc_id", value):
        found = [column for column in available if ALIASES.get(column, column) == role]
        if not found:
            raise DataError(f"{name}: no column {role}; got {', '.join(map(repr, available))}")
        if len(found) > 1:
            raise DataError(f"{name}: columns {listed(found)} may all be {role}; rename all but one of them")
        columns[role] = found[0]
    read = columns_of(table, columns, name)
    ids = {role: texts(read[role], columns[role], name) for role in ("query_id", "doc_id")}
    return pl.DataFrame(ids | {value: numbers(read[value], columns[value], name)})


def data_from_trec(qrels: Any, run: Any, name: str) -> Dataset:
    """Build a dataset from judgements, and from a run if its documents are the candidates; see `Dataset.from_trec`."""
    judged = read_trec(qrels, QRELS)
    columns = {"query": "query_id", "item": "doc_id", "grade": "relevance"}
    if run is None:
        return build_dataset(judged.with_columns(pl.col("relevance").clip(0)), columns, name)
    ranked = read_trec(run, RUN)
    grades = judged.with_columns(pl.col("relevance").clip(0)).unique(maintain_order=True)
    check_distinct(grades["query_id"], grades["doc_id"], "doc_id", f"{name}, judgements")
    table = ranked.join(grades, on=["query_id", "doc_id"], how="left", maintain_order="left")
    if table.is_empty() or not judged["query_id"].is_in(ranked["query_id"].implode()).any():
        raise DataError(f"{name}: no query of the judgements occurs in the run")
    kept = table.filter(pl.col("query_id").is_in(judged["query_id"].implode()))
    data = build_dataset(kept.with_columns(pl.col("relevance").fill_null(0)), columns | {"score": "score"}, name)
    highest = int(np.max(grades["relevance"].to_numpy()))  # also of documents that the run lacks: R is that of any run
    return dataclasses.replace(data, y_max=max(highest, data.y_max), R=None, fingerprint="")  # type: ignore[arg-type]
