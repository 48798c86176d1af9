import naive
import naive_limits
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real_data import FOLDS, needs_mq2008

import mcfair as mf
from mcfair.analysis.limits import ExposureProgram, fairness_floor, fill_optima, frontier
from mcfair.data.dataset import Dataset
from mcfair.errors import DataError, SettingError
from mcfair.metrics.reachable import HUGE, balance, project

POLICIES = ["TopK", "TopK(ties=least-exposed)", "RandomK", "FairK", "MCFair(alpha=1000, beta=0)", "MMF(alpha=1)",
            "MCFair(alpha=0.1, beta=0)", "MCFair(alpha=10, beta=0, scale=mean)", "FairCo(alpha=0.01)"]  # fmt: skip


def dataset(*queries):
    sizes = [len(R) for R in queries]
    return Dataset(offsets=np.cumsum([0, *sizes]), y=np.zeros(sum(sizes), int), R=np.concatenate([[], *queries]))


def exposures(visits, p, n):
    return visits * np.concatenate((p, np.zeros(n)))[:n]


def projection(c, R, w, kernel=project):
    order = np.argsort(-R, kind="stable")
    E = np.empty(R.size)
    sums = kernel(c, R[order], w, np.empty((R.size, 3)), E)
    out = np.empty(R.size)
    out[order] = E
    return out, sums


grades = st.sampled_from([0.0, 0.1, 0.4, 1.0])
relevances = st.one_of(grades, st.integers(0, 1000).map(lambda i: i / 1000))
factors = st.one_of(st.just(0.0), st.floats(0.001, 1e5))


@st.composite
def instances(draw, most=15, least=1):
    """Relevance of one query, its visits, and p."""
    R = np.array(draw(st.lists(relevances, min_size=least, max_size=most)))
    return R, draw(st.integers(1, 300)), naive.examination(draw(st.integers(1, 8)), draw(st.sampled_from([0, 1, 2])))


@given(instances(), factors)
def test_no_reachable_point_is_nearer_than_the_projection(instance, c):
    R, visits, p = instance
    w = exposures(visits, p, R.size)
    E, _ = projection(c, R, w)
    assert naive_limits.is_reachable(E, w)
    away = c * R - E  # every reachable point lies on the other side of the plane through E
    assert np.sort(away)[::-1] @ w - away @ E <= 1e-10 * (1 + np.abs(away).max()) * (1 + w.sum())


@given(instances(), factors, st.randoms(use_true_random=False))
def test_projecting_twice_or_in_another_order_changes_nothing(instance, c, random):
    R, visits, p = instance
    w = exposures(visits, p, R.size)
    E, _ = projection(c, R, w)
    close = {"rtol": 0, "atol": 1e-10 * (1 + c) * (1 + w[0])}
    np.testing.assert_allclose(projection(1.0, E, w)[0], E, **close)
    order = np.array(random.sample(range(R.size), R.size))
    np.testing.assert_allclose(projection(c, R[order], w)[0], E[order], **close)


@settings(max_examples=25)
@given(instances(most=5), factors)
def test_the_projection_is_the_nearest_point_of_all_faces(instance, c):
    R, visits, p = instance
    w = exposures(visits, p, R.size)
    np.testing.assert_allclose(projection(c, R, w)[0], naive_limits.nearest(c * R, w), atol=1e-8 * (1 + c) * (1 + w[0]))


@given(instances(least=2), st.floats(0, 1e4))
def test_the_balance_is_met(instance, push):
    R, visits, p = instance
    if not R.any():
        return
    w, R, E, pools = exposures(visits, p, R.size), np.sort(R)[::-1].copy(), np.empty(R.size), np.empty((R.size, 3))
    c = balance(push, 0.0, R, w, pools, E)
    assert c * (R @ R) - R @ E == pytest.approx(push, rel=1e-9, abs=1e-9 * (1 + c))
    assert balance(push, 0.7 * c, R, w, pools, E) == pytest.approx(c, rel=1e-12)  # wherever it begins


