"""The guard: every list keeps a share of the DCG that the relevance estimates allow."""

import dataclasses

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from query_view import view

import mcfair as mf
from mcfair.errors import PolicyError
from mcfair.policies.selection import TIE_RULES, Guard, choose, keep_share, score_terms, top_k, top_k_scratch
from mcfair.random import POLICY, TIES, draws, uniform
from mcfair.testing import views

SHARES = [0.05, 0.5, 0.8, 0.9, 0.97, 1.0]
RELEVANCE = st.sampled_from([0.0, 0.05, 0.2, 0.45, 0.5, 0.9, 1.0])
SCORE = st.sampled_from([-3.0, -0.4, 0.0, 0.1, 0.7, 1.0, 2.5, 90.0])
QUERIES = st.integers(1, 12).flatmap(
    lambda n: st.tuples(arrays(float, n, elements=RELEVANCE), arrays(float, n, elements=SCORE))
)


def guarded(scores, R, share, k, *, ties="index", p=None, kernel=keep_share, visit=0):
    """The list, the scores and the weight of the guard after top-k by the scores."""
    n = len(R)
    pi, scores, E = np.empty(min(k, n), np.int64), np.array(scores, float), np.arange(n, dtype=float)[::-1].copy()
    scratch, rng = top_k_scratch(n), draws(3, TIES, 1, visit)
    p = naive.examination(k) if p is None else p
    top_k(scores, E, TIE_RULES[ties], rng, scratch, pi)
    kernel(scores, np.array(R, float), E, Guard(share, p), TIE_RULES[ties], rng, scratch, pi)
    return pi.tolist(), scores, float(scratch.weight[0])


def best_dcg(R, p):
    return naive.dcg(sorted(range(len(R)), key=lambda d: -R[d]), R, p)


# --- against the oracle ----------------------------------------------------------------------------------------------


@given(QUERIES, st.sampled_from(SHARES), st.integers(1, 6))
def test_the_weight_is_the_least_that_keeps_the_share(query, share, k):
    R, S = query
    p = naive.examination(k)
    pi, scores, weight = guarded(S, R, share, k)
    least = naive.least_guard_weight(S, R, p, share)
    if least is None:
        assert weight == 0
    else:
        unit = (S.max() - S.min() or 1.0) / R.max()
        assert least * (1 - 1e-12) <= weight <= max(least * 2 ** (1 / 128) * (1 + 1e-12), unit * 2**-23)
        assert weight > 0
    assert scores.tolist() == (weight * R + S).tolist()
    assert pi == naive.ranking(weight * R + S, min(k, R.size), [0] * R.size)


@given(QUERIES, st.sampled_from(SHARES), st.integers(1, 6), st.sampled_from(list(TIE_RULES)), st.integers(0, 99))
def test_every_list_keeps_the_share_and_compiled_equals_interpreted_to_the_bit(query, share, k, ties, visit):
    R, S = query
    pi, scores, weight = guarded(S, R, share, k, ties=ties, visit=visit)
    p = naive.examination(k)
    assert naive.dcg(pi, R, p) >= share * best_dcg(R, p)
    plain = guarded(S, R, share, k, ties=ties, visit=visit, kernel=keep_share.interpreted)
    assert (pi, scores.tolist(), weight) == (plain[0], plain[1].tolist(), plain[2])


@given(QUERIES, st.integers(1, 6))
def test_a_larger_share_never_gives_a_smaller_dcg(query, k):
    R, S = query
    p = naive.examination(k)
    values = [naive.dcg(guarded(S, R, share, k)[0], R, p) for share in sorted([*SHARES, 0.6, 0.7, 0.85, 0.95])]
    assert values == sorted(values)
    assert values[-1] == best_dcg(R, p)


