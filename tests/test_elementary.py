import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcfair.elementary import exp, log


@given(st.floats(1e-300, 1e300))
def test_log_is_the_logarithm_within_two_units_in_the_last_place(x):
    expected = math.log(x)
    assert abs(log(x) - expected) <= 2 * math.ulp(expected)


@given(st.floats(-700, 700))
def test_exp_is_the_exponential_within_three_units_in_the_last_place(x):
    expected = math.exp(x)
    assert abs(exp(x) - expected) <= 3 * math.ulp(expected)


@pytest.mark.parametrize(("function", "low"), [(log, 1e-12), (exp, -700.0)])
def test_compiled_and_interpreted_values_are_the_same_bits(function, low):
    for x in np.random.default_rng(0).uniform(low, 1.0, 500).tolist():
        assert function(x) == function.interpreted(x)


def test_the_ends_of_the_range():
    assert log(1.0) == 0.0
    assert exp(0.0) == 1.0
    assert log(math.nextafter(1.0, 0.0)) == math.log(math.nextafter(1.0, 0.0))
    assert exp(-1e9) == exp(-700.0) == pytest.approx(math.exp(-700.0))
