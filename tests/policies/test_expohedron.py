import naive
import naive_limits
import numpy as np
import pytest

import mcfair as mf
from mcfair.policies.expohedron import best_exposure, placement_of
from mcfair.policies.lp import decompose
from mcfair.random import POLICY, draws
from mcfair.testing import views


def relevances(seed, n):
    rng = np.random.default_rng(seed)
    return [rng.choice([0.1, 0.4, 1.0], n), rng.random(n) * 1.5, np.full(n, 0.3), rng.choice([0.0, 0.9], n)]


@pytest.mark.parametrize("alpha", [0.0, 0.5, 20.0, 1e6])
def test_the_exposure_is_the_best_of_all_mixtures(alpha):
    """Against a general method that knows nothing but the corners: NDCG - α unfairness, up to a constant factor."""
    for seed, (n, k) in enumerate(((2, 1), (4, 2), (6, 5), (9, 5))):
        p = naive.examination(k)
        for R in (R for R in relevances(seed, n) if R.any()):
            w = np.append(p, np.zeros(n - k))
            ideal = w @ np.sort(R)[::-1]
            E = best_exposure(R, p, alpha)
            value = R @ E / ideal - alpha * naive.unfairness(E, R)
            if alpha == 0.0:
                assert value == pytest.approx(1.0)
                continue
            least, bound, _ = naive_limits.pairwise_frank_wolfe(R, naive_limits.sort_oracle(w), 1 / (alpha * ideal))
            assert bound - 1e-7 <= -value / alpha <= least + 1e-7
            assert naive_limits.is_reachable(E, w)


def test_a_placement_has_the_exposure_and_is_a_mixture_of_lists():
    for seed, (n, k) in enumerate(((1, 1), (3, 2), (6, 5), (12, 5), (40, 5))):
        p = naive.examination(k)
        for R in relevances(seed, n):
            for alpha in (0.0, 1.0, 100.0, 1e6):
                E = best_exposure(R, p, alpha)
                X = placement_of(E, p)
                assert np.allclose(X @ p, E, atol=1e-9)
                assert np.all(X >= 0)
                assert np.allclose(X.sum(axis=0), 1.0)
                assert np.all(X.sum(axis=1) <= 1 + 1e-9)
                lists, weights = decompose(X)
                assert all(len(set(pi)) == k for pi in lists.tolist())
                assert weights.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("alpha", [0.0, 30.0, 300.0])
def test_a_run_is_on_the_pareto_frontier(alpha):
    """The claim of its paper. Each query is on its frontier; a common price puts all of them on the common one."""
    data = mf.synthetic("mq2008-like", seed=1).take(range(15))
    trace = mf.simulate(data, mf.Expohedron(alpha=alpha), steps=15_000)
    curve = mf.frontier(data, trace.state.visits, trace.state.p, points=200)
    assert trace.ndcg[5] == pytest.approx(curve.ndcg_at(trace.unfairness), abs=0.002)


def test_it_is_solved_once_while_relevance_stays_and_again_when_it_changes():
    data = mf.synthetic("mq2008-like", seed=1).take(range(4))
    assert mf.simulate(data, mf.Expohedron(refresh=10), steps=400).provenance["fallbacks"] == 4
    learnt = mf.simulate(data, mf.Expohedron(refresh=10), "online", steps=400)
    assert learnt.provenance["fallbacks"] == pytest.approx(np.ceil(learnt.state.visits / 10).sum(), abs=4)


def test_a_single_call_works_without_memory():
    for q in views():
        for delivery in ("iid", "balanced"):
            pi = mf.Expohedron(delivery=delivery).rank(q, draws(0, POLICY))
            assert len(set(pi)) == min(q.p.size, q.R.size)
