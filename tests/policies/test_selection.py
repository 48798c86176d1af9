import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from query_view import view

import mcfair as mf
from mcfair.errors import PolicyError
from mcfair.policies.selection import FALLBACK, NOT_A_NUMBER, OK, choose, is_list, top_k, top_k_scratch
from mcfair.random import POLICY, TIES, draws
from mcfair.testing import views

# --- top-k -----------------------------------------------------------------------------------------------------------


def ranked(scores, k, E, ties, rng):
    pi = np.empty(min(k, scores.size), np.int64)
    verdict = top_k(scores, E, ties, rng, top_k_scratch(scores.size), pi)
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
def test_a_score_that_is_not_a_number_is_detected_at_any_position(n, ties):
    for place in {0, n // 2, n - 1}:
        scores = np.random.default_rng(0).random(n)
        scores[place] = np.nan
        assert ranked(scores, 5, np.zeros(n), ties, draws(0, TIES))[0] == NOT_A_NUMBER


def test_a_list_has_distinct_positions_within_the_query():
    assert is_list(np.array([2, 0, 1]), 3)
    for wrong in ([0, 0], [0, 3], [-1, 0]):
        assert not is_list(np.array(wrong), 3)


# --- from a policy to a list -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ties", ["index", "random", "least-exposed"])
def test_choose_returns_the_highest_scores_and_breaks_ties_by_the_rule_and_the_draws_of_the_session(ties):
    policy = mf.TopK(ties=ties)
    for visit, q in enumerate(views()):
        n = q.R.size
        pi, scores, _, _ = choose(policy, q, draws(5, POLICY, 3, visit))
        keys = {
            "index": [0] * n,
            "random": [naive.uniform(5, TIES, 3, visit, d) for d in range(n)],
            "least-exposed": q.E,
        }[ties]
        assert scores.tolist() == q.R.tolist()
        assert pi.tolist() == naive.ranking(q.R, min(n, q.p.size), keys)
        assert policy.rank(q, draws(5, POLICY, 3, visit)).tolist() == pi.tolist()


def test_choose_has_no_scores_for_a_policy_that_writes_lists():
    assert choose(mf.RandomK(), view([0.1, 0.2, 0.3], k=2), draws(0, POLICY)).scores is None


@mf.kernel
def first_or_fallback(q, theta, rng, out):
    for j in range(out.shape[0]):
        out[j] = j
    if q.visits[()] > 0:
        out[0] = -1


def test_a_session_that_the_kernel_hands_over_goes_to_solve():
    assert FALLBACK == -1

    class Reversed(mf.Policy):
        kernel = first_or_fallback
        ranks = True

        def solve(self, q, rng):
            return np.arange(q.R.size)[::-1][: q.p.size]

    q = view([0.1, 0.2, 0.3], k=2)
    assert Reversed().rank(q, draws(0, POLICY)).tolist() == [0, 1]
    assert Reversed().rank(q._replace(visits=np.array(1)), draws(0, POLICY)).tolist() == [2, 1]
    data = mf.Dataset(offsets=[0, 3], y=[0, 1, 2])
    trace = mf.simulate(data, Reversed(), steps=4, k=2, record=True)
    assert trace.lists.tolist() == [[0, 1], [2, 1], [2, 1], [2, 1]]
    assert trace.provenance["fallbacks"] == 3


@mf.kernel
def counting_fallback(q, theta, rng, out):
    q.memory[0] += 1
    out[0] = -1


def test_the_kernel_runs_once_in_a_session_that_it_hands_over():
    calls = np.zeros((1, 1))

    class Counting(mf.Policy):
        kernel = counting_fallback
        ranks = True

        def prepare(self, data, state, rng):
            return calls

        def solve(self, q, rng):
            return np.arange(q.p.size)

    Counting().rank(view([0.1, 0.2, 0.3], k=2)._replace(memory=calls[0]), draws(0, POLICY))
    assert calls[0, 0] == 1
    trace = mf.simulate(mf.Dataset(offsets=[0, 3], y=[0, 1, 2]), Counting(), steps=4, k=2)
    assert trace.provenance["fallbacks"] == 4
    assert calls[0, 0] == 1 + 4


@pytest.mark.parametrize(
    ("solve", "message"),
    [
        (None, r"the kernel of Handing\(\) handed a session over, but Handing defines no solve"),
        (lambda self, q, rng: [0, 0], "a list whose entries are not distinct items"),
        (lambda self, q, rng: [0], "expected a list of 2 positions"),
        (lambda self, q, rng: 1 / 0, r"Handing\(\) failed: ZeroDivisionError: division by zero"),
    ],
)
def test_a_wrong_solve_is_refused(solve, message):
    methods = {} if solve is None else {"solve": solve}
    policy = type("Handing", (mf.Policy,), {"kernel": first_or_fallback, "ranks": True, **methods})()
    with pytest.raises(PolicyError, match=message):
        policy.rank(view([0.1, 0.2, 0.3], k=2, visits=1), draws(0, POLICY))
    with pytest.raises(PolicyError, match=message):
        mf.simulate(mf.Dataset(offsets=[0, 3], y=[0, 1, 2]), policy, steps=4, k=2)
