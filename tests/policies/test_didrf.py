import naive_rivals
import numpy as np
import pytest

import mcfair as mf
from mcfair.random import POLICY, draws
from mcfair.testing import views

EXAMPLE_DRAWS = draws(0, POLICY)


@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 0.0), (1.0, 0.0), (3.0, 100.0)])
def test_the_score_has_the_second_order_terms(alpha, beta):
    for q in (q for q in views() if q.R.size <= 33):
        expected = naive_rivals.didrf(q.R, q.E, q.prior_strength, alpha, beta, 0.1)
        got = mf.DIDRF(alpha=alpha, beta=beta).score(q, EXAMPLE_DRAWS)
        assert np.allclose(got, expected, rtol=1e-6, atol=1e-6)  # differences of a quadratic function lose digits


def test_without_fairness_and_exploration_it_is_topk():
    data = mf.synthetic("mq2008-like", seed=1).take(range(20))
    lists = [mf.simulate(data, each, steps=1000, record=True).lists for each in ("DIDRF(alpha=0)", "TopK")]
    assert np.array_equal(*lists)


def test_at_a_constant_income_it_is_as_fair_as_mcfair_and_favours_relevant_items_more():
    """The second term does not vanish, since it is divided by its largest entry, but it is the same in every visit."""
    data = mf.synthetic("mq2008-like", seed=0)
    ours, mcfair = (mf.simulate(data, f"{name}(alpha=1)", steps=30_000) for name in ("DIDRF", "MCFair"))
    assert ours.unfairness == pytest.approx(mcfair.unfairness, rel=0.02)
    assert ours.ndcg[5] > mcfair.ndcg[5]
