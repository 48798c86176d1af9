import numpy as np
import pytest

import mcfair as mf
from mcfair.random import POLICY, draws
from mcfair.testing import views


@pytest.fixture(scope="module")
def data():
    return mf.synthetic("mq2008-like", seed=1).take(range(20))


@pytest.mark.parametrize("mode", ["post-processing", "online"])
def test_if_all_exposure_is_reserved_it_is_fara(data, mode):
    lists = [mf.simulate(data, each, mode, steps=2000, record=True).lists for each in ("VerFair(alpha=1)", "FARA")]
    assert np.array_equal(*lists)


def test_if_none_is_reserved_the_most_relevant_items_are_shown(data):
    trace = mf.simulate(data, "VerFair(alpha=0)", steps=2000)
    assert trace.ndcg[5] == pytest.approx(1.0, abs=1e-12)
    assert trace.unfairness < 1.05 * mf.simulate(data, "TopK(ties=least-exposed)", steps=2000).unfairness


def test_what_is_reserved_is_a_guarantee(data):
    """After one plan every item has at least its part of the fairest exposure, but for the granularity of lists."""
    for alpha in (0.3, 0.8):
        trace = mf.simulate(data.take([4]), mf.VerFair(alpha=alpha, horizon=60), steps=60)
        R = data.take([4]).R
        floor = mf.fairness_floor(data.take([4]), [60 * alpha], trace.state.p)
        assert R.size > 5
        assert np.all(trace.state.E >= floor.E - 1.0)


def test_a_larger_share_is_fairer_and_less_effective(data):
    traces = [mf.simulate(data, mf.VerFair(alpha=alpha), steps=6000) for alpha in (0.0, 0.4, 0.7, 1.0)]
    assert np.all(np.diff([trace.unfairness for trace in traces]) < 0)
    assert np.all(np.diff([trace.ndcg[5] for trace in traces]) < 0)


def test_a_single_call_works_without_memory():
    for q in views():
        pi = mf.VerFair(alpha=0.5).rank(q, draws(0, POLICY))
        assert len(set(pi)) == min(q.p.size, q.R.size)
