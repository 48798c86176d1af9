"""From a policy to a list: score, group term, top-k, guard and validation, once for simulator, library and service."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._jit import INTERPRET, Signature, kernel
from ..arrays import FloatArray, IntArray
from ..errors import PolicyError
from ..random import POLICY, TIES, Draws, draws, uniform
from ..state import Query
from .fairness import GroupTerm, add_group_term, group_term, group_term_of
from .guard import Guard, keep_share
from .ordering import BY_CHANCE, BY_INDEX, OK, TopKScratch, top_k, top_k_scratch

if TYPE_CHECKING:
    from .base import Policy

__all__ = ["FALLBACK", "Choice", "choose", "guard_of", "order_by", "policy_call", "policy_function", "score_terms"]

NOT_A_LIST = 2
"""Verdict on what a policy returned, besides those on scores."""

FOR_TIES = np.uint64(TIES)

FALLBACK = -1
"""First entry of a list by which a kernel leaves the session to its policy's `solve`; also the verdict."""

# Whatever the policy, a kernel is compiled for one signature, (q, theta, rng, out), so that the loop is compiled once.
EXAMPLE_QUERY = Query(
    R=np.zeros(1),
    uncertainty=np.zeros(1),
    E=np.zeros(1),
    F=np.zeros((1, 1), np.int32),
    p=np.zeros(1),
    visits=np.zeros((), np.int64),
    providers=np.zeros(1, np.int64),
    prior_strength=0.0,
    posterior=np.zeros((1, 1, 3)),
    memory=np.zeros(1),
)
EXAMPLE_DRAWS = draws(seed=0, purpose=POLICY)
SCORE = (EXAMPLE_QUERY, np.zeros(1), EXAMPLE_DRAWS, np.zeros(1))
RANK = (EXAMPLE_QUERY, np.zeros(1), EXAMPLE_DRAWS, np.zeros(1, np.int64))
SCORE_SIGNATURE, RANK_SIGNATURE = Signature(*SCORE), Signature(*RANK)


@kernel
def is_list(pi: IntArray, n: int) -> bool:
    """Return whether the entries of pi are distinct positions below n."""
    for j in range(pi.shape[0]):
        if pi[j] < 0 or pi[j] >= n:
            return False
        for i in range(j):
            if pi[i] == pi[j]:
                return False
    return True


@kernel(driver=True)
def list_by_score(
    score: Callable[..., None],
    group: GroupTerm | None,
    guard: Guard | None,
    ties: int,
    theta: FloatArray,
    q: Query,
    rng: Draws,
    tie_rng: Draws,
    scratch: TopKScratch,
    scores: FloatArray,
    pi: IntArray,
) -> int:
    """Write the list of one session by a policy's score, group term, top-k and guard; return the verdict.

    Whether there are a group term and a guard is known when a loop is compiled: it has no trace of what is None.
    """
    score(q, theta, rng, scores)
    if group is not None:
        sums = scratch.group_exposure, scratch.group_merit
        add_group_term(q.E, q.R, q.providers, q.visits[()], group, sums[0], sums[1], scores)
    verdict = top_k(scores, q.E, ties, tie_rng, scratch, pi)
    if guard is None:
        return verdict
    if verdict == OK:
        keep_share(scores, q.R, q.E, guard, ties, tie_rng, scratch, pi)
    return verdict


@kernel(driver=True)
def list_by_rank(rank: Callable[..., None], theta: FloatArray, q: Query, rng: Draws, pi: IntArray) -> int:
    """Write the list of one session by a policy's own ranking; return the verdict."""
    rank(q, theta, rng, pi)
    if pi[0] == FALLBACK:
        return FALLBACK
    return OK if is_list(pi, q.R.shape[0]) else NOT_A_LIST


is_list.pin(np.zeros(1, np.int64), 1)


def policy_function(policy: Policy) -> Any:
    """Return the kernel of a policy as a compiled loop takes it."""
    return policy.compiled(*(RANK if policy.ranks else SCORE))[0]


def policy_call(policy: Policy) -> Callable[..., None]:
    """Return the function of a policy that writes scores, or a list, as it is called from Python."""
    if policy.kernel is None:
        return policy.write_list if policy.ranks else policy.write_scores
    return policy.kernel.interpreted if INTERPRET else policy.compiled(*(RANK if policy.ranks else SCORE))[1]


