"""Comparisons with a baseline: what is significant is found, and what is not is never called equal; trade-offs."""

import math
import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from small_results import TABLE, TRADEOFF, cells, column, comparison, only, shifted, view_of

import mcfair as mf
from mcfair.analysis.significance import detectable_difference
from mcfair.experiments.compare import as_series
from mcfair.report.comparison import classify, compare_curves, count, median_detectable, within
from mcfair.report.sections import against_baseline, describe_test
from mcfair.tables import NOTHING


def noisy(results, policy: str, by: float, noise: float):
    """Change a policy's effectiveness by some amount, plus noise of opposite signs for the two seeds."""
    return shifted(results, policy, by + noise * (2 * pl.col("seed") - 1))


def compared(view):
    """The compared points of each method."""
    found = {}
    for each in compare_curves(view, 5):
        found.setdefault(each.point.series.name, []).append(each)
    return found


def outcomes(results, setting: int = 0):
    return compared(view_of(results, setting=setting))


# --- tests over queries ----------------------------------------------------------------------------------------------


def test_significance_marks(results, report):
    view = view_of(results)
    tests = against_baseline(view, "unfairness")
    marks = {label: "†" if test["p_adjusted"] < 0.01 else "" for label, test in tests.items()}
    assert view.baseline.name == "MCFair"
    assert marks == {"TopK": "†", "FairCo": "†", "MCFair again": ""}
    again, top = tests["MCFair again"], tests["TopK"]
    assert [again[name] for name in ("p", "p_adjusted", "difference", "detectable")] == [1.0, 1.0, 0.0, 0.0]
    points = {curve.label: curve.points[0] for curve in view.curves}
    expected = points["TopK"].mean("unfairness") - points["MCFair"].mean("unfairness")
    assert top["difference"] == pytest.approx(expected, rel=1e-6)
    assert top["low"] < top["difference"] < top["high"]
    rows = column(cells(report.parent / "tables" / "table1.md"), "unfairness (std)")
    assert rows["TopK"].endswith("†")
    assert rows["MCFair"].endswith(")")
    assert rows["MCFair again"].endswith(")")
    page = report.read_text(encoding="utf-8")
    assert "Fisher&#39;s randomisation test" in page
    assert 'title="difference from MCFair: ' in page


def test_a_test_that_is_not_significant_states_its_interval_and_its_power(results, tmp_path, written):
    """Queries of one policy that differ from the baseline's by noise alone."""
    view = view_of(results)
    policy = next(curve.points[0] for curve in view.curves if curve.label == "FairCo")
    names = view.per_query(view.baseline, "unfairness").select("query", base="value")
    noise = names.with_columns(unfairness=pl.col("base") + pl.Series(np.resize([0.5, -0.5], names.height)))
    mine = pl.col("key").is_in(policy.runs["key"].to_list())
    planted = results.queries.filter(mine).drop("unfairness").join(noise.drop("base"), on="query")
    planted = pl.concat([results.queries.filter(~mine), planted.select(results.queries.columns)])
    written(only(replace(results, queries=planted), TABLE))
    rows = cells(tmp_path / "tables" / "table1-tests-unfairness.md")
    assert column(rows, "detectable difference")["TopK"] == NOTHING
    assert column(rows, "detectable difference")["MCFair again"] == NOTHING
    size = float(column(rows, "detectable difference")["FairCo"])
    differences = np.resize([0.5, -0.5], noise.height)
    assert size == pytest.approx(detectable_difference(differences, 1 - 0.05 / 3), rel=0.01)
    low, high = map(float, column(rows, "95 % interval")["FairCo"].split(" to "))
    assert low < 0 < high
    assert float(column(rows, "p after Holm")["FairCo"]) > 0.05
    tests = against_baseline(view_of(only(replace(results, queries=planted), TABLE)), "unfairness")
    assert "not significant, differences below" in describe_test(tests["FairCo"])


def test_no_marks_without_a_baseline(results, tmp_path, written):
    assert "†" not in written(only(results, TABLE, compare_with=""))
    assert not list((tmp_path / "tables").glob("table1-tests*"))


# --- curves at equal unfairness --------------------------------------------------------------------------------------


def test_a_planted_point_above_the_curve_is_found(results):
    planted = only(noisy(results, "FairCo(alpha=0.01", 60.0, 0.01), TRADEOFF)
    lower = [each for each in outcomes(planted)["FairCo"] if each.outcome == "below"]
    assert [each.point.policy.label for each in lower] == ["FairCo(alpha=0.01)"]
    assert lower[0].low < lower[0].difference < lower[0].high < 0
    text, tables = comparison(planted)
    assert re.search(r"MCFair is significantly higher at \d+, significantly lower at [1-9]", text)
    rows = tables["fig3-lower"]
    assert "FairCo(alpha=0.01)" in column(rows, "curve lower by")
    assert all(float(value) > 0 for value in column(rows, "curve lower by").values())
    assert int(column(tables["fig3-comparison"], "MCFair lower")["post-processing, cNDCG@5"]) >= 1


