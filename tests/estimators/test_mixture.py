import itertools
import math

import naive
import naive_estimators
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mcfair as mf
from mcfair.estimators.mixture import Belief, Evidence, believe, fill_evidence, maximise, start_prior

PRIORS = [
    mf.Mixture(),
    mf.Mixture(components=1),
    mf.Mixture(components=2, weights=(0.2, 0.8), means=(0.1, 0.7), variances=(0.08, 1e-6)),
    mf.Mixture(components=3, weights=(0.5, 0.3, 0.2), means=(0.1, 0.4, 0.99), variances=(1e-4, 0.01, 0.05)),
]


def rows(estimator):
    """(weight, mean, variance) of the components of a prior."""
    return np.array(estimator.theta).reshape(4, -1)[:3].T.tolist()


def counts(items, seed=0, ranks=4, views=9):
    """Counts of some items, the first of which were never shown."""
    rng, p = np.random.default_rng(seed), naive.examination(ranks)
    F = rng.integers(0, views, (items, ranks)).astype(np.int32)
    F[: items // 10] = 0
    C = rng.binomial(F.sum(axis=1), rng.choice([0.05, 0.3, 0.6], items)).astype(np.int32)
    return C, np.array([naive.exposure(row, p) for row in F]), F, p


@pytest.mark.parametrize("estimator", PRIORS, ids=lambda each: f"{each.components} components")
@given(st.lists(st.integers(0, 60), min_size=1, max_size=5), st.data())
def test_the_posterior_is_the_equations(estimator, F, data):
    C, p = data.draw(st.integers(0, sum(F))), naive.examination(len(F))
    item = C, naive.exposure(F, p), np.array(F, np.int32), p
    expected = naive_estimators.posterior(C, F, p, rows(estimator))
    posterior = estimator.posterior(*item)
    # Means that are equal on paper may be in either order
    assert posterior[:, 1].tolist() == pytest.approx([mean for _, mean, _ in expected], rel=1e-9)
    assert sorted(posterior[:, 0].tolist()) == pytest.approx(sorted(w for w, _, _ in expected), rel=1e-6, abs=1e-12)
    assert sorted(posterior[:, 2].tolist()) == pytest.approx(sorted(s2 for _, _, s2 in expected), rel=1e-9)
    assert estimator.estimate(*item) == pytest.approx(naive_estimators.moments(expected), rel=1e-7, abs=1e-12)


def test_without_exposure_the_posterior_is_the_prior():
    item = 0, 0.0, np.zeros(2, np.int32), naive.examination(2)
    for estimator in PRIORS:
        prior = rows(estimator)
        assert estimator.posterior(*item).tolist() == sorted(prior, key=lambda each: -each[1])
        assert estimator.estimate(*item) == pytest.approx(naive_estimators.moments(prior))


def test_with_very_much_evidence_the_estimate_is_clicks_over_exposure():
    F = np.array([100_000, 50_000], np.int32)
    p = naive.examination(2)
    E = naive.exposure(F, p)
    for x in (0.05, 0.33, 0.8):
        R, variance = mf.Mixture().estimate(round(x * E), E, F, p)
        assert pytest.approx(x, abs=1e-3) == R
        assert variance < 1e-5


def test_one_component_of_large_variance_is_ips():
    """The limit of the design: nothing is known beforehand."""
    estimator = mf.Mixture(components=1, weights=(1.0,), means=(0.5,), variances=(1e9,))
    for C, F in ((3, [7, 2]), (0, [1, 1]), (4, [3, 3])):
        item = C, naive.exposure(F, naive.examination(2)), np.array(F, np.int32), naive.examination(2)
        assert estimator.estimate(*item)[0] == pytest.approx(min(mf.IPS().estimate(*item)[0], 1.0), abs=1e-6)


@pytest.mark.parametrize("estimator", [*PRIORS, mf.Mixture().fit(*counts(50))], ids=lambda each: each.components)
def test_several_items_at_once_have_the_bits_of_one_after_the_other(estimator):
    """Also items that were never shown, always clicked, clicked more often than examined, or shown very often."""
    C, E, F, p = counts(60, ranks=5)
    C[20:25], C[25:30] = np.ceil(E[20:25]), F[25:30].sum(axis=1)
    F[30:35] *= 10_000
    E = np.array([naive.exposure(row, p) for row in F])
    for items in (np.arange(60), np.array([59, 3, 33, 25, 20]), np.array([2])):
        out = np.full((60, 2 + 3 * estimator.components), np.nan)
        estimator.batch(items, C, E, F, p, estimator.theta, out[: items.size])
        assert np.array_equal(out[: items.size], estimator.outputs(C, E, F, p)[items])
        assert np.isnan(out[items.size :]).all()


# --- the fit ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("K", [1, 2, 4])
def test_a_fit_is_em_by_the_equations(K):
    C, E, F, p = counts(60)
    expected = naive_estimators.em(C, F, p, K)
    for before in (mf.Mixture(components=K), mf.Mixture(components=K).fit(C, E, F, p)):  # whatever the prior was
        fitted = before.fit(C, E, F, p)
        prior = list(zip(fitted.weights, fitted.means, fitted.variances, strict=True))
        for ours, naives in zip(prior, expected, strict=True):
            assert ours == pytest.approx(naives, rel=1e-8)


def test_grades_are_recovered_from_clicks():
    """The distribution of the grades of MQ2008, seen through position bias."""
    rng, p = np.random.default_rng(3), naive.examination(5)
    R = rng.choice([0.1, 0.4, 1.0], 3000, p=[0.6, 0.25, 0.15])
    F = rng.integers(5, 40, (3000, 5)).astype(np.int32)
    C = rng.binomial(F, np.outer(R, p)).sum(axis=1).astype(np.int32)
    fitted = mf.Mixture().fit(C, np.array([naive.exposure(row, p) for row in F]), F, p)
    for relevance, share in ((0.1, 0.6), (0.4, 0.25), (1.0, 0.15)):
        near = [k for k in range(4) if abs(fitted.means[k] - relevance) < 0.03]
        assert sum(fitted.weights[k] for k in near) == pytest.approx(share, abs=0.03)
        assert all(fitted.variances[k] < 1e-3 for k in near)


def em_steps(arguments, theta, keep):
    """Yield the prior after each step of EM; `keep` restores what a step is not to change."""
    C, E, F, p = arguments
    items = Evidence(*np.empty((5, C.size)))
    belief = Belief(*np.empty((3, theta.size // 4, C.size)), *np.empty((2, C.size)))
    fill_evidence(C, E, F, p, items)
    for _ in range(25):
        before = theta.copy()
        believe(items, theta, belief)
        maximise(items, belief, theta)
        keep(theta, before)
        yield theta.reshape(4, -1)[:3].T.tolist()


def test_steps_that_change_the_weights_alone_never_lower_the_likelihood():
    """With fixed components EM is exact; a pseudo-count of 0.1 is a Dirichlet prior."""
    C, E, F, p = counts(80, seed=4)
    shown = E > 0

    def keep(theta, before):
        theta[4:] = before[4:]

    values = [
        naive_estimators.prior_likelihood(C[shown], F[shown], p, prior) + sum(0.1 * math.log(w) for w, _, _ in prior)
        for prior in em_steps((C[shown], E[shown], F[shown], p), start_prior(4), keep)
    ]
    assert all(after >= before - 1e-9 for before, after in itertools.pairwise(values))
    assert values[-1] > values[0]


def test_steps_for_components_without_variance_never_lower_the_likelihood():
    """If every view is examined, clicks are binomial within a component, and EM is exact for weights and means."""
    rng = np.random.default_rng(5)
    F = rng.integers(1, 30, (200, 1)).astype(np.int32)
    C = rng.binomial(F[:, 0], rng.choice([0.1, 0.4, 0.9], 200)).astype(np.int32)
    arguments = C, F[:, 0].astype(float), F, np.ones(1)

    def keep(theta, before):
        theta[8:12] = before[8:12]

    start = start_prior(4)
    start[8:12] = 1e-8
    values = [
        naive_estimators.prior_likelihood(C, F, np.ones(1), prior)
        + sum(0.1 * math.log(w) + 0.03 * math.log(r) + 0.07 * math.log(1 - r) for w, r, _ in prior)
        for prior in em_steps(arguments, start, keep)
    ]
    assert all(after >= before - 1e-4 for before, after in itertools.pairwise(values))
    assert values[-1] > values[0] + 1.0


def test_items_that_were_never_shown_do_not_count():
    C, E, F, p = counts(50)
    shown = E > 0
    assert mf.Mixture().fit(C, E, F, p) == mf.Mixture().fit(C[shown], E[shown], F[shown], p)
    assert mf.Mixture().fit(C[~shown], E[~shown], F[~shown], p) == mf.Mixture()


def test_of_very_many_items_every_so_manyth_is_used():
    C, E, F, p = (np.repeat(each, 2, axis=0) if i < 3 else each for i, each in enumerate(counts(4_000)))
    shown = np.flatnonzero(E > 0)
    chosen = [int(shown[i * shown.size // 4_000]) for i in range(4_000)]
    assert mf.Mixture().fit(C, E, F, p) == mf.Mixture().fit(C[chosen], E[chosen], F[chosen], p)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Mixture(components=0)", r"Mixture: components = 0 is not allowed: expected a whole number from 1 to 16"),
        ("Mixture(components=2, weights=(0.5, 0.5))", r"has \[2, 0, 0\] weights, means and variances: expected 2 of"),
        ("Mixture(components=1, weights=(0,), means=(0.5,), variances=(0,))", r"weights not all 0"),
        (
            "Mixture(means=(2, 1, 1, 1))",
            r"Mixture: means = \(2, 1, 1, 1\) is not allowed: expected numbers from 0 to 1",
        ),
    ],
)
def test_invalid_priors_are_refused(text, message):
    with pytest.raises(mf.PartError, match=message):
        mf.parse_estimator(text)
