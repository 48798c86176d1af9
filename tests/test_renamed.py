"""Old public names work for one release, with a warning that points at the line to change."""

import warnings

import numpy as np
import polars as pl
import pytest
from query_view import view

import mcfair as mf
from mcfair import errors
from mcfair.data.dataset import relevance
from mcfair.errors import MCFairError, MCFairWarning, SettingError, needs_extra, renamed
from mcfair.random import uniform
from mcfair.simulation.setting import make_setting

DATA = mf.Dataset(offsets=[0, 3], y=[2, 1, 0], providers=["a", "b", "a"])


def old(name, new):
    return pytest.warns(MCFairWarning, match=f"^{name} is now called {new}; ")


def test_the_old_name_of_the_length_of_a_list():
    with old("k_s", "k"):
        assert mf.Setting(k_s=3) == mf.Setting(k=3)
    with old("k_s", "k"):
        assert mf.Setting(k=2).k_s == 2
    with old("k_s", "k"):
        assert mf.simulate(DATA, "TopK", steps=4, k_s=2).state.p.size == 2
    with old("k_s", "k"):
        assert make_setting({"mode": "online", "k_s": 4}, {}).k == 4
    with old("k_s", "k"):
        assert mf.examination(k_s=2).size == 2
    assert mf.Setting(k=3).to_dict()["k"] == 3
    with pytest.raises(SettingError, match="k is given twice: also under its old name k_s"):
        mf.simulate(DATA, "TopK", k=2, k_s=2)


def test_the_old_names_of_providers():
    with old("groups", "providers"):
        data = mf.Dataset(offsets=[0, 3], y=[2, 1, 0], groups=["a", "b", "a"])
    assert data.fingerprint == DATA.fingerprint
    with old("groups", "providers"):
        assert data.groups is data.providers
    with old("group_names", "provider_names"):
        assert data.group_names == ("a", "b")
    with old("query_groups", "query_providers"):
        assert data.query_groups.tolist() == [0, 1, 0]
    with old("group_name", "provider_name"):
        assert data.group_name(1) == "b"
    with old("with_groups", "with_providers"):
        assert data.with_groups(["c"] * 3).provider_names == ("c",)
    frame = pl.DataFrame({"q": ["x", "x"], "y": [0, 1], "g": ["a", "b"]})
    with old("group", "provider"):
        assert mf.Dataset.from_frame(frame, query="q", grade="y", group="g").provider_names == ("a", "b")
    q = view([0.2, 0.4])
    with old("groups", "providers"):
        assert q.groups is q.providers


def test_names_that_left_the_top():
    for name, value in (("uniform", uniform), ("relevance", relevance)):
        with old(f"mcfair.{name}", f"mcfair.*{name}"):
            assert getattr(mf, name) is value
        assert name not in dir(mf)
    assert {"fair_lists", "FairReranker"} <= set(dir(mf))


def test_one_warning_for_each_place_that_points_at_it():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        for _ in range(3):
            mf.examination(k_s=2)
        mf.examination(k_s=3)
    assert [each.filename for each in seen] == [__file__] * 2
    assert seen[1].lineno == seen[0].lineno + 1


def test_a_warning_at_the_top_of_a_program_has_a_place(monkeypatch):
    monkeypatch.setattr(errors, "PACKAGE", "")  # every frame belongs to the package
    with old("a", "b"):
        renamed("a", "b")


def test_a_missing_extra_says_how_to_install_it():
    assert needs_extra("numpy.linalg", "report") is np.linalg
    message = r'^this needs nowhere, which is not installed: pip install "mcfair\[report\]"$'
    with pytest.raises(MCFairError, match=message):
        needs_extra("nowhere.to_be_found", "report")