@given(instances(least=2), factors)
def test_compiled_equals_interpreted(instance, c):
    R, visits, p = instance
    w = exposures(visits, p, R.size)
    (E, sums), (slow, slow_sums) = projection(c, R, w), projection(c, R, w, project.interpreted)
    assert E.tolist() == slow.tolist()
    assert sums == slow_sums
    lambdas, results = np.array([0.0, 10.0, np.inf]), []
    for kernel in (fill_optima, fill_optima.interpreted):
        out = np.empty(R.size), np.empty((3, 1)), np.empty((3, 1))
        kernel(np.sort(R)[::-1].copy(), p, np.array([0, R.size]), np.array([visits]), np.ones(1), lambdas, *out)
        results.append([each.tolist() for each in out])
    assert results[0] == results[1]


@settings(max_examples=40)
@given(instances(most=6, least=2))
def test_the_floor_is_what_frank_wolfe_finds(instance):
    R, visits, p = instance
    w = exposures(visits, p, R.size)
    floor = fairness_floor(dataset(R), [visits], p)
    value, bound, _ = naive_limits.pairwise_frank_wolfe(R, naive_limits.sort_oracle(w))
    margin = 1e-9 * (1 + naive.unfairness(w, R))
    assert value - bound <= 1e-4 * (1 + naive.unfairness(w, R)), "the oracle has not converged"
    assert bound - margin <= floor.query_unfairness[0] <= value + margin
    assert floor.query_unfairness[0] == pytest.approx(naive.unfairness(floor.E, R), rel=1e-9, abs=margin)
    assert floor.query_gap[0] <= margin
    assert naive_limits.is_reachable(floor.E, w)
    in_proportion = R * w.sum() / R.sum() if R.any() else np.full(R.size, w.mean())
    assert floor.reachable[0] == naive_limits.is_reachable(in_proportion, w, 1e-11)


def test_the_gap_bounds_the_distance_to_the_floor_at_any_exposure():
    rng = np.random.default_rng(0)
    R, p, n = np.array([1.0, 0.4, 0.4, 0.1, 0.1, 0.0]), naive.examination(4), 6
    data, w = dataset(R), exposures(20, p, n)
    floor = fairness_floor(data, [20], p)
    for _ in range(50):
        E = np.mean([w[rng.permutation(n)] for _ in range(3)], axis=0)
        (gap,), _ = ExposureProgram.of(data, [20], p).certify(E, R, np.zeros(n, int), np.ones(n, int))
        slope = -naive.gradient(E, R)
        assert gap == pytest.approx(slope @ E - min(slope @ w[rng.permutation(n)] for _ in range(2000)), rel=0.05)
        assert gap == pytest.approx(slope @ E - slope @ np.array(naive_limits.sort_oracle(w)(slope)))
        assert naive.unfairness(E, R) - gap <= floor.unfairness <= naive.unfairness(E, R)


@settings(max_examples=15)
@given(st.lists(instances(most=5, least=2), min_size=1, max_size=3), st.integers(2, 5))
def test_every_point_of_the_frontier_is_what_frank_wolfe_finds(queries, points):
    p = queries[0][2]
    Rs, visits = [R for R, _, _ in queries], [v for _, v, _ in queries]
    curve = frontier(dataset(*Rs), visits, p, points=points)
    ideals = [exposures(1, p, R.size) @ np.sort(R)[::-1] for R in Rs]
    counted = max(sum(ideal > 0 for ideal in ideals), 1)
    for i, lam in enumerate(curve.lambdas[:-1]):
        low = high = 0.0
        for R, v, ideal in zip(Rs, visits, ideals, strict=True):
            mu = lam * counted / (sum(visits) * ideal) if ideal > 0 else 0.0
            oracle = naive_limits.sort_oracle(exposures(v, p, R.size))
            value, bound, _ = naive_limits.pairwise_frank_wolfe(R, oracle, mu, tolerance=1e-8)
            low, high = low + bound / counted, high + value / counted
        margin = 1e-8 * (1 + lam)
        assert low - margin <= curve.unfairness[i] - lam * curve.ndcg[i] <= high + margin
    best = [
        naive_limits.pairwise_frank_wolfe(
            R, naive_limits.list_oracle(naive_limits.most_effective_corners(R, exposures(v, p, R.size)))
        )[0]
        for R, v in zip(Rs, visits, strict=True)
    ]
    assert curve.unfairness[-1] == pytest.approx(sum(best) / counted, rel=1e-6, abs=1e-8)
    relevant = sum(v for v, ideal in zip(visits, ideals, strict=True) if ideal > 0)
    assert curve.ndcg[-1] == pytest.approx(relevant / sum(visits), rel=1e-12)


