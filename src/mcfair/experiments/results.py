"""Results of experiments: tidy tables over their runs and the limits that hold for them."""

from __future__ import annotations

import dataclasses
import hashlib
import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from ..analysis.limits import fairness_floor, frontier, group_floor
from ..analysis.significance import PairedTest, paired_tests
from ..arrays import FloatArray
from ..data.dataset import Dataset
from ..errors import MCFairWarning, SettingError, unknown
from ..metrics.base import Metric, metric_label
from ..policies.base import Policy
from ..simulation.run import evaluation_pool
from ..simulation.setting import Setting
from ..tables import Table, format_number, format_p_value, format_signed, format_spread
from .execute import Task
from .experiment import Experiment
from .folder import Folder, Outcome
from .keys import fingerprint, source_hash

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Results", "collect", "setting_key"]

DESCRIPTION = ("key", "data", "mode", "setting", "policy", "seed", "sessions")
"""Columns of `Results.runs` that are not figures."""


POWER = 0.8
"""Power at which detectable differences are stated."""


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
    >>> results = mf.run_experiments([mine], data={"toy": toy})
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

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.tables()))

    def _repr_html_(self) -> str:
        return "\n".join(each.as_html() for each in self.tables())

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

    # --- comparisons -------------------------------------------------------------------------------------------------

    def contestants(self, experiment: Experiment, setting: Setting) -> dict[str, tuple[Setting, Policy]]:
        """Return what is compared in one of an experiment's settings: label, setting and policy, in its order."""
        found: dict[str, tuple[Setting, Policy]] = {}
        for series in experiment.series:
            if series.mode in ("", setting.mode):
                for policy in series.points:
                    names = (series.name, policy.label, f"{series.name}: {policy.label}")
                    free = [name for name in names[len(series.points) > 1 :] if name not in found]
                    found[free[0] if free else names[-1]] = series.condition(setting), policy
        return found

    @cached_property
    def of_queries(self) -> pl.DataFrame:
        """Metrics of each query under each policy: means over the seeds in which it was visited."""
        import polars as pl

        about = self.runs.select("key", "data", "setting", "policy", "seed")
        rows = self.queries.filter(pl.col("visits") > 0).join(about, on="key")
        by = ["data", "setting", "policy", "query"]
        return rows.sort(*by, "seed").group_by(by, maintain_order=True).agg(pl.exclude("key", "visits", "seed").mean())

    def tests(
        self,
        metrics: Sequence[str] | None = None,
        *,
        against: str | None = None,
        data: str | None = None,
        level: float = 0.95,
    ) -> pl.DataFrame:
        """Test every policy against one of them over the queries of all datasets.

        Two policies are paired by query, whose values are means over seeds. Fisher's randomisation test is adjusted by
        Holm's procedure for all comparisons with the baseline in one setting, those of several metrics included.

        Parameters
        ----------
        metrics
            Metrics that a single query has, by default unfairness and NDCG of the whole list. Over several datasets
            it is relative unfairness, because unfairness grows with the visits of a query.
        against
            Label of the policy that the others are tested against; by default that of `compare_with` of an experiment,
            or the first.
        data
            Name of the only dataset to use; by default all are pooled.
        level
            One minus the significance level.

        Returns
        -------
        polars.DataFrame
            A row per setting, metric and policy. Columns mode, setting, metric, policy (its repr), label, against,
            queries, mean, baseline, difference, low, high (its bootstrap interval), p, p_adjusted, detectable (the
            least difference that would be found with a power of 80 %) and verdict: "higher" or "lower" than the
            baseline, "undecided" if the test finds no difference, which does not mean that there is none, "identical"
            if every query has the same value under both, or "untested" if there is one query.

        Raises
        ------
        SettingError
            If there is no such policy, metric or dataset.
        """
        import polars as pl

        rows: list[dict[str, Any]] = []
        for experiment in self.experiments:
            for setting in experiment.conditions:
                rows += self._tests(experiment, setting, metrics, against, data, level)
        return pl.DataFrame(rows, infer_schema_length=None)

    def _tests(
        self,
        experiment: Experiment,
        setting: Setting,
        metrics: Sequence[str] | None,
        against: str | None,
        data: str | None,
        level: float,
    ) -> list[dict[str, Any]]:
        import polars as pl

        found, names = self.contestants(experiment, setting), list(self.of_queries.columns[4:])
        if data is not None and data not in experiment.data:
            raise SettingError(unknown("dataset", data, experiment.data))
        base = against if against is not None else next(iter(found))
        if against is None and experiment.compare_with:
            series = next(each for each in experiment.series if each.name == experiment.compare_with)
            base = next((name for name, (_, policy) in found.items() if policy == series.points[-1]), base)
        if base not in found:
            base = next((name for name, (_, policy) in found.items() if base in (repr(policy), policy.label)), base)
        if base not in found:
            raise SettingError(unknown("policy to compare with", base, found))
        several = data is None and len(experiment.data) > 1
        wanted = metrics or (("relative_unfairness" if several else "unfairness"), f"ndcg@{setting.k}")
        pairs, rows = [], []
        for text in (repr(Metric.of(each)) for each in wanted):
            if text not in names:
                raise SettingError(unknown("metric of single queries", text, names))
            tables = {}
            for name, (where, policy) in found.items():
                here = (pl.col("setting") == setting_key(where)) & (pl.col("policy") == repr(policy))
                place = pl.col("data").is_in([data] if data is not None else list(experiment.data))
                values = self.of_queries.filter(here & place).select("data", "query", text)
                tables[name] = values.drop_nulls().drop_nans(text)
            for name, table in tables.items():
                both = table.join(tables[base].rename({text: "base"}), on=["data", "query"]).sort("data", "query")
                if name == base or both.is_empty():
                    continue
                a, b = both[text].to_numpy(), both["base"].to_numpy()
                pairs.append((a, b))
                rows.append(
                    {
                        "mode": setting.mode,
                        "setting": setting_key(setting),
                        "metric": text,
                        "policy": repr(found[name][1]),
                        "label": name,
                        "against": base,
                        "queries": a.size,
                        "mean": float(a.mean()),
                        "baseline": float(b.mean()),
                    }
                )
        for row, test in zip(rows, paired_tests(pairs, level, power=POWER), strict=True):
            row |= {"difference": test.mean, "low": test.low, "high": test.high, "p": test.p}
            row |= {"p_adjusted": test.p_adjusted, "detectable": test.detectable, "verdict": verdict(row, test, level)}
        return rows

    def frame(self, *, against: str | None = None) -> pl.DataFrame:
        """Return the comparison: a row per setting and policy, with its figures and how they compare with a baseline.

        Parameters
        ----------
        against
            As for `tests`.

        Returns
        -------
        polars.DataFrame
            Columns mode, setting, label, policy, seeds; for unfairness and NDCG the mean over seeds and datasets, with
            " std" its standard deviation, with " difference", " p_adjusted" and " verdict" what `tests` found; null
            for the baseline itself.
        """
        import polars as pl

        rows, tests = [], self.tests(against=against)
        for experiment in self.experiments:
            for setting in experiment.conditions:
                for label, (where, policy) in self.contestants(experiment, setting).items():
                    row: dict[str, Any] = {"mode": setting.mode, "setting": setting_key(setting), "label": label}
                    row |= {"policy": repr(policy), "seeds": experiment.seeds}
                    for text in shown_metrics(experiment, setting):
                        values = self.values(experiment, where, policy, text)
                        row |= {text: float(values.mean()), f"{text} std": float(values.std())}
                        if not tests.is_empty():
                            of = tests.filter(setting=row["setting"], metric=text, label=label)
                            for name in ("difference", "p_adjusted", "verdict"):
                                row[f"{text} {name}"] = of[name][0] if of.height else None
                    rows.append(row)
        return pl.DataFrame(rows, infer_schema_length=None)

    def values(self, experiment: Experiment, where: Setting, policy: Policy, metric: str) -> FloatArray:
        """Return a metric of each seed, means over the datasets of an experiment."""
        columns = [self.of(name, where, policy)[metric].to_numpy() for name in experiment.data]
        return np.asarray(np.mean([column[: experiment.seeds] for column in columns], axis=0))

    def tables(self, *, against: str | None = None) -> list[Table]:
        """Return the comparison as text, a table for each experiment and setting.

        Parameters
        ----------
        against
            As for `tests`.
        """
        tests = self.tests(against=against)
        return [
            comparison_table(self, experiment, setting, tests)
            for experiment in self.experiments
            for setting in experiment.conditions
        ]


