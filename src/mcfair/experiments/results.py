"""Results of experiments: tidy tables over their runs and the limits that hold for them."""

from __future__ import annotations

import dataclasses
import hashlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
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
from ..policies.base import Mode, Policy
from ..simulation.run import evaluation_pool
from ..simulation.setting import Setting
from ..tables import Table, format_number, format_p_value, format_signed, format_spread
from .execute import Task
from .experiment import Experiment, Series
from .folder import Folder, Outcome
from .keys import fingerprint, source_hash

if TYPE_CHECKING:
    import polars as pl


DESCRIPTION = ("key", "data", "mode", "setting", "policy", "seed", "sessions")
"""Columns of `Results.runs` that are not figures."""

LEVEL = 0.95
"""Coverage of the intervals; 1 minus it is the significance level."""

POWER = 0.8
"""Power at which detectable differences are stated."""

BOOTSTRAPS = 10_000
"""Bootstrap samples of an interval, so that its printed digits hold."""

FLOOR_ROW = "floor (lowest possible)"
"""Name of the row of the fairness floor."""


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

    def views(self, experiment: Experiment, data: str) -> Iterator[View]:
        """Iterate over the settings in which an experiment has runs on a dataset."""
        for setting in experiment.conditions:
            view = View(self, experiment, data, setting)
            if view.curves:
                yield view

    # --- comparisons -------------------------------------------------------------------------------------------------

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
        for views in self._settings():
            chosen = [view for view in views if data in (None, view.data)]
            if not chosen:
                raise SettingError(unknown("dataset", str(data), views[0].experiment.data))
            texts = [repr(Metric.of(each)) for each in metrics or shown_metrics(chosen)]
            rows += paired_rows(chosen, texts, chosen[0].find(against).name, level)
        return pl.DataFrame(rows, infer_schema_length=None)

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

        rows = []
        for views in self._settings():
            texts, first = shown_metrics(views), views[0]
            tests = paired_rows(views, texts, first.find(against).name, LEVEL)
            found = {(test["label"], test["metric"]): test for test in tests}
            for point in first.points:
                row: dict[str, Any] = {"mode": first.setting.mode, "setting": setting_key(first.setting)}
                row |= {"label": point.name, "policy": repr(point.policy), "seeds": first.experiment.seeds}
                for text in texts:
                    values = mean_values(views, point, text)
                    row |= {text: float(values.mean()), f"{text} std": float(values.std())}
                    if tests:
                        test = found.get((point.name, text), {})
                        row |= {f"{text} {name}": test.get(name) for name in ("difference", "p_adjusted", "verdict")}
                rows.append(row)
        return pl.DataFrame(rows, infer_schema_length=None)

    def tables(self, *, against: str | None = None) -> list[Table]:
        """Return the comparison as text, a table for each experiment and setting.

        Parameters
        ----------
        against
            As for `tests`.
        """
        return [comparison_table(views, views[0].find(against).name) for views in self._settings()]

    def _settings(self) -> Iterator[list[View]]:
        """Yield a view of every dataset for each setting of each experiment."""
        for experiment in self.experiments:
            for setting in experiment.conditions:
                yield [View(self, experiment, name, setting) for name in experiment.data]


def setting_key(setting: Setting) -> str:
    """Return a setting as canonical JSON.

    Examples
    --------
    >>> setting_key(Setting(steps=10)).startswith('{"clicks":"PositionBased(')
    True
    """
    return msgspec.json.encode(setting.to_dict(), order="sorted").decode()


