import naive
import numpy as np
import pytest

from mcfair.data.grades import relevance
from mcfair.errors import SettingError
from mcfair.random import CLICKS, draws
from mcfair.users.arrivals import arrivals
from mcfair.users.clicking import clicked
from mcfair.users.examination import examination


def test_examination_is_cut_at_k_s_and_bent_by_severity():
    assert np.allclose(examination(5), [1, 1 / np.log2(3), 1 / 2, 1 / np.log2(5), 1 / np.log2(6)])
    assert np.allclose(examination(3, severity=2.0), examination(3) ** 2)
    assert examination(4, severity=0.0).tolist() == [1.0] * 4


@pytest.mark.parametrize(("k_s", "severity"), [(0, 1.0), (-1, 1.0), (5, -0.1), (5, float("inf"))])
def test_examination_refuses(k_s, severity):
    with pytest.raises(SettingError, match="expected"):
        examination(k_s, severity)


def test_relevance_of_grades():
    assert np.allclose(relevance([0, 1, 2], 2), [0.1, 0.1 + 0.9 / 3, 1.0])
    assert np.allclose(relevance([0, 1, 2, 3, 4], 4, epsilon=0.0), np.array([0, 1, 3, 7, 15]) / 15)
    assert relevance([0, 0], 0).tolist() == [0.1, 0.1]
    assert max(relevance([y_max], y_max, e / 1000)[0] for y_max in range(1, 6) for e in range(1000)) == 1.0
    with pytest.raises(SettingError, match=r"epsilon = 1\.5: expected a probability"):
        relevance([0], 1, epsilon=1.5)


def test_clicks_come_with_probability_p_times_r():
    rng = [draws(0, CLICKS, 0, visit) for visit in range(20_000)]
    rate = np.mean([clicked(each, 3, 0.3) for each in rng])
    assert abs(rate - 0.3) < 4 * np.sqrt(0.3 * 0.7 / 20_000)


def test_a_user_who_clicks_would_click_at_any_better_rank():
    for visit in range(200):
        rng = draws(1, CLICKS, 0, visit)
        hits = [clicked(rng, 0, probability) for probability in (0.1, 0.4, 0.8)]
        assert hits == sorted(hits)


# The last two numbers of queries make Lemire's method reject about a third of the half words.
@pytest.mark.parametrize("queries", [1, 2, 74, 82, 6600, 1_500_000_000, 2**31 - 5])
def test_released_arrivals_are_those_of_numpy_call_by_call(queries):
    assert arrivals("wsdm23", 1001, queries, seed=3).tolist() == naive.released_arrivals(3, queries, 1001)


def test_released_arrivals_do_not_change_with_numpy():
    assert arrivals("wsdm23", 10, 82, seed=0).tolist() == [41, 22, 14, 66, 79, 59, 22, 66, 45, 2]


def test_arrivals_are_uniform_and_go_on_where_they_stopped():
    whole = arrivals("uniform", 20_000, 10, seed=5)
    assert np.array_equal(whole[7_000:], arrivals("uniform", 13_000, 10, seed=5, start=7_000))
    assert np.all(np.abs(np.bincount(whole, minlength=10) - 2000) < 4.5 * np.sqrt(1800))
    released = arrivals("wsdm23", 200_000, 82, seed=5)
    assert np.array_equal(released[70_001:], arrivals("wsdm23", 129_999, 82, seed=5, start=70_001))
