"""Counting in batches, passes and buckets: the same numbers whatever the division, equal to plain counts."""

from collections import Counter

import numpy as np
import polars as pl
import pytest
from logs import flat, random_log, random_sessions

import mcfair as mf
from mcfair.auditing import counts
from mcfair.auditing.counts import Periods


@pytest.mark.parametrize("gaps", [False, True])
def test_batches_and_passes_change_no_number(monkeypatch, gaps):
    _, log = random_log(4, [1.0, 0.5], gaps=gaps)
    log = log.with_columns(propensity=pl.lit(0.5), time=3600 * pl.col("impression"))
    whole = mf.audit(log, resamples=2)
    monkeypatch.setattr(counts, "BATCH", 3)
    monkeypatch.setattr(counts, "BUCKET", 10)
    monkeypatch.setattr(counts, "MOST_ROWS", 30)  # then the log is read again
    apart = mf.audit(log.sample(fraction=1, shuffle=True, seed=1), resamples=2)
    assert apart.items().equals(whole.items())
    assert apart.queries().equals(whole.queries())
    assert apart.ranks().equals(whole.ranks())
    assert apart.quality() == whole.quality()


@pytest.mark.parametrize("held", [20, 10**6])
def test_a_query_that_is_most_of_the_log_is_counted_in_passes(monkeypatch, held):
    """Whole impressions are in one pass, so that rows logged twice are found, and counts of passes are added."""
    _, log = random_log(5, [1.0, 0.5])
    log = log.with_columns(query=pl.lit("home"), propensity=1 / (pl.col("rank") + 1), time=3600 * pl.col("impression"))
    log = pl.concat([log, log[:4]])
    whole = mf.audit(log, resamples=2)
    assert whole.counts.excluded == {"rows logged twice": 4}
    monkeypatch.setattr(counts, "MOST_ROWS", held)
    monkeypatch.setattr(counts, "BATCH", 30)
    monkeypatch.setattr(counts, "BUCKET", 10)
    assert mf.audit(log, resamples=2).to_dict() == whole.to_dict()


@pytest.mark.parametrize("gaps", [False, True])
def test_counts_are_those_of_every_row(gaps):
    sessions = random_sessions(3, gaps=gaps)
    held = mf.audit(flat(sessions), resamples=2).counts
    slow = Counter((q, d, j, tuple(r for r, _, _ in shown)) for q, shown in sessions for j, d, _ in shown)
    hits = Counter((q, d, j) for q, shown in sessions for j, d, c in shown if c)
    query = held.query_ids.to_list()
    found, clicked = {}, Counter()
    for item, rank, pattern, n, c in zip(
        held.cell_item,
        held.cell_rank,
        held.cell_pattern,
        held.shown,
        held.clicks,
        strict=True,
    ):
        q, d = query[held.item_query[item]], held.item_ids[int(item)]
        found[q, d, int(rank), tuple(held.patterns[pattern].tolist())] = n
        clicked[q, d, int(rank)] += int(c)
    assert found == slow
    assert +clicked == hits
    places = Counter((q, i, j) for q, shown in sessions for i, (j, _, _) in enumerate(shown))
    slots = Counter()
    for q, i, j, n in zip(*held.slots, strict=True):
        slots[query[q], int(i), int(j)] += int(n)
    assert slots == places


@pytest.mark.parametrize(
    ("end", "unit", "periods", "last"),
    [
        ("2024-01-02T05:10", "hour", 24 + 2, "2024-01-02 05:00"),
        ("2024-02-10T00:00", "day", 41, "2024-02-10"),
        ("2024-12-31T00:00", "week", 53, "2024-12-30"),
        ("2034-12-31T00:00", "year", 11, "2034-01-01"),
    ],
)
def test_periods_follow_the_length_of_the_log(end, unit, periods, last):
    first, final = np.datetime64("2024-01-01T04:30").item(), np.datetime64(end).item()
    found = Periods.of(first, final)
    assert (found.unit, len(found.labels()), found.labels()[-1]) == (unit, periods, last)
    hours = np.array([first, final], "M8[h]").astype(np.int64)
    assert found.index(hours).tolist() == [0, periods - 1]


# --- logs that do not tell impressions apart: lists are inferred, and no query depends on another --------------------


def by_query(log):
    return {row.pop("query"): row for row in mf.audit(log, resamples=2).queries().to_dicts()}


@pytest.mark.parametrize("seed", range(5))
def test_lists_without_gaps_are_those_of_the_log_with_impressions(seed):
    log = flat(random_sessions(seed))
    right, found = by_query(log), by_query(log.drop("impression"))
    for query, row in right.items():
        assert found[query] == pytest.approx(row, rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_lists_with_gaps_keep_the_log_within_reach_and_queries_apart(seed):
    log = flat(random_sessions(seed, gaps=True)).drop("impression")
    found = by_query(log)
    for query, row in found.items():
        rows = log.filter(pl.col("query") == query)
        assert row["floor"] <= row["unfairness"] * (1 + 1e-9) + 1e-12
        assert row["impressions"] == max(rows[each].value_counts()["count"].max() for each in ("rank", "item"))
        assert by_query(rows)[query] == pytest.approx(row, rel=1e-12)


def test_a_rank_beyond_the_number_of_items_belongs_to_its_own_query():
    rows = {"query": ["q", "r", "r"], "item": ["a", "b", "c"], "rank": [5, 1, 2], "clicked": [1, 1, 0]}
    log = pl.DataFrame(rows)
    alone, both = mf.audit(log.filter(pl.col("query") == "q"), resamples=2), mf.audit(log, resamples=2)
    assert (alone.unfairness, alone.floor) == (0, 0)
    assert both.measures().filter(measure="ndcg")["value"].item() == pytest.approx(1)
