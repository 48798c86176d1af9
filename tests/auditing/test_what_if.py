"""Other policies on a log: replayed with the merit of the audit, and by logged propensities where there is support."""

import msgspec
import numpy as np
import polars as pl
import pytest
from logs import catalogue, recorded_run, run_table
from real_data import OPEN_BANDIT, needs_open_bandit

import mcfair as mf
from mcfair.auditing.counts import count_log
from mcfair.auditing.readers import open_log
from mcfair.auditing.what_if import off_policy

CLICK = np.array([[0.5, 0.3, 0.1], [0.25, 0.15, 0.05]]).T
"""Click probability of three items at two ranks."""

LOGGED = np.array([[0.2, 0.3, 0.5], [0.5, 0.3, 0.2]]).T


def bandit_log(rows, seed=0):
    """Rows of one item each, drawn with the logged probabilities of its rank."""
    rng = np.random.default_rng(seed)
    rank = rng.integers(0, 2, rows)
    item = np.array([rng.choice(3, p=LOGGED[:, j]) for j in rank])
    return pl.DataFrame(
        {
            "item_id": item,
            "position": rank + 1,
            "click": (rng.random(rows) < CLICK[item, rank]).astype(int),
            "propensity_score": LOGGED[item, rank],
        }
    )


def estimate(log, F):
    counts = count_log(open_log(log))
    return off_policy(counts, np.ones(counts.items, np.bool_), np.array(F), np.full(counts.items, 10))


def test_the_definition_row_by_row():
    log = bandit_log(200)
    F = np.array([[7, 1], [3, 2], [0, 7]])
    weights = [
        F[row["item_id"], row["position"] - 1] / 10 / row["propensity_score"] for row in log.iter_rows(named=True)
    ]
    clicks = log["click"].to_list()
    found = estimate(log, F)
    gained = sum(w * c for w, c in zip(weights, clicks, strict=True))
    assert found.click_rate == pytest.approx(gained / 200, rel=1e-12)
    assert found.self_normalised == pytest.approx(gained / sum(weights), rel=1e-12)
    assert found.effective_sample_size == pytest.approx(sum(weights) ** 2 / sum(w * w for w in weights), rel=1e-12)
    assert found.unsupported == 0


def test_the_truth_is_found():
    """A policy that shows items 0 and 1, whose click rate over both ranks is known."""
    found = estimate(bandit_log(20_000), [[10, 0], [0, 10], [0, 0]])
    truth = (CLICK[0, 0] + CLICK[1, 1]) / 2
    error = np.sqrt(truth / found.effective_sample_size)  # at most
    assert abs(found.click_rate - truth) < 4 * error
    assert abs(found.self_normalised - truth) < 4 * error
    assert found.effective_sample_size < 20_000 / 3


def test_what_was_never_logged_has_no_estimate():
    log = bandit_log(300).filter(~((pl.col("item_id") == 2) & (pl.col("position") == 1)))
    found = estimate(log, [[0, 10], [0, 0], [10, 0]])
    assert found.unsupported == 0.5
    assert np.isnan(found.click_rate)
    assert estimate(log, [[10, 0], [0, 10], [0, 0]]).unsupported == 0


def test_audits_show_it_where_propensities_were_logged(tmp_path):
    found = mf.audit(bandit_log(400), policies=["TopK", "RandomK"], resamples=2)
    logged, top, random = found.to_dict()["policies"]
    assert msgspec.json.decode(msgspec.json.encode(found.to_dict()))["policies"] == [logged, top, random]
    assert logged["off_policy"] is None
    assert top["off_policy"]["click_rate"] > random["off_policy"]["click_rate"] > 0
    assert 0 < top["off_policy"]["effective_sample_size"] < 400
    text = mf.write_audit(found, tmp_path).read_text(encoding="utf-8")
    assert "effective sample size" in text
    assert "also an estimate" in text
    table = pl.read_csv(tmp_path / "tables" / "policies.csv")
    assert table["ips_click_rate"].to_list()[1] == pytest.approx(top["off_policy"]["click_rate"])
    plain = bandit_log(40).rename({"item_id": "item"}).with_columns(query=pl.lit("q")).drop("propensity_score")
    without = mf.audit(plain, policies=["TopK"], resamples=2)
    assert without.policies[1].off_policy is None


@needs_open_bandit
def test_the_random_policy_on_a_log_of_random_lists():
    """Its click rate by inverse propensities is that of the log, within the noise of 380 clicks in 10,000 rows."""
    found = mf.audit(OPEN_BANDIT / "random-all.csv.gz", merit="uniform", policies=["RandomK"], resamples=2)
    scored = found.policies[1].off_policy
    rate = float(found.values.measures["ctr"])
    assert scored.unsupported < 0.01
    assert scored.effective_sample_size > 9_000
    assert scored.self_normalised == pytest.approx(rate, rel=0.1)


# --- replay ----------------------------------------------------------------------------------------------------------


def test_a_policy_on_the_log_of_itself_changes_nothing():
    """TopK shows the same list every time, so the estimate of TopK on its own log is the log."""
    trace = recorded_run(steps=300, policy="TopK", mode="post-processing")
    found = mf.audit(run_table(trace), items=catalogue(trace), policies=["TopK"], resamples=2)
    logged, again = found.policies
    assert again.unfairness == pytest.approx(logged.unfairness, rel=1e-9) == pytest.approx(trace.unfairness, rel=1e-9)
    assert again.groups["exposure"].sum() == pytest.approx(
        logged.groups["exposure"].sum(), rel=1e-9
    )  # ties may be broken differently
    assert again.ndcg == pytest.approx(1, rel=1e-9)


def test_a_fair_policy_is_estimated_to_be_fairer():
    trace = recorded_run(steps=2000, policy="TopK", mode="post-processing")
    found = mf.audit(run_table(trace), items=catalogue(trace), policies=["MCFair(alpha=10)"], resamples=2)
    logged, fair = found.policies
    assert found.floor * (1 - 1e-9) <= fair.unfairness < logged.unfairness / 2
    assert fair.clicks_per_impression < logged.clicks_per_impression


def test_the_log_among_the_policies_has_the_figures_of_the_audit():
    """Clicks over exposure may exceed 1, and a query may have one candidate: neither changes the figures of the log."""
    rows = [
        (t, "q", "ab"[(t + j) % 2], "xy"[(t + j) % 2], j + 1, int(j == 1 or t % 2)) for t in range(6) for j in (0, 1)
    ]
    rows += [(6, "one", "c", "x", 1, 1)]
    names = ["impression", "query", "item", "group", "rank", "clicked"]
    found = mf.audit(pl.DataFrame(rows, schema=names, orient="row"), policies=["TopK"], resamples=2)
    logged, top = found.policies
    assert found.items()["merit"].max() > 1
    assert logged.unfairness == pytest.approx(found.unfairness, rel=1e-12)
    assert logged.ndcg == pytest.approx(float(found.values.measures["ndcg"]), rel=1e-12)
    assert logged.groups["ratio"].to_list() == pytest.approx(found.groups().sort("group")["ratio"].to_list(), rel=1e-12)
    assert top.ndcg == pytest.approx(1, rel=1e-12)  # it ranks by the merit by which it is judged
    assert logged.clicks_per_impression == pytest.approx(10 / 7, rel=1e-12)  # clicks over exposure, times exposure
