"""The package as it is imported: its public names and the signatures of its parts."""

import inspect

import pytest

import mcfair as mf


def test_dir_lists_the_public_names():
    assert dir(mf) == sorted([*mf.__all__, "__version__"])
    assert len(mf.__all__) == len(set(mf.__all__))


@pytest.mark.parametrize("name", [*mf.__all__, "__version__"])
def test_every_public_name_resolves(name):
    assert getattr(mf, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'mcfair' has no attribute 'simulat'"):
        mf.simulat  # noqa: B018


def test_parts_show_their_parameters():
    assert list(inspect.signature(mf.MCFair).parameters) == [
        *("alpha", "beta", "scale", "mc_floor", "ties", "explore", "alpha_group", "guard")
    ]
    assert inspect.signature(mf.MCFair).parameters["alpha"].default == 1.0
    assert list(inspect.signature(mf.DBN).parameters) == ["satisfaction", "continuation"]
    assert list(inspect.signature(mf.IPS).parameters) == ["prior_mean", "prior_strength"]
    assert list(inspect.signature(mf.NDCG).parameters) == ["k"]
    for base in (mf.Policy, mf.ClickModel, mf.Estimator, mf.Metric):
        for cls in mf.registered(base).values():
            kinds = {each.kind for each in inspect.signature(cls).parameters.values()}
            assert kinds <= {inspect.Parameter.KEYWORD_ONLY}, cls