@given(st.lists(instances(most=9), min_size=1, max_size=4), st.integers(2, 9))
def test_the_frontier_rises_from_the_floor_ever_more_steeply(queries, points):
    p, data, visits = queries[0][2], dataset(*(R for R, _, _ in queries)), [v for _, v, _ in queries]
    curve, floor = frontier(data, visits, p, points=points), fairness_floor(data, visits, p)
    u, e = curve.unfairness, curve.ndcg
    assert u[0] == floor.unfairness
    assert curve.lambdas[0] == 0
    assert curve.lambdas[-1] == np.inf
    margin = 1e-9 * (1 + u[-1])
    assert np.all(np.diff(u) >= -margin)
    assert np.all(np.diff(e) >= -1e-12)
    assert np.all(np.diff(u) >= curve.lambdas[:-1] * np.diff(e) - margin)
    assert np.all(np.diff(u)[:-1] <= curve.lambdas[1:-1] * np.diff(e)[:-1] + margin)
    for i in range(points):
        assert curve.unfairness_at(e[i]) <= u[i] + margin
        assert curve.ndcg_at(u[i]) >= e[i] - 1e-12
    np.testing.assert_allclose(curve.query_unfairness[0], floor.query_unfairness)


def test_the_bounds_of_the_frontier_hold_between_its_points():
    data, p = mf.synthetic("mq2008-like"), naive.examination(5)
    visits = np.arange(1, data.queries + 1)
    coarse, fine = frontier(data, visits, p, points=10), frontier(data, visits, p, points=200)
    for u, e in zip(fine.unfairness, fine.ndcg, strict=True):
        assert u * 0.97 <= coarse.unfairness_at(e) <= u + 1e-9
        assert e - 1e-12 <= coarse.ndcg_at(u) <= e + (0.002 if u >= coarse.unfairness[1] else 0.02)
    assert coarse.unfairness_at(1.01) == np.inf
    assert coarse.ndcg_at(coarse.unfairness[0] / 2) == -np.inf
    assert coarse.unfairness_at(0.0) == coarse.unfairness[0]
    assert coarse.ndcg_at(1e9) == pytest.approx(1.0)


def test_equal_items_share_alike_at_the_effective_end_however_small_the_other_differences():
    R, p = np.array([0.5, 0.5, np.nextafter(0.5, 0), 0.1, 0.1, 0.1, 0.1]), naive.examination(4)
    w = exposures(10, p, R.size)
    E, _ = projection(HUGE, R, w)
    np.testing.assert_allclose(E, [(w[0] + w[1]) / 2] * 2 + [w[2]] + [w[3] / 4] * 4, rtol=1e-15)
    curve = frontier(dataset(R), [10], p)
    assert curve.unfairness[-1] == pytest.approx(naive.unfairness(E, R), rel=1e-12)
    assert curve.ndcg[-1] == pytest.approx(1.0, rel=1e-15)


def test_queries_that_leave_no_choice():
    data = dataset([0.7], [0.0, 0.0, 0.0], [1.0, 0.1], [0.4, 0.4], [])
    p = naive.examination(5)
    floor, curve = fairness_floor(data, [3, 4, 5, 6, 0], p), frontier(data, [3, 4, 5, 6, 0], p, points=4)
    two = naive.unfairness(5 * p[:2], [1.0, 0.1])  # both items of the third query are always shown
    assert floor.query_unfairness == pytest.approx([0, 0, two, 0, 0])
    assert floor.unfairness == pytest.approx(two / 3)
    assert floor.reachable.tolist() == [True, True, False, True, True]
    assert floor.query_gap == pytest.approx(np.zeros(5), abs=1e-12)
    assert floor.E[:4] == pytest.approx([3.0, *[4 * p[:3].mean()] * 3])
    assert curve.query_ndcg[:, :4] == pytest.approx(np.array([[1, 0, 1, 1]] * 4))
    assert np.isnan(curve.query_ndcg[:, 4]).all()
    assert curve.ndcg == pytest.approx([14 / 18] * 4)  # every session counts, also those without relevant items
    assert curve.unfairness == pytest.approx([two / 3] * 4)
    assert curve.ndcg_at(two / 3) == pytest.approx(14 / 18)


