"""Scores that draw, as Thompson sampling does: a session has the same draws in every caller."""

import os
import subprocess
import sys
from pathlib import Path

import naive
import numpy as np
import pytest
from query_view import view

import mcfair as mf
from mcfair.random import POLICY, draws, uniform
from mcfair.testing import check_part


@mf.kernel
def sampled_score(q, theta, rng, out):
    for d in range(out.shape[0]):
        spread = min(q.uncertainty[d], 4.0)
        out[d] = q.R[d] + theta[0] * spread * (2.0 * uniform(rng, d) - 1.0)


class Sampled(mf.Policy):
    """Thompson-like: relevance plus noise as wide as its uncertainty."""

    width: float = 1.0

    kernel = sampled_score


class PlainSampled(mf.Policy):
    width: float = 1.0

    def score(self, q, rng):
        noise = np.array([2.0 * uniform(rng, d) - 1.0 for d in range(q.R.size)])
        return q.R + self.width * np.minimum(q.uncertainty, 4.0) * noise


@pytest.fixture(scope="module")
def data():
    return mf.synthetic("mq2008-like", seed=0).take([3, 7, 20])


@pytest.mark.parametrize("policy", [Sampled(), PlainSampled(), Sampled(width=0.2)], ids=repr)
def test_contract(policy):
    check_part(policy)


def test_a_score_draws_from_the_slots_of_its_session():
    q = view([0.1, 0.5, 0.9], k=2, prior_strength=2.0)
    for visit in range(20):
        u = np.array([naive.uniform(6, POLICY, 4, visit, d) for d in range(3)])
        for policy in (Sampled(), PlainSampled()):
            score = policy.score(q, draws(6, POLICY, 4, visit))
            assert score.tolist() == (q.R + 0.5 * (2.0 * u - 1.0)).tolist()


def test_compiled_and_plain_runs_agree_to_the_bit(data):
    compiled, plain = (
        mf.simulate(data, each, "online", steps=400, seed=2, record=True) for each in (Sampled(), PlainSampled())
    )
    assert np.array_equal(compiled.lists, plain.lists)
    assert np.array_equal(compiled.clicks, plain.clicks)
    assert compiled.values.keys() == plain.values.keys()
    for text, values in compiled.values.items():
        assert np.array_equal(values, plain.values[text]), text


@pytest.mark.parametrize("policy", [Sampled(), PlainSampled()], ids=repr)
def test_a_call_of_the_library_returns_the_list_of_the_run(data, policy):
    """The view of every session is rebuilt from the lists and clicks before it."""
    trace = mf.simulate(data, policy, "online", steps=120, seed=2, record=True)
    p = naive.examination(5)
    F, C, visits = np.zeros((data.items, 5), np.int32), np.zeros(data.items, int), np.zeros(data.queries, int)
    for t, query in enumerate(trace.arrivals):
        items = slice(data.offsets[query], data.offsets[query + 1])
        E = np.array([naive.exposure(row, p) for row in F[items]])
        q = view(naive.estimate(C[items], E), E=E, F=F[items], p=p, visits=visits[query])
        rng = draws(2, POLICY, int(data.places[query]), int(visits[query]))
        assert policy.rank(q, rng).tolist() == trace.lists[t].tolist()
        for j, d in enumerate(trace.lists[t]):
            F[items.start + d, j] += 1
            C[items.start + d] += trace.clicks[t, j]
        visits[query] += 1


PRINT_RUN = """
import mcfair as mf
from test_drawing_scores import Sampled
data = mf.synthetic("mq2008-like", seed=0).take([3, 7, 20])
trace = mf.simulate(data, Sampled(), "online", steps=200, seed=2, record=True)
print(trace.lists.tolist(), trace.clicks.tolist(), {k: v.tolist() for k, v in trace.values.items()})
"""


def test_an_interpreted_simulator_draws_the_same():
    path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), *sys.path, str(Path(__file__).parent)])
    outputs = [
        subprocess.run(
            [sys.executable, "-c", PRINT_RUN],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"PYTHONPATH": path} | switch,
        ).stdout
        for switch in ({}, {"MCFAIR_JIT": "0"})
    ]
    assert outputs[0] == outputs[1]


def test_a_policy_with_a_random_generator_of_its_own_is_caught():
    generator = np.random.default_rng(0)

    class Own(mf.Policy):
        def score(self, q, rng):
            return q.R + generator.random(q.R.size)

    with pytest.raises(AssertionError, match=r"Own\(\) on a view of .*: two (lists|scores) for one session"):
        check_part(Own())


def test_a_policy_that_repeats_itself_only_within_a_session_is_caught():
    """Each session is repeatable here, but two runs differ."""
    generator, last = np.random.default_rng(0), [None, None]

    class Own(mf.Policy):
        def score(self, q, rng):
            session = (*map(int, rng), q.R.tobytes())
            if last[0] != session:
                last[:] = session, generator.random(q.R.size)
            return last[1]

    with pytest.raises(AssertionError, match=r"Own\(\), post-processing: lists depend on the number of threads"):
        check_part(Own())
