"""From a policy to a list: score, top-k selection, ties and validation, once for simulator, library and service."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from .._jit import INTERPRET, AnyKernel, Signature, kernel
from ..arrays import FloatArray, IntArray
from ..errors import PolicyError
from ..random import POLICY, TIES, Draws, draws, uniform
from ..state import Query

if TYPE_CHECKING:
    from .base import Policy

__all__ = ["FALLBACK", "Choice", "Ties", "TopKScratch", "choose", "top_k", "top_k_scratch"]

Ties = Literal["index", "random", "least-exposed"]
"""Order of items of equal score: lowest index first, at random, or the least exposed first."""

BY_INDEX, BY_CHANCE, BY_EXPOSURE = range(3)
TIE_RULES = {word: rule for rule, word in enumerate(get_args(Ties))}

OK, NOT_A_NUMBER, NOT_A_LIST = range(3)
"""Verdicts on what a policy returned."""

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
    groups=np.zeros(1, np.int64),
    prior_strength=0.0,
    memory=np.zeros(1),
)
EXAMPLE_DRAWS = draws(seed=0, purpose=POLICY)
SCORE = (EXAMPLE_QUERY, np.zeros(1), EXAMPLE_DRAWS, np.zeros(1))
RANK = (EXAMPLE_QUERY, np.zeros(1), EXAMPLE_DRAWS, np.zeros(1, np.int64))
SCORE_SIGNATURE, RANK_SIGNATURE = Signature(*SCORE), Signature(*RANK)


# --- top-k -----------------------------------------------------------------------------------------------------------

COLUMNS = 8  # a long score array is reduced to the maxima of so many columns; serves lists of up to so many ranks
FEW = 24  # up to so many items are sorted by counting; for more, the branches it saves cost less than it does


class TopKScratch(NamedTuple):
    """Scratch arrays of `top_k`: a shortlist of items, their scores, and the places and order of the counting sort."""

    items: IntArray
    scores: FloatArray
    places: IntArray
    order: IntArray


def top_k_scratch(n: int) -> TopKScratch:
    """Allocate scratch arrays for queries of up to n items; their content does not matter."""
    return TopKScratch(np.zeros(n + 1, np.int64), np.zeros(FEW), np.zeros(FEW, np.int64), np.zeros(FEW, np.int64))


@kernel
def top_k(
    scores: FloatArray,
    E: FloatArray,
    ties: int,
    tie_rng: Draws,
    scratch: TopKScratch,
    pi: IntArray,
) -> int:
    """Write the positions of the highest scores in order (Eq. 19); return OK or NOT_A_NUMBER.

    A branch that depends on a score is mispredicted so often that it costs more than all the arithmetic around it.
    Therefore most items are skipped, and the rest sorted, without such branches.
    """
    items, short, places, order = scratch
    n, k = scores.shape[0], pi.shape[0]
    verdict = OK
    if ties == BY_INDEX and n <= FEW:
        verdict = sort_by_counting(scores, n, places, order)
        for j in range(k):
            pi[j] = order[j]
    elif n > FEW and k <= COLUMNS:
        size = shortlist(scores, kth_column(scores, k), items)
        if ties == BY_INDEX and size <= FEW:
            for i in range(size):
                short[i] = scores[items[i]]
            verdict = sort_by_counting(short, size, places, order)
            for j in range(k):
                pi[j] = items[order[j]]
        else:
            verdict = sort_by_insertion(scores, E, ties, tie_rng, items, size, pi)
    else:
        for d in range(n):
            items[d] = d
        verdict = sort_by_insertion(scores, E, ties, tie_rng, items, n, pi)
    return verdict


@kernel
def kth_column(scores: FloatArray, k: int) -> float:
    """Return the k-th highest of the maxima of 8 columns: at least k scores reach it, and usually hardly more."""
    m0 = m1 = m2 = m3 = m4 = m5 = m6 = m7 = -np.inf
    for i in range(0, scores.shape[0] - COLUMNS + 1, COLUMNS):
        m0, m1, m2, m3 = max(m0, scores[i]), max(m1, scores[i + 1]), max(m2, scores[i + 2]), max(m3, scores[i + 3])
        m4, m5, m6, m7 = max(m4, scores[i + 4]), max(m5, scores[i + 5]), max(m6, scores[i + 6]), max(m7, scores[i + 7])
    bar = -np.inf
    for m in (m0, m1, m2, m3, m4, m5, m6, m7):
        reached = 0
        for other in (m0, m1, m2, m3, m4, m5, m6, m7):
            reached += 1 if other >= m else 0
        bar = max(bar, m if reached >= k else -np.inf)
    return bar


@kernel
def shortlist(scores: FloatArray, bar: float, items: IntArray) -> int:
    """Write the items whose score reaches a bar, or is not a number; return how many they are."""
    size = 0
    for d in range(scores.shape[0]):
        items[size] = d
        size += 0 if scores[d] < bar else 1
    return size


@kernel
def sort_by_counting(scores: FloatArray, n: int, places: IntArray, order: IntArray) -> int:
    """Sort n scores by counting, for each, those ranked before it; equal scores by lower index."""
    wrong = 0
    for a in range(n):
        s = scores[a]
        wrong += 1 if s != s else 0
        before = 0
        for b in range(a):
            ahead = 1 if scores[b] >= s else 0
            before += ahead
            places[b] += 1 - ahead
        places[a] = before
    for a in range(n):
        order[places[a]] = a
    return NOT_A_NUMBER if wrong > 0 else OK


@kernel(inline=False)
def sort_by_insertion(
    scores: FloatArray, E: FloatArray, ties: int, tie_rng: Draws, items: IntArray, size: int, pi: IntArray
) -> int:
    """Insert the items in items[:size] one by one into a list of the best k."""
    k = pi.shape[0]
    by_index = ties == BY_INDEX
    least = -np.inf
    for i in range(size):
        d = items[i]
        s = scores[d]
        if i >= k and (s < least or (by_index and s == least)):
            continue
        if s != s:
            return NOT_A_NUMBER
        j = min(i, k)
        while j > 0:
            above = scores[pi[j - 1]]
            if s < above or (s == above and (by_index or not wins_tie(d, pi[j - 1], E, ties, tie_rng))):
                break
            j -= 1
            if j < k - 1:
                pi[j + 1] = pi[j]
        if j < k:
            pi[j] = d
        least = scores[pi[min(i, k - 1)]]
    return OK


@kernel(inline=False)
def wins_tie(a: int, b: int, E: FloatArray, ties: int, tie_rng: Draws) -> bool:
    """Return whether item a, inserted after item b of equal score, is ranked before it."""
    if ties == BY_EXPOSURE:
        return bool(E[a] < E[b])
    return uniform(tie_rng, a) < uniform(tie_rng, b)


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


# --- one step --------------------------------------------------------------------------------------------------------


@kernel(driver=True)
def choose_list(
    score: Callable[..., None],
    rank: Callable[..., None],
    ranks: bool,
    ties: int,
    theta: FloatArray,
    q: Query,
    rng: Draws,
    tie_rng: Draws,
    scratch: TopKScratch,
    scores: FloatArray,
    pi: IntArray,
) -> int:
    """Write the list of one session, by the policy's score and top-k or by its own ranking; return the verdict."""
    if not ranks:
        score(q, theta, rng, scores)
        return top_k(scores, q.E, ties, tie_rng, scratch, pi)
    rank(q, theta, rng, pi)
    if pi[0] == FALLBACK:
        return FALLBACK
    return OK if is_list(pi, q.R.shape[0]) else NOT_A_LIST


