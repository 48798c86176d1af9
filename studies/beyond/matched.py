"""Tests of a board: differences from a baseline at matched unfairness, over queries and over datasets."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection

import numpy as np
import polars as pl
from boards import BoardBuilder

from mcfair.analysis.frontiers import blend_at, effectiveness_at
from mcfair.analysis.significance import confidence, paired_tests
from mcfair.tables import NOTHING, Table, format_interval, format_number, format_p_value, format_signed

LEVEL, POWER = 0.95, 0.8
"""Coverage of the intervals, and power at which detectable differences are stated."""

RESAMPLES, BOOTSTRAPS = 20_000, 2_000
"""Sign assignments and bootstrap samples of a test; there are dozens of tests on a board."""


@dataclasses.dataclass(frozen=True, eq=False)
class MatchedTest:
    """A policy against the baseline: differences of each query, and of each dataset, where both reach the level.

    `level` is the unfairness at which NDCG is compared; None stands for the least unfairness of each policy.
    """

    name: str
    level: float | None
    queries: np.ndarray
    datasets: np.ndarray


class Values:
    """Mean curves and values of queries of contestants, computed once."""

    def __init__(self, builder: BoardBuilder) -> None:
        self.builder = builder
        self.curves: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
        self.queries: dict[tuple[str, str, str], tuple[list[str], np.ndarray]] = {}

    def curve(self, name: str, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Return unfairness and NDCG of a contestant's points on the i-th dataset, means over seeds."""
        if name not in self.curves:
            lines = self.builder.lines(name)
            pairs = zip(lines.unfairness, lines.ndcg, strict=True)
            self.curves[name] = [(np.mean(x, axis=0), np.mean(y, axis=0)) for x, y in pairs]
        return self.curves[name][i]

    def points(self, name: str, data: str, metric: str) -> tuple[list[str], np.ndarray]:
        """Return a metric of each query under each point of a contestant, (points, queries), means over seeds."""
        if (name, data, metric) in self.queries:
            return self.queries[name, data, metric]
        builder, table = self.builder, pl.DataFrame()
        for i, (policy, where) in enumerate(builder.points(name)):
            runs = builder.results.of(data, where, policy).filter(pl.col("seed") < len(builder.seeds))
            rows = builder.results.queries.filter(pl.col("key").is_in(runs["key"].to_list()) & (pl.col("visits") > 0))
            mean = rows.group_by("query").agg(pl.col(metric).mean().alias(f"{i}"))
            table = table.join(mean, on="query") if i else mean
        table = table.drop_nulls().drop_nans([each for each in table.columns if each != "query"]).sort("query")
        self.queries[name, data, metric] = table["query"].to_list(), table.drop("query").to_numpy().T
        return self.queries[name, data, metric]

    def of_queries(self, name: str, i: int, level: float | None) -> dict[str, float] | None:
        """Return NDCG of each query at a level of unfairness, or without a level unfairness at its least; else None."""
        builder = self.builder
        x, y = self.curve(name, i)
        place = None if level is None else blend_at(x, y, level)
        if level is not None and place is None:
            return None
        metric = "unfairness" if place is None else f"ndcg@{builder.setting.k}"
        names, values = self.points(name, builder.experiment.data[i], metric)
        found = values[int(np.argmin(x))] / np.mean(builder.units[i]) if place is None else place.of(values)
        return dict(zip(names, found.tolist(), strict=True))

    def of_dataset(self, name: str, i: int, level: float | None) -> float:
        """Return the same figure of a whole dataset; nan if the level is not reached."""
        x, y = self.curve(name, i)
        return float(x.min()) if level is None else effectiveness_at(x, y, level)


def matched_tests(builder: BoardBuilder, base: str, names: Collection[str] = ()) -> list[MatchedTest]:
    """Compare contestants with a baseline at several levels of unfairness, and in the least unfairness.

    Parameters
    ----------
    builder
        The board.
    base
        Name of the baseline.
    names
        The contestants to compare; by default all others.
    """
    values, found = Values(builder), []
    for level in (None, *builder.scale.unfairness_levels[2:5]):
        for name in builder.curves:
            if name == base or (names and name not in names):
                continue
            queries, datasets = [], []
            for i in range(len(builder.experiment.data)):
                own, reference = values.of_queries(name, i, level), values.of_queries(base, i, level)
                if own is None or reference is None:
                    continue
                queries += [own[query] - reference[query] for query in own if query in reference]
                datasets.append(values.of_dataset(name, i, level) - values.of_dataset(base, i, level))
            found.append(MatchedTest(name, level, np.array(queries), np.array(datasets)))
    return found


def table_of_tests(builder: BoardBuilder, base: str, names: Collection[str] = (), stem: str = "") -> Table | None:
    """Build the table of tests against a baseline; None if it is not on the board."""
    if base not in builder.curves:
        return None
    tests = matched_tests(builder, base, names)
    done = [test for test in tests if test.queries.size > 1]
    pairs = [(test.queries, np.zeros(test.queries.size)) for test in done]
    found = paired_tests(pairs, LEVEL, power=POWER, resamples=RESAMPLES, bootstraps=BOOTSTRAPS)
    by_test = dict(zip(map(id, done), found, strict=True))
    k, total = builder.setting.k, len(builder.experiment.data)
    rows = []
    for test in tests:
        what = "least unfairness" if test.level is None else f"NDCG@{k} at {test.level:g}"
        if id(test) not in by_test:
            rows.append((test.name, what, *[NOTHING] * 6))
            continue
        one = by_test[id(test)]
        decided = one.p_adjusted < 1 - LEVEL or not math.isfinite(one.detectable)
        rows.append(
            (
                test.name,
                what,
                format_signed(one.difference),
                format_interval(one.low, one.high, 3),
                format_p_value(one.p_adjusted),
                NOTHING if decided else format_number(one.detectable, 3),
                format_interval(*confidence(test.datasets, LEVEL), 3),
                f"{test.datasets.size} of {total}",
            )
        )
    columns: tuple[str, ...] = ("policy", "figure", f"Δ from {base}", "95 % interval, queries", "p after Holm")
    columns += ("detectable difference", "95 % interval, datasets", "datasets")
    count = "1 test" if len(done) == 1 else f"{len(done)} tests"
    note = (
        f"Δ is the mean difference from {base} over the queries of all datasets where both reach the level; the last "
        "column counts these datasets. A dash stands where there are none. At a level of unfairness the values of a "
        "query are interpolated with the weights that the frontier has there. Fisher's two-sided randomisation test "
        f"over queries is adjusted by Holm's method for {count}; bootstrap intervals over queries and the "
        "Student intervals over datasets are not. The detectable difference is given where a test is not significant: "
        f"a paired t-test would find it with a power of {100 * POWER:g} %, and smaller ones may exist. A negative "
        "difference of unfairness is fairer."
    )
    return Table(
        name=stem, caption=f"Differences from {base}", columns=columns, rows=tuple(rows), text_columns=2, notes=(note,)
    )
