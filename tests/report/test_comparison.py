"""Comparison of policies in one call: the curves and their labels."""

import mcfair as mf
from mcfair.experiments.compare import as_series


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