def test_noise_is_neither_above_nor_below_and_is_never_called_equal(results, report):
    """The same lists, but for noise whose mean is far from significant: the claim must not be said to hold."""
    planted = only(noisy(results, "TopK", 0.1, 5.0), TRADEOFF)
    top = outcomes(planted)["TopK"][0]
    assert top.outcome == "undecided"
    assert top.low < 0 < top.high
    assert top.detectable == pytest.approx(detectable_difference([-5.1, 4.9]), rel=1e-6)
    text, tables = comparison(planted)
    page = re.sub(r"base64,[\w+/=]+", "", report.read_text(encoding="utf-8"))
    for word in ("holds", "equal to", "no difference", "on or above", "as good as"):
        assert word not in text, word
        assert word not in page, word
    assert "Not significant does not mean equal" in text
    rows = tables["fig3-comparison-by-method"]
    row = next(row for row in rows if row[:2] == ["TopK", "post-processing, cNDCG@5"])
    named = dict(zip(rows[0], row, strict=True))
    assert (named["points compared"], named["not significant"], named["MCFair higher"]) == ("1", "1", "0")
    assert float(named["detectable difference"]) == pytest.approx(top.detectable, rel=0.01)


def test_counts_add_up(results):
    for setting in (0, 1):
        view = view_of(results, 2, setting)
        for label, points in compared(view).items():
            known = ("above", "below", "undecided", "identical", "untested")
            assert sum(count(points, each) for each in known) == within(points)
            assert len(points) == next(len(curve.points) for curve in view.curves if curve.label == label)


def test_the_baseline_is_above_when_all_others_are_low(results):
    low = only(noisy(noisy(results, "FairCo", -60.0, 0.01), "TopK", -60.0, 0.01), TRADEOFF)
    for one in outcomes(low).values():
        assert count(one, "below") == 0
    assert count(outcomes(low)["TopK"], "above") == 1
    text, tables = comparison(low)
    assert "fig3-lower" not in tables
    assert re.search(r"4 panels, 95 % intervals over 2 seeds\): of \d+ points compared, MCFair is significantly", text)
    assert "would be detected with a power of 80 %" in text


def test_points_of_equal_lists_are_the_same_in_every_seed(results):
    top = compared(view_of(results, 2))["TopK"]
    assert (within(top), count(top, "identical")) == (1, 1)  # MCFair with alpha=0 shows the same lists
    assert math.isnan(median_detectable(top))


def test_with_one_seed_nothing_is_tested(results, odd):
    one_seed = only(results, TRADEOFF, seeds=1)
    text, tables = comparison(one_seed)
    assert "There is one seed, so nothing can be tested" in text
    assert "significant" not in text
    assert not tables
    found = compare_curves(view_of(one_seed), 5)
    assert {each.outcome for each in found} == {"untested"}
    page = odd.read_text(encoding="utf-8")
    assert "There is one seed, so nothing can be tested" in page
    assert "significantly" not in page


def test_outcomes_follow_the_interval():
    for gaps, outcome in (([1.0, 1.1, 1.2], "above"), ([-1.0, -1.1, -1.2], "below"), ([1.0, -1.0, 0.5], "undecided"),
                          ([0.0, 0.0, 1e-9], "identical"), ([3.0], "untested")):  # fmt: skip
        assert classify(gaps, scale=100.0) == outcome


def test_a_compared_point_has_the_mean_difference_of_its_seeds_and_its_interval(results):
    planted = only(noisy(results, "FairCo(alpha=0.01", 60.0, 0.01), TRADEOFF)
    (below,) = [each for each in outcomes(planted)["FairCo"] if each.outcome == "below"]
    whole = next(each for each in outcomes(only(results, TRADEOFF))["FairCo"] if each.point.name == below.point.name)
    assert below.difference == pytest.approx(whole.difference - 60.0)
    assert below.low < below.difference < below.high
    assert below.detectable > 0


def test_seeds_of_other_experiments_are_left_out(results):
    view = view_of(only(results, TABLE, seeds=1))
    assert {point.runs.height for point in view.points} == {1}
    assert view.limits.height == 1


# --- trade-offs of policies in one call ------------------------------------------------------------------------------


def labels(policies):
    return [each.name for each in as_series(policies)]


def test_curves_of_one_policy_are_told_apart_by_what_their_points_have_in_common():
    texts = ["MCFair(alpha=[0, 1])", "FairCo(alpha=[0, 1], beta=1)", "MCFair(alpha=[1, 10], scale=mean)"]
    assert labels(texts) == ["MCFair", "FairCo", "MCFair(scale='mean')"]
    assert labels([mf.MCFair(), mf.MCFair(alpha=2.0)]) == ["MCFair", "MCFair(alpha=2.0)"]
    assert labels({"a": texts[0], "b": texts[2]}) == ["a", "b"]


def test_each_curve_has_a_style_of_its_own():
    data = mf.synthetic("mq2008-like").take(range(3))
    found = mf.tradeoff(data, ["MCFair(alpha=[0, 1])", "MCFair(alpha=[1, 10], scale=mean)"], steps=30, seeds=1)
    assert found.frame()["series"].to_list() == ["MCFair"] * 2 + ["MCFair(scale='mean')"] * 2
    names = [text.get_text() for text in found.plot().legends[0].get_texts()]
    assert {"MCFair", "MCFair(scale='mean')"} <= set(names)
