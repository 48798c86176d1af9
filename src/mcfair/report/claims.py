"""What can be said of the results: differences between policies that are not chance, and whose curve is higher."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from ..analysis.significance import confidence, difference, fisher, holm
from ..arrays import FloatArray
from .views import Curve, Point, View

__all__ = ["Above", "Comparison", "Tested", "baseline", "compared_curves", "envelope", "significance"]

ROUNDING = 1e-9
"""A relative difference that is put down to rounding."""


# --- differences over queries ----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Tested:
    """A policy's mean difference from the baseline over queries, its interval, and p as it is and after Holm."""

    mean: float
    low: float
    high: float
    p: float
    corrected: float

    @property
    def mark(self) -> str:
        """† for p < 0.01, ‡ for p < 0.05."""
        return "†" if self.corrected < 0.01 else "‡" if self.corrected < 0.05 else ""


def baseline(view: View) -> Point | None:
    """Find the policy that others are tested against: the last of the series in `compare_with`."""
    wanted = view.experiment.compare_with
    found = [curve.points[-1] for curve in view.curves if wanted and curve.label == wanted]
    return found[0] if found else None


def significance(view: View, metric: str) -> dict[Point, Tested]:
    """Test every other policy against the baseline on each query's figure, corrected for how many they are."""
    base = baseline(view)
    others = [point for curve in view.curves for point in curve.points if point is not base]
    if base is None or not others:
        return {}
    reference = view.per_query(base).select("query", base=metric)
    found, p_values = [], []
    for point in others:
        pairs = view.per_query(point).select("query", metric).join(reference, on="query").sort("query")
        if pairs.is_empty():
            continue
        a, b = pairs[metric].to_numpy(), pairs["base"].to_numpy()
        if np.allclose(a, b, rtol=ROUNDING, atol=0.0):
            a = b  # the same lists: what is left is rounding, and a test would call it systematic
        found.append((point, difference(a, b)))
        p_values.append(fisher(a, b))
    if not found:
        return {}
    corrected = holm(p_values)
    return {
        point: Tested(*interval, p, float(q))
        for (point, interval), p, q in zip(found, p_values, corrected, strict=True)
    }


# --- whose curve is higher -------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Above:
    """A point above the curve it is compared with: by how much, as a mean over seeds and its interval."""

    point: Point
    by: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A method against the curve in `compare_with`: points compared, points beyond its ends, and points above it."""

    label: str
    compared: int
    fairer: int
    less_fair: int
    above: tuple[Above, ...]


def envelope(x: FloatArray, y: FloatArray, at: float) -> float:
    """Find the most effectiveness on a curve, straight between its points, at an unfairness of at most `at`.

    Examples
    --------
    >>> round(envelope(np.array([1.0, 3.0]), np.array([10.0, 30.0]), 2.0), 6)
    20.0
    """
    at *= 1 + ROUNDING  # the same lists may differ in the last digit
    best = float(np.max(y[x <= at], initial=-math.inf))
    for i in range(x.size - 1):
        low, high = sorted((i, i + 1), key=lambda j: float(x[j]))
        if x[low] <= at < x[high]:
            best = max(best, float(y[low] + (y[high] - y[low]) * (at - x[low]) / (x[high] - x[low])))
    return best


def compared_curves(view: View, k: int) -> list[Comparison]:
    """Compare the curves of other policies with the one in `compare_with`, seed by seed at equal unfairness.

    Seeds have the same visitors whatever the policy, so differences within a seed have less noise than the curves. A
    point is above if the 95 % interval of its mean difference is; with one seed, if it is above at all.
    """
    wanted = view.experiment.compare_with
    bases = [curve for curve in view.curves if wanted and curve.label == wanted]
    own = {curve.base for curve in bases}
    if not bases:
        return []
    seeds = sorted(set.intersection(*(seeds_of(point) for curve in bases for point in curve.points)))
    lines = {seed: [line(curve, k, seed) for curve in bases] for seed in seeds}
    found: dict[str, Comparison] = {}
    for curve in view.curves:
        if curve.base not in own:
            one = compare(curve, lines, k)
            if curve.label in found:
                before = found[curve.label]
                one = Comparison(one.label, one.compared + before.compared, one.fairer + before.fairer,
                                 one.less_fair + before.less_fair, before.above + one.above)  # fmt: skip
            found[curve.label] = one
    return list(found.values())


def compare(curve: Curve, lines: dict[int, list[tuple[FloatArray, FloatArray]]], k: int) -> Comparison:
    """Compare the points of a curve with others."""
    inside, fairer, less_fair, above = 0, 0, 0, []
    for point in curve.points:
        seeds = sorted(seeds_of(point) & set(lines))
        here = {seed: at(point, k, seed) for seed in seeds}
        if not seeds:
            continue
        if any(x < min(base.min() for base, _ in lines[seed]) * (1 - ROUNDING) for seed, (x, _) in here.items()):
            fairer += 1
            continue
        if any(x > max(base.max() for base, _ in lines[seed]) * (1 + ROUNDING) for seed, (x, _) in here.items()):
            less_fair += 1
            continue
        inside += 1
        by = np.array([y - max(envelope(*each, x) for each in lines[seed]) for seed, (x, y) in here.items()])
        low, high = confidence(by)
        least = float(by.mean()) if math.isnan(low) else low
        if least > ROUNDING * point.mean(f"cndcg@{k}"):
            above.append(Above(point, float(by.mean()), low, high))
    return Comparison(curve.label, inside, fairer, less_fair, tuple(above))


def seeds_of(point: Point) -> set[int]:
    """Seeds that a policy was run with."""
    return set(point.runs["seed"].to_list())


def at(point: Point, k: int, seed: int) -> tuple[float, float]:
    """Unfairness and cNDCG@k with one seed."""
    i = point.runs["seed"].to_list().index(seed)
    return float(point.values("unfairness")[i]), float(point.values(f"cndcg@{k}")[i])


def line(curve: Curve, k: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Draw a curve with one seed: unfairness and cNDCG@k of its points, in order."""
    x, y = np.array([at(point, k, seed) for point in curve.points]).T
    return x, y