@kernel
def no_score(q: Query, theta: FloatArray, rng: Draws, out: FloatArray) -> None:
    """Stand in for the score kernel of a policy that writes lists."""


@kernel
def no_rank(q: Query, theta: FloatArray, rng: Draws, out: IntArray) -> None:
    """Stand in for the rank kernel of a policy that writes scores."""


top_k.pin(np.zeros(1), np.zeros(1), BY_INDEX, EXAMPLE_DRAWS, top_k_scratch(1), np.zeros(1, np.int64))
is_list.pin(np.zeros(1, np.int64), 1)


def policy_functions(policy: Policy) -> tuple[Any, Any]:
    """Return the score and rank functions of a policy as a compiled loop takes them."""
    if policy.ranks:
        return absent(no_score), policy.compiled(*RANK)[0]
    return policy.compiled(*SCORE)[0], absent(no_rank)


@cache
def absent(kernel: AnyKernel) -> Any:
    """Return the compiled stand-in for a function that a policy does not have."""
    return kernel.compile(*(RANK if kernel is no_rank else SCORE))[0]


def policy_calls(policy: Policy) -> tuple[Any, Any]:
    """Return the score and rank functions of a policy as they are called from Python."""
    if policy.kernel is None:
        return policy.write_scores, policy.write_list
    function = policy.kernel.interpreted if INTERPRET else policy.compiled(*(RANK if policy.ranks else SCORE))[1]
    return function, function


class Choice(NamedTuple):
    """A list, as positions among the query's items, best first, and the scores behind it if the policy has any."""

    pi: IntArray
    scores: FloatArray | None


def choose(
    policy: Policy, q: Query, rng: Draws, *, theta: FloatArray | None = None, scratch: TopKScratch | None = None
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
    theta, scratch
        The policy's parameters and scratch arrays, if the caller keeps them from session to session.

    Raises
    ------
    PolicyError
        If the policy fails or returns something that is not a ranking.
    """
    n = q.R.size
    scores, pi = np.empty(n), np.empty(min(q.p.size, n), np.int64)
    tie_rng = Draws(rng.seed, FOR_TIES, rng.query, rng.visit)
    verdict = choose_list(
        *policy_calls(policy),
        policy.ranks,
        policy.tie_rule,
        policy.theta if theta is None else theta,
        q,
        rng,
        tie_rng,
        top_k_scratch(n) if scratch is None else scratch,
        scores,
        pi,
    )
    if verdict == FALLBACK:
        policy.write_solution(q, rng, pi)
    elif verdict != OK:
        raise PolicyError(f"{policy!r} returned {fault(verdict)}")
    return Choice(pi, None if policy.ranks else scores)


def fault(verdict: int) -> str:
    """Describe what is wrong with what a policy returned."""
    return "a list whose entries are not distinct items" if verdict == NOT_A_LIST else "a score that is not a number"
