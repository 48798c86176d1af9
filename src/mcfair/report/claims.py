"""Curves compared with a baseline's at equal unfairness, seed by seed.

Every comparison carries an interval and the difference that it could have detected, so that a result that is not
significant is never mistaken for evidence of equality.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from ..analysis.frontiers import effectiveness_at
from ..analysis.significance import confidence, detectable_difference
from ..arrays import FloatArray
from ..experiments.results import LEVEL, POWER, Curve, Point, View

__all__ = [
    "LEVEL",
    "POWER",
    "ComparedPoint",
    "Comparison",
    "compare_curves",
]

ROUNDING = 1e-9
"""Relative difference below which two values count as the same."""


Outcome = Literal["above", "below", "undecided", "identical", "untested"]
"""Where the baseline's curve lies relative to a point: significantly above, significantly below, no significant
difference, the same value in every seed, or unknown because there is one seed."""


@dataclasses.dataclass(frozen=True)
class ComparedPoint:
    """A point of another method against the baseline's curve; differences are the curve's value minus the point's."""

    point: Point
    difference: float
    low: float
    high: float
    detectable: float
    outcome: Outcome


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A method against the baseline's curve; `fairer` and `less_fair` count its points beyond the curve's ends."""

    label: str
    points: tuple[ComparedPoint, ...]
    fairer: int = 0
    less_fair: int = 0

    @property
    def compared(self) -> int:
        """Number of points within the range of the curve."""
        return len(self.points)

    def count(self, outcome: Outcome) -> int:
        """Count the points with an outcome."""
        return sum(each.outcome == outcome for each in self.points)

    @property
    def detectable(self) -> float:
        """Median detectable difference of the points that differ from the curve in some seed; nan if there are none."""
        sizes = [each.detectable for each in self.points if each.outcome in ("above", "below", "undecided")]
        return float(np.median(sizes)) if sizes else math.nan

    @classmethod
    def merge(cls, label: str, parts: Iterable[Comparison]) -> Comparison:
        """Join comparisons under one label."""
        found = list(parts)
        points = tuple(point for each in found for point in each.points)
        return cls(label, points, sum(each.fairer for each in found), sum(each.less_fair for each in found))


def compare_curves(view: View, k: int) -> list[Comparison]:
    """Compare the other methods with the curve in `compare_with`, seed by seed at equal unfairness.

    A seed fixes the visitors whatever the policy, so differences within a seed vary less than the curves do.
    """
    wanted = view.experiment.compare_with
    bases = [curve for curve in view.curves if wanted and curve.label == wanted]
    own = {curve.policy_class for curve in bases}
    if not bases:
        return []
    seeds = sorted(set.intersection(*(set(point.seeds) for curve in bases for point in curve.points)))
    lines = {seed: [line(curve, k, seed) for curve in bases] for seed in seeds}
    found: dict[str, list[Comparison]] = {}
    for curve in view.curves:
        if curve.policy_class not in own:
            found.setdefault(curve.label, []).append(compare_curve(curve, lines, k))
    return [Comparison.merge(label, parts) for label, parts in found.items()]


Lines = dict[int, list[tuple[FloatArray, FloatArray]]]


def compare_curve(curve: Curve, lines: Lines, k: int) -> Comparison:
    """Compare the points of one curve with the baseline's curves, given by seed."""
    inside, fairer, less_fair = [], 0, 0
    for point in curve.points:
        values = {seed: value_at(point, k, seed) for seed in sorted(set(point.seeds) & set(lines))}
        if not values:
            continue
        if any(x < min(base.min() for base, _ in lines[seed]) * (1 - ROUNDING) for seed, (x, _) in values.items()):
            fairer += 1
        elif any(x > max(base.max() for base, _ in lines[seed]) * (1 + ROUNDING) for seed, (x, _) in values.items()):
            less_fair += 1
        else:
            gaps = [best_at(lines[seed], x) - y for seed, (x, y) in values.items()]
            inside.append(compare_point(point, gaps, point.mean(f"cndcg@{k}")))
    return Comparison(curve.label, tuple(inside), fairer, less_fair)


def best_at(lines: Sequence[tuple[FloatArray, FloatArray]], unfairness: float) -> float:
    """Return the highest effectiveness of some curves at an unfairness that at least one of them reaches."""
    return float(np.nanmax([effectiveness_at(*each, unfairness) for each in lines]))


def compare_point(point: Point, gaps: Sequence[float], scale: float) -> ComparedPoint:
    """Classify a point by the interval of its mean difference from the curve over seeds."""
    mean = float(np.mean(gaps))
    low, high = confidence(gaps, LEVEL)
    smallest = ROUNDING * abs(scale)
    outcome: Outcome = "undecided"
    if len(gaps) < 2:
        outcome = "untested"
    elif max(map(abs, gaps)) <= smallest:
        outcome = "identical"
    elif low > smallest:
        outcome = "above"
    elif high < -smallest:
        outcome = "below"
    return ComparedPoint(point, mean, low, high, detectable_difference(gaps, LEVEL, power=POWER), outcome)


def value_at(point: Point, k: int, seed: int) -> tuple[float, float]:
    """Return unfairness and cNDCG@k of one seed."""
    i = point.seeds.index(seed)
    return float(point.values("unfairness")[i]), float(point.values(f"cndcg@{k}")[i])


def line(curve: Curve, k: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Return unfairness and cNDCG@k of a curve's points with one seed, in order."""
    x, y = np.array([value_at(point, k, seed) for point in curve.points]).T
    return x, y
