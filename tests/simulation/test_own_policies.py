"""Policies of users: in plain Python or compiled, by score or by list, with a memory, and wrong ones."""

import numba
import numpy as np
import pytest
from same_runs import same

import mcfair as mf
from mcfair.errors import PolicyError
from mcfair.random import uniforms

MODES = ("post-processing", "online")


@pytest.fixture(scope="module")
def data():
    return mf.synthetic("mq2008-like", seed=0)


@mf.kernel
def least_seen(q, theta, rng, out):
    for d in range(out.shape[0]):
        out[d] = theta[0] * q.R[d] - q.E[d]


class Compiled(mf.Policy):
    weight: float = 2.0

    kernel = least_seen


class Plain(mf.Policy):
    weight: float = 2.0

    def score(self, q, rng):
        return self.weight * q.R - q.E


class Listed(mf.Policy):
    def rank(self, q, rng):
        return np.argsort(uniforms(rng, q.R.size))[: q.p.size]


@pytest.mark.parametrize("mode", MODES)
def test_a_policy_in_plain_python_equals_its_kernel_to_the_bit(data, mode):
    assert same(*(mf.simulate(data, each, mode, steps=2000, threads=2) for each in (Compiled(), Plain())))


def test_a_function_compiled_by_numba_is_a_kernel(data):
    class Numbas(mf.Policy):
        weight: float = 2.0

        kernel = numba.njit(least_seen.interpreted)

    assert same(*(mf.simulate(data, each, steps=500) for each in (Compiled(), Numbas())))


@pytest.mark.parametrize("mode", MODES)
def test_a_policy_may_return_lists(data, mode):
    trace = mf.simulate(data, Listed(), mode, steps=500)
    assert 0.4 < trace.ndcg[5] < 0.75


def test_a_policy_remembers_what_it_prepared(data):
    class Remembering(mf.Policy):
        fits = 4

        def prepare(self, data, state, rng):
            calls.append((state.sessions, data.scores.copy(), data.R.max(), data.y.max(), int(rng.visit)))
            return [{"query": q} for q in range(data.queries)]

        def score(self, q, rng):
            assert list(q.memory) == ["query"]
            return q.R

    calls = []
    trace = mf.simulate(data, Remembering(), "online", steps=1000)
    assert [c[0] for c in calls] == [0, 250, 500, 750]
    assert [c[4] for c in calls] == [0, 1, 2, 3]
    assert all(truth == 0 and grades == 0 for _, _, truth, grades, _ in calls)
    assert calls[0][1].max() == 0.0  # nothing is known before the first click
    assert calls[3][1].max() > 0.0
    assert same(trace, mf.simulate(data, "TopK", "online", steps=1000))
    mf.simulate(data, Remembering(), steps=100)
    assert np.array_equal(calls[-1][1], data.R)


@pytest.mark.parametrize("threads", [1, 2])
def test_figures_do_not_depend_on_when_a_policy_is_fitted(data, threads):
    class Refitted(mf.MCFair):
        fits = 7

        kernel = mf.MCFair.kernel

    options = {"steps": 1000, "checkpoints": [33, 400, 650], "threads": threads}
    refitted, once = (mf.simulate(data, each, "online", **options) for each in (Refitted(), mf.MCFair()))
    assert np.array_equal(refitted.state.F, once.state.F)
    for text, values in once.values.items():
        assert refitted.values[text] == pytest.approx(values), text
    assert {"unfairness", "ndcg@1"} <= set(once.query_values)
    for text, values in once.query_values.items():
        assert refitted.query_values[text] == pytest.approx(values, nan_ok=True), text


def test_a_kernel_sees_its_memory_as_numbers(data):
    @mf.kernel
    def remembered(q, theta, rng, out):
        for d in range(out.shape[0]):
            out[d] = q.memory[d]

    class Fixed(mf.Policy):
        kernel = remembered

        def prepare(self, data, state, rng):
            rows = np.zeros((data.queries, data.sizes.max()))
            for q in range(data.queries):
                rows[q, : data.sizes[q]] = data.scores[data.offsets[q] : data.offsets[q + 1]]
            return rows

    assert same(mf.simulate(data, Fixed(), steps=500), mf.simulate(data, "TopK", steps=500))


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ({"score": lambda self, q, rng: q.R[:-1]}, r"Wrong\(\) returned scores of shape \(\d+,\) for \d+ items"),
        (
            {"score": lambda self, q, rng: q.R * np.nan},
            r"Wrong\(\) returned a score that is not a number for query \d+",
        ),
        ({"rank": lambda self, q, rng: [0, 0, 1, 2, 3]}, "a list whose entries are not distinct items for query"),
        ({"rank": lambda self, q, rng: [0, 1, 2, 3, 999]}, "a list whose entries are not distinct items"),
        ({"rank": lambda self, q, rng: [0]}, "expected a list of 5 positions"),
        ({"rank": lambda self, q, rng: q.R[:5]}, "expected a list of 5 positions"),
        (
            {"score": lambda self, q, rng: q.R, "prepare": lambda self, d, s, r: [1]},
            "prepared 1 entries for 83 queries",
        ),
    ],
)
def test_what_is_not_a_ranking_is_refused(data, method, message):
    with pytest.raises(PolicyError, match=message):
        mf.simulate(data, type("Wrong", (mf.Policy,), method)(), steps=50)


def test_a_policy_cannot_change_what_it_sees(data):
    class Greedy(mf.Policy):
        def score(self, q, rng):
            q.E[:] = 0
            return q.R

    with pytest.raises(PolicyError, match=r"Greedy\(\) failed: ValueError: assignment destination is read-only"):
        mf.simulate(data, Greedy(), steps=10)


def test_a_kernel_that_writes_no_list_is_refused(data):
    @mf.kernel
    def broken(q, theta, rng, out):
        out[:] = 10**6

    class Broken(mf.Policy):
        kernel = broken
        ranks = True

    with pytest.raises(PolicyError, match="a list whose entries are not distinct items"):
        mf.simulate(data, Broken(), steps=10)
