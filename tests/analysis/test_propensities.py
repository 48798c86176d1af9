"""Examination fitted from logs: exact where the model is right, and refused where nothing can be fitted."""

import numpy as np
import pytest

import mcfair as mf
from mcfair.analysis.propensities import counts_by_rank, fit_examination
from mcfair.errors import TraceError

DATA = mf.synthetic("mq2008-like").take(range(20))


def log(policy="RandomK", **options):
    return mf.simulate(DATA, policy, "online", seed=5, record=True, **{"steps": 4000, **options})


def test_counts_are_those_of_every_session():
    trace = log(steps=50)
    F, C = counts_by_rank(trace)
    slow_F, slow_C = np.zeros_like(F), np.zeros_like(C)
    for query, shown, clicked in zip(trace.arrivals, trace.lists, trace.clicks, strict=True):
        for j, d in enumerate(shown):
            if d >= 0:
                slow_F[DATA.offsets[query] + d, j] += 1
                slow_C[DATA.offsets[query] + d, j] += clicked[j]
    assert np.array_equal(F, slow_F)
    assert np.array_equal(C, slow_C)
    assert np.array_equal(F, trace.state.F)
    assert np.array_equal(C.sum(axis=1), trace.state.C)


def test_the_fit_satisfies_its_equations():
    trace = log(steps=3000, clicks="PositionBased(severity=1.5)")
    F, C = counts_by_rank(trace)
    p = np.array(fit_examination(trace))
    attraction = C.sum(axis=1) / np.where(F.sum(axis=1) > 0, F @ p, 1)
    again = C.sum(axis=0) / (attraction @ F)
    assert again / again[0] == pytest.approx(p, abs=1e-6)


@pytest.mark.parametrize("severity", [0.5, 2.0])
@pytest.mark.parametrize("policy", ["RandomK", "MCFair"])
def test_the_severity_of_position_based_users_is_found(policy, severity):
    """From lists in random order, and from lists of a policy that moves items between ranks."""
    users = f"PositionBased(severity={severity}, noise=0.1)"
    p = fit_examination(log(policy, steps=20_000, clicks=users))
    assert p == pytest.approx(mf.examination(5, severity), abs=0.05)
    assert mf.Setting(examination=p).examination == p


def test_users_who_read_from_the_top_have_no_examination_of_ranks():
    """The fit depends on the lists of the log: in lists by relevance fewer users reach the lower ranks."""
    random, best = (log(each, steps=20_000, clicks="Cascade(stop=1)") for each in ("RandomK", "MCFair(alpha=0)"))
    assert fit_examination(best)[1] < fit_examination(random)[1] - 0.05


def test_what_cannot_be_fitted_is_refused():
    with pytest.raises(TraceError, match="record=True"):
        fit_examination(mf.simulate(DATA, "RandomK", "online", steps=10))
    with pytest.raises(TraceError, match="no item was clicked"):
        fit_examination(mf.simulate(DATA, "RandomK", steps=10, record=True))
