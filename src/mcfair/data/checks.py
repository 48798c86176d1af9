"""Validation of the arrays of a dataset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ..arrays import IntArray
from ..errors import DataError
from .grades import HIGHEST_GRADE, GradeArray

__all__ = ["check_ids", "checked_grades", "checked_offsets", "checked_y_max"]


def checked_offsets(offsets: npt.ArrayLike, name: str) -> IntArray:
    """Convert offsets to int64.

    Raises
    ------
    DataError
        If they are not whole numbers that begin with 0 and never fall.
    """
    try:
        given = np.asarray(offsets, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        given = np.full(1, np.nan)
    if given.ndim != 1 or not given.size or given[0] != 0 or not (np.diff(given) >= 0).all() or (given % 1).any():
        got = " ".join(str(np.asarray(offsets)).split())
        raise DataError(f"{name}: offsets must be whole numbers that begin with 0 and never fall, got {got}")
    return np.ascontiguousarray(offsets, dtype=np.int64)


def checked_grades(y: npt.ArrayLike, name: str) -> GradeArray:
    """Convert grades to int16.

    Raises
    ------
    DataError
        If a grade is not a whole number from 0 to 1000.

    Examples
    --------
    >>> checked_grades([0.0, 2.0], "data").tolist()
    [0, 2]
    """
    allowed = f"{name}: grades must be whole numbers from 0 to {HIGHEST_GRADE}"
    try:
        given = np.asarray(y)
        if given.dtype.kind not in "biuf":
            given = given.astype(np.float64)
    except (TypeError, ValueError):
        raise DataError(f"{allowed}, got {' '.join(repr(y).split())[:60]}") from None
    if given.dtype.kind == "f":
        good = (given >= 0) & (given <= HIGHEST_GRADE) & (given == np.floor(given))  # false for nan
        if not good.all():
            raise DataError(f"{allowed}, got {given[~good].flat[0]}")
    elif given.size and not 0 <= given.min() <= given.max() <= HIGHEST_GRADE:
        raise DataError(f"{allowed}, got {given.min() if given.min() < 0 else given.max()}")
    return np.ascontiguousarray(given, dtype=np.int16)


def checked_y_max(y_max: int | None, y: GradeArray, name: str) -> int:
    """Return the highest grade there can be, by default the highest in `y`.

    Raises
    ------
    DataError
        If it is no whole number, lower than a grade or higher than 1000.

    Examples
    --------
    >>> checked_y_max(None, checked_grades([0, 2], "data"), "data")
    2
    """
    highest = int(y.max(initial=0))
    if y_max is None:
        return highest
    if not highest <= y_max <= HIGHEST_GRADE or y_max != int(y_max):
        raise DataError(
            f"{name}: y_max = {y_max} is not allowed: expected a whole number from the highest grade, {highest}, to "
            f"{HIGHEST_GRADE}"
        )
    return int(y_max)


def check_ids(
    query_ids: Sequence[str] | None,
    item_ids: Sequence[str] | None,
    offsets: IntArray,
    query_id: Callable[[int], str],
    name: str,
) -> None:
    """Raise a DataError if an id occurs twice among the queries or among the items of a query."""
    if query_ids is not None and len(set(query_ids)) < len(query_ids):
        raise DataError(f"{name}: query ids must be distinct, got {most_frequent(query_ids)!r} twice")
    for query, (begin, end) in enumerate(pairwise(offsets.tolist())):
        ids = item_ids[begin:end] if item_ids is not None else ()
        if len(set(ids)) < len(ids):
            raise DataError(
                f"{name}: item ids must be distinct within a query, got {most_frequent(ids)!r} twice in query "
                f"{query_id(query)!r}"
            )


def most_frequent(ids: Sequence[str]) -> str:
    """Return the id that occurs most often."""
    return Counter(ids).most_common(1)[0][0]
