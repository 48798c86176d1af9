"""Logs that do not tell impressions apart: the lists behind them are inferred, and no query depends on another."""

import polars as pl
import pytest
from logs import flat, random_sessions

import mcfair as mf


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
