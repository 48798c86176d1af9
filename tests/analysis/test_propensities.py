"""Examination fitted from runs: exact where the model is right, and refused where nothing can be fitted."""

import numpy as np
import pytest

import mcfair as mf
from mcfair.analysis.propensities import fit_propensities, run_counts
from mcfair.errors import DataError, TraceError

DATA = mf.synthetic("mq2008-like").take(range(20))


def log(policy="RandomK", **options):
    return mf.simulate(DATA, policy, "online", seed=5, record=True, **{"steps": 4000, **options})


def test_counts_are_those_of_every_session():
    trace = log(steps=50)
    counts = run_counts(trace)
    F, C = np.zeros((DATA.items, 5)), np.zeros((DATA.items, 5))
    for query, shown, clicked in zip(trace.arrivals, trace.lists, trace.clicks, strict=True):
        for j, d in enumerate(shown):
            if d >= 0:
                F[DATA.offsets[query] + d, j] += 1
                C[DATA.offsets[query] + d, j] += clicked[j]
    assert np.array_equal(F, trace.state.F)
    found = np.zeros_like(F), np.zeros_like(C)
    found[0][counts.item, counts.rank], found[1][counts.item, counts.rank] = counts.n, counts.c
    assert np.array_equal(found[0], F)
    assert np.array_equal(found[1], C)
    assert (counts.n > 0).all()


def test_click_rates_are_those_of_every_rank():
    trace = log(steps=500)
    filled = trace.lists >= 0
    rates = np.array([trace.clicks[filled[:, j], j].mean() for j in range(5)])
    assert mf.fit_examination(trace, "ctr", resamples=2).p == pytest.approx(rates / rates[0], rel=1e-12)
    assert mf.fit_examination(trace, "ctr", ranks=3, resamples=2).p == pytest.approx(rates[:3] / rates[0], rel=1e-12)


@pytest.mark.parametrize("severity", [0.5, 2.0])
@pytest.mark.parametrize("policy", ["RandomK", "MCFair"])
def test_the_severity_of_position_based_users_is_found(policy, severity):
    """From lists in random order, and from lists of a policy that moves items between ranks."""
    users = f"PositionBased(severity={severity}, noise=0.1)"
    found = mf.fit_examination(log(policy, steps=20_000, clicks=users), "em", resamples=1)
    assert found.falling == pytest.approx(mf.examination(5, severity), abs=0.05)
    assert mf.Setting(examination=tuple(found.falling)).examination == tuple(found.falling)


def test_users_who_read_from_the_top_have_no_examination_of_ranks():
    """The fit depends on the lists of the log: in lists by relevance fewer users reach the lower ranks."""
    random, best = (log(each, steps=20_000, clicks="Cascade(stop=1)") for each in ("RandomK", "MCFair(alpha=0)"))
    fits = [fit_propensities(run_counts(each), "em", resamples=1) for each in (best, random)]
    assert fits[0].p[1] < fits[1].p[1] - 0.05


def test_what_cannot_be_fitted_is_refused():
    with pytest.raises(TraceError, match="record=True"):
        mf.fit_examination(mf.simulate(DATA, "RandomK", "online", steps=10))
    with pytest.raises(DataError, match="no click at rank 1"):
        mf.fit_examination(mf.simulate(DATA, "RandomK", steps=10, record=True), "ctr")