def setting_key(setting: Setting) -> str:
    """Return a setting as canonical JSON.

    Examples
    --------
    >>> setting_key(Setting(steps=10)).startswith('{"clicks":"PositionBased(')
    True
    """
    return msgspec.json.encode(setting.to_dict(), order="sorted").decode()


def shown_metrics(experiment: Experiment, setting: Setting) -> tuple[str, ...]:
    """Return the metrics that a comparison shows."""
    return ("unfairness" if len(experiment.data) == 1 else "relative_unfairness"), f"ndcg@{setting.k}"


def verdict(row: Mapping[str, Any], test: PairedTest, level: float) -> str:
    """Return in one word what a test has found."""
    if row["queries"] < 2:
        return "untested"
    if test.low == test.high == 0.0:
        return "identical"
    if test.p_adjusted >= 1 - level:
        return "undecided"
    return "higher" if test.mean > 0 else "lower"


def comparison_table(results: Results, experiment: Experiment, setting: Setting, tests: pl.DataFrame) -> Table:
    """Build the table of one experiment in one setting: a row per policy, with its difference from the baseline."""
    texts, several = shown_metrics(experiment, setting), experiment.seeds > 1
    floors = np.array([results.floors(name, setting)[: experiment.seeds] for name in experiment.data])
    tests = tests.filter(setting=setting_key(setting)) if not tests.is_empty() else tests
    columns = ["policy"]
    for text in texts:
        columns += [f"{metric_label(text)}{' (std)' if several else ''}", "Δ", "p"]
    rows, classes = [], {}
    if len(experiment.data) == 1:
        rows.append(("floor (lowest possible)", format_spread(floors[0]), *[""] * (len(columns) - 2)))
        classes[0] = "limit"
    found = results.contestants(experiment, setting)
    base = next(iter(found)) if tests.is_empty() else tests["against"][0]
    for label, (where, policy) in found.items():
        if label == base:
            classes[len(rows)] = "base"
        row = [label]
        for text in texts:
            of = tests.filter(metric=text, label=label) if not tests.is_empty() else tests
            row += [format_spread(results.values(experiment, where, policy, text))]
            row += cells_of(of.row(0, named=True)) if of.height else ["", ""]
        rows.append(tuple(row))
    names = experiment.data[0] if len(experiment.data) == 1 else f"{len(experiment.data)} datasets"
    seeds = f"{experiment.seeds} seeds" if several else "1 seed"
    notes = []
    if not tests.is_empty():
        queries = max(tests["queries"].to_list())
        notes.append(
            f"Δ: mean difference from {base} over {queries:,} queries; p: Fisher's randomisation test, "
            f"adjusted by Holm's method for {tests.height} comparisons. Less unfairness is fairer, more NDCG is better."
        )
        if "undecided" in tests["verdict"]:
            notes.append("(< x): not decided, which does not mean equal; a difference of x would be found with 80 %.")
    return Table(
        name=experiment.name,
        caption=f"{experiment.title or names}: {setting.mode}, {setting.steps:,} steps, {seeds}",
        columns=tuple(columns),
        rows=tuple(rows),
        notes=tuple(notes),
        row_classes=classes,
    )


