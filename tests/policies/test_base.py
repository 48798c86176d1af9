import dataclasses
import importlib
import pickle
from typing import Annotated, Literal

import msgspec
import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import mcfair as mf
from mcfair.errors import PolicyError
from mcfair.policies.base import NOT_A_NUMBER, OK, REGISTRY, described_parameters, is_list, room_for, top_k
from mcfair.random import TIES, draws
from mcfair.testing import views


class Weighted(mf.Policy):
    weight: Annotated[float, msgspec.Meta(ge=0.0, le=1.0, description="a number from 0 to 1")]
    power: int = 2
    side: Literal["left", "right"] = "left"

    def score(self, q):
        return self.weight * q.R


@pytest.fixture
def registered():
    mf.register(Weighted)
    yield Weighted
    del REGISTRY["Weighted"]


# --- specification ---------------------------------------------------------------------------------------------------


def test_parameters_are_converted_and_printed_in_full():
    assert repr(Weighted(weight=1)) == "Weighted(weight=1.0, power=2, side='left')"
    assert Weighted(weight=1) == Weighted(weight=1.0, power=2)
    assert len({Weighted(weight=1), Weighted(weight=1.0), Weighted(weight=0.5)}) == 2
    assert mf.MCFair(alpha=1000, beta=0).label == "MCFair(alpha=1000.0, beta=0.0)"
    assert mf.TopK().label == "TopK"
    assert Weighted(weight=0.5, side="right").theta.tolist() == [0.5, 2.0, 1.0]


def test_it_can_be_copied_with_changes_and_pickled():
    policy = mf.MCFair(alpha=3)
    assert dataclasses.replace(policy, beta=1) == mf.MCFair(alpha=3, beta=1)
    assert pickle.loads(pickle.dumps(policy)) == policy


def test_it_cannot_be_changed():
    with pytest.raises(AttributeError):
        mf.MCFair().alpha = 3.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Weighted(), "Weighted needs a value for weight"),
        (lambda: Weighted(weight=2), r"Weighted: weight = 2 is not allowed: expected a number from 0 to 1"),
        (lambda: Weighted(weight=float("nan")), "weight = nan is not allowed"),
        (lambda: Weighted(weight=1, power=1.5), r"power = 1.5 is not allowed: expected int"),
        (lambda: Weighted(weight=1, side="rigth"), r"unknown Weighted: side = 'rigth'; did you mean 'right'\?"),
        (lambda: mf.MCFair(alpha=-1), "MCFair: alpha = -1 is not allowed: expected a finite number of at least 0"),
        (lambda: mf.MCFair(alpha=float("inf")), "alpha = inf is not allowed"),
        (lambda: mf.MCFair(alfa=1), r"unknown parameter of MCFair 'alfa'; did you mean 'alpha'\?"),
        (lambda: mf.FairK(ties="lowest"), "available: index, random, least-exposed"),
        (lambda: mf.parse_policy("MCFiar"), r"unknown policy 'MCFiar'; did you mean 'MCFair'\? available: .*TopK"),
        (lambda: mf.parse_policy("MCFair(1.0)"), r"every parameter needs its name, as in MCFair\(alpha=1\)"),
        (lambda: mf.parse_policy("MCFair(alpha=)"), r"cannot read policy 'MCFair\(alpha=\)'"),
        (lambda: mf.parse_policy("MCFair(**x)"), "every parameter needs its name"),
        (lambda: mf.parse_policy("1 + 1"), "expected Name or Name"),
        (lambda: mf.parse_policy(""), "cannot read policy ''"),
        (lambda: mf.parse_policy("MCFair(alpha=high)"), "alpha = 'high' is not allowed"),
    ],
)
def test_wrong_ones_are_refused_with_what_is_allowed(make, message):
    with pytest.raises(PolicyError, match=message):
        make()


@given(
    alpha=st.floats(0, 1e9), beta=st.floats(0, 1e9), scale=st.sampled_from(["max", "raw", "mean"]),
    ties=st.sampled_from(["index", "random", "least-exposed"]), mc_floor=st.floats(0, 1),
)  # fmt: skip
def test_a_policy_reads_back_as_itself(alpha, beta, scale, ties, mc_floor):
    policy = mf.MCFair(alpha=alpha, beta=beta, scale=scale, ties=ties, mc_floor=mc_floor)
    assert mf.parse_policy(repr(policy)) == policy
    assert mf.parse_policy(policy.label) == policy


