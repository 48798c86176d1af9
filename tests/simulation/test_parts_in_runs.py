"""Parts of users in a run: plain and compiled forms, and mistakes in them."""

import itertools

import numpy as np
import pytest
from example_parts import BASES, PAIRS, run

import mcfair as mf
from mcfair.random import Draws
from mcfair.testing import views


@pytest.fixture(scope="module")
def data():
    return mf.synthetic("mq2008-like", seed=0).take(range(12))


@pytest.mark.parametrize("mode", ["post-processing", "online"])
def test_plain_and_compiled_parts_agree_to_the_bit_in_any_mixture(data, mode):
    reference = run(data, *(pair[0] for pair in PAIRS.values()), mode=mode, threads=2)
    figure = reference.values["peak"]
    for parts in itertools.product(*PAIRS.values()):
        trace = run(data, *parts, mode=mode)
        assert np.array_equal(trace.lists, reference.lists), parts
        assert np.array_equal(trace.clicks, reference.clicks), parts
        (text,) = set(trace.values) & {"peak", "plain_peak"}
        assert np.array_equal(trace.values[text], figure), parts
        for standard in reference.values.keys() - {"peak"}:
            assert np.array_equal(trace.values[standard], reference.values[standard]), (parts, standard)


@mf.kernel
def mistyped_score(q, theta, rng, out):
    for d in range(out.shape[0]):
        out[d] = q.Rr[d]


@mf.kernel
def mistyped_clicks(pi, truth, p, theta, rng, hits):
    for j in range(pi.shape[0]):
        hits[j] = rng.vist > 0


@mf.kernel
def mistyped_estimate(C, E, F, p, theta, out):
    out[0] = clicks / E  # noqa: F821
    out[1] = 0.0


@mf.kernel
def mistyped_value(E, R, groups, visits, theta):
    return E.summ()


@pytest.mark.parametrize(
    ("kind", "kernel", "phrases"),
    [
        (
            "policies",
            mistyped_score,
            ["policy Mistyped", "unknown attribute of Query 'Rr'", "did you mean 'R'?", *mf.Query._fields, "line"],
        ),
        (
            "clicks",
            mistyped_clicks,
            ["click model Mistyped", "unknown attribute of Draws 'vist'; did you mean 'visit'?", *Draws._fields],
        ),
        ("estimators", mistyped_estimate, ["estimator Mistyped", "NameError: name 'clicks' is not defined"]),
        (
            "metrics",
            mistyped_value,
            ["metric mistyped", "Unknown attribute 'summ' of type array", "test_parts_in_runs.py, line"],
        ),
    ],
)
def test_a_mistake_in_a_kernel_is_one_line(data, kind, kernel, phrases):
    part = type("Mistyped", (BASES[kind],), {"kernel": kernel})()
    with pytest.raises(BASES[kind].kind.error) as caught:
        run(data, part)
    message = str(caught.value)
    assert message.startswith(f"the kernel of {phrases[0]} does not compile: ")
    assert "\n" not in message
    for phrase in phrases:
        assert phrase in message


def test_a_mistake_in_a_kernel_is_one_line_for_a_single_call_too():
    policy = type("Mistyped", (mf.Policy,), {"kernel": mistyped_score})()
    with pytest.raises(mf.PolicyError, match=r"unknown attribute of Query 'Rr'; did you mean 'R'\?"):
        policy.rank(next(views()), Draws(*[np.uint64(0)] * 4))


@pytest.mark.parametrize("method", ["score", "rank", "prepare"])
def test_a_policy_that_fails_is_named(data, method):
    def failing(self, *arguments):
        raise RuntimeError("no such shelf")

    methods = {"score": lambda self, q, rng: q.R} | {method: failing}
    policy = type("Failing", (mf.Policy,), methods)()
    with pytest.raises(mf.PolicyError, match=r"^Failing\(\) failed: RuntimeError: no such shelf$") as caught:
        mf.simulate(data, policy, steps=5)
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_a_mistyped_attribute_in_a_plain_policy_names_what_a_view_has(data):
    class Mistyped(mf.Policy):
        def score(self, q, rng):
            return q.Rr

    message = (
        r"^Mistyped\(\) failed: unknown attribute of a view 'Rr'; did you mean 'R'\? available: R, uncertainty, E, F"
    )
    with pytest.raises(mf.PolicyError, match=message):
        mf.simulate(data, Mistyped(), steps=5)
