"""Relevance grades and the click probability that they stand for."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..arrays import FloatArray
from ..errors import SettingError

__all__ = ["EPSILON", "HIGHEST_GRADE", "GradeArray", "relevance"]

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
