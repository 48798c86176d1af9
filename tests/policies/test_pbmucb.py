import naive_rivals
import numpy as np

import mcfair as mf
from mcfair.random import POLICY, draws
from mcfair.testing import views

EXAMPLE_DRAWS = draws(0, POLICY)


def test_the_score_is_the_published_bound():
    for q in views():
        for beta in (0.0, 1.0, 3.0):
            expected = naive_rivals.pbmucb(q.R, q.E, q.F, int(q.visits), beta)
            assert np.allclose(mf.PBMUCB(beta=beta).score(q, EXAMPLE_DRAWS), expected, rtol=1e-12)


def test_without_a_radius_and_where_relevance_is_given_it_is_topk():
    data = mf.synthetic("mq2008-like", seed=1).take(range(20))
    for policy, mode in (("PBMUCB(beta=0)", "online"), ("PBMUCB", "post-processing")):
        lists = [mf.simulate(data, each, mode, steps=1000, record=True).lists for each in (policy, "TopK")]
        assert np.array_equal(*lists)


def test_its_regret_grows_ever_more_slowly_and_that_of_greed_does_not():
    """The claim of its paper: regret of order ln t. TopK stays with what it happened to show first."""
    data = mf.synthetic("mq2008-like", seed=0).take(range(30))
    loss = {}
    for name in ("PBMUCB", "TopK", "ExploreK"):
        trace = mf.simulate(data, name, "online", steps=60_000, checkpoints=[20_000, 40_000, 60_000])
        total = (1.0 - trace.values["ndcg@5"]) * trace.checkpoints
        loss[name] = np.diff(total, prepend=0.0)
    assert loss["PBMUCB"][2] < 0.6 * loss["PBMUCB"][0]
    assert loss["TopK"][2] > 0.9 * loss["TopK"][0]
    assert loss["PBMUCB"].sum() < 0.5 * min(loss["TopK"].sum(), loss["ExploreK"].sum())
