"""Compare policies in one call: their trade-off between effectiveness and unfairness, as a table and a figure."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from ..data.dataset import Dataset
from ..experiments.compare import Policies, compare
from ..experiments.results import Results
from ..metrics.base import Metric
from ..options import explicit_options
from ..simulation.setting import Setting, SettingOptions, make_setting
from .figures import tradeoff_figure, tradeoff_panel
from .views import View, views

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

__all__ = ["Tradeoff", "tradeoff"]


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
        return next(views(self.results, experiment, experiment.data[0]))

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

        rows = [
            {"series": curve.label, "policy": repr(point.policy)}
            | {
                name: value
                for text in ("unfairness", self.metric)
                for name, value in ((text, point.mean(text)), (f"{text} std", point.std(text)))
            }
            for curve in self.view.curves
            for point in curve.points
        ]
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
        panel = tradeoff_panel(self.view, self.view.setting.k)
        if self.metric != panel.metric:
            panel = dataclasses.replace(panel, metric=self.metric, frontier=None)
        return tradeoff_figure([[panel]], narrow=narrow)

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
    chosen = Metric.of(metric if metric is not None else f"cndcg@{conditions.k}")
    conditions = dataclasses.replace(conditions, metrics=(*conditions.metrics, chosen))
    results = compare(
        data, policies, conditions, seeds=seeds, jobs=jobs, folder=folder, fresh=fresh, cluster=cluster,
        progress=progress,
    )  # fmt: skip
    return Tradeoff(results, repr(chosen))
