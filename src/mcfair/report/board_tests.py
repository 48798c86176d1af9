"""Tests of a board: differences from a baseline at matched unfairness, over queries and over datasets."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from ..analysis.frontiers import blend_at, effectiveness_at
from ..analysis.significance import confidence, detectable_difference, difference, fisher, holm
from ..arrays import FloatArray
from ..experiments.boards import BoardBuilder
from .claims import LEVEL, POWER
from .formatting import NOTHING, format_interval, format_number, format_p_value, format_signed
from .markup import Table

__all__ = ["MatchedTest", "matched_tests", "tests_table"]

RESAMPLES, BOOTSTRAPS = 20_000, 2_000
"""Sign assignments and bootstrap samples of a test; there are dozens of tests on a board."""


@dataclasses.dataclass(frozen=True, eq=False)
class MatchedTest:
    """A policy against the baseline: differences of each query, and of each dataset, where both reach the level.

    `level` is the unfairness at which NDCG is compared; None stands for the least unfairness of each policy.
    """

    name: str
    level: float | None
    queries: FloatArray
    datasets: FloatArray

    @property
    def p(self) -> float:
        """Fisher's randomisation test over queries."""
        return fisher(self.queries, np.zeros(self.queries.size), resamples=RESAMPLES)


def query_values(builder: BoardBuilder, name: str, data: str, metric: str) -> tuple[list[str], FloatArray]:
    """Return a metric of each query under each point of a contestant, (points, queries), means over seeds."""
    import polars as pl

    frames = []
    for i, (policy, where) in enumerate(builder.points(name)):
        keys = builder.results.of(data, where, policy).filter(pl.col("seed") < len(builder.seeds))["key"].to_list()
        rows = builder.results.queries.filter(pl.col("key").is_in(keys) & (pl.col("visits") > 0))
        frames.append(rows.group_by("query").agg(pl.col(metric).mean().alias(f"{i}")))
    table = frames[0]
    for frame in frames[1:]:
        table = table.join(frame, on="query")
    table = table.drop_nulls().drop_nans([name for name in table.columns if name != "query"]).sort("query")
    return table["query"].to_list(), table.drop("query").to_numpy().T


class Values:
    """Mean curves and values of queries of contestants, computed once."""

    def __init__(self, builder: BoardBuilder) -> None:
        self.builder = builder
        self.curves: dict[str, list[tuple[FloatArray, FloatArray]]] = {}
        self.queries: dict[tuple[str, str, str], tuple[list[str], FloatArray]] = {}

    def curve(self, name: str, i: int) -> tuple[FloatArray, FloatArray]:
        """Return unfairness and NDCG of a contestant's points on the i-th dataset, means over seeds."""
        if name not in self.curves:
            lines = self.builder.lines(name)
            pairs = zip(lines.unfairness, lines.ndcg, strict=True)
            self.curves[name] = [(np.mean(x, axis=0), np.mean(y, axis=0)) for x, y in pairs]
        return self.curves[name][i]

    def of_queries(self, name: str, i: int, level: float | None) -> dict[str, float] | None:
        """Return NDCG of each query at a level of unfairness, or without a level unfairness at its least; else None."""
        builder = self.builder
        data, metric = builder.experiment.data[i], f"ndcg@{builder.setting.k}" if level else "unfairness"
        x, y = self.curve(name, i)
        if level is not None and blend_at(x, y, level) is None:
            return None
        key = (name, data, metric)
        if key not in self.queries:
            self.queries[key] = query_values(builder, name, data, metric)
        names, values = self.queries[key]
        if level is None:
            found = values[int(np.argmin(x))] / np.mean(builder.units[i])
        else:
            place = blend_at(x, y, level)
            assert place is not None
            found = place.of(values)
        return dict(zip(names, found.tolist(), strict=True))

    def of_dataset(self, name: str, i: int, level: float | None) -> float:
        """Return the same figure of a whole dataset; nan if the level is not reached."""
        x, y = self.curve(name, i)
        return float(x.min()) if level is None else effectiveness_at(x, y, level)


def matched_tests(builder: BoardBuilder, base: str) -> list[MatchedTest]:
    """Compare every other contestant with a baseline at several levels of unfairness, and in the least unfairness."""
    values, found = Values(builder), []
    for level in (None, *builder.scale.unfairness_levels[2:5]):
        for name in builder.curves:
            if name == base:
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


def tests_table(builder: BoardBuilder, name: str) -> Table | None:
    """Build the table of all tests against the baseline; None without a baseline."""
    base = builder.experiment.compare_with
    if base not in builder.curves:
        return None
    tests = matched_tests(builder, base)
    done = [test for test in tests if test.queries.size > 1]
    adjusted = dict(zip(map(id, done), holm([test.p for test in done]).tolist(), strict=True)) if done else {}
    k, total = builder.setting.k, len(builder.experiment.data)
    rows = []
    for test in tests:
        what = "least unfairness" if test.level is None else f"NDCG@{k} at {test.level:g}"
        if id(test) not in adjusted:
            rows.append((test.name, what, *[NOTHING] * 6))
            continue
        zeros = np.zeros(test.queries.size)
        mean, low, high = difference(test.queries, zeros, LEVEL, resamples=BOOTSTRAPS)
        size = detectable_difference(test.queries, 1 - (1 - LEVEL) / len(done), power=POWER)
        p = adjusted[id(test)]
        over = format_interval(*confidence(test.datasets, LEVEL), 3)
        rows.append(
            (
                test.name,
                what,
                format_signed(mean),
                format_interval(low, high, 3),
                format_p_value(p),
                NOTHING if p < 1 - LEVEL or not math.isfinite(size) else format_number(size, 3),
                over,
                f"{test.datasets.size} of {total}",
            )
        )
    columns: tuple[str, ...] = ("policy", "figure", f"Δ from {base}", "95 % interval, queries", "p after Holm")
    columns += ("detectable difference", "95 % interval, datasets", "datasets")
    note = (
        f"Δ is the mean difference from {base} over the queries of all datasets where both reach the level; the last "
        "column counts these datasets. A dash stands where there are none. At a level of unfairness the values of a "
        "query are interpolated with the weights that the frontier has there. Fisher's two-sided randomisation test "
        f"over queries is adjusted by Holm's method for {len(done)} tests; bootstrap intervals over queries and the "
        "Student intervals over datasets are not. The detectable difference is given where a test is not significant: "
        f"a paired t-test would find it with a power of {100 * POWER:g} %, and smaller ones may exist. A negative "
        "difference of unfairness is fairer."
    )
    return Table(
        name=name, caption=f"Differences from {base}", columns=columns, rows=tuple(rows), text_columns=2, notes=(note,)
    )
