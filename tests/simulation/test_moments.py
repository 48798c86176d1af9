"""Pooled estimators in runs: when they are fitted, and that a run stays a function of its key."""

import itertools

import naive_estimators
import numpy as np
import pytest
from same_runs import same

import mcfair as mf
from mcfair.simulation.run import fit_moments, phases


@pytest.fixture(scope="module")
def data():
    return mf.synthetic("mq2008-like", seed=0)


class Recording(mf.Estimator):
    """Estimates the share of clicks over all items; the numbers of sessions at its fits are kept."""

    share: float = 0.5

    fitted = ("share",)
    calls = []  # noqa: RUF012

    def estimate(self, C, E, F, p):
        return self.share, 0.0

    def fit(self, C, E, F, p):
        self.calls.append((int(F[:, 0].sum()), int(C.sum())))
        return Recording(share=C.sum() / F.sum())


class FourTimes(mf.TopK):
    fits = 4


class FourTimesAndAtFits(FourTimes):
    prepares_at_fits = True


@pytest.mark.parametrize("queries", [1, 3, 10, 82, 6600])
def test_fits_follow_the_growth_of_the_sessions(queries):
    expected = naive_estimators.moments_of_fits(queries, 200 * queries)
    assert list(itertools.takewhile(lambda t: t < 200 * queries, fit_moments(queries, 0.3))) == expected


@pytest.mark.parametrize("before", [0, 7, 30, 31, 40, 1000])
@pytest.mark.parametrize("fitted", [False, True])
def test_phases_cover_a_run_and_stop_at_every_moment(before, fitted):
    moments = naive_estimators.moments_of_fits(10, before + 500)
    run = list(phases(500, FourTimes(), Recording(), 10, before, fitted))
    assert [phase.span[0] for phase in run][1:] == [phase.span[1] for phase in run][:-1]
    assert (run[0].span[0], run[-1].span[1]) == (0, 500)
    assert [phase.prepare for phase in run if phase.prepare >= 0] == [0, 1, 2, 3]
    assert [phase.span[0] for phase in run if phase.prepare >= 0] == [0, 125, 250, 375]
    due = {moment - before for moment in moments if moment >= before}
    overdue = not fitted and any(moment < before for moment in moments)
    assert [phase.span[0] for phase in run if phase.fit] == sorted(due | ({0} if overdue else set()))
    also = [phase for phase in phases(500, FourTimesAndAtFits(), Recording(), 10, before, fitted) if phase.prepare >= 0]
    assert [phase.span[0] for phase in also] == sorted({0, 125, 250, 375} | due)
    assert [phase.prepare for phase in also] == list(range(len(also)))


def test_without_a_pooled_estimator_there_are_the_moments_of_the_policy_alone():
    spans = [phase.span for phase in phases(100, FourTimes(), None, 10, 0, False)]
    assert spans == [phase.span for phase in phases(100, FourTimesAndAtFits(), None, 10, 0, False)]
    assert spans == [(0, 25), (25, 50), (50, 75), (75, 100)]


def test_an_estimator_is_fitted_to_all_queries_at_its_moments(data):
    Recording.calls.clear()
    few = data.take([3, 10, 20])
    trace = mf.simulate(few, "TopK", "online", steps=60, estimator=Recording(), record=True)
    moments = naive_estimators.moments_of_fits(3, 60)
    clicks = np.cumsum(trace.clicks.sum(axis=1))
    assert Recording.calls == [(t, clicks[t - 1]) for t in moments]
    assert trace.state.estimator == Recording(share=clicks[moments[-1] - 1] / (5 * moments[-1]))
    assert trace.provenance["fitted_estimator"] == repr(trace.state.estimator)


def test_relevance_that_is_given_is_not_fitted(data):
    Recording.calls.clear()
    trace = mf.simulate(data, "TopK", steps=500, estimator=Recording())
    assert Recording.calls == []
    assert trace.state.estimator is None


@pytest.mark.parametrize("estimator", ["Mixture", "Beta"])
def test_threads_change_no_bit(data, estimator):
    one, two = (
        mf.simulate(data, "BayesFair", "online", steps=4000, seed=5, threads=n, estimator=estimator) for n in (1, 3)
    )
    assert same(one, two)
    assert one.state.estimator == two.state.estimator != mf.parse_estimator(estimator)


