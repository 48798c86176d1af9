import naive
import numpy as np
import pytest

from mcfair.data.dataset import Dataset
from mcfair.errors import SettingError
from mcfair.state import State, estimate


@pytest.fixture
def state():
    data = Dataset(offsets=[0, 3, 5], y=[0, 1, 2, 0, 1])
    empty = State.empty(data, naive.examination(2))
    empty.F[:] = [[3, 1], [0, 2], [0, 0], [1, 0], [0, 1]]
    empty.C[:] = [2, 1, 0, 0, 1]
    empty.visits[:] = [3, 1]
    return empty


def test_exposure_is_what_the_ranks_give(state):
    p = naive.examination(2)
    assert state.E.tolist() == [naive.exposure(row, p) for row in state.F]
    assert state.sessions == 4
    assert repr(state) == "State(2 queries, 5 items, 4 sessions, 4 clicks)"


@pytest.mark.parametrize(("m", "s"), [(0.0, 0.0), (0.3, 5.0)])
def test_the_estimate_is_clicks_over_exposure(state, m, s):
    expected = naive.estimate(state.C, state.E, m, s)
    assert state.estimate(m, s).tolist() == expected.tolist()
    assert [estimate(c, e, m, s) for c, e in zip(state.C, state.E, strict=True)] == expected.tolist()


def test_without_exposure_and_prior_strength_the_estimate_is_0_whatever_the_prior_mean():
    assert estimate(0, 0.0, 0.5, 0.0) == 0.0
    assert estimate(0, 0.0, 0.5, 2.0) == 0.5


def test_one_click_at_a_low_rank_counts_more_than_one():
    assert estimate(1, 1 / np.log2(6), 0.0, 0.0) == pytest.approx(2.585, abs=1e-3)


def test_a_copy_fits_its_data_only(state):
    p = naive.examination(2)
    with pytest.raises(SettingError, match="has 2 queries and 5 items, which are not those of"):
        state.copy(Dataset(offsets=[0, 2, 5], y=[0] * 5), p)
    with pytest.raises(SettingError, match="counts 2 ranks, but k_s asks for 5"):
        state.copy(Dataset(offsets=[0, 3, 5], y=[0] * 5), naive.examination(5))
