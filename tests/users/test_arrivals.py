import naive
import numpy as np
import pytest

from mcfair.users.arrivals import arrivals


# The last two numbers of queries make Lemire's method reject about a third of the half words.
@pytest.mark.parametrize("queries", [1, 2, 74, 82, 6600, 1_500_000_000, 2**31 - 5])
def test_released_arrivals_are_those_of_numpy_call_by_call(queries):
    assert arrivals("wsdm23", 1001, queries, seed=3).tolist() == naive.released_arrivals(3, queries, 1001)


def test_released_arrivals_do_not_change_with_numpy():
    assert arrivals("wsdm23", 10, 82, seed=0).tolist() == [41, 22, 14, 66, 79, 59, 22, 66, 45, 2]


def test_uniform_arrivals_are_the_draws_of_the_generator():
    expected = [int(naive.uniform(5, 3, 0, t, 0) * 10) for t in range(200)]
    assert arrivals("uniform", 200, 10, seed=5).tolist() == expected


def test_arrivals_are_uniform_and_continue_where_they_stopped():
    whole = arrivals("uniform", 20_000, 10, seed=5)
    assert np.array_equal(whole[7_000:], arrivals("uniform", 13_000, 10, seed=5, start=7_000))
    assert np.all(np.abs(np.bincount(whole, minlength=10) - 2000) < 4.5 * np.sqrt(1800))
    released = arrivals("wsdm23", 200_000, 82, seed=5)
    assert np.array_equal(released[70_001:], arrivals("wsdm23", 129_999, 82, seed=5, start=70_001))