def cells_of(test: Mapping[str, Any]) -> list[str]:
    """Return a difference and its p-value as text; where the test decides nothing, what it would have found."""
    if test["verdict"] in ("identical", "untested"):
        return [test["verdict"], ""]
    undecided = f" (< {format_number(test['detectable'], 2)})" if test["verdict"] == "undecided" else ""
    return [f"{format_signed(test['difference'])}{undecided}", format_p_value(test["p_adjusted"])]


# --- tables of runs --------------------------------------------------------------------------------------------------


def collect(
    experiments: Sequence[Experiment],
    data: Mapping[str, Dataset],
    tasks: Sequence[Task],
    outcomes: Mapping[str, Outcome],
    times: Mapping[str, float],
    stored: Folder | None,
    about: dict[str, str],
) -> Results:
    """Join the outcomes of tasks into tables and compute the limits that hold for them.

    Parameters
    ----------
    experiments
        What was run.
    data
        Datasets by the names that the tasks use.
    tasks, outcomes
        The runs, and their outcomes by key.
    times
        Seconds per 1,000 lists, by key of the task.
    stored
        A folder that limits are kept in.
    about
        How the runs were made.
    """
    import polars as pl

    limits, frontiers, seen = [], [], set()
    for task in tasks:
        where = {**described(task), "seed": task.seed}
        if tuple(where.values()) in seen:  # the visits do not depend on the policy
            continue
        seen.add(tuple(where.values()))
        found = limits_of(task, data[task.data], outcomes[task.key], stored)
        limits.append(where | found["floor"])
        curve = zip(found["unfairness"], found["ndcg"], strict=True)
        frontiers += [where | {"point": i, "unfairness": x, "ndcg": y} for i, (x, y) in enumerate(curve)]
    by_key = {task.key: task for task in tasks}
    serial = [
        {**described(by_key[key]), "policy": repr(by_key[key].policy), "seconds": seconds}
        for key, seconds in times.items()
    ]
    texts = dict.fromkeys(text for task in tasks for text in outcomes[task.key].figures)
    runs = [
        {"key": task.key, **described(task), "policy": repr(task.policy), "seed": task.seed}
        | {"sessions": outcomes[task.key].sessions}
        | {text: outcomes[task.key].figures.get(text) for text in texts}
        for task in tasks
    ]
    queries = pl.concat(
        (outcomes[task.key].queries.with_columns(pl.lit(task.key).alias("key")) for task in tasks), how="diagonal"
    )
    left_out = ("key", "items", "sessions", "judged")
    strings = dict.fromkeys(("data", "mode", "setting", "policy"), pl.String)
    return Results(
        experiments=tuple(experiments),
        runs=pl.DataFrame(runs, schema_overrides=dict.fromkeys(texts, pl.Float64)),
        queries=queries.filter(pl.col("judged")).select("key", pl.exclude(left_out)),
        limits=pl.DataFrame(limits, schema_overrides={"group_floor": pl.Float64}),
        frontier=pl.DataFrame(frontiers),
        times=pl.DataFrame(serial, schema={**strings, "seconds": pl.Float64}),
        about=about,
        datasets={
            name: DatasetFacts(fingerprint(each.pool()[0].without_features), each.queries, each.items)
            for name, each in data.items()
        },
    )


