"""The contract notices those who break it."""

import itertools

import numpy as np
import pytest

import mcfair as mf
from mcfair.testing import check_part

counter = itertools.count()


def meddling(self, q):
    if q.E.flags.writeable:
        q.E[:] = 0
    return q.R


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ({"rank": lambda self, q, rng: np.zeros(min(q.p.size, q.R.size), int)}, "an item twice"),
        ({"rank": lambda self, q, rng: np.arange(min(q.p.size, q.R.size)) + 1}, "positions outside the query"),
        ({"rank": lambda self, q, rng: np.arange(q.R.size + 1)}, "a list of 2"),
        (
            {"rank": lambda self, q, rng: np.roll(np.arange(q.R.size), next(counter))[: q.p.size]},
            "two lists for one session",
        ),
        ({"score": meddling}, "the view was changed"),
        ({"score": lambda self, q: q.R, "terms": lambda self, q: {"relevance": q.R + 1}}, "do not add up"),
        ({"score": lambda self, q: q.R, "__hash__": lambda self: next(counter)}, "different hashes"),
    ],
)
def test_a_broken_policy_is_caught(methods, message):
    with pytest.raises(AssertionError, match=message):
        check_part(type("Broken", (mf.Policy,), methods)())


def test_a_kernel_that_differs_when_compiled_is_caught():
    @mf.kernel
    def wrapping(q, theta, rng, out):
        big = 2**62
        for d in range(out.shape[0]):
            out[d] = q.R[d] if big * 4 == 0 else q.E[d] + d  # machine integers wrap around, Python's do not

    class Wrapping(mf.Policy):
        kernel = wrapping

    with pytest.raises(AssertionError, match="compiled and interpreted scores differ"):
        check_part(Wrapping())


def test_a_good_policy_passes():
    class Good(mf.Policy):
        def score(self, q):
            return q.R - q.E

        def terms(self, q):
            return {"relevance": q.R, "exposure": -q.E}

    check_part(Good())
