"""Effectiveness against unfairness: curves of policies in one call, and points compared with a baseline's curve.

Points are compared at equal unfairness, seed by seed. Every comparison carries an interval and the difference that it
could have detected, so that a result that is not significant is never mistaken for evidence of equality.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack

import numpy as np

from ..analysis.frontiers import effectiveness_at
from ..analysis.significance import confidence, detectable_difference
from ..arrays import FloatArray
from ..data.dataset import Dataset
from ..experiments.compare import Policies, compare
from ..experiments.results import LEVEL, POWER, Point, Results, View
from ..metrics.base import Metric
from ..options import explicit_options
from ..simulation.setting import Setting, SettingOptions, make_setting
from .figures import tradeoff_figure, tradeoff_panel

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Tradeoff:
    """Effectiveness against unfairness of several policies, with the limits that hold for all of them.

    Attributes
    ----------
    results : Results
        The runs as tidy tables.
    metric : str
        Metric of the vertical axis.

    Examples
    --------
    >>> data = Dataset(offsets=[0, 3], y=[2, 1, 0])
    >>> found = tradeoff(data, ["MCFair(alpha=[0, 1])", "TopK"], steps=50, k=2, seeds=1)
    >>> found
    Tradeoff(cndcg@2 against unfairness, post-processing: MCFair, TopK; floor 7.428)
    >>> found.frame()["unfairness"].round(3).to_list()
    [56.091, 7.604, 56.091]
    """

    results: Results
    metric: str

    @property
    def view(self) -> View:
        """The runs by series."""
        (experiment,) = self.results.experiments
        return next(self.results.views(experiment, experiment.data[0]))

    def __repr__(self) -> str:
        view = self.view
        curves = ", ".join(curve.label for curve in view.curves)
        return f"Tradeoff({self.metric} against unfairness, {view.setting.mode}: {curves}; floor {view.floor:.4g})"

    def frame(self) -> pl.DataFrame:
        """Return a table: one row per policy, means over seeds.

        Returns
        -------
        polars.DataFrame
            Columns series, policy, unfairness, its standard deviation, the metric, and its standard deviation.
        """
        import polars as pl

        rows = []
        for point in self.view.points:
            row: dict[str, object] = {"series": point.series.name, "policy": repr(point.policy)}
            for text in ("unfairness", self.metric):
                row |= {text: point.mean(text), f"{text} std": point.std(text)}
            rows.append(row)
        return pl.DataFrame(rows)

    def plot(self, *, narrow: bool = False) -> Figure:
        """Draw the trade-off as the report does; `figure.savefig(path)` writes it, and notebooks show it.

        Parameters
        ----------
        narrow
            Whether to draw it for a narrow page.

        Returns
        -------
        matplotlib.figure.Figure
        """
        return tradeoff_figure([[tradeoff_panel(self.view, self.metric)]], narrow=narrow)

    def _repr_png_(self) -> bytes:
        import io

        target = io.BytesIO()
        self.plot().savefig(target, format="png", dpi=150)
        return target.getvalue()


@explicit_options(Setting, SettingOptions)
def tradeoff(
    data: Dataset | str | os.PathLike[str],
    policies: Mapping[str, Policies] | Policies,
    setting: Setting | str = "post-processing",
    *,
    metric: str | None = None,
    seeds: int = 3,
    jobs: int = 1,
    folder: str | Path | None = None,
    fresh: bool = False,
    cluster: str = "",
    progress: Callable[[str, int, int], None] | None = None,
    **options: Unpack[SettingOptions],
) -> Tradeoff:
    """Simulate policies and compare their effectiveness with their unfairness.

    Parameters
    ----------
    data
        The queries, or what `open_data` takes.
    policies
        Texts, in which a list of values is a policy for each value, such as "MCFair(alpha=[0, 1, 10])": one curve per
        text. Or a mapping from the label of a curve to its policies.
    setting, **options
        As for `simulate`.
    metric
        Metric of the vertical axis, by default cNDCG of the whole list.
    seeds
        How many seeds: 0, 1, ...
    jobs, folder, fresh, cluster, progress
        As for `compare`.

    Returns
    -------
    Tradeoff

    Raises
    ------
    MCFairError
        If the data, a policy, the metric or an option is not allowed.

    Examples
    --------
    >>> found = tradeoff("mq2008-like", ["MCFair(alpha=[0, 1])", "FairCo(alpha=[0, 1])"], steps=500, seeds=1)
    >>> found.frame().shape
    (4, 6)
    >>> figure = found.plot()
    """
    conditions = make_setting(setting, options)
    named = [] if metric is None else [Metric.of(metric)]
    conditions = dataclasses.replace(conditions, metrics=(*conditions.metrics, *named))
    results = compare(
        data, policies, conditions, seeds=seeds, jobs=jobs, folder=folder, fresh=fresh, cluster=cluster,
        progress=progress,
    )  # fmt: skip
    found = Tradeoff(results, repr(named[0]) if named else "")
    return found if named else dataclasses.replace(found, metric=f"cndcg@{found.view.k}")


# --- points against a baseline's curve -------------------------------------------------------------------------------

ROUNDING = 1e-9
"""Relative difference below which two values count as the same."""

Outcome = Literal["above", "below", "undecided", "identical", "untested", "fairer", "less fair"]
"""Where the baseline's curve lies relative to a point: significantly above, significantly below, no significant
difference, the same value in every seed, or unknown because there is one seed; or that the point is fairer or less fair
than any of the curve, so that nothing is compared."""


@dataclasses.dataclass(frozen=True)
class ComparedPoint:
    """A point of another method against the baseline's curve; differences are the curve's value minus the point's."""

    point: Point
    k: int
    outcome: Outcome
    difference: float = math.nan
    low: float = math.nan
    high: float = math.nan
    detectable: float = math.nan


