"""Relevance grades and the click probability that they stand for."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..arrays import FloatArray
from ..errors import DataError, SettingError

__all__ = ["EPSILON", "HIGHEST_GRADE", "GradeArray", "checked_grades", "checked_y_max", "relevance"]

HIGHEST_GRADE = 1000  # 2**grade must be finite

EPSILON = 0.1
"""Default relevance of an item of grade 0."""

GradeArray = npt.NDArray[np.int16]


def relevance(y: npt.ArrayLike, y_max: int, epsilon: float = EPSILON) -> FloatArray:
    """Return the probability that a user finds an item of grade y relevant.

    `R = ε + (1 - ε) (2**y - 1) / (2**y_max - 1)`; when y_max is 0 every item has R = ε.

    Parameters
    ----------
    y : (items,) int array
        Grades, 0 to y_max.
    y_max
        The highest grade there can be.
    epsilon
        Relevance of an item of grade 0.

    Returns
    -------
    (items,) float array

    Raises
    ------
    SettingError
        If epsilon is not a number from 0 to 1.

    Examples
    --------
    >>> relevance([0, 1, 2], y_max=2).round(3).tolist()
    [0.1, 0.4, 1.0]
    """
    if not 0 <= epsilon <= 1:
        raise SettingError(f"epsilon = {epsilon}: expected a probability, a number from 0 to 1")
    gain = np.ldexp(1.0, np.asarray(y, dtype=np.int64)) - 1.0
    share = gain / max(2.0**y_max - 1.0, 1.0)
    return np.minimum(epsilon + (1.0 - epsilon) * share, 1.0)  # rounding can lift the highest grade above 1


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