def described(task: Task) -> dict[str, str]:
    """Return what tables say of a task."""
    return {"data": task.data, "mode": task.setting.mode, "setting": setting_key(task.setting)}


def limits_of(task: Task, data: Dataset, outcome: Outcome, stored: Folder | None) -> dict[str, Any]:
    """Return floor and frontier for the visits of a run, with known relevance; stored ones are reused."""

    def compute() -> dict[str, Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MCFairWarning)  # the run has shown the same
            whole, judged = evaluation_pool(data)
        visits, p = outcome.queries["visits"].to_numpy() * judged, outcome.p
        floor, curve = fairness_floor(whole, visits, p), frontier(whole, visits, p)
        metrics = task.setting.measured(p.size)
        by_group = any(metric.floor_among not in (None, "items") for metric in metrics)
        counted = visits > 0
        return {
            "floor": {
                "floor": floor.unfairness,
                "gap": floor.gap,
                "queries": int(counted.sum()),
                "unreachable": int((counted & ~floor.reachable).sum()),
                "group_floor": group_floor(whole, visits, p).unfairness if by_group else None,
            },
            "unfairness": curve.unfairness.tolist(),
            "ndcg": curve.ndcg.tolist(),
        }

    if stored is None or not task.reusable:
        return compute()
    key = hashlib.sha256(f"{task.key} {source_hash(whole=True)}".encode()).hexdigest()[:32]
    return stored.recall("limits", key, compute)