# --- views -----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Point:
    """One policy of a series and its runs, a row per seed; tables tell it from others by its name."""

    series: Series
    policy: Policy
    runs: pl.DataFrame
    seconds: float | None = None
    name: str = ""

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
class View:
    """One experiment on one dataset in one setting, with the numbers that tables and figures show."""

    results: Results
    experiment: Experiment
    data: str
    setting: Setting

    @cached_property
    def curves(self) -> list[Curve]:
        """The series of this setting; policies without a run are left out."""
        curves, taken = [], set()
        for series in self.experiment.series:
            if series.mode not in ("", self.setting.mode):
                continue
            points, where = [], series.condition(self.setting)
            for policy in series.points:
                names = (series.name, policy.label, f"{series.name}: {policy.label}")[len(series.points) > 1 :]
                name = next((each for each in names if each not in taken), names[-1])
                taken.add(name)
                runs = self.select(self.results.of(self.data, where, policy))
                if runs.height:
                    points.append(Point(series, policy, runs, self.results.seconds(self.data, where, policy), name))
            if points:
                curves.append(Curve(series, points, self.setting.mode))
        return curves

    @property
    def points(self) -> list[Point]:
        """All points of all curves."""
        return [point for curve in self.curves for point in curve.points]

    @property
    def seeds(self) -> int:
        """Largest number of seeds of any point."""
        return max(point.runs.height for point in self.points)

    @property
    def baseline(self) -> Point | None:
        """The policy that others are tested against: the last of the series in `compare_with`, if there is one."""
        wanted = self.experiment.compare_with
        return next((curve.points[-1] for curve in self.curves if wanted and curve.label == wanted), None)

    def find(self, against: str | None) -> Point:
        """Return the point that a name, a repr or a label stands for; without one the baseline, or else the first."""
        if against is None:
            return self.baseline or self.points[0]
        for called in (lambda point: point.name, lambda point: repr(point.policy), lambda point: point.policy.label):
            for point in self.points:
                if called(point) == against:
                    return point
        raise SettingError(unknown("policy to compare with", against, [point.name for point in self.points]))

    def select(self, frame: pl.DataFrame, **where: str) -> pl.DataFrame:
        """Select the rows of some values and of the experiment's own seeds; another experiment may have more."""
        import polars as pl

        return frame if frame.is_empty() else frame.filter(pl.col("seed") < self.experiment.seeds, **where)

    @cached_property
    def limits(self) -> pl.DataFrame:
        """The rows of `Results.limits`, one per seed; none if they were not computed."""
        rows = self.select(self.results.limits, data=self.data, setting=setting_key(self.setting))
        return rows if rows.is_empty() else rows.sort("seed")

    @cached_property
    def frontier(self) -> tuple[FloatArray, FloatArray] | None:
        """Unfairness and NDCG of the Pareto frontier, means over seeds; None if it was not computed."""
        import polars as pl

        rows = self.select(self.results.frontier, data=self.data, setting=setting_key(self.setting))
        if rows.is_empty():
            return None
        mean = rows.sort("point", "seed").group_by("point", maintain_order=True).agg(pl.mean("unfairness", "ndcg"))
        return mean["unfairness"].to_numpy(), mean["ndcg"].to_numpy()

    @property
    def floor(self) -> float:
        """Mean fairness floor over seeds; 0 if it is 0 or was not computed."""
        return 0.0 if self.limits.is_empty() else float(self.limits["floor"].to_numpy().mean())

    @cached_property
    def k(self) -> int:
        """Ranks of the lists: those of the setting, or fewer if no query has so many items."""
        (run,) = self.points[0].runs.head(1).to_dicts()
        return sum(name.startswith("ndcg@") and value is not None for name, value in run.items())

    @property
    def cutoffs(self) -> list[int]:
        """Cutoffs of the cNDCG of a trade-off."""
        given = self.experiment.k_c or (self.experiment.ranks,)
        return list(dict.fromkeys(min(k, self.k) for k in given))

    @property
    def sessions(self) -> int:
        """Sessions of each run."""
        return int(self.points[0].runs["sessions"][0])

    @property
    def best_cndcg(self) -> float:
        """The cNDCG of a run whose NDCG is always 1."""
        gamma, sessions = self.setting.gamma, self.sessions
        return float(sessions) if gamma == 1.0 else (1.0 - gamma**sessions) / (1.0 - gamma)

    @property
    def extra_metrics(self) -> tuple[str, ...]:
        """Metrics that the experiment names in addition."""
        return tuple(repr(each) for each in self.setting.metrics)

    def per_query(self, point: Point, metric: str) -> pl.DataFrame:
        """Average a metric of each query over the seeds that visited it: columns label, data, query and value."""
        import polars as pl

        rows = self.results.queries.filter(pl.col("visits") > 0).join(point.runs.select("key", "seed"), on="key")
        mean = rows.sort("query", "seed").group_by("query", maintain_order=True).agg(value=pl.col(metric).mean())
        known = mean.drop_nulls().drop_nans("value")
        return known.select("query", "value", label=pl.lit(point.name), data=pl.lit(self.data))


