import math

import naive
import naive_estimators
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mcfair as mf


@given(st.lists(st.integers(0, 50), min_size=1, max_size=5), st.integers(0, 60), st.floats(0, 1), st.floats(1e-3, 1e3))
def test_the_estimate_is_that_of_ips_with_the_same_prior_but_at_most_1(F, clicks, mean, strength):
    p = naive.examination(len(F))
    item = clicks, naive.exposure(F, p), np.array(F, np.int32), p
    estimator = mf.Beta(prior_mean=mean, prior_strength=strength)
    R, variance = estimator.estimate(*item)
    a, b = strength * mean + clicks, strength * (1 - mean) + max(item[1] - clicks, 0.0)
    assert pytest.approx(a / (a + b)) == R
    assert variance == pytest.approx(a * b / ((a + b) ** 2 * (a + b + 1)), abs=1e-12)
    assert estimator.posterior(*item).tolist() == [[1.0, R, variance]]
    if clicks <= item[1]:
        assert pytest.approx(mf.IPS(prior_mean=mean, prior_strength=strength).estimate(*item)[0]) == R
    assert R <= 1.0 + 1e-12


def drawn(a, b, views, items, p, seed=0):
    """Clicks of items whose relevance is drawn from Beta(a, b), shown equally often at every rank."""
    rng = np.random.default_rng(seed)
    R = rng.beta(a, b, items)
    F = np.full((items, p.size), views, np.int32)
    C = rng.binomial(views, np.outer(R, p)).sum(axis=1).astype(np.int32)
    return C, np.array([naive.exposure(row, p) for row in F]), F, p


@pytest.mark.parametrize("views", [3, 40])
@pytest.mark.parametrize(("a", "b"), [(1.0, 4.0), (0.5, 0.5), (20.0, 20.0)])
def test_a_known_prior_is_recovered(a, b, views):
    fitted = mf.Beta().fit(*drawn(a, b, views, 4000, naive.examination(3)))
    assert fitted.prior_mean == pytest.approx(a / (a + b), abs=0.01)
    deviation = math.sqrt(fitted.prior_mean * (1 - fitted.prior_mean) / (fitted.prior_strength + 1))
    assert deviation == pytest.approx(math.sqrt(a * b / ((a + b) ** 2 * (a + b + 1))), abs=0.01)


def test_a_fit_is_the_equations():
    rng, p = np.random.default_rng(1), naive.examination(4)
    F = rng.integers(0, 9, (60, 4)).astype(np.int32)
    F[:5] = 0
    E = np.array([naive.exposure(row, p) for row in F])
    C = rng.binomial(F.sum(axis=1), 0.2).astype(np.int32)
    fitted = mf.Beta().fit(C, E, F, p)
    assert (fitted.prior_mean, fitted.prior_strength) == pytest.approx(naive_estimators.beta_moments(C, F, p))
    assert mf.Beta(prior_mean=0.9, prior_strength=7).fit(C, E, F, p) == fitted  # whatever the prior was before


def test_one_item_alone_changes_no_prior():
    assert mf.Beta().fit(*drawn(1.0, 1.0, 5, 1, np.ones(1))) == mf.Beta()


def test_marginal_certainty_counts_the_fitted_strength():
    seen = []

    class Watching(mf.Policy):
        def score(self, q, rng):
            seen.append(q.prior_strength)
            return q.R

    data = mf.Dataset(offsets=[0, 4, 8], y=[0, 1, 2, 0, 0, 0, 1, 2])
    trace = mf.simulate(data, Watching(), "online", steps=300, estimator="Beta")
    assert seen[0] == 2.0
    assert seen[-1] == trace.state.estimator.prior_strength != 2.0
