"""Properties of every estimator."""

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


def test_every_registered_estimator_is_tested():
    assert {type(estimator).__name__ for estimator in VARIANTS} == set(mf.registered(mf.Estimator))
