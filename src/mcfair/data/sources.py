"""Data by what a user calls it: a path, a built-in profile, or a name in the catalogue."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

from ..errors import DataError, unknown
from .catalogue import CATALOGUE, locate
from .dataset import Dataset
from .files import find_part, path_exists
from .folds import Loading, load_letor
from .grades import EPSILON
from .profiles import PROFILES, synthetic
from .protocols import PARTS, Protocol, find_protocol

__all__ = ["open_data"]

TABLES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".jsonl", ".jsonl.gz")
"""How the names of files end that are read as tables; other files are LETOR files."""


def open_data(
    source: str | os.PathLike[str],
    *,
    split: str = "test",
    features: bool = False,
    epsilon: float = EPSILON,
    preset: str | None = None,
    min_items: int | None = None,
    max_items: int | None = None,
    seed: int = 0,
) -> Dataset:
    """Open data by path or name.

    Parameters
    ----------
    source
        A path, if there is a file or folder: a fold folder, a LETOR file, or a table (CSV, TSV, Parquet or JSON lines)
        with the columns query, item, grade or relevance, score and provider, of which only query and one of grade and
        relevance are required. Their names are matched ignoring case, and common ones such as qid, docid and label are
        understood. Otherwise one of `PROFILES` or `CATALOGUE`.
    split
        Which part of a fold: `train`, `validation` or `test`.
    features, epsilon, preset, min_items, max_items
        As in `load_letor`; a profile always has its features, a table never. A profile or table has a test part only.
    seed
        Seed of a profile.

    Returns
    -------
    Dataset
        For the test part of a fold, a `Fold`, which has the other parts too.

    Raises
    ------
    DataError
        If nothing has this name, if a file cannot be read or is malformed, if the split, preset or seed does not apply,
        or if no query is left.
    SettingError
        If epsilon is not a number from 0 to 1.

    Examples
    --------
    >>> sorted(set(open_data("mq2008-like", min_items=15).sizes.tolist()))
    [15, 16]
    """
    name = os.fspath(source)
    if split not in PARTS:
        raise DataError(unknown("split", split, PARTS))
    protocol = find_protocol(preset)
    if protocol.name and split != "test":
        raise DataError(f"preset {preset} evaluates on the test part, but split {split!r} was asked for")
    path = Path(name)
    if not path_exists(path) and name in PROFILES:
        check_test_only(protocol, split, name, "a built-in profile")
        data = synthetic(name, seed)
        data = data if epsilon == EPSILON else data.with_relevance(epsilon)
        return adopt(data, protocol.with_bounds(min_items, max_items))
    if not path_exists(path):
        if name.lower() not in CATALOGUE:
            names = unknown("profile or catalogue name", name, [*PROFILES, *CATALOGUE])
            raise DataError(f"no such file or folder: {name}; {names}")
        path = locate(name)
    if not path.is_dir() and path.name.lower().endswith(TABLES):
        from .frames import load_table  # imports Polars, which other data do not need

        check_test_only(protocol, split, str(path), "a table")
        return adopt(load_table(path, epsilon), protocol.with_bounds(min_items, max_items))
    options: dict[str, Any] = {
        "features": features,
        "epsilon": epsilon,
        "preset": preset,
        "min_items": min_items,
        "max_items": max_items,
    }
    if split == "test":
        return load_letor(path, **options)
    if not path.is_dir():
        raise DataError(f"{path} is a single file and has no {split} part")
    return Loading(**options).read(find_part(path, split), split)


def check_test_only(protocol: Protocol, split: str, name: str, kind: str) -> None:
    """Refuse a protocol or split that needs the files of a fold."""
    if protocol.drop_last:
        raise DataError(f"preset {protocol.name} reads a LETOR fold or file, but {name!r} is {kind}")
    if split != "test":
        raise DataError(f"{name} is {kind} and has no {split} part")


def adopt(data: Dataset, protocol: Protocol) -> Dataset:
    """Return data under a protocol: its queries within the bounds, carrying the protocol."""
    return dataclasses.replace(data, protocol=protocol).select(
        min_items=protocol.min_items, max_items=protocol.max_items
    )
