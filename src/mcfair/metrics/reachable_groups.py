"""Reachable exposure of groups: the point nearest to a multiple of their merit that lists can share out, exactly.

The items of some groups together can have as much exposure as the ranks from the top, one for each of these items. That
is a concave function of how many items they are, so the exposures of groups that v lists can share out, mixed in any
proportions, are the base polytope of a submodular function, as the permutahedron is for single items.
"""

from __future__ import annotations

from .._jit import kernel
from ..arrays import FloatArray, IntArray
from .reachable import CLOSE, STEPS

__all__ = ["balance_groups", "project_groups"]


@kernel
def sort_by_rate(c: float, level: float, M: FloatArray, sizes: IntArray, order: IntArray) -> None:
    """Sort groups by falling `(cM + level)/size`, from the order of a nearby level, which takes few exchanges."""
    for i in range(1, order.shape[0]):
        g, j = order[i], i
        rate = (c * M[g] + level) / sizes[g]
        while j > 0 and rate > (c * M[order[j - 1]] + level) / sizes[order[j - 1]]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = g


@kernel
def project_groups(
    c: float, M: FloatArray, sizes: IntArray, H: FloatArray, order: IntArray, ends: IntArray, E: FloatArray
) -> tuple[float, float]:
    """Write to E the exposure of groups nearest to cM that can be reached; H(k) is the exposure of the first k ranks.

    By decomposition: move all groups of a block alike until together they have the exposure of their ranks. If some of
    them then have more than the block's first ranks give, they are a block of their own before the others. For any
    level, the groups that exceed it most are those of the highest exposure per item. Returns Σ W·M/s and Σ M²/s over
    blocks of s groups, of merit M and exposure W together: while blocks stay as they are, `c |M|² - M·E` is c times the
    second less the first. `order` and `ends` are scratch of a number per group; `order` holds every group once.
    """
    begin = before = top = 0
    ends[0] = M.shape[0]
    wm = mm = 0.0
    least = -CLOSE * H[H.shape[0] - 1]
    while top >= 0:
        end = ends[top]
        size, merit, count = 0, 0.0, end - begin
        for i in range(begin, end):
            size += sizes[order[i]]
            merit += M[order[i]]
        given = H[before + size] - H[before]
        level = (given - c * merit) / count
        sort_by_rate(c, level, M, sizes, order[begin:end])
        cut, worst, items, total = begin, least, before, 0.0
        for i in range(begin, end - 1):
            items += sizes[order[i]]
            total += c * M[order[i]] + level
            slack = H[items] - H[before] - total
            if slack < worst:
                cut, worst = i + 1, slack
        if cut > begin:
            top += 1
            ends[top] = cut
        else:
            for i in range(begin, end):
                E[order[i]] = c * M[order[i]] + level
            wm += given * merit / count
            mm += merit * merit / count
            begin, before, top = end, before + size, top - 1
    return wm, mm


@kernel
def balance_groups(
    M: FloatArray, sizes: IntArray, H: FloatArray, order: IntArray, ends: IntArray, E: FloatArray
) -> float:
    """Find the c with `c |M|² = M·E(c)` for E(c) = `project_groups(c)`; write E and return c. Some M is above 0.

    Both sides are made of straight pieces and their difference rises, so the root of the right piece is exact. It is
    found by Newton's steps within bounds that close in; every third step halves them.
    """
    low, high, c = 0.0, 0.0, 0.0
    square = 0.0
    for g in range(M.shape[0]):
        high = max(high, M[g])
        square += M[g] * M[g]
    high *= H[H.shape[0] - 1] / square  # all the exposure for the greatest merit
    for step in range(STEPS):
        wm, mm = project_groups(c, M, sizes, H, order, ends, E)
        root = wm / mm
        if abs(root - c) <= CLOSE * max(root, c):
            break
        low, high = (c, high) if root > c else (low, c)
        c = root if low < root < high and step % 3 < 2 else 0.5 * (low + high)
    return c
