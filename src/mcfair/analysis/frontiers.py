"""Frontiers that policies reach: effectiveness at matched unfairness, the reverse, and the hypervolume.

A policy is run with several values of its trade-off parameter, which gives points (unfairness, effectiveness). Its
frontier is made of the points that no other point of the same policy beats in both, joined by straight lines: a line
between two points is what a random choice between the two policies would reach on average. Nothing is extrapolated
towards the fair end: a level below the lowest unfairness of the policy is not reached.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..arrays import FloatArray, IntArray
from ..errors import DataError

__all__ = ["Blend", "blend_at", "effectiveness_at", "hypervolume", "pareto", "unfairness_at"]

ROUNDING = 1e-9
"""Relative difference below which two values count as the same."""


class Blend(NamedTuple):
    """A place on a frontier: the points `first` and `second`, the second with the weight `share`."""

    first: int
    second: int
    share: float

    def of(self, values: FloatArray) -> FloatArray:
        """Interpolate the values of the points, along the first axis."""
        return np.asarray((1.0 - self.share) * values[self.first] + self.share * values[self.second])


def pareto(x: npt.ArrayLike, y: npt.ArrayLike) -> IntArray:
    """Return the places of the points that no other point beats: by rising unfairness x, effectiveness y rises.

    Parameters
    ----------
    x, y : (points,) arrays
        Unfairness, of which less is better, and effectiveness, of which more is better.

    Returns
    -------
    (best,) int array
        Places of these points in the order of rising x.

    Raises
    ------
    DataError
        If there are no points, x and y differ in length, or a value is not finite.

    Examples
    --------
    >>> pareto([4.0, 1.0, 2.0, 3.0], [9.0, 5.0, 4.0, 8.0]).tolist()
    [1, 3, 0]
    """
    u, e = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if u.ndim != 1 or not u.size or u.shape != e.shape or not np.all(np.isfinite(u) & np.isfinite(e)):
        raise DataError(f"expected finite values of at least one point, got arrays of shape {u.shape} and {e.shape}")
    order = np.lexsort((-e, u))
    before = np.maximum.accumulate(np.concatenate(([-math.inf], e[order][:-1])))
    return order[e[order] > before]


def blend_at(x: npt.ArrayLike, y: npt.ArrayLike, level: float) -> Blend | None:
    """Return the most effective place on a frontier at no more than a level of unfairness.

    Parameters
    ----------
    x, y : (points,) arrays
        Unfairness and effectiveness of the points.
    level
        The unfairness allowed.

    Returns
    -------
    Blend or None
        None if no point is so fair; beyond the most effective point, that point.

    Raises
    ------
    DataError
        If there are no points, x and y differ in length, or a value is not finite.

    Examples
    --------
    >>> blend_at([1.0, 3.0], [10.0, 30.0], 1.5), blend_at([1.0, 3.0], [10.0, 30.0], 0.5)
    (Blend(first=0, second=1, share=0.25), None)
    """
    best = pareto(x, y)
    u = np.asarray(x, dtype=np.float64)[best]
    allowed = level + ROUNDING * abs(level)
    reached = int(np.searchsorted(u, allowed, side="right")) - 1
    if reached < 0:
        return None
    if reached == u.size - 1:
        return Blend(int(best[-1]), int(best[-1]), 0.0)
    share = max(float((level - u[reached]) / (u[reached + 1] - u[reached])), 0.0)
    return Blend(int(best[reached]), int(best[reached + 1]), share)


def effectiveness_at(x: npt.ArrayLike, y: npt.ArrayLike, level: float) -> float:
    """Return the effectiveness of a frontier at a level of unfairness; nan if no point is so fair.

    Parameters
    ----------
    x, y : (points,) arrays
        Unfairness and effectiveness of the points.
    level
        The unfairness allowed.

    Returns
    -------
    float

    Raises
    ------
    DataError
        If there are no points, x and y differ in length, or a value is not finite.

    Examples
    --------
    >>> effectiveness_at([1.0, 3.0], [10.0, 30.0], 2.0), effectiveness_at([1.0, 3.0], [10.0, 30.0], 9.0)
    (20.0, 30.0)
    """
    place = blend_at(x, y, level)
    return math.nan if place is None else float(place.of(np.asarray(y, dtype=np.float64)))


def unfairness_at(x: npt.ArrayLike, y: npt.ArrayLike, level: float) -> float:
    """Return the lowest unfairness of a frontier at a level of effectiveness; nan if no point is so effective.

    A level below the effectiveness of the fairest point is reached by that point.

    Parameters
    ----------
    x, y : (points,) arrays
        Unfairness and effectiveness of the points.
    level
        The effectiveness demanded.

    Returns
    -------
    float

    Raises
    ------
    DataError
        If there are no points, x and y differ in length, or a value is not finite.

    Examples
    --------
    >>> unfairness_at([1.0, 3.0], [10.0, 30.0], 20.0), unfairness_at([1.0, 3.0], [10.0, 30.0], 5.0)
    (2.0, 1.0)
    """
    mirrored = effectiveness_at(-np.asarray(y, dtype=np.float64), -np.asarray(x, dtype=np.float64), -level)
    return -mirrored


def hypervolume(x: npt.ArrayLike, y: npt.ArrayLike, low: float, high: float, least: float) -> float:
    """Compute the area below a frontier and above a least effectiveness, between two levels of unfairness.

    Where the policy is not so fair, or not so effective, the area is 0.

    Parameters
    ----------
    x, y : (points,) arrays
        Unfairness and effectiveness of the points.
    low, high
        The levels of unfairness.
    least
        Effectiveness from which the height is measured.

    Returns
    -------
    float
        At least 0.

    Raises
    ------
    DataError
        If there are no points, x and y differ in length, a value is not finite, or `low` is not below `high`.

    Examples
    --------
    A frontier that begins at 1.5 with a height of 0.2 and rises to 0.4 at 2:

    >>> round(hypervolume([1.5, 2.0], [0.7, 0.9], low=1.0, high=2.0, least=0.5), 12)
    0.15
    """
    if not low < high:
        raise DataError(f"low = {low} and high = {high}: expected two levels of unfairness, low below high")
    best = pareto(x, y)
    u, e = np.asarray(x, dtype=np.float64)[best], np.asarray(y, dtype=np.float64)[best] - least
    crossings = [u[i] - e[i] * (u[i + 1] - u[i]) / (e[i + 1] - e[i]) for i in range(u.size - 1) if e[i] < 0 < e[i + 1]]
    begin = max(low, float(u[0]))
    if begin >= high:
        return 0.0
    inside = [each for each in (*u, *crossings) if begin < each < high]
    cuts = np.unique([begin, *inside, high])
    heights = np.maximum(np.interp(cuts, u, e), 0.0)  # constant beyond the most effective point
    return float(np.sum(np.diff(cuts) * (heights[:-1] + heights[1:]) / 2.0))
