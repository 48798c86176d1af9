import itertools

import naive
import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from query_view import view
from scipy.optimize import OptimizeResult

import mcfair as mf
from mcfair.policies.lp import decompose, mixture_length, mixture_of, placement
from mcfair.random import POLICY, draws
from mcfair.testing import views

EXAMPLE_DRAWS = draws(0, POLICY)
ALPHAS = [0.0, 0.005, 0.02, 0.1, 1000.0]
GRADES = [0.1, 0.4, 1.0]


def relevances(seed, n):
    """Tied by grades, all distinct, all alike, and with zeros as estimates have them."""
    rng = np.random.default_rng(seed)
    return [rng.choice(GRADES, n), rng.random(n) * 1.5, np.full(n, 0.3), np.zeros(n), rng.choice([0.0, 0.02, 0.9], n)]


def objective(X, R, p, alpha):
    return naive.lp_objective(R, X @ p, alpha)


def assert_placement(X):
    assert np.all(X >= -1e-9)
    assert np.allclose(X.sum(axis=0), 1.0, atol=1e-8)
    assert np.all(X.sum(axis=1) <= 1 + 1e-8)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_placement_is_the_best_mixture_of_all_lists(n, alpha):
    for seed, k in itertools.product(range(2), range(1, n + 1)):
        p = naive.examination(k)
        for R in relevances(seed, n):
            X = placement(R, p, alpha)
            assert_placement(X)
            assert objective(X, R, p, alpha) == pytest.approx(naive.lp_by_lists(R, p, alpha), abs=1e-7, rel=1e-7)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_placement_is_the_optimum_of_the_program_in_full(alpha):
    p = naive.examination(5)
    for seed, n in enumerate((6, 9, 13)):
        for R in relevances(seed, n):
            X = placement(R, p, alpha)
            assert_placement(X)
            best = naive.lp_optimum(R, p, alpha)
            assert objective(X, R, p, alpha) == pytest.approx(best, abs=1e-6, rel=1e-7)


def test_items_of_equal_relevance_are_placed_alike():
    R = np.array([0.4, 1.0, 0.4, 0.1, 1.0, 0.1])
    X = placement(R, naive.examination(4), 0.02)
    for a, b in ((0, 2), (1, 4), (3, 5)):
        assert np.array_equal(X[a], X[b])


def rebuilt(lists, weights, shape):
    X = np.zeros(shape)
    for pi, weight in zip(lists, weights, strict=True):
        X[pi, np.arange(shape[1])] += weight
    return X


def assert_decomposed(X, to=1e-9):
    n, k = X.shape
    lists, weights = decompose(X)
    assert weights.size <= (n - 1) * k + 1
    assert np.all(weights > 0)
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert all(len(set(pi)) == k for pi in lists.tolist())
    assert np.abs(rebuilt(lists, weights, X.shape) - X).max() <= to


@given(seed=st.integers(0, 10_000), n=st.integers(1, 14), k=st.integers(1, 6), lists=st.integers(1, 30))
@settings(deadline=None)
def test_a_mixture_is_decomposed_exactly(seed, n, k, lists):
    """Whatever lists a mixture is made of, with weights from equal to tiny."""
    rng, k = np.random.default_rng(seed), min(k, n)
    weights = rng.dirichlet(np.full(lists, 10.0 ** rng.integers(-2, 2)))
    X = rebuilt([rng.permutation(n)[:k] for _ in range(lists)], weights, (n, k))
    assert_decomposed(X)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_what_the_solver_returns_is_decomposed_exactly(alpha):
    for seed, n in enumerate((3, 5, 8, 30, 103)):
        for R in relevances(seed, n)[: 1 if n == 103 else 5]:
            assert_decomposed(placement(R, naive.examination(min(5, n)), alpha))


@given(noise=arrays(float, (7, 4), elements=st.floats(-1e-7, 1e-7)), seed=st.integers(0, 1000))
@settings(deadline=None)
def test_the_rounding_of_a_solver_is_repaired(noise, seed):
    rng = np.random.default_rng(seed)
    X = rebuilt([rng.permutation(7)[:4] for _ in range(9)], rng.dirichlet(np.ones(9)), (7, 4))
    assert_decomposed(X + noise, to=2e-6)
    X[:4], X[4:] = np.eye(4), 0.0  # every row is full, so that any excess must move
    assert_decomposed(X + noise, to=2e-6)


def exposure_share(trace, data, query):
    E = trace.state.E[data.offsets[query] : data.offsets[query + 1]]
    return E / trace.state.visits[query]