@pytest.mark.parametrize("first", [50, 83, 84, 249, 500, 900])
def test_a_run_that_is_continued_equals_one_that_is_not(data, first):
    """Before the first fit, at a moment, just after one, and in between; `data` has 83 queries."""
    options = {"setting": "online", "seed": 2, "record": True}
    whole = mf.simulate(data, "BayesFair", steps=1000, **options)
    begun = mf.simulate(data, "BayesFair", steps=first, **options)
    ended = mf.simulate(data, "BayesFair", steps=1000 - first, state=begun.state, **options)
    assert np.array_equal(whole.lists, np.concatenate((begun.lists, ended.lists)))
    assert np.array_equal(whole.clicks, np.concatenate((begun.clicks, ended.clicks)))
    assert whole.state.estimator == ended.state.estimator


@pytest.mark.parametrize("mode", ["online", "post-processing"])
def test_a_fit_is_not_in_force_after_a_run_that_did_not_use_it(data, mode):
    """A run by IPS, or with relevance given, drops the prior; the next run fits one to all that was observed."""
    begun = mf.simulate(data, "BayesFair", "online", steps=200).state
    between = mf.simulate(data, "MCFair" if mode == "online" else "BayesFair", mode, steps=700, state=begun)
    assert begun.estimator is not None
    assert between.state.estimator is None
    assert between.provenance["fitted_estimator"] is None
    ended = mf.simulate(data, "BayesFair", "online", steps=1, state=between.state).state
    counts = between.state
    assert ended.estimator == mf.Mixture().fit(counts.C, counts.E, counts.F, counts.p)


def test_another_estimator_is_fitted_at_once_to_the_state_it_continues_from(data):
    begun = mf.simulate(data, "TopK", "online", steps=1000)
    state = begun.state
    fitted = mf.Mixture().fit(state.C, state.E, state.F, state.p)
    ended = mf.simulate(data, "TopK", "online", steps=50, state=state, estimator="Mixture")
    assert ended.state.estimator == fitted
    third = mf.simulate(data, "TopK", "online", steps=5, state=ended.state, estimator="Mixture(components=2)")
    assert third.state.estimator.components == 2


def test_a_saved_run_has_its_fit(data, tmp_path):
    trace = mf.simulate(data, "BayesFair", "online", steps=800)
    again = mf.Trace.load(trace.save(tmp_path / "run"))
    assert again.state.estimator == trace.state.estimator
    assert again.items().equals(trace.items())
    on = [mf.simulate(data, "BayesFair", "online", steps=200, state=each.state) for each in (trace, again)]
    assert same(*on)


def test_what_is_fitted_must_be_the_estimator_itself(data):
    class Wrong(Recording):
        def fit(self, C, E, F, p):
            return mf.IPS()

    with pytest.raises(mf.PartError, match=r"Wrong\(share=0.5\) was fitted to IPS\(.*\), expected the same estimator"):
        mf.simulate(data, "TopK", "online", steps=200, estimator=Wrong())


def test_a_policy_names_the_estimator_of_a_setting_that_names_none(data):
    setting = mf.Setting(mode="online", steps=200)
    assert setting.estimator == "auto"
    assert setting.estimator_for(mf.MCFair()) == mf.IPS()
    assert setting.estimator_for(mf.BayesFair()) == mf.Mixture()
    assert mf.Setting(estimator="Beta").estimator_for(mf.BayesFair()) == mf.Beta()
    trace = mf.simulate(data, "BayesFair", setting)
    assert trace.provenance["setting"]["estimator"] == repr(mf.Mixture())
    assert same(trace, mf.simulate(data, "BayesFair", setting, estimator="Mixture"))


def test_a_policy_that_prepares_sees_the_estimates_of_the_last_fit(data):
    seen = []

    class Watching(mf.Policy):
        fits = 2

        def prepare(self, data, state, rng):
            counts = state.C.copy(), state.E, state.F.copy(), state.p
            seen.append((state.estimator or mf.Mixture(), counts, data.scores.copy()))
            return [None] * data.queries

        def rank(self, q, rng):
            return np.arange(min(5, q.R.size))

    mf.simulate(data, Watching(), "online", steps=400, estimator="Mixture")
    for estimator, counts, scores in seen:
        assert scores.tolist() == estimator.estimates(*counts)[0].tolist()
    assert seen[0][0] == mf.Mixture() != seen[1][0]
