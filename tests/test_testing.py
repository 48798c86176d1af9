"""The contract suite detects parts that break the contract, and accepts those that keep it."""

import itertools
import math
import types

import numpy as np
import pytest

import mcfair as mf
from mcfair.testing import check_part, views

counter = itertools.count()


def changing_the_view(self, q, rng):
    if q.E.flags.writeable:
        q.E[:] = 0
    return q.R


def listing_by_call(self, q, rng):
    return np.roll(np.arange(q.R.size), next(counter))[: q.p.size]


def changing_the_view_in_a_list(self, q, rng):
    q.E.flags.writeable and q.E.fill(0.0)
    return np.arange(min(q.p.size, q.R.size))


@pytest.mark.parametrize(
    ("methods", "error", "message"),
    [
        (
            {"rank": lambda self, q, rng: np.zeros(min(q.p.size, q.R.size), int)},
            AssertionError,
            "a list whose entries are not distinct items",
        ),
        (
            {"rank": lambda self, q, rng: np.arange(min(q.p.size, q.R.size)) + 1},
            AssertionError,
            "a list whose entries are not distinct items",
        ),
        ({"rank": lambda self, q, rng: np.arange(q.R.size + 1)}, AssertionError, "expected a list of 1 positions"),
        ({"rank": listing_by_call}, AssertionError, "two lists for one session"),
        (
            {"score": lambda self, q, rng: q.R + next(counter) * np.arange(q.R.size)},
            AssertionError,
            "two scores for one",
        ),
        (
            {"score": lambda self, q, rng: q.R, "terms": lambda self, q: {"relevance": q.R + 1}},
            AssertionError,
            "the terms do not add up to the score",
        ),
        (
            {"score": lambda self, q, rng: q.R, "__hash__": lambda self: next(counter)},
            AssertionError,
            "different hashes",
        ),
    ],
)
def test_a_broken_policy_is_detected(methods, error, message):
    with pytest.raises(error, match=message):
        check_part(type("Broken", (mf.Policy,), methods)())


@pytest.mark.parametrize("methods", [{"score": changing_the_view}, {"rank": changing_the_view_in_a_list}])
def test_a_policy_that_changes_its_view_is_detected(methods):
    with pytest.raises(AssertionError, match="the view was changed"):
        check_part(type("Broken", (mf.Policy,), methods)())


def test_a_kernel_that_changes_its_view_is_detected():
    @mf.kernel
    def resetting(q, theta, rng, out):
        for d in range(out.shape[0]):
            out[d] = q.R[d]
            q.E[d] = 0.0

    class Resetting(mf.Policy):
        kernel = resetting

    with pytest.raises(AssertionError, match="the view was changed"):
        check_part(Resetting())


def test_a_kernel_that_differs_when_compiled_is_detected():
    @mf.kernel
    def wrapping(q, theta, rng, out):
        big = 2**62
        for d in range(out.shape[0]):
            out[d] = q.R[d] if big * 4 == 0 else q.E[d] + d  # machine integers wrap around, Python's do not

    class Wrapping(mf.Policy):
        kernel = wrapping

    with pytest.raises(AssertionError, match="compiled and interpreted scores differ"):
        check_part(Wrapping())


def test_a_kernel_that_writes_other_lists_when_compiled_is_detected():
    @mf.kernel
    def wrapping(q, theta, rng, out):
        big = 2**62
        for j in range(out.shape[0]):
            out[j] = j if big * 4 == 0 else out.shape[0] - 1 - j

    class Wrapping(mf.Policy):
        kernel = wrapping
        ranks = True

    with pytest.raises(AssertionError, match="compiled and interpreted lists differ"):
        check_part(Wrapping())


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ({"clicks": lambda self, pi, truth, p, rng: np.ones(pi.size + 1, bool)}, r"clicks of shape \(2,\)"),
        ({"clicks": lambda self, pi, truth, p, rng: np.ones(pi.size)}, "clicks of type float64"),
        (
            {"clicks": lambda self, pi, truth, p, rng: np.full(pi.size, next(counter) % 2 == 0)},
            "two answers for one session",
        ),
    ],
)
def test_a_broken_click_model_is_detected(methods, message):
    with pytest.raises(AssertionError, match=message):
        check_part(type("Broken", (mf.ClickModel,), methods)())


@pytest.mark.parametrize(
    ("estimate", "message"),
    [
        (lambda self, C, E, F, p: (C / (E + 1.0), -1.0), "uncertainty of at least 0"),
        (lambda self, C, E, F, p: (float(next(counter)), 1.0), "alone .*, among others"),
    ],
)
def test_a_broken_estimator_is_detected(estimate, message):
    with pytest.raises(AssertionError, match=message):
        check_part(type("Broken", (mf.Estimator,), {"estimate": estimate})())


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda self, E, R, groups, visits: math.inf, "inf is infinite"),
        (lambda self, E, R, groups, visits: "many", "'many' is not a float"),
    ],
)
def test_a_broken_metric_is_detected(value, message):
    with pytest.raises(AssertionError, match=message):
        check_part(type("Broken", (mf.Metric,), {"value": value})())


def test_kernels_of_the_other_kinds_that_differ_when_compiled_are_detected():
    @mf.kernel
    def clicks(pi, truth, p, theta, rng, hits):
        big = 2**62
        for j in range(pi.shape[0]):
            hits[j] = big * 4 == 0

    @mf.kernel
    def estimate(C, E, F, p, theta, out):
        big = 2**62
        out[0] = 1.0 if big * 4 == 0 else 0.0
        out[1] = 0.0

    @mf.kernel
    def value(E, R, groups, visits, theta):
        big = 2**62
        return 1.0 if big * 4 == 0 else 0.0

    for base, kernel, what in (
        (mf.ClickModel, clicks, "clicks"),
        (mf.Estimator, estimate, "estimates"),
        (mf.Metric, value, "values"),
    ):
        with pytest.raises(AssertionError, match=f"compiled and interpreted {what} differ"):
            check_part(type("Wrapping", (base,), {"kernel": kernel})())


def test_a_policy_that_keeps_the_contract_passes():
    class Good(mf.Policy):
        def score(self, q, rng):
            return q.R - q.E

        def terms(self, q):
            return {"relevance": q.R, "exposure": -q.E}

    check_part(Good())


def test_a_policy_that_reads_the_prior_of_its_estimator_passes():
    """A single call and the first list of a run see the same prior strength."""

    class Certain(mf.Policy):
        estimator = mf.IPS(prior_mean=0.3, prior_strength=5)

        def score(self, q, rng):
            return np.arange(q.R.size) * (1.0 if q.prior_strength > 0.0 else -1.0)

    check_part(Certain())


def test_what_is_not_a_part_of_a_kind_is_refused():
    with pytest.raises(AssertionError, match="is not a policy, click model, estimator or metric"):
        check_part(types.new_class("Plain", (mf.Part,), {"kind": mf.Policy.kind})())


def test_views_are_those_that_a_policy_must_handle():
    sizes = {(q.R.size, q.p.size) for q in views()}
    assert any(n == 1 for n, _ in sizes)
    assert any(n < k for n, k in sizes)
    assert any(n > 100 for n, _ in sizes)
    assert any(not q.R.any() for q in views())
    assert any(q.visits == 0 for q in views())
    assert any(len(set(q.R)) == 1 for q in views())