# --- tests against a baseline ----------------------------------------------------------------------------------------


def shown_metrics(views: Sequence[View]) -> tuple[str, ...]:
    """Return the metrics that a comparison over some datasets shows."""
    return ("unfairness" if len(views) == 1 else "relative_unfairness"), f"ndcg@{min(view.k for view in views)}"


def mean_values(views: Sequence[View], point: Point, metric: str) -> FloatArray:
    """Return a metric of each seed, means over datasets, of the point with the name of one."""
    return np.asarray(np.mean([view.find(point.name).values(metric) for view in views], axis=0))


def paired_rows(views: Sequence[View], metrics: Sequence[str], base: str, level: float = LEVEL) -> list[dict[str, Any]]:
    """Test the policies of a setting against one of them over the queries of some datasets; the rows of `tests`.

    Every row carries an interval and the difference that the test could have detected, so that a result that is not
    significant is never mistaken for evidence of equality.
    """
    import polars as pl

    setting, pairs, rows = views[0].setting, [], []
    for text in metrics:
        names = views[0].results.queries.columns[3:]
        if text not in names:
            raise SettingError(unknown("metric of single queries", text, names))
        values = [view.per_query(point, text) for view in views for point in view.points]
        table = pl.concat(values).pivot(on="label", index=["data", "query"], values="value").sort("data", "query")
        for point in views[0].points:
            both = table.select(a=point.name, b=base).drop_nulls()
            if point.name == base or both.is_empty():
                continue
            pairs.append((both["a"].to_numpy(), both["b"].to_numpy()))
            row: dict[str, Any] = {"mode": setting.mode, "setting": setting_key(setting), "metric": text}
            row |= {"policy": repr(point.policy), "label": point.name, "against": base, "queries": both.height}
            rows.append(row | {"mean": both["a"].mean(), "baseline": both["b"].mean()})
    for row, test in zip(rows, paired_tests(pairs, level, power=POWER, bootstraps=BOOTSTRAPS), strict=True):
        row |= test._asdict() | {"verdict": verdict(test, row["queries"], level)}
    return rows


def verdict(test: PairedTest, queries: int, level: float) -> str:
    """Return in one word what a test has found."""
    if queries < 2:
        return "untested"
    if test.low == test.high == 0.0:
        return "identical"
    if test.p_adjusted >= 1 - level:
        return "undecided"
    return "higher" if test.difference > 0 else "lower"


def comparison_table(views: Sequence[View], base: str) -> Table:
    """Build the table of one experiment in one setting: a row per policy, with its difference from the baseline."""
    experiment, setting = views[0].experiment, views[0].setting
    texts, several = shown_metrics(views), experiment.seeds > 1
    tests = paired_rows(views, texts, base)
    found = {(test["label"], test["metric"]): cells_of(test) for test in tests}
    columns = ["policy"]
    for text in texts:
        columns += [f"{metric_label(text)}{' (std)' if several else ''}", "Δ", "p"]
    rows, classes = [], {}
    if len(views) == 1:
        rows.append((FLOOR_ROW, format_spread(views[0].limits["floor"].to_numpy()), *[""] * (len(columns) - 2)))
        classes[0] = "limit"
    for point in views[0].points:
        if point.name == base:
            classes[len(rows)] = "base"
        row = [point.name]
        for text in texts:
            row += [format_spread(mean_values(views, point, text)), *found.get((point.name, text), ("", ""))]
        rows.append(tuple(row))
    notes = []
    if tests:
        notes.append(
            f"Δ: mean difference from {base} over {max(test['queries'] for test in tests):,} queries; p: Fisher's "
            f"randomisation test, adjusted by Holm's method for {len(tests)} comparisons. Less unfairness is fairer, "
            "more NDCG is better."
        )
        if any(test["verdict"] == "undecided" for test in tests):
            notes.append("(< x): not decided, which does not mean equal; a difference of x would be found with 80 %.")
    names = views[0].data if len(views) == 1 else f"{len(views)} datasets"
    seeds = f"{experiment.seeds} seeds" if several else "1 seed"
    return Table(
        name=experiment.name,
        caption=f"{experiment.title or names}: {setting.mode}, {setting.steps:,} steps, {seeds}",
        columns=tuple(columns),
        rows=tuple(rows),
        notes=tuple(notes),
        row_classes=classes,
    )


