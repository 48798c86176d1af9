"""From scores to a list, once for simulator, library and service: top-k with rules for ties, guard, and validation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from .._jit import INTERPRET, Signature, kernel
from ..arrays import FloatArray, IntArray
from ..errors import PolicyError
from ..random import POLICY, TIES, Draws, draws, uniform
from ..state import Query
from .terms import GroupTerm, add_group_term, group_term, group_term_of

if TYPE_CHECKING:
    from .base import Policy


# --- top-k ------------------------------------------------------------------------------------------------------------


Ties = Literal["index", "random", "least-exposed"]
"""Order of items of equal score: lowest index first, at random, or the least exposed first."""

BY_INDEX, BY_CHANCE, BY_EXPOSURE = range(3)
TIE_RULES = {word: rule for rule, word in enumerate(get_args(Ties))}

OK, NOT_A_NUMBER = range(2)
"""Verdicts on scores."""

COLUMNS = 8  # a long score array is reduced to the maxima of so many columns; serves lists of up to so many ranks
FEW = 24  # up to so many items are sorted by counting; for more, the branches it saves cost less than it does


class TopKScratch(NamedTuple):
    """Scratch arrays of `top_k`: a shortlist of items, their scores, and the places and order of the counting sort.

    Those of the guard: the scores λR + S, the list of the highest R, and λ itself, which the caller reads. Those of the
    group term: the exposure and the merit of each group.
    """

    items: IntArray
    scores: FloatArray
    places: IntArray
    order: IntArray
    guarded: FloatArray
    best: IntArray
    weight: FloatArray
    group_exposure: FloatArray
    group_merit: FloatArray


def top_k_scratch(n: int) -> TopKScratch:
    """Allocate scratch arrays for queries of up to n items; their content does not matter."""
    return TopKScratch(
        items=np.zeros(n + 1, np.int64),
        scores=np.zeros(FEW),
        places=np.zeros(FEW, np.int64),
        order=np.zeros(FEW, np.int64),
        guarded=np.zeros(n),
        best=np.zeros(n, np.int64),
        weight=np.zeros(1),
        group_exposure=np.zeros(n),
        group_merit=np.zeros(n),
    )


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
    items, short, places, order = scratch.items, scratch.scores, scratch.places, scratch.order
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


top_k.pin(np.zeros(1), np.zeros(1), BY_INDEX, draws(seed=0, purpose=TIES), top_k_scratch(1), np.zeros(1, np.int64))


# --- the guard: every list keeps at least a share of the DCG that the relevance estimates allow -----------------------


LEAST_WEIGHT, MOST_WEIGHT = 2.0**-24, 2.0**40  # of R, relative to the range of the scores
HALVINGS = 13  # 64 octaves of weights are halved to 1/128 octave: the least weight is found within 0.6 %


class Guard(NamedTuple):
    """The least share of the highest possible DCG that a list must keep, and the weight of each rank in the DCG."""

    share: float
    p: FloatArray


@kernel
def dcg(pi: IntArray, R: FloatArray, p: FloatArray) -> float:
    """Return Σ_j p_j R(π_j)."""
    total = 0.0
    for j in range(pi.shape[0]):
        total += p[j] * R[pi[j]]
    return total


@kernel(inline=False)
def keep_share(
    scores: FloatArray,
    R: FloatArray,
    E: FloatArray,
    guard: Guard,
    ties: int,
    tie_rng: Draws,
    scratch: TopKScratch,
    pi: IntArray,
) -> None:
    """Rewrite the list and the scores S if the list has less than a share of the DCG of the ranking by R.

    The scores become λR + S with the least λ whose list has the share. DCG grows with λ (the list maximises
    Σ p (λR + S)), so λ is found by bisection on a logarithmic scale. The points it may visit do not depend on the
    share, so a larger share never gets a smaller λ. Where no weight is large enough (infinite scores, differences of R
    near the precision), the list is the ranking by R: λ is infinite and the scores are R. `scratch.weight` holds λ.
    """
    best = scratch.best[: pi.shape[0]]
    scratch.weight[0] = 0.0
    top_k(R, E, ties, tie_rng, scratch, best)
    least = guard.share * dcg(best, R, guard.p)
    if dcg(pi, R, guard.p) >= least or not least > 0.0:
        return
    n, guarded = scores.shape[0], scratch.guarded[: scores.shape[0]]
    lowest, highest = scores[0], scores[0]
    for d in range(1, n):
        lowest, highest = min(lowest, scores[d]), max(highest, scores[d])
    unit = (highest - lowest if highest > lowest else 1.0) / R[best[0]]
    low, high = LEAST_WEIGHT * unit, MOST_WEIGHT * unit
    if high < np.inf:
        guarded_list(scores, R, E, high, ties, tie_rng, scratch, pi)
    if not high < np.inf or dcg(pi, R, guard.p) < least:
        scratch.weight[0] = np.inf
        for j in range(pi.shape[0]):
            pi[j] = best[j]
        for d in range(n):
            scores[d] = R[d]
        return
    for _ in range(HALVINGS):
        middle = np.sqrt(low) * np.sqrt(high)
        guarded_list(scores, R, E, middle, ties, tie_rng, scratch, pi)
        if dcg(pi, R, guard.p) >= least:
            high = middle
        else:
            low = middle
    guarded_list(scores, R, E, high, ties, tie_rng, scratch, pi)
    scratch.weight[0] = high
    for d in range(n):
        scores[d] = guarded[d]


@kernel(inline=False)
def guarded_list(
    scores: FloatArray,
    R: FloatArray,
    E: FloatArray,
    weight: float,
    ties: int,
    tie_rng: Draws,
    scratch: TopKScratch,
    pi: IntArray,
) -> None:
    """Write the scores λR + S to `scratch.guarded`, and the list of the highest."""
    guarded = scratch.guarded[: scores.shape[0]]
    for d in range(scores.shape[0]):
        guarded[d] = weight * R[d] + scores[d]
    top_k(guarded, E, ties, tie_rng, scratch, pi)


keep_share.pin(
    np.zeros(1),
    np.zeros(1),
    np.zeros(1),
    Guard(0.0, np.zeros(1)),
    BY_INDEX,
    draws(seed=0, purpose=TIES),
    top_k_scratch(1),
    np.zeros(1, np.int64),
)


# --- from a policy to a list ------------------------------------------------------------------------------------------


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