def test_words_need_no_quotes_and_spaces_do_not_matter():
    policy = mf.parse_policy('  MCFair( alpha = 1e3, ties=least-exposed, scale = "raw" ) ')
    assert policy == mf.MCFair(alpha=1000.0, ties="least-exposed", scale="raw")
    assert mf.parse_policy("FairCo(alpha=1000)") == mf.FairCo(alpha=1000.0)


# --- registry --------------------------------------------------------------------------------------------------------


def test_a_registered_policy_is_known_by_name(registered):
    assert mf.parse_policy("Weighted(weight=0.5)") == Weighted(weight=0.5)
    assert "Weighted" in mf.registered(mf.Policy)
    assert described_parameters(Weighted)[0] == "weight = required  (a number from 0 to 1)"
    assert mf.register(Weighted) is Weighted  # again, as a reloaded notebook does


def test_a_name_belongs_to_one_policy(registered):
    class Weighted(mf.Policy):
        def score(self, q):
            return q.E

    with pytest.raises(PolicyError, match="a policy named 'Weighted' exists already, in test_policy"):
        mf.register(Weighted)


def test_what_cannot_rank_is_not_registered():
    class Mute(mf.Policy):
        pass

    with pytest.raises(PolicyError, match="Mute cannot rank: give it a method score or rank, or a kernel"):
        mf.register(Mute)
    with pytest.raises(PolicyError, match="only subclasses of Policy can be registered"):
        mf.register(int)


def test_installed_packages_bring_policies(tmp_path, monkeypatch):
    (tmp_path / "outside.py").write_text(
        "import mcfair as mf\nclass Outside(mf.Policy):\n    def score(self, q):\n        return -q.E\n"
    )
    folder = tmp_path / "outside-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[mcfair.policies]\nOutside = outside:Outside\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    try:
        assert repr(mf.parse_policy("Outside")) == "Outside()"
    finally:
        REGISTRY.pop("Outside", None)


def test_a_method_of_a_subclass_replaces_the_kernel():
    class Backwards(mf.MCFair):
        def score(self, q):
            return -q.R

    q = next(q for q in views() if q.R.size == 12 and len(set(q.R)) > 1)
    assert Backwards.kernel is None
    assert Backwards().rank(q, draws(0, 1))[0] == np.argmin(q.R)


# --- ranking by score ------------------------------------------------------------------------------------------------


def ranked(scores, k, E, ties, rng):
    pi = np.empty(min(k, scores.size), np.int64)
    verdict = top_k(scores, E, ties, rng, *room_for(scores.size), pi)
    return verdict, pi.tolist()


@given(
    st.integers(1, 300).flatmap(lambda n: arrays(float, n, elements=st.sampled_from([-1.0, 0.0, 0.25, 1.0, 7.0]))),
    st.integers(1, 12),
    st.integers(0, 2),
    st.integers(0, 2**32 - 1),
)
def test_top_k_with_many_ties_is_the_sorted_order(scores, k, ties, visit):
    E = np.random.default_rng(visit).integers(0, 4, scores.size).astype(float)
    rng = draws(3, TIES, 1, visit)
    keys = [[0] * scores.size, [naive.uniform(3, TIES, 1, visit, d) for d in range(scores.size)], E][ties]
    assert ranked(scores, k, E, ties, rng) == (OK, naive.ranking(scores, min(k, scores.size), keys))


@given(
    st.integers(1, 200).flatmap(
        lambda n: arrays(float, n, elements=st.floats(allow_nan=False, allow_infinity=True, width=32))
    ),
    st.integers(1, 10),
)
def test_top_k_of_any_numbers(scores, k):
    E = np.zeros(scores.size)
    assert ranked(scores, k, E, 0, draws(0, TIES)) == (OK, naive.ranking(scores, min(k, scores.size), E))


@pytest.mark.parametrize("n", [1, 5, 24, 25, 100])
@pytest.mark.parametrize("ties", [0, 1, 2])
def test_a_score_that_is_no_number_is_noticed_wherever_it_stands(n, ties):
    for place in {0, n // 2, n - 1}:
        scores = np.random.default_rng(0).random(n)
        scores[place] = np.nan
        assert ranked(scores, 5, np.zeros(n), ties, draws(0, TIES))[0] == NOT_A_NUMBER


def test_what_a_list_is():
    assert is_list(np.array([2, 0, 1]), 3)
    for wrong in ([0, 0], [0, 3], [-1, 0]):
        assert not is_list(np.array(wrong), 3)
