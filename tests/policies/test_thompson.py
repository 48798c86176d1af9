import naive
import naive_rivals
import numpy as np
import pytest
from query_view import view
from scipy import stats

import mcfair as mf
from mcfair.random import POLICY, draws


def seen(s=0.0):
    """Four items after some clicks; the best by the estimate is not the best with certainty."""
    E = np.array([4.0, 2.0, 6.0, 0.0])
    return view(naive.estimate([3, 1, 1, 0], E, 0.3, s), E=E, k=2, visits=9, prior_strength=s)


@pytest.mark.parametrize("s", [0.0, 2.0])
@pytest.mark.parametrize("alpha", [0.0, 2.0])
def test_the_score_is_that_of_mcfair_at_a_drawn_relevance(alpha, s):
    q = seen(s)
    for visit in range(20):
        u = np.array([naive.uniform(6, POLICY, 4, visit, d) for d in range(4)])
        R = naive_rivals.gamma_posterior(q.R, q.E, s).ppf(u)
        expected = R + alpha * naive.scaled(naive.gradient(q.E, R), "max", 9)
        assert np.allclose(mf.Thompson(alpha=alpha).score(q, draws(6, POLICY, 4, visit)), expected, rtol=1e-8)


def components(*rows):
    """Posteriors of a few components each: weight, mean and variance, by falling mean."""
    posterior = np.array(rows, float)
    R = (posterior[..., 0] * posterior[..., 1]).sum(axis=1)
    return view(R, E=np.ones(R.size), k=1, visits=100, posterior=posterior)


MIXTURES = components(
    [(0.2, 0.9, 0.01), (0.8, 0.2, 0.04)], [(0.5, 0.6, 0.0), (0.5, 0.3, 0.0)], [(0.0, 0.8, 0.1), (1.0, 0.4, 0.02)]
)


def test_a_draw_from_components_is_distributed_as_they_are():
    """A component by its weight, a normal number within it, and no relevance below 0."""
    drawn = np.array([mf.Thompson().score(MIXTURES, draws(3, POLICY, 0, visit)) for visit in range(3000)])
    for d, rows in enumerate(MIXTURES.posterior):

        def cumulative(x, rows=rows):
            spread = np.maximum(np.sqrt(rows[:, 2]), 1e-12)
            return (rows[:, 0] * stats.norm.cdf((np.asarray(x)[..., None] - rows[:, 1]) / spread)).sum(axis=-1)

        for x in (0.0, 0.1, 0.25, 0.35, 0.5, 0.7, 0.95):
            share = (drawn[:, d] <= x).mean()
            assert abs(share - cumulative(x)) < 4 * np.sqrt(0.25 / 3000)
    assert drawn.min() == 0.0


def test_without_draws_and_where_relevance_is_given_it_is_topk():
    data = mf.synthetic("mq2008-like", seed=1).take(range(20))
    for policy, mode in (("Thompson(mix=0)", "online"), ("Thompson", "post-processing")):
        lists = [mf.simulate(data, each, mode, steps=1000, record=True).lists for each in (policy, "TopK")]
        assert np.array_equal(*lists)


@pytest.mark.parametrize("mix", [0.4, 1.0])
def test_an_item_is_first_as_often_as_it_is_the_best(mix):
    """The claim of Singh et al.: a share φ of the probability of being the best, and the rest for the estimate."""
    q, policy, sessions = seen(2.0), mf.Thompson(mix=mix), 4000
    first = np.bincount([policy.rank(q, draws(1, POLICY, 0, visit))[0] for visit in range(sessions)], minlength=4)
    rng = np.random.default_rng(0)
    samples = naive_rivals.gamma_posterior(q.R, q.E, 2.0).rvs((100_000, 4), random_state=rng)
    best = np.bincount(samples.argmax(axis=1), minlength=4) / 100_000
    expected = mix * best + (1 - mix) * (np.arange(4) == q.R.argmax())
    assert np.abs(first / sessions - expected).max() < 4 * np.sqrt(0.25 / sessions)


def test_it_learns_what_greed_misses():
    data = mf.synthetic("mq2008-like", seed=0).take(range(30))
    drawn, greedy = (mf.simulate(data, each, "online", steps=20_000).cndcg[5] for each in ("Thompson", "TopK"))
    assert drawn > greedy + 5
