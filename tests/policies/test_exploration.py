"""The choice of the term of exploration, and the posterior of relevance that two of them read."""

import naive
import naive_rivals
import numpy as np
import pytest
from query_view import view
from scipy import stats

import mcfair as mf
from mcfair.policies.terms import gamma_quantile, gamma_tail
from mcfair.random import POLICY, draws
from mcfair.testing import check_part, views

EXAMPLE_DRAWS = draws(0, POLICY)
FAMILY = (mf.TopK, mf.FairK, mf.MCFair, mf.FairCo)


def online_views():
    """Views of items that were shown and clicked, with and without a prior, after few and many visits."""
    rng = np.random.default_rng(0)
    for n, visits, s in ((3, 1, 0.0), (6, 8, 0.0), (6, 8, 2.0), (12, 400, 0.0), (12, 400, 5.0)):
        F = rng.integers(0, visits + 1, (n, 2))
        F[0] = 0
        E = F @ naive.examination(2)
        C = np.minimum(rng.integers(0, visits + 1, n), F.sum(axis=1))
        yield view(naive.estimate(C, E, 0.3, s), F=F, p=naive.examination(2), visits=visits, prior_strength=s)


# --- the Gamma distribution ------------------------------------------------------------------------------------------


def test_quantiles_are_those_of_the_gamma_distribution():
    rng = np.random.default_rng(0)
    shapes, u = np.exp(rng.uniform(-4, 8, 300)), rng.random(300)
    got = [gamma_quantile(a, q) for a, q in zip(shapes, u, strict=True)]
    assert np.allclose(got, stats.gamma.ppf(u, shapes), rtol=1e-9, atol=1e-280)


@pytest.mark.parametrize("a", [0.01, 0.5, 1.0, 2.3, 50.0, 3000.0])
def test_quantiles_are_exact_in_both_tails(a):
    for u in (2.0**-53, 1e-10, 1e-3):
        assert gamma_quantile(a, u) == pytest.approx(stats.gamma.ppf(u, a), rel=1e-8, abs=1e-280)
        assert gamma_quantile(a, 1.0 - u) == pytest.approx(stats.gamma.isf(1.0 - (1.0 - u), a), rel=1e-8)
    assert gamma_quantile(a, 0.0) == 0.0
    assert gamma_quantile(0.0, 0.7) == 0.0  # all of the mass is at 0


@pytest.mark.parametrize("a", [0.1, 0.5, 1.0, 7.0, 300.0])
@pytest.mark.parametrize("mass", [1.0, 0.5, 0.02])
def test_the_tail_is_the_mean_of_the_largest_values(a, mass):
    assert gamma_tail(a, mass) == pytest.approx(naive_rivals.tail_mean(stats.gamma(a), mass), rel=1e-6)


# --- terms -----------------------------------------------------------------------------------------------------------


def exploration(policy, q, rng=EXAMPLE_DRAWS):
    """The score of a policy less that of the same policy without exploration."""
    fields = {"alpha": policy.alpha, "scale": policy.scale}
    return policy.score(q, rng) - mf.MCFair(beta=0, **fields).score(q, rng)


def test_ucb_adds_standard_deviations_that_grow_with_the_logarithm_of_time():
    for q in online_views():
        most = 1 / np.sqrt(0.1)
        expected = 3 * np.sqrt(np.minimum(q.uncertainty, most) * np.log(int(q.visits) + 1))
        assert np.allclose(exploration(mf.MCFair(explore="ucb", beta=3), q), expected)


def test_tail_adds_what_the_upper_tail_of_the_posterior_exceeds_the_estimate_by():
    for q in online_views():
        mass = min(10 / int(q.visits), 1.0)
        tails = [
            naive_rivals.tail_mean(naive_rivals.gamma_posterior(r, e, q.prior_strength), mass)
            for r, e in zip(q.R, q.E, strict=True)
        ]
        expected = 2 * np.maximum(np.array(tails) - q.R, 0.0)
        assert np.allclose(exploration(mf.MCFair(explore="tail", beta=2), q), expected, rtol=1e-6, atol=1e-8)