def count(points: Sequence[ComparedPoint], outcome: Outcome) -> int:
    """Count the points with an outcome."""
    return sum(each.outcome == outcome for each in points)


def within(points: Sequence[ComparedPoint]) -> int:
    """Count the points within the range of the curve."""
    return len(points) - count(points, "fairer") - count(points, "less fair")


def median_detectable(points: Sequence[ComparedPoint]) -> float:
    """Return the median detectable difference of points that differ from the curve in some seed; nan without any."""
    sizes = [each.detectable for each in points if each.outcome in ("above", "below", "undecided")]
    return float(np.median(sizes)) if sizes else math.nan


Lines = dict[int, list[tuple[FloatArray, FloatArray]]]
"""Unfairness and cNDCG of the baseline's curves, by seed."""


def compare_curves(view: View, k: int) -> list[ComparedPoint]:
    """Compare the points of other methods with the curve in `compare_with`, seed by seed at equal unfairness.

    A seed fixes the visitors whatever the policy, so differences within a seed vary less than the curves do.
    """
    wanted = view.experiment.compare_with
    bases = [curve for curve in view.curves if wanted and curve.label == wanted]
    if not bases:
        return []
    own = {curve.policy_class for curve in bases}
    seeds = set.intersection(*(set(point.seeds) for curve in bases for point in curve.points))
    lines: Lines = {seed: [] for seed in sorted(seeds)}
    for curve in bases:
        values = [values_by_seed(point, k, lines) for point in curve.points]
        for seed, found in lines.items():
            x, y = np.array([each[seed] for each in values]).T
            found.append((x, y))
    others = [curve for curve in view.curves if curve.policy_class not in own]
    return [compare_point(point, k, lines) for curve in others for point in curve.points if set(point.seeds) & seeds]


def compare_point(point: Point, k: int, lines: Lines) -> ComparedPoint:
    """Compare a point with the baseline's curves in the seeds that it has."""
    values = values_by_seed(point, k, lines)
    if any(x < min(base.min() for base, _ in lines[seed]) * (1 - ROUNDING) for seed, (x, _) in values.items()):
        return ComparedPoint(point, k, "fairer")
    if any(x > max(base.max() for base, _ in lines[seed]) * (1 + ROUNDING) for seed, (x, _) in values.items()):
        return ComparedPoint(point, k, "less fair")
    # at an unfairness that not every one of several curves reaches, those that do count
    best = {seed: np.nanmax([effectiveness_at(*line, x) for line in lines[seed]]) for seed, (x, _) in values.items()}
    gaps = [float(best[seed] - y) for seed, (_, y) in values.items()]
    low, high = confidence(gaps, LEVEL)
    outcome, detectable = classify(gaps, point.mean(f"cndcg@{k}")), detectable_difference(gaps, LEVEL, power=POWER)
    return ComparedPoint(point, k, outcome, float(np.mean(gaps)), low, high, detectable)


def classify(gaps: Sequence[float], scale: float) -> Outcome:
    """Classify a point by the interval of its mean difference from the curve over seeds."""
    low, high = confidence(gaps, LEVEL)
    smallest = ROUNDING * abs(scale)
    if len(gaps) < 2:
        return "untested"
    if max(map(abs, gaps)) <= smallest:
        return "identical"
    return "above" if low > smallest else "below" if high < -smallest else "undecided"


def values_by_seed(point: Point, k: int, seeds: Collection[int]) -> dict[int, tuple[float, float]]:
    """Return unfairness and cNDCG@k of the seeds that a point has."""
    rows = zip(point.seeds, point.values("unfairness").tolist(), point.values(f"cndcg@{k}").tolist(), strict=True)
    return {seed: (x, y) for seed, x, y in sorted(rows) if seed in seeds}
