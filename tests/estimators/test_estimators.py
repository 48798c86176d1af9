"""Properties of every estimator."""

import numpy as np
import pytest

import mcfair as mf
from mcfair.testing import check_part

VARIANTS = [
    mf.IPS(),
    mf.IPS(prior_mean=0.3, prior_strength=5),
    mf.IPS(prior_mean=1, prior_strength=0.1),
    mf.Beta(),
    mf.Beta(prior_mean=0.2, prior_strength=9),
    mf.Mixture(),
    mf.Mixture(components=1),
    mf.Mixture(components=2, weights=(0.3, 0.7), means=(0.9, 0.2), variances=(0.05, 0.0)),
]


@pytest.mark.parametrize("estimator", VARIANTS, ids=repr)
def test_contract(estimator):
    check_part(estimator)


@pytest.mark.parametrize("estimator", VARIANTS, ids=repr)
def test_posteriors_of_items_can_be_passed_to_kernels(estimator):
    """They are the posteriors of the items one by one, without gaps in memory; of no items there are none."""
    F, p = np.array([[5, 0], [0, 0], [1, 7]], np.int32), np.array([1.0, 0.5])
    C, E = np.array([2, 0, 1], np.int32), F @ p
    posteriors = estimator.posteriors(C, E, F, p)
    assert posteriors.flags.c_contiguous
    for d in range(3):
        assert posteriors[d].tolist() == estimator.posterior(int(C[d]), float(E[d]), F[d], p).tolist()
    assert estimator.posteriors(C[:0], E[:0], F[:0], p).shape == (0, estimator.posterior_size, 3)


def test_every_registered_estimator_is_tested():
    assert {type(estimator).__name__ for estimator in VARIANTS} == set(mf.registered(mf.Estimator))
