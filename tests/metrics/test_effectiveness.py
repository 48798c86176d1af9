import itertools

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mcfair as mf
from mcfair.metrics.effectiveness import cndcg, ideal_dcg, ndcg

shares = st.floats(0, 1, allow_subnormal=False)


@given(st.lists(shares, min_size=1, max_size=25), st.integers(1, 8), st.randoms(use_true_random=False))
def test_ndcg_is_the_definition(R, k, random):
    R, p = np.array(R), naive.examination(k)
    pi = list(range(R.size))
    random.shuffle(pi)
    assert ndcg(pi[:k], R, p) == pytest.approx(naive.ndcg(pi[:k], R, p), rel=1e-12)


def test_the_best_list_has_ndcg_1_and_no_list_more():
    R, p = np.array([0.1, 1.0, 0.4, 0.4]), naive.examination(3)
    values = [ndcg(pi, R, p) for pi in itertools.permutations(range(4), 3)]
    assert np.max(values, axis=0).tolist() == [1.0, 1.0, 1.0]
    assert ndcg([1, 2, 3], R, p).tolist() == [1.0, 1.0, 1.0]
    assert ndcg([0, 1], np.zeros(2), p).tolist() == [0, 0, 0]


def test_ideal_dcg_of_several_queries():
    assert ideal_dcg([0.1, 1.0, 0.5], [1.0, 0.5], offsets=[0, 2, 3]).tolist() == [[1.0, 1.05], [0.5, 0.5]]


def test_cndcg_is_the_weighted_sum():
    values, gamma = np.random.default_rng(0).random((50, 3)), 0.9
    expected = [sum(gamma ** (t - tau) * values[tau] for tau in range(t + 1)) for t in range(50)]
    assert np.allclose(cndcg(values, gamma), expected)
    assert cndcg([1.0] * 3000, 0.995)[-1] == pytest.approx(200, abs=1e-3)


@pytest.mark.parametrize("k_s", [2, 5])
def test_ndcg_and_cndcg_of_a_run_are_those_of_its_lists(k_s):
    data = mf.synthetic("mq2008-like", seed=0).take(range(12))
    trace = mf.simulate(data, "RandomK", steps=700, record=True, k=k_s, checkpoints=[1, 100, 433], gamma=0.97)
    truth = [data.R[data.offsets[q] : data.offsets[q + 1]] for q in range(data.queries)]
    lists = [[d for d in row if d >= 0] for row in trace.lists.tolist()]
    values = np.array([mf.ndcg(pi, truth[q], trace.state.p) for pi, q in zip(lists, trace.arrivals, strict=True)])
    cumulative = mf.cndcg(values, 0.97)
    for k in range(1, k_s + 1):
        means = [values[:c, k - 1].mean() for c in trace.checkpoints]
        assert trace.values[f"ndcg@{k}"] == pytest.approx(means, rel=1e-12)
        assert trace.values[f"cndcg@{k}"] == pytest.approx(cumulative[trace.checkpoints - 1, k - 1], rel=1e-12)
        by_query = [values[trace.arrivals == q, k - 1].mean() for q in range(data.queries)]
        assert trace.query_values[f"ndcg@{k}"] == pytest.approx(by_query, rel=1e-12)
    assert trace.ndcg == {k: trace.figures[f"ndcg@{k}"] for k in range(1, k_s + 1)}
    assert trace.cndcg == {k: trace.figures[f"cndcg@{k}"] for k in range(1, k_s + 1)}


def test_the_value_of_one_list():
    R, p = np.array([1.0, 0.5, 0.1]), naive.examination(3)
    pi = np.array([1, 0, 2])
    for k in (1, 2, 3):
        assert mf.NDCG(k=k).value(pi, R, p) == naive.ndcg([1, 0, 2], R, p)[k - 1]


@pytest.mark.parametrize("metric", [mf.NDCG(k=6), mf.CNDCG(k=9)])
def test_a_cutoff_below_the_lists_is_refused(metric):
    data = mf.synthetic("mq2008-like", seed=0).take(range(3))
    with pytest.raises(mf.SettingError, match=rf"{metric!r}: expected a cutoff from 1 to 5, the ranks of the lists"):
        mf.simulate(data, "TopK", steps=5, metrics=[metric])
