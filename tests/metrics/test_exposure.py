import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mcfair.errors import DataError
from mcfair.metrics.exposure import dots, query_unfairness, unfairness, unfairness_per_query

exposures = st.floats(0, 1000, allow_subnormal=False)
shares = st.floats(0, 1, allow_subnormal=False)


@st.composite
def queries(draw, least=1):
    n = draw(st.integers(least, 25))
    return draw(arrays(float, n, elements=exposures)), draw(arrays(float, n, elements=shares))


@given(queries())
def test_unfairness_is_the_double_sum_and_never_negative(query):
    E, R = query
    value = unfairness(E, R)
    scale = (E @ E) * (R @ R)
    smallest = np.finfo(float).tiny  # below it there are too few digits to compare
    assert value == pytest.approx(naive.unfairness(E, R), rel=1e-9, abs=max(1e-12 * scale, smallest))
    assert value >= 0


@given(queries(), st.floats(0.01, 100))
def test_exposure_in_proportion_to_relevance_is_fair(query, c):
    _, R = query
    assert unfairness(c * R, R) <= 1e-20 * c * c * (R @ R) ** 2


@given(queries(least=2), st.randoms(use_true_random=False))
def test_the_order_of_items_does_not_matter(query, random):
    E, R = query
    order = list(range(E.size))
    random.shuffle(order)
    assert unfairness(E[order], R[order]) == pytest.approx(unfairness(E, R), rel=1e-9, abs=1e-9)


def test_unfairness_of_examples():
    assert unfairness([1, 0], [1, 1]) == 1.0  # (1·1 - 0·1)²·2 / (2·1)
    assert unfairness([3], [0.4]) == 0.0


@given(queries())
def test_compiled_and_interpreted_sums_agree_to_the_bit(query):
    E, R = query
    assert dots(E, R) == dots.interpreted(E, R)
    assert query_unfairness(E, R) == query_unfairness.interpreted(E, R)


def test_the_mean_leaves_out_queries_without_relevance_and_without_visits():
    E, R, offsets = [1, 0, 5, 0, 1, 0], [1, 1, 0, 0, 1, 1], [0, 2, 4, 6]
    assert unfairness_per_query(E, R, offsets).tolist() == [1, 0, 1]
    assert unfairness(E, R, offsets) == 1.0
    assert unfairness(E, R, offsets, visits=[1, 1, 0]) == 1.0
    assert unfairness(E, R, offsets, visits=[0, 1, 0]) == 0.0


def test_arrays_of_another_length_are_refused():
    with pytest.raises(DataError, match=r"expected one number for each of 3 items, got an array of shape \(2,\)"):
        unfairness([1, 2], [1, 2], [0, 3])