def test_delivered_exposure_converges_to_the_placement():
    data = mf.synthetic("mq2008-like", seed=1).take(range(3))
    p = mf.examination(5)
    for query in range(3):
        R = data.R[data.offsets[query] : data.offsets[query + 1]]
        expected = placement(R, p, 0.02) @ p
        off = {}
        for delivery in ("iid", "balanced"):
            trace = mf.simulate(data, mf.LP(alpha=0.02, delivery=delivery), steps=12_000)
            off[delivery] = np.abs(exposure_share(trace, data, query) - expected).max()
        assert off["iid"] < 0.03  # about four standard deviations of a mean over 4,000 visits
        assert off["balanced"] < 0.005


def test_it_is_solved_once_while_relevance_stays_and_again_when_it_changes():
    data = mf.synthetic("mq2008-like", seed=1).take(range(4))
    given_relevance = mf.simulate(data, mf.LP(refresh=10), steps=400)
    assert given_relevance.provenance["fallbacks"] == 4
    learnt = mf.simulate(data, mf.LP(refresh=10), "online", steps=400)
    assert learnt.provenance["fallbacks"] == pytest.approx(np.ceil(learnt.state.visits / 10).sum(), abs=4)
    never = mf.simulate(data, mf.LP(refresh=1000), "online", steps=400)
    assert never.provenance["fallbacks"] == 4


def test_a_single_call_works_without_memory():
    for q in views():
        for delivery in ("iid", "balanced"):
            pi = mf.LP(delivery=delivery).rank(q, EXAMPLE_DRAWS)
            assert len(set(pi)) == min(q.p.size, q.R.size)


@pytest.mark.parametrize("delivery", ["iid", "balanced"])
def test_the_memory_of_a_query_is_its_mixture(delivery):
    R, p = np.array([0.9, 0.5, 0.2, 0.2]), naive.examination(2)
    memory = np.zeros(mixture_length(4, 2))
    policy, lists = mf.LP(alpha=0.5, delivery=delivery), []
    for visit in range(40):
        q = view(R, p=p, visits=visit)._replace(memory=memory)
        lists.append(tuple(policy.rank(q, draws(0, POLICY, 0, visit)).tolist()))
    mixture = mixture_of.interpreted(memory, 4, 2)
    expected, weights = decompose(placement(R, p, 0.5))
    assert mixture.head.tolist() == [len(expected), 0]  # solved once, at the first visit
    assert mixture.R.tolist() == R.tolist()
    assert mixture.weights.tolist() == weights.tolist()
    assert mixture.items.reshape(-1, 2).tolist() == expected.tolist()
    assert mixture.shown.tolist() == [lists.count(tuple(pi)) for pi in expected.tolist()]
    if delivery == "balanced":
        assert np.abs(mixture.shown - 40 * weights).max() < 1


def test_lists_are_drawn_by_their_weights():
    R, p = np.array([0.9, 0.5, 0.2]), naive.examination(2)
    q = view(R, p=p)
    lists, weights = decompose(placement(R, p, 0.5))
    drawn = [tuple(mf.LP(alpha=0.5).rank(q, draws(0, POLICY, 0, visit))) for visit in range(600)]
    for pi, weight in zip(lists, weights, strict=True):
        assert drawn.count(tuple(pi)) / 600 == pytest.approx(weight, abs=0.08)


def test_if_the_solver_fails_lists_are_ordered_by_relevance(monkeypatch):
    """The run continues as if α were 0 for that query."""
    R, p = np.array([0.2, 0.9, 0.5, 0.5]), naive.examination(2)
    in_order = placement(R, p, 0.0)
    monkeypatch.setattr(scipy.optimize, "milp", lambda *_, **__: OptimizeResult(x=None, success=False))
    assert np.array_equal(placement(R, p, 10.0), in_order)
    data = mf.synthetic("mq2008-like", seed=1).take(range(3))
    assert mf.simulate(data, mf.LP(), steps=200).ndcg[5] == pytest.approx(1.0)


def test_bad_parameters_name_what_is_allowed():
    for text, allowed in (
        ("LP(alpha=-1)", "from 0 to 1000"),
        ("LP(alpha=1001)", "from 0 to 1000"),
        ("LP(refresh=0)", "at least 1"),
        ("LP(delivery=random)", "iid"),
    ):
        with pytest.raises(mf.PolicyError, match=allowed):
            mf.parse_policy(text)
