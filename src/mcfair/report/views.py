"""What the report shows at a time, one experiment on one dataset in one setting, with the numbers it needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ..arrays import FloatArray
from ..experiments.experiment import Experiment, Series
from ..experiments.results import Results, setting_key
from ..policies.base import Policy
from ..simulation.run import Setting

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Curve", "Limits", "Point", "View", "paper_is_comparable", "views"]


@dataclasses.dataclass(frozen=True, eq=False)
class Point:
    """One policy of a series and its runs, a row per seed."""

    label: str
    policy: Policy
    runs: pl.DataFrame
    seconds: float | None

    @property
    def text(self) -> str:
        """The policy with the parameters that are not at their defaults."""
        return self.policy.label

    def values(self, metric: str) -> FloatArray:
        """Give a figure of each seed."""
        return self.runs[metric].to_numpy()

    def mean(self, metric: str) -> float:
        """Give the mean over seeds."""
        return float(self.values(metric).mean())

    def std(self, metric: str) -> float:
        """Give the population standard deviation over seeds, as the paper does."""
        return float(self.values(metric).std())


@dataclasses.dataclass(frozen=True, eq=False)
class Curve:
    """A series as it was played in one setting."""

    series: Series
    points: list[Point]

    @property
    def label(self) -> str:
        """What the series is called."""
        return self.series.name

    @property
    def base(self) -> str:
        """Name of its policy."""
        return type(self.points[0].policy).__name__


@dataclasses.dataclass(frozen=True, eq=False)
class Limits:
    """What no policy can beat: the floor of each seed, and the frontier as a mean over seeds."""

    floor: FloatArray
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
        """The series played here; policies without a run are left out."""
        found = []
        for series in self.experiment.series:
            if series.mode in ("", self.setting.mode):
                points = [self.point(series.name, policy) for policy in series.points]
                if points := [each for each in points if each.runs.height]:
                    found.append(Curve(series, points))
        return found

    def point(self, label: str, policy: Policy) -> Point:
        """Look up the runs of a policy, those of the experiment's seeds, and its time."""
        import polars as pl

        runs = self.results.of(self.data, self.setting, policy)
        timed = self.here(self.results.times).filter(pl.col("policy") == repr(policy))["seconds"]
        return Point(label, policy, self.seeds_of(runs), float(timed[0]) if timed.len() else None)

    def here(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Rows of this dataset and setting."""
        import polars as pl

        if frame.is_empty():
            return frame
        return frame.filter((pl.col("data") == self.data) & (pl.col("setting") == setting_key(self.setting)))

    def seeds_of(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Rows of the experiment's own seeds; another experiment may have more."""
        import polars as pl

        return frame.filter(pl.col("seed") < self.experiment.seeds)

    @cached_property
    def limits(self) -> Limits | None:
        """Floor and frontier; nothing if they were not computed."""
        rows = self.here(self.results.limits)
        if rows.is_empty():
            return None
        rows = self.seeds_of(rows).sort("seed")
        curve = self.here(self.results.frontier)
        if curve.is_empty():
            x = y = np.empty(0)
        else:
            mean = means(self.seeds_of(curve).sort("point", "seed"), "point", ["unfairness", "ndcg"])
            x, y = mean["unfairness"].to_numpy(), mean["ndcg"].to_numpy()
        worst = rows.row(int(rows["unreachable"].arg_max() or 0), named=True)
        gap = float(rows["gap"].to_numpy().max())
        return Limits(rows["floor"].to_numpy(), gap, worst["queries"], worst["unreachable"], x, y)

    @property
    def best_cndcg(self) -> float:
        """The cNDCG of a run whose NDCG is always 1."""
        gamma, sessions = self.setting.gamma, self.setting.sessions
        return float(sessions) if gamma == 1.0 else (1.0 - gamma**sessions) / (1.0 - gamma)

    @property
    def cutoffs(self) -> list[int]:
        """Cutoffs for tables: 1, 3, 5 and the length of lists."""
        return sorted({k for k in (1, 3, 5) if k <= self.setting.k_s} | {self.setting.k_s})

    def per_query(self, point: Point) -> pl.DataFrame:
        """Unfairness and NDCG of each query in a policy's runs, averaged over the seeds in which it was visited."""
        import polars as pl

        rows = self.results.queries.filter((pl.col("visits") > 0) & pl.col("key").is_in(point.runs["key"].to_list()))
        columns = ["unfairness", f"ndcg@{self.setting.k_s}"]
        return means(rows.drop_nulls(columns).drop_nans(columns).sort("query", "key"), "query", columns)


def means(frame: pl.DataFrame, by: str, columns: list[str]) -> pl.DataFrame:
    """Give the mean of some columns for each value of another, summed in the order of rows, so always the same."""
    import polars as pl

    groups, place = np.unique(frame[by].to_numpy(), return_inverse=True)
    sizes = np.bincount(place)
    sums = {column: np.bincount(place, weights=frame[column].to_numpy()) for column in columns}
    return pl.DataFrame({by: groups.tolist()} | {column: total / sizes for column, total in sums.items()})


def views(results: Results, experiment: Experiment, data: str) -> Iterator[View]:
    """Go through the settings in which an experiment was run on a dataset."""
    for setting in experiment.conditions:
        view = View(results, experiment, data, setting)
        if view.curves:
            yield view


def paper_is_comparable(view: View) -> bool:
    """Whether the runs are on the paper's data and as long as the paper's."""
    folder = "/" + view.data.lower().replace("\\", "/")
    return folder.rstrip("/").endswith("/mq2008/fold1") and view.setting.steps == Setting(mode=view.setting.mode).steps
