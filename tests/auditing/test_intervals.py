"""Intervals resample queries or sessions, and of many groups none is said to be behind by chance."""

import math

import numpy as np
import polars as pl
import pytest
from logs import random_log

import mcfair as mf
from mcfair.auditing.page import findings
from mcfair.errors import SettingError

P = 1 / np.log2(np.arange(2, 8))


def test_intervals_resample_queries_as_they_are():
    """The unfairness of a resample is the mean over its queries: the interval is that of such means."""
    _, table = random_log(0, P)
    many = pl.concat([table.with_columns(pl.format("{}/{}", "query", pl.lit(i)).alias("query")) for i in range(6)])
    found = mf.audit(many, resamples=400, seed=1)
    assert found.resampled == "queries"
    values = found.figures.unfairness[found.figures.judged > 0]
    rng = np.random.default_rng(2)
    means = [rng.choice(values, values.size).mean() for _ in range(4000)]
    low, high = found.intervals.measures["unfairness"]
    spread = np.std(means)
    assert low == pytest.approx(np.percentile(means, 2.5), abs=0.5 * spread)
    assert high == pytest.approx(np.percentile(means, 97.5), abs=0.5 * spread)
    assert low < found.unfairness < high


def test_few_queries_resample_sessions():
    rng = np.random.default_rng(0)
    items = rng.integers(0, 2, 4000)
    log = pl.DataFrame(
        {
            "query": ["q"] * 4000,
            "item": items,
            "rank": [1] * 4000,
            "clicked": rng.random(4000) < 0.3,
            "impression": range(4000),
        }
    ).with_columns(group=pl.col("item"))
    found = mf.audit(log, merit="uniform", resamples=300)
    assert found.resampled == "sessions"
    share = found.values.groups["exposure_share"][0]
    low, high = found.intervals.groups["exposure_share"][:, 0]
    error = math.sqrt(share * (1 - share) / 4000)  # of a binomial share
    assert low == pytest.approx(share - 1.96 * error, abs=0.4 * error)
    assert high == pytest.approx(share + 1.96 * error, abs=0.4 * error)


def test_equal_seeds_have_equal_intervals():
    _, table = random_log(1, P)
    a, b = (mf.audit(table, resamples=20, seed=3).to_dict() for _ in range(2))
    assert a == b


def log_of_groups(seed, groups=50, worse=0.0, impressions=2_000):
    """A log of 200 queries in which chance alone decides what is shown and clicked, but for one group."""
    rng = np.random.default_rng(seed)
    queries, items, ranks = 200, 8, 4
    of = rng.integers(0, groups, (queries, items))
    query = rng.integers(0, queries, impressions)
    score = rng.random((impressions, items)) - worse * (of[query] == 0)
    shown = np.argsort(-score, axis=1)[:, :ranks]
    hit = rng.random(shown.shape) < 0.4 / np.log2(np.arange(2, ranks + 2))
    return pl.DataFrame(
        {
            "impression": np.repeat(np.arange(impressions), ranks),
            "query": np.repeat(query, ranks),
            "item": (query[:, None] * items + shown).ravel(),
            "rank": np.tile(np.arange(1, ranks + 1), impressions),
            "clicked": hit.ravel(),
            "group": of[query[:, None], shown].ravel(),
        }
    )


def test_the_lowest_of_many_groups_is_not_behind_by_chance():
    """In half of these logs and more, the interval of the lowest of 50 groups alone does not hold 1."""
    found = [mf.audit(log_of_groups(seed), merit="IPS", resamples=100) for seed in range(20)]
    alone = sum(bool((each.groups()["ratio_high"] < 1).any()) for each in found)
    said = sum(any("which is beyond chance" in text for text in findings(each)) for each in found)
    assert alone >= 10
    assert said <= 2
    assert said == sum(bool(each.groups()["beyond_chance"].any()) for each in found)


def test_a_group_that_is_behind_is_found_among_many():
    found = mf.audit(log_of_groups(0, worse=0.4, impressions=20_000), resamples=200)
    assert found.groups().filter("beyond_chance")["group"].to_list() == ["0"]
    assert "The group “0” gets the least exposure for its merit" in findings(found)[1]


def test_no_resamples_give_figures_without_intervals(tmp_path):
    _, table = random_log(1, P)
    found, other = mf.audit(table, resamples=0), mf.audit(table, resamples=2)
    assert found.values.measures == other.values.measures
    assert found.to_dict()["measures"]["unfairness"]["interval"] == [None, None]
    assert "confidence" not in findings(found)[0]
    text = mf.write_audit(found, tmp_path).read_text(encoding="utf-8")
    assert "nan" not in text
    assert "No intervals were computed" in text


def test_resamples_that_memory_does_not_hold_are_refused():
    _, table = random_log(1, P)
    with pytest.raises(SettingError, match=r"resamples = 1,000,000,000 is not allowed: .* GB; expected at most"):
        mf.audit(table, resamples=10**9)