def test_the_tail_of_components_has_the_highest_means():
    posterior = np.array([[(0.05, 0.9, 0.0), (0.15, 0.6, 0.0), (0.8, 0.1, 0.0)]])
    q = view([0.215], E=[1.0], k=1, visits=100, posterior=posterior)
    expected = (0.05 * 0.9 + 0.05 * 0.6) / 0.1  # the tail has a mass of 10/100
    assert exploration(mf.MCFair(explore="tail"), q) == pytest.approx(expected - 0.215)
    assert exploration(mf.MCFair(explore="tail"), q._replace(visits=np.array(7))) == pytest.approx(0.0)


def test_thompson_adds_what_a_draw_exceeds_the_estimate_by():
    for q in online_views():
        for visit in range(3):
            u = np.array([naive.uniform(6, POLICY, 4, visit, d) for d in range(q.R.size)])
            drawn = naive_rivals.gamma_posterior(q.R, q.E, q.prior_strength).ppf(u)
            got = exploration(mf.MCFair(explore="thompson", beta=2), q, draws(6, POLICY, 4, visit))
            assert np.allclose(got, 2 * (drawn - q.R), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("cls", FAMILY)
def test_none_is_no_exploration_whatever_its_weight(cls):
    for q in views():
        silent, without = cls(explore="none", beta=7), cls(beta=0)
        assert np.array_equal(silent.score(q, EXAMPLE_DRAWS), without.score(q, EXAMPLE_DRAWS))


@pytest.mark.parametrize("explore", ["ucb", "tail", "thompson"])
@pytest.mark.parametrize("cls", FAMILY)
def test_there_is_nothing_to_explore_where_relevance_is_given(cls, explore):
    for q in (q._replace(uncertainty=np.zeros(q.R.size)) for q in views()):
        exploring, without = cls(explore=explore, beta=7), cls(beta=0)
        assert np.array_equal(exploring.score(q, EXAMPLE_DRAWS), without.score(q, EXAMPLE_DRAWS))


@pytest.mark.parametrize("explore", ["ucb", "tail", "thompson", "none"])
@pytest.mark.parametrize("cls", FAMILY)
def test_contract(cls, explore):
    check_part(cls(explore=explore, beta=2.0))


def test_an_automatic_weight_of_terms_other_than_marginal_certainty_is_one():
    for explore in ("ucb", "tail", "thompson"):
        policy = mf.MCFair(explore=explore)
        assert policy.in_mode("online") == mf.MCFair(explore=explore, beta=1)
        assert policy.theta.tolist() == mf.MCFair(explore=explore, beta=1).theta.tolist()
    assert mf.MCFair().in_mode("online").beta == 100


def test_a_score_that_draws_has_no_terms():
    q = next(online_views())
    assert mf.MCFair(explore="thompson").terms(q) == {}
    assert list(mf.MCFair(explore="tail").terms(q)) == ["relevance", "fairness", "exploration"]


def test_the_kernel_of_a_subclass_stays():
    """A kernel of one's own explores by itself, whatever the inherited parameter says."""

    @mf.kernel
    def by_relevance(q, theta, rng, out):
        for d in range(out.shape[0]):
            out[d] = q.R[d]

    class Own(mf.MCFair):
        kernel = by_relevance

    assert Own(explore="ucb").kernel is by_relevance


def test_every_way_to_explore_learns_more_than_none():
    """Of the items of a query, the one shown least is shown more often."""
    data = mf.synthetic("mq2008-like", seed=1).take(range(20))
    least = {}
    for explore in ("mc", "ucb", "tail", "thompson", "none"):
        trace = mf.simulate(data, mf.TopK(explore=explore, beta=1), "online", steps=4000)
        least[explore] = np.minimum.reduceat(trace.state.F.sum(axis=1), data.offsets[:-1]).mean()
    assert all(least[explore] > 2 * least["none"] for explore in ("mc", "ucb", "tail", "thompson"))