@pytest.mark.parametrize(("data", "visits"), [(dataset(), []), (dataset([1.0, 0.1]), [0]), (dataset([0.0, 0.0]), [3])])
def test_without_a_query_that_counts_everything_is_0(data, visits):
    p = naive.examination(2)
    floor, curve = fairness_floor(data, visits, p), frontier(data, visits, p, points=3)
    assert (floor.unfairness, floor.gap, floor.reachable.all()) == (0, 0, True)
    assert curve.unfairness.tolist() == curve.ndcg.tolist() == [0, 0, 0]


@pytest.mark.parametrize("text", POLICIES)
def test_no_policy_is_better_than_the_frontier(text):
    data = mf.synthetic("mq2008-like")
    trace = mf.simulate(data, text, steps=3000, seed=1)
    assert_behind_the_frontier(trace, data)


def assert_behind_the_frontier(trace, data):
    floor = fairness_floor(data, trace.state.visits, trace.state.p)
    curve = frontier(data, trace.state.visits, trace.state.p)
    ndcg = trace.ndcg[trace.state.p.size]
    assert np.all(trace.query_values["unfairness"] >= floor.query_unfairness - 1e-9)
    assert floor.unfairness <= curve.unfairness_at(ndcg) <= trace.unfairness + 1e-9
    assert ndcg <= curve.ndcg_at(trace.unfairness) + 1e-12
    assert np.all(curve.query_ndcg[0] <= curve.query_ndcg[-1] + 1e-12)
    return floor, curve


@needs_mq2008
def test_table_1_lies_between_its_limits():
    fold = mf.load_letor(FOLDS / "Fold1", preset="wsdm23")
    floors, ends, reached = [], [], {text: [] for text in POLICIES}
    for seed in range(5):
        for text in POLICIES:
            trace = mf.simulate(fold, text, seed=seed)
            reached[text].append(trace.unfairness)
            floor, curve = assert_behind_the_frontier(trace, fold.test)
        floors.append(floor.unfairness)
        ends.append(curve.unfairness[-1])
        assert floor.query_gap.max() <= 1e-9
        assert np.sum(~floor.reachable) == 46
        assert curve.ndcg[-1] == pytest.approx(1.0, rel=1e-12)
    assert np.mean(floors) == pytest.approx(22.4825, abs=5e-5)
    assert np.std(floors) == pytest.approx(0.7327, abs=5e-5)
    assert np.mean(ends) == pytest.approx(44.3426, abs=5e-5)
    assert np.mean(reached["TopK(ties=least-exposed)"]) == pytest.approx(44.3426, rel=2e-4)
    assert np.mean(reached["MCFair(alpha=1000, beta=0)"]) / np.mean(floors) == pytest.approx(1.0088, abs=1e-4)


@pytest.mark.parametrize(
    ("visits", "p", "error", "message"),
    [
        ([1], [1.0], DataError, r"one number of visits for each of 2 queries, got an array of shape \(1,\)"),
        ([1, -3], [1.0], DataError, r"visits must be finite numbers of at least 0, got -3\.0"),
        ([1, np.nan], [1.0], DataError, "visits must be finite numbers of at least 0, got nan"),
        ([1, 1], [0.5, 1.0], SettingError, r"p = \[0\.5, 1\.0\]: expected finite numbers that never rise"),
        ([1, 1], [0.5, np.nan], SettingError, "never rise"),
        ([1, 1], [], SettingError, r"p = \[\]: expected"),
        ([1, 1], [0.0, 0.0], SettingError, "the first above 0"),
        ([1, 1], [np.inf, 0.0], SettingError, "finite"),
        ([1, 1], [[1.0], [0.5]], SettingError, "expected"),
        ([1, 1], [1.0, -0.1], SettingError, r"p = \[1\.0, -0\.1\]: expected finite numbers of at least 0"),
    ],
)
def test_bad_input_is_refused_with_what_was_wrong(visits, p, error, message):
    data = dataset([1.0, 0.5], [0.1, 0.2])
    for limit in (fairness_floor, frontier):
        with pytest.raises(error, match=message):
            limit(data, visits, p)


def test_a_frontier_has_at_least_two_points():
    with pytest.raises(SettingError, match="points = 1: expected at least 2"):
        frontier(dataset([1.0, 0.5]), [1], [1.0], points=1)