def test_with_distinct_scores_and_estimates_of_any_size_the_share_is_kept():
    rng = np.random.default_rng(0)
    for n in (3, 24, 25, 100, 500):
        for scale in (1e-12, 1.0, 1e12):
            R, S = rng.random(n) * rng.choice([1e-9, 1.0, 3.0]), rng.normal(size=n) * scale
            for share in SHARES:
                pi, _, weight = guarded(S, R, share, 10)
                p = naive.examination(10)
                assert naive.dcg(pi, R, p) >= share * best_dcg(R, p)
                assert weight < np.inf


# --- edges -----------------------------------------------------------------------------------------------------------


def test_infinite_scores_leave_the_ranking_to_the_estimates():
    pi, scores, weight = guarded([np.inf, 0.0, 1.0], [0.0, 0.5, 1.0], 0.9, 2)
    assert (pi, scores.tolist(), weight) == ([2, 1], [0.0, 0.5, 1.0], np.inf)


def test_equal_scores_are_broken_by_the_estimates_where_the_guard_needs_it():
    assert guarded([1.0, 1.0, 1.0], [0.1, 0.2, 0.9], 0.0, 2)[0] == [0, 1]
    assert guarded([1.0, 1.0, 1.0], [0.1, 0.2, 0.9], 1.0, 2)[0] == [2, 1]


def test_without_any_estimated_relevance_the_guard_changes_nothing():
    assert guarded([1.0, 3.0, 2.0], [0.0, 0.0, 0.0], 1.0, 2)[::2] == ([1, 2], 0.0)


def test_ranks_are_weighted_by_examination():
    """An irrelevant item costs 2/3 of the DCG at the first of these ranks and 1/3 at the second."""
    p = np.array([1.0, 0.5])
    assert guarded([5.0, 0.0, 4.0], [0.0, 1.0, 1.0], 0.3, 2, p=p)[0] == [0, 2]
    assert guarded([5.0, 0.0, 4.0], [0.0, 1.0, 1.0], 0.6, 2, p=p)[0] == [2, 0]
    assert sorted(guarded([5.0, 0.0, 4.0], [0.0, 1.0, 1.0], 0.7, 2, p=p)[0]) == [1, 2]


# --- as a parameter of policies --------------------------------------------------------------------------------------


@mf.kernel
def exposed_last_score(q, theta, rng, out):
    for d in range(out.shape[0]):
        out[d] = theta[0] * uniform(rng, d) - q.E[d]


class ExposedLast(mf.Policy):
    """Rank the least exposed first, with noise."""

    noise: float = 0.5

    kernel = exposed_last_score


class PlainExposedLast(mf.Policy):
    """The same in plain Python."""

    noise: float = 0.5

    def score(self, q, rng):
        return np.array([self.noise * uniform(rng, d) - q.E[d] for d in range(q.R.size)])


WITH_SCORE = [
    mf.TopK(beta=3), mf.FairK(), mf.ExploreK(), mf.MCFair(alpha=10, ties="random"), mf.FairCo(ties="least-exposed"),
    ExposedLast(), PlainExposedLast(),
]  # fmt: skip


@pytest.mark.parametrize("policy", WITH_SCORE, ids=lambda policy: policy.name())
def test_every_policy_with_a_score_has_a_guard(policy):
    changed = 0
    for visit, q in enumerate(views()):
        k, rng = min(q.R.size, q.p.size), draws(5, POLICY, 3, visit)
        before = -1.0
        free = choose(policy, q, rng)
        off = choose(dataclasses.replace(policy, guard=0.0), q, rng)
        assert (off.pi.tolist(), off.scores.tolist(), off.weight) == (free.pi.tolist(), free.scores.tolist(), 0.0)
        for share in SHARES:
            own = dataclasses.replace(policy, guard=share)
            pi, scores, weight, _ = choose(own, q, rng)
            value = naive.dcg(pi, q.R, q.p)
            assert value >= share * best_dcg(q.R[:], q.p[:k])
            assert value >= before
            before = value
            terms = list(score_terms(own, q, weight).values())
            assert not terms or sum(terms[1:], terms[0]).tolist() == scores.tolist()
            changed += weight > 0
    assert changed > 0


