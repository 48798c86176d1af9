import naive
import numpy as np
import pytest
from query_view import view

import mcfair as mf
from mcfair.errors import SettingError
from mcfair.state import State


@pytest.fixture
def state():
    data = mf.Dataset(offsets=[0, 3, 5], y=[0, 1, 2, 0, 1])
    empty = State.empty(data, naive.examination(2))
    empty.F[:] = [[3, 1], [0, 2], [0, 0], [1, 0], [0, 1]]
    empty.C[:] = [2, 1, 0, 0, 1]
    empty.visits[:] = [3, 1]
    return empty


def test_exposure_is_the_sum_of_examination_over_the_ranks_shown(state):
    p = naive.examination(2)
    assert state.E.tolist() == [naive.exposure(row, p) for row in state.F]
    assert state.sessions == 4
    assert repr(state) == "State(2 queries, 5 items, 4 sessions, 4 clicks)"


@pytest.mark.parametrize(("m", "s"), [(0.0, 0.0), (0.3, 5.0)])
def test_the_estimate_is_that_of_the_estimator(state, m, s):
    expected = naive.estimate(state.C, state.E, m, s)
    assert state.estimate(mf.IPS(prior_mean=m, prior_strength=s)).tolist() == expected.tolist()


def test_by_default_the_estimate_is_the_papers(state):
    assert state.estimate().tolist() == naive.estimate(state.C, state.E).tolist()


def test_a_state_is_copied_for_data_of_the_same_shape_only(state):
    p = naive.examination(2)
    with pytest.raises(SettingError, match="has 2 queries and 5 items, which are not those of"):
        state.copy(mf.Dataset(offsets=[0, 2, 5], y=[0] * 5), p)
    with pytest.raises(SettingError, match="counts 2 ranks, but k asks for 5"):
        state.copy(mf.Dataset(offsets=[0, 3, 5], y=[0] * 5), naive.examination(5))


def test_a_copy_shares_nothing_with_its_original(state):
    before = state.F.copy(), state.C.copy(), state.visits.copy()
    copy = state.copy(mf.Dataset(offsets=[0, 3, 5], y=[0] * 5), naive.examination(2))
    copy.F[:] += 1
    copy.C[:] += 1
    copy.visits[:] += 1
    for old, new in zip(before, (state.F, state.C, state.visits), strict=True):
        assert np.array_equal(old, new)


def test_a_read_only_view_refuses_changes_of_every_array_but_the_memory():
    q = view([0.1, 0.5, 0.9], k=2, posterior=np.zeros((3, 1, 3)), memory=np.zeros(3)).read_only()
    for name in ("R", "uncertainty", "E", "F", "p", "providers", "posterior"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(q, name)[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        q.visits[()] = 1
    q.memory[0] = 1.0
