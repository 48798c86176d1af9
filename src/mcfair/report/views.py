"""Views of the results: one experiment on one dataset in one setting, with the numbers that the report shows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ..arrays import FloatArray
from ..experiments.experiment import Experiment, Series
from ..experiments.results import Results, setting_key
from ..policies.base import Mode, Policy
from ..simulation.setting import Setting

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Curve", "Limits", "Point", "View", "cndcg_limit", "views"]


@dataclasses.dataclass(frozen=True, eq=False)
class Point:
    """One policy of a series and its runs, a row per seed."""

    label: str
    policy: Policy
    runs: pl.DataFrame
    seconds: float | None

    @property
    def text(self) -> str:
        """The policy with the parameters that differ from their defaults."""
        return self.policy.label

    @property
    def seeds(self) -> list[int]:
        """Seeds of the runs, in the order of the rows."""
        return self.runs["seed"].to_list()

    def values(self, metric: str) -> FloatArray:
        """Return a metric of each seed; nan if the runs do not have it."""
        return self.runs[metric].to_numpy() if metric in self.runs.columns else np.full(self.runs.height, np.nan)

    def mean(self, metric: str) -> float:
        """Return the mean of a metric over seeds."""
        return float(self.values(metric).mean())

    def std(self, metric: str) -> float:
        """Return the population standard deviation of a metric over seeds, as the paper does."""
        return float(self.values(metric).std())


@dataclasses.dataclass(frozen=True, eq=False)
class Curve:
    """A series as it was run in one setting of a mode."""

    series: Series
    points: list[Point]
    mode: Mode | None = None

    @property
    def label(self) -> str:
        """Name of the series."""
        return self.series.name

    @property
    def policy_class(self) -> type[Policy]:
        """Class of its policies."""
        return type(self.points[0].policy)


@dataclasses.dataclass(frozen=True, eq=False)
class Limits:
    """Bounds for all policies: the floors of each seed, and the Pareto frontier as a mean over seeds.

    `group_floor` is that of the group unfairness, None if that was not measured.
    """

    floor: FloatArray
    group_floor: FloatArray | None
    gap: float
    queries: int
    unreachable: int
    unfairness: FloatArray
    ndcg: FloatArray


@dataclasses.dataclass(frozen=True, eq=False)
class View:
    """One experiment on one dataset in one setting."""

    results: Results
    experiment: Experiment
    data: str
    setting: Setting

    @cached_property
    def curves(self) -> list[Curve]:
        """The series of this setting; policies without a run are left out."""
        found = []
        for series in self.experiment.series:
            if series.mode in ("", self.setting.mode):
                points = [self.point(series, policy) for policy in series.points]
                if points := [each for each in points if each.runs.height]:
                    found.append(Curve(series, points, self.setting.mode))
        return found

    @property
    def pairs(self) -> list[tuple[Curve, Point]]:
        """All points of all curves, each with its curve."""
        return [(curve, point) for curve in self.curves for point in curve.points]

    @property
    def points(self) -> list[Point]:
        """All points of all curves."""
        return [point for _, point in self.pairs]

    @property
    def seeds(self) -> int:
        """Largest number of seeds of any point."""
        return max(point.runs.height for point in self.points)

    def point(self, series: Series, policy: Policy) -> Point:
        """Collect the runs of one policy of a series and, if measured, its time."""
        condition = series.condition(self.setting)
        runs = self.select(self.results.of(self.data, condition, policy))
        return Point(series.name, policy, runs, self.results.seconds(self.data, condition, policy))

    def select(self, frame: pl.DataFrame, **where: str) -> pl.DataFrame:
        """Select the rows of some values and of the experiment's own seeds; another experiment may have more."""
        import polars as pl

        return frame if frame.is_empty() else frame.filter(pl.col("seed") < self.experiment.seeds, **where)

    @cached_property
    def limits(self) -> Limits | None:
        """Floor and frontier; None if they were not computed."""
        where = {"data": self.data, "setting": setting_key(self.setting)}
        rows, curve = (self.select(frame, **where) for frame in (self.results.limits, self.results.frontier))
        if rows.is_empty():
            return None
        rows, x, y = rows.sort("seed"), np.empty(0), np.empty(0)
        if not curve.is_empty():
            mean = means(curve.sort("point", "seed"), "point", ["unfairness", "ndcg"])
            x, y = mean["unfairness"].to_numpy(), mean["ndcg"].to_numpy()
        worst = rows.row(int(rows["unreachable"].arg_max() or 0), named=True)
        gap = float(rows["gap"].to_numpy().max())
        groups = None if rows["group_floor"].has_nulls() else rows["group_floor"].to_numpy()
        return Limits(rows["floor"].to_numpy(), groups, gap, worst["queries"], worst["unreachable"], x, y)

    @property
    def floor(self) -> float:
        """Mean fairness floor over seeds; 0 if it is 0 or was not computed."""
        return float(self.limits.floor.mean()) if self.limits else 0.0

    @property
    def sessions(self) -> int:
        """Sessions of each run."""
        return int(self.curves[0].points[0].runs["sessions"][0])

    @property
    def best_cndcg(self) -> float:
        """The cNDCG of a run whose NDCG is always 1."""
        gamma, sessions = self.setting.gamma, self.sessions
        return float(sessions) if gamma == 1.0 else (1.0 - gamma**sessions) / (1.0 - gamma)

    @property
    def cutoffs(self) -> list[int]:
        """Cutoffs of tables: 1, 3, 5 and the length of lists."""
        return sorted({k for k in (1, 3, 5) if k <= self.setting.k} | {self.setting.k})

    @property
    def extra_metrics(self) -> tuple[str, ...]:
        """Metrics that the experiment names in addition."""
        return tuple(repr(each) for each in self.setting.metrics)

    def per_query(self, point: Point) -> pl.DataFrame:
        """Average unfairness and NDCG of each query over the seeds in which it was visited."""
        import polars as pl

        rows = self.results.queries.filter((pl.col("visits") > 0) & pl.col("key").is_in(point.runs["key"].to_list()))
        columns = ["unfairness", f"ndcg@{self.setting.k}"]
        return means(rows.drop_nulls(columns).drop_nans(columns).sort("query", "key"), "query", columns)


def means(frame: pl.DataFrame, by: str, columns: list[str]) -> pl.DataFrame:
    """Average columns within groups, summing in the order of rows, so that equal rows yield equal bits."""
    import polars as pl

    groups, place = np.unique(frame[by].to_numpy(), return_inverse=True)
    sizes = np.bincount(place)
    sums = {column: np.bincount(place, weights=frame[column].to_numpy()) for column in columns}
    return pl.DataFrame({by: groups.tolist()} | {column: total / sizes for column, total in sums.items()})


def views(results: Results, experiment: Experiment, data: str) -> Iterator[View]:
    """Iterate over the settings in which an experiment has runs on a dataset."""
    for setting in experiment.conditions:
        view = View(results, experiment, data, setting)
        if view.curves:
            yield view


def cndcg_limit(gamma: float) -> float | None:
    """Return the limit 1/(1 - γ) of the largest cNDCG in long runs; None if it grows without bound."""
    return None if gamma == 1.0 else 1.0 / (1.0 - gamma)
