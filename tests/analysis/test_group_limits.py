"""The lowest possible group unfairness against mixtures of all lists, and against what policies reach."""

import dataclasses

import naive
import naive_limits
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mcfair as mf
from mcfair.analysis.limits import ExposureProgram, fairness_floor, fill_group_optima, group_floor
from mcfair.data.dataset import Dataset
from mcfair.errors import DataError
from mcfair.metrics.reachable import project_groups

relevances = st.one_of(st.sampled_from([0.0, 0.1, 0.4, 1.0]), st.integers(0, 1000).map(lambda i: i / 1000))


@st.composite
def instances(draw, most=14, least=1):
    """Relevance and group of each item of one query, its visits, and p."""
    R = np.array(draw(st.lists(relevances, min_size=least, max_size=most)))
    groups = draw(st.lists(st.integers(0, 4), min_size=R.size, max_size=R.size))
    p = naive.examination(draw(st.integers(1, 8)), draw(st.sampled_from([0, 1, 2])))
    return R, groups, draw(st.integers(1, 300)), p


def one_query(R, groups):
    return Dataset(offsets=[0, R.size], y=np.zeros(R.size, int), R=R, providers=[f"g{each}" for each in groups])


def summed(x, groups):
    return np.array([sum(x[d] for d in range(len(x)) if groups[d] == each) for each in sorted(set(groups))])


def exposures(visits, p, n):
    return visits * np.concatenate((p, np.zeros(n)))[:n]


@settings(max_examples=60)
@given(instances(most=6, least=2))
def test_the_floor_is_what_frank_wolfe_finds_among_all_lists(instance):
    R, groups, visits, p = instance
    w = exposures(visits, p, R.size)
    floor = group_floor(one_query(R, groups), [visits], p)
    M = summed(R, groups)
    if M.size < 2:
        assert (floor.unfairness, floor.query_unfairness[0]) == (0.0, 0.0)
        return
    corners = naive_limits.group_corners(groups, w)
    value, bound, _ = naive_limits.pairwise_frank_wolfe(M, naive_limits.list_oracle(corners))
    margin = 1e-9 * (1 + w.sum() ** 2 * (M @ M))
    assert value - bound <= 1e-4 * (1 + w.sum() ** 2 * (M @ M)), "the oracle has not converged"
    assert bound - margin <= floor.query_unfairness[0] <= value + margin
    assert floor.query_gap[0] <= margin
    assert naive_limits.is_reachable(floor.E, w)
    assert naive.group_unfairness(floor.E, R, groups) == pytest.approx(floor.query_unfairness[0], rel=1e-9, abs=margin)


@given(instances(), st.floats(0, 1e4))
def test_no_reachable_exposure_of_groups_is_nearer_than_the_projection(instance, c):
    R, groups, visits, p = instance
    groups = np.unique(groups, return_inverse=True)[1]
    M, sizes, w = summed(R, groups.tolist()), np.bincount(groups), exposures(visits, p, R.size)
    H = np.concatenate(([0.0], np.cumsum(w)))
    results = []
    for kernel in (project_groups, project_groups.interpreted):
        E = np.empty(M.size)
        sums = kernel(c, M, sizes, H, np.arange(M.size), np.empty(M.size, np.int64), E)
        results.append((E.tolist(), sums))
    assert results[0] == results[1]
    assert naive_limits.is_reachable((E / sizes)[groups], w)
    away = c * M - E  # every reachable point lies on the other side of the plane through E
    assert np.sort(away[groups])[::-1] @ w - away @ E <= 1e-10 * (1 + np.abs(away).max()) * (1 + w.sum())
    wm, mm = results[0][1]
    assert c * mm - wm == pytest.approx(c * (M @ M) - M @ E, rel=1e-7, abs=1e-7 * (1 + c) * (1 + w.sum()))


@settings(max_examples=40)
@given(instances(least=2))
def test_groups_of_one_item_are_the_items(instance):
    R, _, visits, p = instance
    data = Dataset(offsets=[0, R.size], y=np.zeros(R.size, int), R=R)
    groups, items = group_floor(data, [visits], p), fairness_floor(data, [visits], p)
    margin = 1e-9 * (1 + (visits * p.sum()) ** 2 * (R @ R))
    assert groups.unfairness == pytest.approx(items.unfairness, rel=1e-9, abs=margin)
    assert groups.reachable.tolist() == items.reachable.tolist()
    np.testing.assert_allclose(groups.E, items.E, rtol=1e-7, atol=1e-7 * (1 + visits))


