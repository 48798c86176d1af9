"""Reachable exposure: the point nearest to a multiple of relevance that lists can share out, exactly.

The exposures that v lists can share out, mixed in any proportions, are the permutahedron of `w = v·p`, p padded with
zeros to the query's n items. The items of some providers together can have as much exposure as the ranks from the top,
one for each of these items: a concave function of how many items they are, so the exposures of providers are the base
polytope of a submodular function, as the permutahedron is for single items.
"""

from __future__ import annotations

import numpy as np

from .._jit import kernel
from ..arrays import FloatArray, IntArray
from .exposure import dots

HUGE = 1e300
"""As good as infinite: times the least difference of two relevances it exceeds every exposure, times 0 it is 0."""

STEPS = 200
"""Most steps of a search; one step finds the root of a straight piece, and there are about as many pieces as items."""

CLOSE = 1e-13
"""Relative difference at which a search has arrived."""


@kernel
def project(c: float, R: FloatArray, w: FloatArray, pools: FloatArray, E: FloatArray) -> tuple[float, float]:
    """Write to E the point nearest to cR in the permutahedron of w, with R and w descending, in O(n).

    That is `cR - m`, where m is the descending sequence nearest to `cR - w`: pool adjacent items while they rise. In a
    pool E is `mean(w) + c (R - mean(R))`. Returns Σ mean(w)·mean(R) and Σ mean(R)² over items, means being those of the
    item's pool: while pools stay as they are, `c |R|² - R·E` is c times the second less the first.
    """
    last = -1
    for d in range(R.shape[0]):
        size, r, x = 1.0, R[d], w[d]
        while last >= 0 and c * (pools[last, 1] - r) <= pools[last, 2] - x:
            share = size / (size + pools[last, 0])
            size += pools[last, 0]
            r = pools[last, 1] + (r - pools[last, 1]) * share  # equal numbers have exactly their own value as mean
            x = pools[last, 2] + (x - pools[last, 2]) * share
            last -= 1
        last += 1
        pools[last, 0], pools[last, 1], pools[last, 2] = size, r, x
    wr = rr = 0.0
    d = 0
    for i in range(last + 1):
        size, r, x = pools[i, 0], pools[i, 1], pools[i, 2]
        wr += size * x * r
        rr += size * r * r
        for _ in range(int(size)):
            E[d] = x + c * (R[d] - r)
            d += 1
    return wr, rr


@kernel
def balance(push: float, c: float, R: FloatArray, w: FloatArray, pools: FloatArray, E: FloatArray) -> float:
    """Find the c with `c |R|² - R·E(c) = push`, beginning at any c; write E(c) = `project(c)` and return c.

    Pools only split when c grows, so the left side is convex and made of straight pieces: Newton's first step does not
    fall short of the root, the later ones come down to it, and the root of the last piece is the root, exactly.
    """
    wr, rr = project(c, R, w, pools, E)
    lower = min((wr + push) / rr, HUGE)
    c = np.inf
    while lower < c:
        c = lower
        wr, rr = project(c, R, w, pools, E)
        lower = min((wr + push) / rr, HUGE)
    return c


# --- with exposure from the past -------------------------------------------------------------------------------------


@kernel
def sort_by_need(c: float, R: FloatArray, E: FloatArray, order: IntArray) -> None:
    """Sort items by falling `cR - E`, from the order of a nearby c, which takes few exchanges."""
    for i in range(1, order.shape[0]):
        d, j = order[i], i
        while j > 0 and c * (R[d] - R[order[j - 1]]) > E[d] - E[order[j - 1]]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = d


@kernel
def project_total(
    c: float, R: FloatArray, E: FloatArray, w: FloatArray, order: IntArray, scratch: FloatArray, out: FloatArray
) -> tuple[float, float]:
    """Write the point nearest to cR among E plus the permutahedron of w; return the two sums of `project`.

    That is `project` with `w + E` in place of w, for items by falling `cR - E`. The rows of `scratch` are three for the
    pools, and one each for R, w + E and the result in that order.
    """
    n = R.shape[0]
    sort_by_need(c, R, E, order)
    r, x, nearest = scratch[3, :n], scratch[4, :n], scratch[5, :n]
    for i in range(n):
        r[i] = R[order[i]]
        x[i] = w[i] + E[order[i]]
    sums = project(c, r, x, scratch[:3].T, nearest)
    for i in range(n):
        out[order[i]] = nearest[i]
    return sums


@kernel(allocates=True)
def fairest_plan(R: FloatArray, E: FloatArray, w: FloatArray, gain: float, out: FloatArray) -> None:
    """Write the total exposure of the least unfairness (Eq. 8) that can be reached from E by sharing out w.

    The exposure shared out is worth at least `gain`, in R·E; what cannot be reached is approached. As without a past,
    the optimum is the point nearest to cR for some c. The fairest has `c |R|² = R·E`, and its worth grows with c. Both
    are rising functions of c made of straight pieces, whose roots are found exactly, within bounds that close in.
    """
    n = R.shape[0]
    order, scratch = np.arange(n), np.empty((6, n))
    er, rr = dots(E, R)
    if not rr > 0.0:
        project_total(0.0, R, E, w, order, scratch, out)
        return
    most = top = 0.0
    for j in range(n):
        most += w[j]
        top = max(top, R[j])
    low, high = er / rr, (er + most * top) / rr  # all that is shared out would be worth most at the top
    c = low
    for _ in range(STEPS):
        total, slope = project_total(c, R, E, w, order, scratch, out)
        low, high = (c, high) if c * slope < total else (low, c)
        root = total / slope
        following = root if low <= root <= high else 0.5 * (low + high)
        arrived = abs(following - c) <= CLOSE * c
        c = following
        if arrived:
            break
    project_total(c, R, E, w, order, scratch, out)
    wanted = er + gain
    if dots(out, R)[0] >= wanted * (1.0 - CLOSE):
        return
    low, high, c = c, np.inf, max(2.0 * c, 1.0)
    for _ in range(STEPS):
        total, slope = project_total(c, R, E, w, order, scratch, out)
        low, high = (low, c) if dots(out, R)[0] >= wanted * (1.0 - CLOSE) else (c, high)
        root = (wanted - total) / (rr - slope) if rr > slope else np.inf
        following = root if low < root < high else (0.5 * (low + high) if high < np.inf else 2.0 * c)
        if abs(following - c) <= CLOSE * c or not following < HUGE:
            break
        c = following


# --- of providers -----------------------------------------------------------------------------------------------------


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
