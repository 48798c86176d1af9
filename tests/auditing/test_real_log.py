"""A real click log with positions and logged propensities: the audit finds what is known of its policies."""

import numpy as np
import polars as pl
import pytest
from real_data import OPEN_BANDIT, needs_open_bandit

import mcfair as mf
from mcfair.auditing.page import findings

pytestmark = needs_open_bandit

RANDOM, THOMPSON = OPEN_BANDIT / "random-all.csv.gz", OPEN_BANDIT / "bts-all.csv.gz"

GROUPS = pl.DataFrame({"item": [str(i) for i in range(80)], "group": [f"group {i % 4}" for i in range(80)]})
"""Four groups of twenty items, by their numbers, which mean nothing."""


@pytest.fixture(scope="module")
def random_policy():
    return mf.audit(RANDOM, items=GROUPS, merit="uniform", resamples=200)


def test_the_log_is_read_whole(random_policy):
    assert (random_policy.format, random_policy.counts.rows) == ("open-bandit", 10_000)
    assert (random_policy.counts.ranks, random_policy.counts.items) == (3, 80)
    assert random_policy.counts.excluded == {}
    assert random_policy.counts.period[0].startswith("2019-11-24 00:00:34")


def test_a_random_policy_treats_groups_alike(random_policy):
    """Every group has a quarter of the items and, within its interval, a quarter of the exposure."""
    for row in random_policy.groups().iter_rows(named=True):
        assert row["size_share"] == 0.25
        assert row["exposure_share_low"] < 0.25 < row["exposure_share_high"], row["group"]
        assert not row["flagged"]
    assert not [text for text in findings(random_policy) if "which is beyond chance" in text]


def test_thompson_sampling_does_not():
    """It prefers items that are clicked, so that their numbers of impressions differ far beyond chance."""
    chosen, uniform = (mf.audit(log, merit="uniform", resamples=50) for log in (THOMPSON, RANDOM))
    low, high = chosen.intervals.measures["gini"]
    assert uniform.intervals.measures["gini"][1] < low < high


def test_fitted_examination_agrees_with_the_click_rates(random_policy):
    found = mf.fit_examination(RANDOM, resamples=200)
    table = pl.read_csv(RANDOM).group_by("position").agg(pl.col("click").mean()).sort("position")
    rates = table["click"].to_numpy()
    assert found.method == "ctr"
    assert found.p == pytest.approx(rates / rates[0], rel=1e-9)  # propensities are all 1/80
    assert ((found.low <= found.p) & (found.p <= found.high)).all()
    assert random_policy.ranks()["ips_ctr"].to_numpy() == pytest.approx(rates, rel=1e-9)


def test_propensities_estimate_the_click_rate_of_the_random_policy(random_policy):
    """The click rate of Thompson sampling, weighted by its propensities, is near that of the random policy."""
    found = mf.audit(THOMPSON, merit="uniform", resamples=100)
    low, high = found.intervals.measures["ips_ctr"]
    other = float(random_policy.values.measures["ctr"])
    spread = np.diff(random_policy.intervals.measures["ctr"])[0] / 2
    assert low - spread < other < high + spread


def test_intervals_hold_their_estimates(random_policy):
    """Noise raises the distance of a random policy, and once more that of its resamples."""
    for name, value in random_policy.values.measures.items():
        low, high = random_policy.intervals.measures[name]
        assert np.isnan(value) or low <= value <= high, name
    low, high = random_policy.intervals.measures["distance"]
    assert high < 3 * float(random_policy.values.measures["distance"])


def test_a_floor_of_rounding_errors_is_zero():
    found = mf.audit(RANDOM)
    assert found.floor == 0.0
    assert "times" not in findings(found)[0]
