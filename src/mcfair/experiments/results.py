"""Results of experiments: tidy tables over their runs and the limits that hold for them."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ..analysis.limits import fairness_floor, frontier, group_floor
from ..data.dataset import Dataset
from ..errors import MCFairWarning
from ..metrics.base import parse_metric
from ..policies.base import Policy
from ..simulation.run import evaluation_pool
from ..simulation.setting import Setting
from ..simulation.trace import Trace
from .archive import Archive
from .experiment import Experiment
from .tasks import Task, fingerprint

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Results", "collect", "setting_key"]

DESCRIPTION = ("key", "data", "mode", "setting", "policy", "seed", "sessions")
"""Columns of `Results.runs` that are not figures."""


class DatasetFacts(NamedTuple):
    """Content hash of a dataset without its features, and its size."""

    fingerprint: str
    queries: int
    items: int


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Results:
    """Runs of some experiments as tidy tables; `setting` columns hold a setting as canonical JSON.

    Attributes
    ----------
    experiments
        What was run.
    runs
        One row per run: key, data, mode, setting, policy, seed, sessions, and a column per metric, such as
        unfairness, relative_unfairness, cndcg@1..k and ndcg@1..k.
    queries
        One row per run and judged query: key, query, visits, unfairness, ndcg@1..k.
    limits
        One row per data, setting and seed: data, mode, setting, seed, floor, gap, queries, unreachable, group_floor,
        which is None unless the group unfairness was measured.
    frontier
        The Pareto frontier of each of these: data, mode, setting, seed, point, unfairness, ndcg.
    times
        Seconds per 1,000 lists, measured serially: data, mode, setting, policy, seconds.
    about
        How the runs were made: versions, machine, command.
    datasets
        Content hash and size of each dataset, by name.

    Examples
    --------
    >>> import tempfile
    >>> import mcfair as mf
    >>> toy = mf.Dataset(offsets=[0, 3], y=[2, 1, 0])
    >>> mine = mf.Experiment(
    ...     name="mine",
    ...     data=("toy",),
    ...     settings=({"steps": 20, "k": 2},),
    ...     k_c=(2,),
    ...     seeds=2,
    ...     series=(mf.Series(policies=("TopK", "MCFair")),),
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     results = mf.run_experiments([mine], folder, data={"toy": toy})
    >>> results.runs.select("seed", "sessions").rows()
    [(0, 20), (1, 20), (0, 20), (1, 20)]
    >>> results.summary()["unfairness"].round(2).to_list()
    [8.97, 1.19]
    """

    experiments: tuple[Experiment, ...]
    runs: pl.DataFrame
    queries: pl.DataFrame
    limits: pl.DataFrame
    frontier: pl.DataFrame
    times: pl.DataFrame
    about: dict[str, str]
    datasets: dict[str, DatasetFacts] = dataclasses.field(default_factory=dict)

    def __repr__(self) -> str:
        names = ", ".join(each.name for each in self.experiments)
        policies, seeds = self.runs["policy"].n_unique(), self.runs["seed"].n_unique()
        return f"Results({names}: {self.runs.height:,} runs of {policies} policies, {seeds} seed(s))"

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p>{self.summary()._repr_html_()}"

    def summary(self) -> pl.DataFrame:
        """Return mean and standard deviation over seeds of the figures, one row per data, setting and policy.

        Returns
        -------
        polars.DataFrame
            Columns data, mode, setting, policy, seeds, and for every metric its name and the name with " std", the
            standard deviation of the population.
        """
        import polars as pl

        metrics = [name for name in self.runs.columns if name not in DESCRIPTION]
        return self.runs.group_by("data", "mode", "setting", "policy", maintain_order=True).agg(
            pl.len().alias("seeds"),
            *(
                each
                for name in metrics
                for each in (pl.col(name).mean(), pl.col(name).std(ddof=0).alias(f"{name} std"))
            ),
        )

    def of(self, data: str, setting: Setting, policy: Policy) -> pl.DataFrame:
        """Select the runs of one policy on one dataset in one setting.

        Parameters
        ----------
        data
            Name of the dataset, as `Experiment.data` spells it.
        setting, policy
            One of the experiment's `conditions`, and one of the points of its series.

        Returns
        -------
        polars.DataFrame
            The rows of `runs`, one per seed.
        """
        import polars as pl

        here = (pl.col("data") == data) & (pl.col("setting") == setting_key(setting))
        return self.runs.filter(here & (pl.col("policy") == repr(policy))).sort("seed")

    def floors(self, data: str, setting: Setting) -> list[float]:
        """Return the fairness floor of each seed; the parameters are those of `of`."""
        return self.limits.filter(data=data, setting=setting_key(setting)).sort("seed")["floor"].to_list()

    def seconds(self, data: str, setting: Setting, policy: Policy) -> float | None:
        """Return the seconds per 1,000 lists of a policy, or None if they were not measured; parameters as for `of`."""
        rows = self.times.filter(data=data, setting=setting_key(setting), policy=repr(policy))
        return float(rows["seconds"][0]) if rows.height else None


def setting_key(setting: Setting) -> str:
    """Return a setting as canonical JSON.

    Examples
    --------
    >>> setting_key(Setting(steps=10)).startswith('{"clicks":"PositionBased(')
    True
    """
    return msgspec.json.encode(setting.to_dict(), order="sorted").decode()


def collect(
    experiments: Sequence[Experiment],
    data: Mapping[str, Dataset],
    tasks: Sequence[Task],
    archive: Archive,
    times: Mapping[str, float],
    about: dict[str, str],
) -> Results:
    """Read the stored runs of some tasks and compute the limits that hold for them.

    Parameters
    ----------
    experiments
        What was run.
    data
        Datasets by the names that the tasks use.
    tasks, archive
        The runs and where they are stored.
    times
        Seconds per 1,000 lists, by key of the task.
    about
        How the runs were made.
    """
    import polars as pl

    by_key = {task.key: task for task in tasks}
    runs, queries = read_runs(by_key, archive)
    limits, frontiers, seen = [], [], set()
    for task in tasks:
        where = {"data": task.data, "mode": task.setting.mode, "setting": setting_key(task.setting), "seed": task.seed}
        if tuple(where.values()) not in seen:  # the visits do not depend on the policy
            seen.add(tuple(where.values()))
            floor, curve = limits_of(data[task.data], archive.load(task.key))
            limits.append(where | floor)
            frontiers += [where | point for point in curve]
    serial = [
        {
            "data": by_key[key].data,
            "mode": by_key[key].setting.mode,
            "setting": setting_key(by_key[key].setting),
            "policy": repr(by_key[key].policy),
            "seconds": seconds,
        }
        for key, seconds in times.items()
    ]
    names = {"data": pl.String, "mode": pl.String, "setting": pl.String, "policy": pl.String, "seconds": pl.Float64}
    return Results(
        experiments=tuple(experiments),
        runs=runs,
        queries=queries,
        limits=pl.DataFrame(limits, schema_overrides={"group_floor": pl.Float64}),
        frontier=pl.DataFrame(frontiers),
        times=pl.DataFrame(serial, schema=names),
        about=about,
        datasets={
            name: DatasetFacts(fingerprint(each.pool()[0].without_features), each.queries, each.items)
            for name, each in data.items()
        },
    )


def limits_of(data: Dataset, trace: Trace) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return floor and frontier for the visits of a run, with known relevance."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MCFairWarning)  # the run has shown the same
        whole, judged = evaluation_pool(data)
    visits, p = trace.state.visits * judged, trace.state.p
    floor, curve = fairness_floor(whole, visits, p), frontier(whole, visits, p)
    by_group = any(parse_metric(text).floor_among == "groups" for text in trace.values)
    counted = visits > 0
    return (
        {
            "floor": floor.unfairness,
            "gap": floor.gap,
            "queries": int(counted.sum()),
            "unreachable": int((counted & ~floor.reachable).sum()),
            "group_floor": group_floor(whole, visits, p).unfairness if by_group else None,
        },
        [
            {"point": i, "unfairness": float(curve.unfairness[i]), "ndcg": float(curve.ndcg[i])}
            for i in range(curve.lambdas.size)
        ],
    )


def read_runs(tasks: dict[str, Task], archive: Archive) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Read the final figures of each run, and those of its queries."""
    import polars as pl

    def read(name: str, keys: Iterable[str]) -> pl.LazyFrame:
        paths = [archive.folder / key / f"{name}.parquet" for key in keys]
        key = pl.col("path").str.extract(r"([0-9a-f]{32})[/\\\\][^/\\\\]+$").alias("key")
        return pl.scan_parquet(paths, include_file_paths="path").with_columns(key).drop("path")

    figures = (
        read("metrics", tasks)
        .filter(pl.col("sessions") == pl.col("sessions").max().over("key"))
        .select("key", "sessions", "metric", "value")
        .collect()
        .pivot("metric", index=["key", "sessions"], values="value")
    )
    about = pl.DataFrame(
        {
            "key": list(tasks),
            "data": [task.data for task in tasks.values()],
            "mode": [task.setting.mode for task in tasks.values()],
            "setting": [setting_key(task.setting) for task in tasks.values()],
            "policy": [repr(task.policy) for task in tasks.values()],
            "seed": [task.seed for task in tasks.values()],
        }
    )
    groups: dict[tuple[str, Setting], list[str]] = {}  # runs whose tables have the same columns
    for key, task in tasks.items():
        groups.setdefault((task.data, task.setting), []).append(key)
    queries = pl.concat(
        [
            read("queries", keys).filter(pl.col("judged")).drop("items", "sessions", "judged")
            for keys in groups.values()
        ],
        how="diagonal",
    )
    return about.join(figures, on="key", maintain_order="left"), queries.select("key", pl.exclude("key")).collect()
