"""Top-k: the positions of the highest scores in order, with rules for ties."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np

from .._jit import kernel
from ..arrays import FloatArray, IntArray
from ..random import TIES, Draws, draws, uniform

__all__ = ["Ties", "TopKScratch", "top_k", "top_k_scratch"]

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