def test_the_text_states_the_guard_only_if_there_is_one():
    plain = "MCFair(alpha=1.0, beta='auto', scale='max', mc_floor=0.1, ties='index', explore='mc')"
    assert repr(mf.MCFair()) == repr(mf.MCFair(guard=0)) == plain
    guarded = mf.parse_policy("MCFair(alpha=1, guard=0.9)")
    assert repr(guarded) == plain[:-1] + ", guard=0.9)"
    assert guarded == mf.parse_policy(repr(guarded)) != mf.MCFair()
    assert (guarded.label, mf.MCFair(alpha=2, guard=0.9).label) == ("MCFair(guard=0.9)", "MCFair(alpha=2.0, guard=0.9)")
    assert guarded.theta.tolist() == mf.MCFair().theta.tolist()
    assert ExposedLast(guard=0.5).theta.tolist() == [0.5]


@pytest.mark.parametrize("name", ["RandomK", "MMF", "ILP", "LP", "PLFair"])
def test_a_policy_without_a_score_refuses_a_guard(name):
    with pytest.raises(PolicyError, match=rf"^{name}: guard = 0.9 is not allowed: expected 0.0, because {name} does"):
        mf.parse_policy(f"{name}(guard=0.9)")
    assert "guard" not in repr(mf.parse_policy(f"{name}(guard=0)"))


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), "most"])
def test_a_guard_is_a_share(value):
    with pytest.raises(PolicyError, match=r"MCFair: guard = .* is not allowed: expected a number from 0 to 1"):
        mf.MCFair(guard=value)


def test_a_policy_cannot_have_a_guard_of_its_own():
    with pytest.raises(PolicyError, match="Own: a parameter cannot be called guard"):
        type(
            "Own", (mf.Policy,), {"__annotations__": {"guard": float}, "guard": 1.0, "score": lambda self, q, rng: q.R}
        )


# --- in runs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["post-processing", "online"])
def test_runs_of_compiled_and_plain_policies_keep_the_guard_alike(mode):
    data = mf.synthetic("mq2008-like", seed=2).take(range(6))
    compiled, plain = (
        mf.simulate(data, policy(guard=0.8), mode, steps=300, record=True) for policy in (ExposedLast, PlainExposedLast)
    )
    assert compiled.lists.tolist() == plain.lists.tolist()
    free = mf.simulate(data, ExposedLast(), mode, steps=300, record=True)
    assert free.lists.tolist() != compiled.lists.tolist()
    if mode == "post-processing":
        for q, pi in zip(compiled.arrivals, compiled.lists, strict=True):
            R = data.R[data.offsets[q] : data.offsets[q + 1]]
            shown = pi[pi >= 0]
            assert naive.dcg(shown, R, compiled.state.p) >= 0.8 * best_dcg(R, compiled.state.p[: shown.size])


def test_a_run_with_the_guard_off_is_the_run_without_it():
    data = mf.synthetic("mq2008-like", seed=2).take(range(6))
    off, without = (mf.simulate(data, text, "online", steps=300, record=True) for text in ("MCFair(guard=0)", "MCFair"))
    assert off.lists.tolist() == without.lists.tolist()
    assert off.values["unfairness"].tolist() == without.values["unfairness"].tolist()
    assert off.provenance["policy"] == without.provenance["policy"]


def test_the_share_is_that_of_the_view_unless_other_weights_are_given():
    q = view([0.0, 1.0, 0.9], k=2, p=[0.25, 0.25], E=[0.0, 9.0, 9.0])
    policy = mf.ExploreK(guard=0.6)
    even, falling = (choose(policy, q, draws(0, POLICY), p=p) for p in (None, np.array([1.0, 0.5])))
    assert sorted(even.pi.tolist()) == [1, 2]
    assert falling.pi.tolist() == [1, 0]