def cells_of(test: Mapping[str, Any]) -> tuple[str, str]:
    """Return a difference and its p-value as text; where the test decides nothing, what it would have found."""
    if test["verdict"] in ("identical", "untested"):
        return test["verdict"], ""
    undecided = f" (< {format_number(test['detectable'], 2)})" if test["verdict"] == "undecided" else ""
    return f"{format_signed(test['difference'])}{undecided}", format_p_value(test["p_adjusted"])


# --- tables of runs --------------------------------------------------------------------------------------------------


def collect(
    experiments: Sequence[Experiment],
    data: Mapping[str, Dataset],
    tasks: Sequence[Task],
    outcomes: Mapping[Task, Outcome],
    times: Sequence[Mapping[str, Any]],
    stored: Folder,
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
        The runs, and their outcomes.
    times
        Rows of `Results.times`.
    stored
        A folder that limits are kept in.
    about
        How the runs were made.
    """
    import polars as pl

    limits, frontiers, seen = [], [], set()
    for task in tasks:
        where = {name: value for name, value in described(task).items() if name != "policy"} | {"seed": task.seed}
        if tuple(where.values()) in seen:  # the visits do not depend on the policy
            continue
        seen.add(tuple(where.values()))
        found = limits_of(task, data[task.data], outcomes[task], stored)
        limits.append(where | found["floor"])
        curve = zip(found["unfairness"], found["ndcg"], strict=True)
        frontiers += [where | {"point": i, "unfairness": x, "ndcg": y} for i, (x, y) in enumerate(curve)]
    texts = dict.fromkeys(text for task in tasks for text in outcomes[task].figures)
    keys = {task: task.key or f"{number}" for number, task in enumerate(tasks)}
    runs = [
        {"key": key, **described(task), "seed": task.seed, "sessions": outcomes[task].sessions}
        | {text: outcomes[task].figures.get(text) for text in texts}
        for task, key in keys.items()
    ]
    by_key = {key: outcomes[task].queries for task, key in keys.items()}
    queries = pl.concat((table.with_columns(key=pl.lit(key)) for key, table in by_key.items()), how="diagonal")
    left_out = ("key", "items", "sessions", "judged")
    strings = dict.fromkeys(("data", "mode", "setting", "policy"), pl.String)
    return Results(
        experiments=tuple(experiments),
        runs=pl.DataFrame(runs, schema_overrides=dict.fromkeys(texts, pl.Float64)),
        queries=queries.filter(pl.col("judged")).select("key", pl.exclude(left_out)),
        limits=pl.DataFrame(limits, schema_overrides={"group_floor": pl.Float64}),
        frontier=pl.DataFrame(frontiers),
        times=pl.DataFrame(times, schema={**strings, "seconds": pl.Float64}),
        about=about,
        datasets={
            name: DatasetFacts(fingerprint(each.pool()[0].without_features), each.queries, each.items)
            for name, each in data.items()
        },
    )


def described(task: Task) -> dict[str, str]:
    """Return what tables say of a task."""
    where = {"data": task.data, "mode": task.setting.mode, "setting": setting_key(task.setting)}
    return where | {"policy": repr(task.policy)}


def limits_of(task: Task, data: Dataset, outcome: Outcome, stored: Folder) -> dict[str, Any]:
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

    digest = hashlib.sha256(f"{task.key} {source_hash(whole=True)}".encode()).hexdigest()[:32]
    return stored.recall("limits", digest if task.key else "", compute)
