import naive
import naive_estimators
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from query_view import view
from same_runs import same

import mcfair as mf
from mcfair.policies.bayesfair import ideal_gain
from mcfair.policies.terms import tail_mean
from mcfair.random import POLICY, draws
from mcfair.testing import views

RNG = draws(0, POLICY)


@pytest.fixture(scope="module")
def data():
    return mf.synthetic("mq2008-like", seed=0)


@pytest.mark.parametrize(
    "policy",
    [
        mf.BayesFair(),
        mf.BayesFair(alpha=0.0, tail=0.3),
        mf.BayesFair(alpha=130, tail=2, early=5),
        mf.BayesFair(alpha=3, beta=5, scale="max", gain="dcg"),
    ],
    ids=lambda policy: policy.label,
)
def test_the_score_is_the_equation(policy):
    for q in views():
        expected = naive_estimators.bayesfair(policy, q.R, q.E, q.p, int(q.visits), q.posterior, q.prior_strength)
        assert np.allclose(policy.score(q, RNG), expected, rtol=1e-9, atol=1e-9)


@given(st.lists(st.tuples(st.floats(0.001, 1), st.floats(0, 1)), min_size=1, max_size=5), st.floats(1e-5, 0.999))
def test_the_tail_mean_is_that_of_the_components_of_highest_mean(pairs, mass):
    total = sum(w for w, _ in pairs)
    rows = [(w / total, mean, 0.1) for w, mean in sorted(pairs, key=lambda each: -each[1])]
    value = tail_mean(np.array([rows]), 0, mass)
    assert value == pytest.approx(naive_estimators.tail_mean(rows, mass), rel=1e-9)
    assert rows[0][1] + 1e-9 >= value >= naive_estimators.moments(rows)[0] - 1e-9


@given(st.lists(st.floats(0, 2), min_size=1, max_size=30), st.integers(1, 8))
def test_the_ideal_gain_is_the_dcg_of_the_ranking_by_relevance(R, k_s):
    p = naive.examination(k_s)
    best = sorted(range(len(R)), key=lambda d: -R[d])[:k_s]
    assert ideal_gain(np.array(R), p, np.empty(len(R))) == pytest.approx(naive.dcg(best, R, p))


def test_optimism_begins_when_the_tail_is_less_than_the_posterior_and_grows():
    posterior = [[[0.1, 0.9, 0.0], [0.9, 0.1, 0.0]]] * 2
    R = [0.18, 0.18]
    values = []
    for visits in (0, 10, 20, 50, 100, 1000):
        terms = mf.BayesFair(gain="dcg").terms(view(R, k=2, visits=visits, posterior=posterior))
        values.append(float(terms["exploration"][0]))
    assert values[:2] == [0.0, 0.0]
    assert values[2:] == pytest.approx(
        [(0.1 * 0.9 + 0.4 * 0.1) / 0.5 - 0.18, (0.1 * 0.9 + 0.1 * 0.1) / 0.2 - 0.18, 0.72, 0.72]
    )


# --- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 1.0, 100.0])
@pytest.mark.parametrize(("scale", "beta"), [("max", 100.0), ("mean", 0.0)])
def test_with_ips_and_without_normalisation_it_is_mcfair(data, alpha, scale, beta):
    new = mf.BayesFair(alpha=alpha, beta=beta, scale=scale, gain="dcg")
    old = mf.MCFair(alpha=alpha, beta=beta, scale=scale)
    runs = [mf.simulate(data, each, "online", steps=3000, estimator="IPS", record=True) for each in (new, old)]
    assert np.array_equal(runs[0].lists, runs[1].lists)
    assert same(*runs)


def test_with_relevance_given_it_is_mcfair_at_a_price_in_ndcg():
    """Two queries with one ideal DCG each: dividing by it is multiplying α."""
    data = mf.Dataset(offsets=[0, 6], y=[2, 1, 0, 0, 1, 0])
    ideal = naive.dcg([0, 1, 4, 2, 3], data.R, naive.examination(5))
    new = mf.simulate(data, mf.BayesFair(alpha=7.0), steps=500, record=True)
    old = mf.simulate(data, mf.MCFair(alpha=7.0 * ideal, scale="mean", beta=0), steps=500, record=True)
    assert np.array_equal(new.lists, old.lists)


def test_without_optimism_it_ranks_by_the_posterior_mean(data):
    """If the tail is always the whole posterior."""
    new = mf.simulate(data, "BayesFair(alpha=0, tail=1e9)", "online", steps=3000, record=True)
    old = mf.simulate(data, "TopK", "online", steps=3000, estimator="Mixture", record=True)
    assert np.array_equal(new.lists, old.lists)


# --- the whole method ------------------------------------------------------------------------------------------------


def test_every_list_of_a_run_is_the_ranking_by_the_equations(data):
    """Posteriors, fits and scores are rebuilt from the lists and clicks before each session, all by plain Python."""
    few, p, policy = data.take([3, 10, 20, 40]), naive.examination(5), mf.BayesFair(alpha=20, tail=3)
    trace = mf.simulate(few, policy, "online", steps=240, seed=2, record=True)
    F, C, visits = np.zeros((few.items, 5), int), np.zeros(few.items, int), np.zeros(few.queries, int)
    prior, moments = naive_estimators.start(4), naive_estimators.moments_of_fits(4, 240)
    optimistic = 0
    for t, q in enumerate(trace.arrivals):
        if t in moments:
            prior = naive_estimators.em(C, F, p, 4)
        items = range(few.offsets[q], few.offsets[q + 1])
        posterior = [naive_estimators.posterior(C[d], F[d], p, prior) for d in items]
        R, E = [naive_estimators.moments(each)[0] for each in posterior], [naive.exposure(F[d], p) for d in items]
        scores = naive_estimators.bayesfair(policy, R, E, p, visits[q], posterior)
        pi = trace.lists[t].tolist()
        assert naive.is_ranking(pi, scores, 5, tolerance=1e-6), (t, q)
        optimistic += visits[q] > policy.tail
        for j, d in enumerate(pi):
            F[items[d], j] += 1
            C[items[d]] += trace.clicks[t, j]
        visits[q] += 1
    assert optimistic > 100
    expected = [[w for w, _, _ in prior], [r for _, r, _ in prior], [v for _, _, v in prior]]
    fitted = trace.state.estimator
    for ours, naives in zip((fitted.weights, fitted.means, fitted.variances), expected, strict=True):
        assert ours == pytest.approx(naives, rel=1e-6)


def test_it_is_fairer_and_more_effective_online_than_mcfair(data):
    new, published, mean = (
        mf.simulate(data, policy, "online", steps=40_000, seed=1)
        for policy in (mf.BayesFair(alpha=60), mf.MCFair(alpha=1), mf.MCFair(alpha=300, scale="mean"))
    )
    for old in (published, mean):
        assert new.unfairness < 0.95 * old.unfairness
        assert new.ndcg[5] > old.ndcg[5] + 0.005