def guard_of(policy: Policy, p: FloatArray) -> Guard | None:
    """Return the guard of a policy, given the weights of the ranks in the DCG; None if it is off."""
    return Guard(policy.guard, p) if policy.guard > 0.0 else None


class Choice(NamedTuple):
    """A list, as positions among the query's items, best first; the scores behind it; the weight λ of the guard.

    Scores are None if the policy has none, and λR + S if the guard changed the list; λ is 0 if it did not. The gap is
    that of the list's `Solution`, 0 if the policy needed none.
    """

    pi: IntArray
    scores: FloatArray | None
    weight: float
    gap: float = 0.0


def choose(
    policy: Policy,
    q: Query,
    rng: Draws,
    *,
    p: FloatArray | None = None,
    theta: FloatArray | None = None,
    scratch: TopKScratch | None = None,
    call: Callable[..., None] | None = None,
) -> Choice:
    """Return the list that a policy shows in one session: min(k_s, n) distinct positions.

    Parameters
    ----------
    policy
        The policy.
    q
        The view it ranks from.
    rng
        Draws of this session for the policy; draws for ties follow from them.
    p : (k_s,) float array
        The weights of the ranks in the DCG of the guard, if they are not those of the view.
    theta, scratch
        The policy's parameters and scratch arrays, if the caller keeps them from session to session.
    call
        Writes scores or the list in place of the policy's own function.

    Raises
    ------
    PolicyError
        If the policy fails or returns something that is not a ranking.
    """
    n = q.R.size
    scores, pi = np.empty(n), np.empty(min(q.p.size, n), np.int64)
    tie_rng = Draws(rng.seed, FOR_TIES, rng.query, rng.visit)
    scratch = top_k_scratch(n) if scratch is None else scratch
    theta = policy.theta if theta is None else theta
    call = policy_call(policy) if call is None else call
    if policy.ranks:
        verdict = list_by_rank(call, theta, q, rng, pi)
    else:
        group, guard = group_term_of(policy), guard_of(policy, q.p if p is None else p)
        ties = policy.tie_rule
        verdict = list_by_score(call, group, guard, ties, theta, q, rng, tie_rng, scratch, scores, pi)
    gap = 0.0
    if verdict == FALLBACK:
        gap = policy.write_solution(q, rng, pi)
    elif verdict != OK:
        raise PolicyError(f"{policy!r} returned {fault(verdict)}")
    return Choice(pi, None if policy.ranks else scores, float(scratch.weight[0]) if policy.guard > 0.0 else 0.0, gap)


def order_by(policy: Policy, scores: FloatArray, E: FloatArray, rng: Draws) -> IntArray:
    """Return all positions in the order of some scores, by the policy's rule for equal ones.

    Its beginning is what `top_k` writes, which is slow for long lists.
    """
    if policy.tie_rule == BY_INDEX:
        return np.argsort(-scores, kind="stable")
    tie_rng = Draws(rng.seed, FOR_TIES, rng.query, rng.visit)
    chance = policy.tie_rule == BY_CHANCE
    keys = np.array([uniform(tie_rng, d) for d in range(scores.size)]) if chance else E
    return np.lexsort((keys, -scores))


def score_terms(policy: Policy, q: Query, weight: float) -> dict[str, FloatArray]:
    """Return the terms that sum to the scores of a choice: those of the policy, that of groups, and λR of the guard.

    If λ is infinite the score is R, which is the term of the guard, and the other terms are 0.
    """
    terms = policy.terms(q)
    if terms and policy.alpha_group > 0.0 and "group" not in terms:  # the terms of a policy of one's own
        terms = terms | {"group": group_term(policy, q)}
    if not terms or weight == 0.0:
        return terms
    if weight == np.inf:
        return {name: np.zeros(q.R.size) for name in terms} | {"guard": q.R}
    return terms | {"guard": weight * q.R}


def fault(verdict: int) -> str:
    """Describe what is wrong with what a policy returned."""
    return "a list whose entries are not distinct items" if verdict == NOT_A_LIST else "a score that is not a number"
