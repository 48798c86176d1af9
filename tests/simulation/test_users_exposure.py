"""The exposure that users really give: against brute-force clicks, and as a metric of a run."""

import naive
import naive_users
import numpy as np
import pytest

import mcfair as mf
from mcfair.random import CLICKS, draws

USERS = [
    "PositionBased(severity=2)",
    "PositionBased(noise=0.3, severity=0.5)",
    "Cascade(stop=0.7)",
    "DBN(satisfaction=0.5, continuation=0.8)",
    "TrustBias(positive=(1.0,), negative=(0.4, 0.2), severity=1.5)",
]
VISITS = 10_000


@pytest.mark.parametrize("text", USERS)
def test_attention_is_how_often_a_relevant_item_is_clicked(text):
    """An item that is certainly relevant is clicked whenever it is examined: count such clicks at every rank."""
    model, p = mf.parse_click_model(text), naive.examination(5)
    pi, truth = np.array([2, 0, 5, 3, 1]), np.array([0.9, 0.1, 0.4, 0.7, 1.0, 0.25])
    expected = model.attention(truth[pi], p)
    assert expected == pytest.approx(naive_users.attention(model, truth[pi].tolist(), p))
    hits, counted = np.zeros(5, bool), np.zeros(5)
    for j in range(5):
        certain = truth.copy()
        certain[pi[j]] = 1.0
        for visit in range(VISITS):
            model.kernel(pi, certain, np.asarray(model.examined(p)), model.theta, draws(3, CLICKS, j, visit), hits)
            counted[j] += hits[j]
    band = 4.5 * np.sqrt(expected * (1 - expected) / VISITS)
    assert np.all(np.abs(counted / VISITS - expected) <= band), (counted / VISITS, expected)


@pytest.mark.parametrize("text", USERS)
def test_attention_of_many_lists_is_that_of_each(text):
    model, r = mf.parse_click_model(text), np.array([[0.9, 0.1, 0.4], [0.0, 1.0, 0.5]])
    p = mf.examination(5)
    assert model.attention(r, p).tolist() == [model.attention(each, p).tolist() for each in r]


@pytest.mark.parametrize("mode", ["online", "post-processing"])
@pytest.mark.parametrize("text", USERS)
def test_true_unfairness_is_that_of_every_list_counted(text, mode):
    data = mf.Dataset(offsets=[0, 3, 7, 12], y=[2, 1, 0, 0, 2, 1, 1, 0, 1, 2, 0, 1])
    options = {"steps": 60, "k": 4, "clicks": text, "metrics": ["true_unfairness", "unfairness", "log_ndcg@3"]}
    trace = mf.simulate(data, "MCFair", mode, checkpoints=[7, 60], record=True, examination=0.5, **options)
    model, p = mf.parse_click_model(text), naive.examination(4, 0.5)
    E, visits, gains = [0.0] * 12, [0] * 3, []
    R = data.R.tolist()
    for t, (query, shown) in enumerate(zip(trace.arrivals.tolist(), trace.lists.tolist(), strict=True), start=1):
        low, high = int(data.offsets[query]), int(data.offsets[query + 1])
        items = [low + d for d in shown if d >= 0]
        for d, seen in zip(items, naive_users.attention(model, [R[d] for d in items], p), strict=True):
            E[d] += seen
        visits[query] += 1
        discounts = [1 / np.log2(j + 2) for j in range(3)]
        best = sorted(R[low:high], reverse=True)
        gains.append(np.dot(discounts, [R[d] for d in items[:3]]) / np.dot(discounts, best[:3]))
        if t in (7, 60):
            each = [naive.unfairness(E[a:b], R[a:b]) for a, b in ((0, 3), (3, 7), (7, 12))]
            counted = [value for value, count in zip(each, visits, strict=True) if count]
            mark = (7, 60).index(t)
            assert trace.values["true_unfairness"][mark] == pytest.approx(np.mean(counted))
            assert trace.values["log_ndcg@3"][mark] == pytest.approx(np.mean(gains))
    assert trace.query_values["true_unfairness"] == pytest.approx(each)


def test_users_as_assumed_have_the_true_unfairness_that_is_assumed():
    data = mf.synthetic("mq2008-like").take(range(10))
    for mode in ("online", "post-processing"):
        figures = mf.simulate(data, "MCFair", mode, steps=500, metrics=["true_unfairness", "log_ndcg@5"]).figures
        assert figures["true_unfairness"] == pytest.approx(figures["unfairness"])
        assert figures["log_ndcg@5"] == pytest.approx(figures["ndcg@5"])
