import math

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mcfair as mf
from mcfair.estimators.ips import ips


def shown(clicks, F, p):
    """The arguments of an estimate."""
    return clicks, naive.exposure(F, p), np.array(F, np.int32), p


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=6),
    st.integers(0, 100),
    st.floats(0, 1),
    st.one_of(st.just(0.0), st.floats(1e-3, 1e3)),
)
def test_estimate_and_uncertainty_are_the_equations(F, clicks, mean, strength):
    p = naive.examination(len(F))
    arguments = shown(clicks, F, p)
    (expected,) = naive.estimate([clicks], [arguments[1]], mean, strength)
    (uncertainty,) = naive.uncertainty([arguments[1]], strength)
    assert mf.IPS(prior_mean=mean, prior_strength=strength).estimate(*arguments) == (expected, uncertainty)


def test_several_items_at_once_are_the_single_estimates():
    rng, p = np.random.default_rng(0), naive.examination(4)
    F = rng.integers(0, 7, (30, 4))
    F[:4] = 0
    C = np.minimum(rng.integers(0, 5, 30), F.sum(axis=1))
    E = np.array([naive.exposure(row, p) for row in F])
    for m, s in ((0.0, 0.0), (0.3, 5.0)):
        R, uncertainty = mf.IPS(prior_mean=m, prior_strength=s).estimates(C, E, F, p)
        assert R.tolist() == naive.estimate(C, E, m, s).tolist()
        assert uncertainty.tolist() == naive.uncertainty(E, s).tolist()


def test_without_exposure_the_estimate_is_the_prior_mean_if_the_prior_has_any_strength():
    arguments = shown(0, [0, 0], naive.examination(2))
    assert mf.IPS(prior_mean=0.5).estimate(*arguments) == (0.0, math.inf)
    assert mf.IPS(prior_mean=0.5, prior_strength=2).estimate(*arguments) == (0.5, 0.5)
    assert ips(0, 0.0, 0.5, 0.0) == 0.0


def test_one_click_at_a_low_rank_counts_more_than_one():
    estimate, _ = mf.IPS().estimate(*shown(1, [0, 0, 0, 0, 1], naive.examination(5)))
    assert estimate == pytest.approx(math.log2(6))


def test_the_uncertainty_bounds_the_variance_of_the_estimate():
    """Shown N times at one rank, the estimate is Binomial(N, pR)/(Np), whose variance is R(1 - pR)/(Np) ≤ 1/E."""
    for R in (0.1, 0.5, 1.0):
        for j, p_j in enumerate(naive.examination(5)):
            F = [0] * 5
            F[j] = 12
            _, uncertainty = mf.IPS().estimate(*shown(3, F, naive.examination(5)))
            assert R * (1 - p_j * R) / (12 * p_j) <= uncertainty


def test_a_prior_enters_a_run_by_the_estimator_and_marginal_certainty_counts_it():
    seen = []

    class Watching(mf.Policy):
        def score(self, q, rng):
            seen.append((q.prior_strength, q.R.copy(), q.uncertainty.copy(), q.E.copy()))
            return q.R

    data = mf.Dataset(offsets=[0, 4], y=[0, 1, 2, 0])
    trace = mf.simulate(data, Watching(), "online", steps=30, estimator="IPS(prior_mean=0.3, prior_strength=5)")
    assert {strength for strength, *_ in seen} == {5.0}
    assert seen[0][1].tolist() == [0.3] * 4
    for _, _, uncertainty, E in seen:
        assert uncertainty.tolist() == naive.uncertainty(E, 5.0).tolist()
    assert trace.provenance["setting"]["estimator"] == "IPS(prior_mean=0.3, prior_strength=5.0)"
    expected = naive.estimate(trace.state.C, trace.state.E, 0.3, 5.0)
    assert trace.items()["estimate"].to_list() == expected.tolist()
    assert trace.items()["uncertainty"].to_list() == naive.uncertainty(trace.state.E, 5.0).tolist()


def test_given_relevance_has_no_uncertainty():
    class Watching(mf.Policy):
        def score(self, q, rng):
            assert not q.uncertainty.any()
            return q.R

    mf.simulate(mf.Dataset(offsets=[0, 4], y=[0, 1, 2, 0]), Watching(), steps=5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("IPS(prior_mean=2)", r"IPS: prior_mean = 2 is not allowed: expected a number from 0 to 1"),
        ("IPS(prior_strength=-1)", r"prior_strength = -1 is not allowed: expected a finite number of at least 0"),
        ("IPS(strength=1)", r"unknown parameter of IPS 'strength'; did you mean 'prior_strength'\?"),
        ("ISP", r"unknown estimator 'ISP'; did you mean 'IPS'\? available: .*IPS"),
    ],
)
def test_invalid_estimators_are_refused_with_what_is_allowed(text, message):
    with pytest.raises(mf.PartError, match=message):
        mf.parse_estimator(text)


@pytest.mark.parametrize("answer", [0.5, (0.5,), (float("nan"), 1.0), (0.5, 1.0, 2.0)])
def test_what_is_not_an_estimate_and_its_uncertainty_is_refused(answer):
    class Wrong(mf.Estimator):
        def estimate(self, C, E, F, p):
            return answer

    with pytest.raises(mf.PartError, match=r"Wrong\(\) returned .*, expected an estimate and its uncertainty"):
        mf.simulate(mf.Dataset(offsets=[0, 2], y=[0, 1]), "TopK", "online", steps=3, estimator=Wrong())
