"""Unfairness and floor by period: since the beginning, those of the log up to then; alone, those of the period."""

import numpy as np
import polars as pl
import pytest
from logs import random_log

import mcfair as mf

P = 1 / np.log2(np.arange(2, 8))


def timed_log(seed, days=5, **options):
    slow, table = random_log(seed, P, **options)
    day = pl.col("impression") * days // 40
    return slow, table.with_columns(time=pl.lit("2024-03-0") + (day + 1).cast(pl.String) + "T12:00:00+00:00", day=day)


def squared_disparity(slow, sessions, query):
    """Eq. 8 of some sessions, over all items of the query."""
    items = slow.items(query)
    E = {d: sum(P[j - 1] for q, shown in sessions if q == query for j, e, _ in shown if e == d) for d in items}
    pairs = ((E[x] * slow.merit[query, y] - E[y] * slow.merit[query, x]) ** 2 for x in items for y in items)
    return sum(pairs) / max(len(items) * (len(items) - 1), 1)


@pytest.mark.parametrize("gaps", [False, True])
def test_every_day_by_the_definition(gaps):
    slow, log = timed_log(1, gaps=gaps)
    found = mf.audit(log, resamples=2)
    table = found.over_time
    assert (found.time_unit, table["from"].to_list()) == ("day", [f"2024-03-0{i}" for i in range(1, 6)])
    candidates = log.select("query", "item", "relevance").unique()
    for i, row in enumerate(table.iter_rows(named=True)):
        until = [each for t, each in enumerate(slow.sessions) if t * 5 // 40 <= i]
        today = [each for t, each in enumerate(slow.sessions) if t * 5 // 40 == i]
        assert row["impressions"] == len(today)
        total = sum(squared_disparity(slow, until, q) for q in slow.judged())
        assert row["unfairness"] == pytest.approx(total / len(slow.judged()), rel=1e-12)
        met = [q for q in slow.judged() if any(q == other for other, _ in today)]
        total = sum(squared_disparity(slow, today, q) for q in met)
        assert row["alone_unfairness"] == pytest.approx(total / len(met), rel=1e-12)
        for name, chosen, over in (
            ("floor", pl.col("day") <= i, len(slow.judged())),
            ("alone_floor", pl.col("day") == i, len(met)),
        ):
            part = mf.audit(log.filter(chosen).drop("relevance"), items=candidates, resamples=2)
            expected = float(part.figures.floor[part.figures.judged > 0].sum()) / over
            assert row[name] == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert table["unfairness"][-1] == pytest.approx(found.unfairness, rel=1e-12)
    assert table["floor"][-1] == pytest.approx(found.floor, rel=1e-9, abs=1e-12)


def test_rows_that_are_impressions_and_logs_without_impressions():
    _, log = timed_log(2)
    inferred = mf.audit(log.drop("impression", "time").with_columns(time=pl.col("day")).drop("time"), resamples=2)
    assert inferred.over_time is None
    bandit = log.select(
        timestamp="time", item_id="item", position="rank", click="clicked", propensity_score=pl.lit(0.5)
    )
    found = mf.audit(bandit, merit="uniform", resamples=2)
    assert found.format == "open-bandit"
    assert found.over_time["impressions"].sum() == log.height
    assert found.over_time["unfairness"][-1] == pytest.approx(found.unfairness, rel=1e-12)


def test_rows_without_a_time_belong_to_no_period():
    _, log = timed_log(3)
    holes = log.with_columns(time=pl.when(pl.col("day") != 2).then("time"))
    found = mf.audit(holes, resamples=2)
    assert found.over_time["impressions"].sum() == int(found.counts.visits.sum()) - 8
    assert found.over_time["impressions"][2] == 0
    assert np.isnan(found.over_time["alone_unfairness"][2])


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2024-03-01T12:00:00+02:00", "2024-03-01 10:00:00"),
        ("2024-03-01 12:00:00.25-0530", "2024-03-01 17:30:00.250000"),
        ("2024-03-01T12:00+01", "2024-03-01 11:00:00"),
        ("2024-03-01T12:00:00Z", "2024-03-01 12:00:00"),
        ("2024-03-01", "2024-03-01 00:00:00"),
    ],
)
def test_times_with_an_offset_are_read(text, utc):
    log = pl.DataFrame({"query": ["q"] * 2, "item": ["a", "b"], "rank": [1, 2], "clicked": [1, 0], "time": [text] * 2})
    assert mf.audit(log, resamples=2).counts.period == (utc, utc)


def test_one_wrong_time_does_not_cost_thousands_of_periods():
    rows = {"query": ["q"] * 4, "item": ["a", "b"] * 2, "rank": [1, 2] * 2, "clicked": [1, 0, 0, 1]}
    log = pl.DataFrame(rows | {"time": ["0001-01-01"] * 2 + ["2026-01-01"] * 2})
    found = mf.audit(log, resamples=2)
    assert (found.time_unit, found.over_time.height) == ("year", 2026)
    assert found.over_time["impressions"].to_list() == [1, *[0] * 2024, 1]
    assert found.over_time["unfairness"][-2] == found.over_time["unfairness"][0] > 0
    assert found.over_time["unfairness"][-1] == found.unfairness


@pytest.mark.parametrize("scale", [1, 10**3, 10**6, 10**9])
def test_numbers_are_times_in_any_usual_unit(scale):
    rows = {"query": ["q"] * 2, "item": ["a", "b"], "rank": [1, 2], "clicked": [1, 0]}
    found = mf.audit(pl.DataFrame(rows | {"time": [1_704_100_000 * scale] * 2}), resamples=2)
    assert found.counts.period[0] == "2024-01-01 09:06:40"


def test_rows_without_a_valid_time_are_counted():
    rows = {"query": ["q"] * 2, "item": ["a", "b"], "rank": [1, 2], "clicked": [1, 0]}
    found = mf.audit(pl.DataFrame(rows | {"time": ["31/12/2024 10:00"] * 2}), resamples=2)
    assert found.quality()["rows without a valid time"] == 2