def test_the_gap_bounds_the_distance_to_the_floor_at_any_exposure():
    rng = np.random.default_rng(0)
    R, groups, p = np.array([1.0, 0.4, 0.4, 0.1, 0.1, 0.0]), [0, 0, 0, 1, 2, 2], naive.examination(4)
    w, M, sizes = exposures(20, p, 6), summed(R, groups), np.array([3, 1, 2])
    data = one_query(R, groups)
    floor = group_floor(data, [20], p).unfairness
    corners = naive_limits.group_corners(groups, w)
    for _ in range(30):
        x = np.mean([corners[i] for i in rng.integers(0, len(corners), 3)], axis=0)
        (gap,), _ = ExposureProgram.of(data, [20], p).certify(x, M, np.zeros(3, int), sizes)
        slope = -naive.gradient(x, M)
        assert gap == pytest.approx(slope @ x - min(slope @ np.array(each) for each in corners), abs=1e-9)
        assert naive.unfairness(x, M) - gap <= floor + 1e-9 <= naive.unfairness(x, M) + 2e-9


def test_compiled_equals_interpreted():
    rng = np.random.default_rng(1)
    R, groups, offsets = rng.random(14), np.array([0, 0, 1, 0, 1, 2, 3, 0, 0, 0, 0, 1, 0, 2]), np.array([0, 7, 9, 14])
    results = []
    for kernel in (fill_group_optima, fill_group_optima.interpreted):
        out = np.empty(14), np.empty(3)
        kernel(R, groups, naive.examination(3), offsets, np.array([4.0, 2.0, 9.0]), *out)
        results.append([each.tolist() for each in out])
    assert results[0] == results[1]


def test_the_mean_covers_the_queries_of_the_metric():
    """One group, no relevant item, and no visits leave a query out."""
    R = [1.0, 0.0, 0.0, 0.9, 0.9, 0.0, 0.0, 1.0, 0.5]
    data = Dataset(offsets=[0, 3, 5, 7, 9], y=[0] * 9, R=R, providers=list("abbaaabab"))
    floor = group_floor(data, [5, 5, 5, 0], naive.examination(2))
    assert floor.query_unfairness[0] > 0
    assert floor.unfairness == floor.query_unfairness[0]
    assert floor.reachable.tolist() == [False, True, True, True]
    trace = mf.simulate(data, "MCFair(alpha=0, alpha_group=1)", steps=300, k=2, metrics=["group_unfairness"])
    floor = group_floor(data, trace.state.visits, trace.state.p)
    assert floor.unfairness <= trace.figures["group_unfairness"] + 1e-9


@pytest.mark.parametrize("text", ["TopK", "RandomK", "FairK", "MCFair(alpha=0, beta=0, alpha_group=10)"])
def test_no_policy_is_below_the_floor(text):
    data = mf.synthetic("mq2008-like").take(range(20))
    labels = np.random.default_rng(2).choice(["a", "b", "c", ""], data.items).tolist()
    data = dataclasses.replace(data, providers=labels, fingerprint="")
    trace = mf.simulate(data, text, steps=2000, metrics=["group_unfairness"])
    floor = group_floor(data, trace.state.visits, trace.state.p)
    reached = trace.query_values["group_unfairness"]
    counted = ~np.isnan(reached)
    assert np.all(reached[counted] >= floor.query_unfairness[counted] - 1e-9)
    assert trace.figures["group_unfairness"] >= floor.unfairness
    assert floor.query_gap.max() <= 1e-9 * max(1.0, floor.query_unfairness.max())
    if "alpha_group" in text:
        assert trace.figures["group_unfairness"] <= 1.05 * floor.unfairness + 1.0


def test_bad_input_is_refused():
    with pytest.raises(DataError, match="one number of visits for each of 1 queries"):
        group_floor(one_query(np.array([1.0, 0.5]), [0, 1]), [1, 2], [1.0])
