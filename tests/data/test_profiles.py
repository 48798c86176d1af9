import numpy as np
import pytest

from mcfair.data.catalogue import PROFILES, synthetic
from mcfair.errors import DataError

HASHES = {
    "mq2008-like": "add1f488f5839c6d90ac699ab067d3aa6244cc11c19150d7001fe090feab1165",
    "istella-s-like": "76da40255bea94f328ae6b9e2a2f2b4f6b63a5c2fa50ad71ff135ffe4684e06c",
    "marketplace": "55c5343cbc684f6b44b1360173a15c64dfa7e16a7c6ab996a6bf4485ad530bf5",
}


@pytest.mark.parametrize("name", PROFILES)
def test_profiles_never_change(name):
    assert synthetic(name).fingerprint == HASHES[name]


@pytest.mark.parametrize("name", PROFILES)
def test_every_query_of_a_profile_has_a_relevant_item(name):
    data = synthetic(name, seed=5)
    assert np.add.reduceat(data.y > 0, data.offsets[:-1]).min() >= 1
    assert data.X.dtype == np.float32
    assert 0.0 <= data.X.min() <= data.X.max() <= 1.0


@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
def test_shape_of_mq2008_like(seed):
    data = synthetic("mq2008-like", seed=seed)
    assert (data.name, data.queries, data.y_max, data.X.shape[1]) == ("mq2008-like", 83, 2, 46)
    assert 6 <= data.sizes.min() <= data.sizes.max() <= 19
    # The real test parts, filtered: 9.8 to 10.9 items a query, 29 to 34 % relevant, 27 to 35 % of these of grade 2.
    assert 9 <= data.sizes.mean() <= 12
    assert 0.25 <= np.mean(data.y > 0) <= 0.42
    assert 0.2 <= np.mean(data.y[data.y > 0] == 2) <= 0.45


def test_shape_of_istella_s_like():
    data = synthetic("istella-s-like")
    assert (data.queries, data.y_max, data.X.shape[1]) == (6600, 4, 20)
    assert data.sizes.mean() == pytest.approx(103, abs=2)
    assert data.sizes.std() > 30
    assert np.mean(data.y > 0) == pytest.approx(0.11, abs=0.005)
    assert np.bincount(data.y).min() > 0.01 * data.items


def test_the_providers_of_the_marketplace_have_the_same_merit():
    data = synthetic("marketplace", seed=3)
    first, second = (data.providers == code for code in (0, 1))
    assert data.provider_names == ("established", "newcomer")
    assert np.array_equal(data.y[first], data.y[second])
    assert np.array_equal(data.X[first], data.X[second])
    assert np.array_equal(data.query_providers, data.providers)


def test_features_of_a_profile_know_the_grade_from_well_to_not_at_all():
    data = synthetic("istella-s-like")
    correlation = np.array([np.corrcoef(data.X[:, j], data.y)[0, 1] for j in range(20)])
    assert correlation[0] > 0.25
    assert 0.05 < correlation[8] < 0.15
    assert np.abs(correlation[-5:]).max() < 5 / np.sqrt(data.items)


def test_seeds_give_different_data():
    assert len({synthetic("mq2008-like", seed=seed).fingerprint for seed in range(5)}) == 5
    assert synthetic("mq2008-like", seed=np.int64(3)).fingerprint == synthetic("mq2008-like", seed=3).fingerprint


@pytest.mark.parametrize("seed", [-1, 2**64, 0.5, "0", None])
def test_wrong_seeds_are_refused(seed):
    with pytest.raises(DataError, match=r"seed = .*: expected a whole number from 0 to"):
        synthetic("mq2008-like", seed=seed)


def test_unknown_profile():
    with pytest.raises(DataError, match=r"unknown profile 'mq2008_like'; did you mean 'mq2008-like'?"):
        synthetic("mq2008_like")
