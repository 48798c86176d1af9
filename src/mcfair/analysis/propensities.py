"""Propensities: three estimators of the probability that users examine each rank, from counts by item and rank.

All are relative to rank 1, whose probability is 1: a log cannot tell a rank that is always examined from one that is
examined half of the time by users who click twice as often.
"""

from __future__ import annotations

import dataclasses
from itertools import chain
from typing import Any

import numpy as np
import polars as pl

from .._jit import kernel
from ..arrays import FloatArray, IntArray
from ..errors import DataError, SettingError, TraceError, unknown
from ..simulation.trace import Trace
from .resampling import cluster_weights, interval

METHODS = ("ctr", "harvesting", "em")

MODEL = (
    "A click requires that the user examines the rank, which depends on the rank alone, and finds the item relevant, "
    "which depends on the query and the item alone (position-based model)."
)
ASSUMPTIONS = {
    "ctr": (
        "Lists were random, or clicks are weighted by the logged propensities: the items at every rank have the same "
        "average relevance.",
    ),
    "harvesting": (
        MODEL,
        "Items moved between ranks for reasons other than their relevance, such as experiments, changes of the ranker "
        "or randomisation; each item is compared with itself at other ranks.",
    ),
    "em": (
        MODEL,
        "Items moved between ranks for reasons other than their relevance; the relevance of every item of a query is a "
        "parameter, and all are found by expectation maximisation.",
    ),
}

BLOCKS = 200
"""Blocks of queries, or of items if there are few queries, that are resampled for intervals."""

MOST_STEPS, ENOUGH = 500, 1e-6
"""Steps of expectation maximisation, and the relative change at which it stops."""


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class RankCounts:
    """Impressions and clicks of items at ranks.

    Attributes
    ----------
    item, rank : (cells,) int arrays
        The item (of a query) and the rank, from 0, of each count; the counts of an item are adjacent.
    n, c : (cells,) arrays
        Impressions and clicks.
    weight, weighted_clicks : (cells,) arrays or None
        Impressions and clicks divided by logged propensities.
    block : (cells,) int array
        The block of the item, for intervals: blocks are resampled as a whole.
    blocks, ranks
        Numbers of both.
    """

    item: IntArray
    rank: IntArray
    n: FloatArray
    c: FloatArray
    weight: FloatArray | None = None
    weighted_clicks: FloatArray | None = None
    block: IntArray
    blocks: int
    ranks: int


def run_counts(trace: Trace, ranks: int | None = None) -> RankCounts:
    """Count how often a run showed each item at each rank, and how often it was clicked there.

    Parameters
    ----------
    trace
        A run with lists and clicks, as `simulate(record=True)` returns it.
    ranks
        The last rank to count; by default the last one of its lists.

    Returns
    -------
    RankCounts

    Raises
    ------
    TraceError
        If lists and clicks were not recorded.
    """
    if trace.lists is None or trace.clicks is None or trace.arrivals is None:
        raise TraceError("the examination of ranks is fitted from lists and clicks: simulate with record=True")
    data, k = trace.data, min(ranks or trace.lists.shape[1], trace.lists.shape[1])
    lists, clicks = trace.lists[:, :k], trace.clicks[:, :k]
    shown = lists >= 0
    cell = (data.offsets[trace.arrivals][:, None] + lists) * k + np.arange(k)
    n, c = (np.bincount(cell[chosen], minlength=data.items * k) for chosen in (shown, shown & clicks))
    filled = np.flatnonzero(n)
    query = np.repeat(np.arange(data.queries), data.sizes)[filled // k]
    blocks = min(BLOCKS, data.queries)
    return RankCounts(
        item=filled // k,
        rank=filled % k,
        n=n[filled].astype(np.float64),
        c=c[filled].astype(np.float64),
        block=query % blocks,
        blocks=blocks,
        ranks=k,
    )


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class FittedExamination:
    """Examination probabilities fitted to a log.

    Attributes
    ----------
    method : str
        ctr, harvesting or em.
    p, low, high : (ranks,) arrays
        Estimates relative to rank 1, and the ends of their 95 % intervals.
    falling : (ranks,) array
        The nearest sequence that never rises, as exposure models and simulations require.
    shown, clicks : (ranks,) int arrays
        Impressions and clicks at each rank.
    assumptions : tuple of str
        What the estimates assume.

    Examples
    --------
    >>> import mcfair as mf
    >>> log = {"query": ["q"] * 4, "item": ["a", "a", "b", "b"], "rank": [1, 2] * 2, "clicked": [1, 1, 1, 0]}
    >>> import polars as pl
    >>> mf.fit_examination(pl.DataFrame(log), "ctr")
    FittedExamination(ctr: 1, 0.5)
    """

    method: str
    p: FloatArray
    low: FloatArray
    high: FloatArray
    falling: FloatArray
    shown: IntArray
    clicks: IntArray
    assumptions: tuple[str, ...]

    @property
    def text(self) -> str:
        """The probabilities as `--examination` of other commands takes them."""
        return ",".join(f"{each:.4g}" for each in self.falling)

    def __repr__(self) -> str:
        return f"FittedExamination({self.method}: {self.text.replace(',', ', ')})"

    def ranks(self) -> pl.DataFrame:
        """Return a table of the ranks, with the ends of the intervals.

        Returns
        -------
        polars.DataFrame
        """
        table = {"rank": np.arange(1, self.p.size + 1), "p": self.p, "p_low": self.low, "p_high": self.high}
        return pl.DataFrame(table | {"falling": self.falling, "shown": self.shown, "clicks": self.clicks})

    def to_dict(self) -> dict[str, Any]:
        """Return the estimates as plain data."""
        return {
            "method": self.method,
            "assumptions": list(self.assumptions),
            "examination": self.text,
            "ranks": [
                {"rank": row["rank"], "p": row["p"], "interval": [row["p_low"], row["p_high"]]}
                | {name: row[name] for name in ("falling", "shown", "clicks")}
                for row in self.ranks().to_dicts()
            ],
        }


def fit_propensities(
    counts: RankCounts, method: str | None = None, *, resamples: int = 200, seed: int = 0
) -> FittedExamination:
    """Fit the examination probability of each rank to counts.

    Parameters
    ----------
    counts
        Impressions and clicks by item and rank.
    method
        ctr: click rates by rank, weighted by logged propensities if there are any; harvesting: the same items at
        several ranks; em: expectation maximisation. By default ctr if propensities were logged, else harvesting.
    resamples, seed
        For the intervals.

    Returns
    -------
    FittedExamination

    Raises
    ------
    SettingError
        If the method is unknown.
    DataError
        If the clicks do not determine the probabilities.

    Examples
    --------
    >>> import mcfair as mf
    >>> data = mf.synthetic("mq2008-like")
    >>> log = mf.simulate(data, "RandomK", "online", steps=20_000, clicks="PositionBased(severity=2)", record=True)
    >>> found = fit_propensities(run_counts(log), "harvesting", resamples=2)
    >>> float(abs(found.p - mf.examination(5, 2.0)).max().round(1))
    0.0
    """
    chosen = method or ("harvesting" if counts.weight is None else "ctr")
    if chosen not in METHODS:
        raise SettingError(unknown("method", chosen, METHODS))
    fit = {"ctr": fit_rates, "harvesting": fit_pairs, "em": fit_model}[chosen](counts)
    rng, blocks = np.random.default_rng(seed), counts.blocks
    p = fit(np.ones(blocks))
    weights = chain.from_iterable(cluster_weights(blocks, resamples, rng))
    ends = interval(np.array([fit(each, p) for each in weights]), p, least=0.0)
    shown, clicks = (np.bincount(counts.rank, each, counts.ranks).astype(np.float64) for each in (counts.n, counts.c))
    return FittedExamination(
        method=chosen,
        p=p,
        low=ends[0],
        high=ends[1],
        falling=nearest_falling(p, shown),
        shown=shown.astype(np.int64),
        clicks=clicks.astype(np.int64),
        assumptions=ASSUMPTIONS[chosen],
    )


def nearest_falling(p: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the sequence nearest to p that never rises and begins with 1.

    Examples
    --------
    >>> nearest_falling(np.array([1.0, 0.4, 0.6, 0.3]), np.ones(4)).tolist()
    [1.0, 0.5, 0.5, 0.3]
    """
    from scipy.optimize import isotonic_regression

    falling = isotonic_regression(np.clip(p[1:], 0.0, 1.0), weights=np.maximum(weights[1:], 1e-12), increasing=False)
    return np.concatenate(([1.0], falling.x))


# --- click rates -----------------------------------------------------------------------------------------------------


def fit_rates(cells: RankCounts) -> Any:
    """Return the fit of click rates by rank, over that of rank 1."""
    k = cells.ranks
    at = cells.block * k + cells.rank
    n, c = (cells.n, cells.c) if cells.weight is None else (cells.weight, cells.weighted_clicks)
    shown, clicks = (np.bincount(at, x, cells.blocks * k).reshape(-1, k) for x in (n, c))
    if not clicks[:, 0].sum() > 0:
        raise DataError("examination cannot be fitted: there is no click at rank 1")

    def fit(weights: FloatArray, start: FloatArray | None = None) -> FloatArray:
        total = weights @ shown
        rate = np.divide(weights @ clicks, total, out=np.zeros(k), where=total > 0)
        return rate / rate[0] if rate[0] > 0 else np.full(k, np.nan)

    return fit


# --- intervention harvesting -----------------------------------------------------------------------------------------


@kernel
def fill_pairs(item: IntArray, rank: IntArray, n: FloatArray, c: FloatArray, block: IntArray, out: FloatArray) -> None:
    """Add `c_j n_k / (n_j + n_k)` of every item to the pair (j, k) of its block; the cells of an item are adjacent."""
    low = 0
    for i in range(item.shape[0] + 1):
        if i == item.shape[0] or item[i] != item[low]:
            for a in range(low, i):
                for b in range(low, i):
                    if a != b:
                        out[block[a], rank[a], rank[b]] += c[a] * n[b] / (n[a] + n[b])
            low = i


def fit_pairs(cells: RankCounts) -> Any:
    """Return the fit of items that were seen at several ranks.

    The ratio p_j/p_k is that of Mantel and Haenszel, with every item of a query as a stratum; the logarithms of all
    pairs of ranks are brought together by weighted least squares.
    """
    from scipy.sparse.csgraph import connected_components

    k = cells.ranks
    pairs = np.zeros((cells.blocks, k, k))
    fill_pairs(cells.item, cells.rank, cells.n, cells.c, cells.block, pairs)
    if not pairs.any() and k > 1:
        raise DataError("examination cannot be fitted: no item was seen, with clicks, at more than one rank")
    whole = pairs.sum(axis=0)
    part = connected_components((whole > 0) & (whole.T > 0), directed=False)[1]  # clicks on both sides connect ranks
    alone = np.flatnonzero(part != part[0])
    if alone.size:
        raise DataError(
            f"examination cannot be fitted at rank {alone[0] + 1}: no clicked item was seen there and at another rank; "
            f"fit fewer ranks with --ranks {alone[0]}"
        )

    def fit(weights: FloatArray, start: FloatArray | None = None) -> FloatArray:
        table: FloatArray = np.tensordot(weights, pairs, axes=1)
        both = (table > 0) & (table.T > 0)
        logs = np.where(both, np.log(np.where(both, table, 1.0) / np.where(both, table.T, 1.0)), 0.0)
        strength = np.where(both, table * table.T / np.where(both, table + table.T, 1.0), 0.0)
        system = np.diag(strength.sum(axis=1)) - strength
        right = (strength * logs).sum(axis=1)
        found = np.linalg.lstsq(system[1:, 1:], right[1:], rcond=None)[0]
        return np.asarray(np.exp(np.append(0.0, found)))

    return fit


# --- expectation maximisation ----------------------------------------------------------------------------------------


def fit_model(cells: RankCounts) -> Any:
    """Return the fit of the position-based model, with p = 1 at rank 1, by the most likely clicks `p_j r_d`.

    Given p and r, an item without a click was examined with probability p(1 - r)/(1 - pr), and relevant with
    r(1 - p)/(1 - pr); the next p and r are the means of these. The first r are the click rates of items.
    """
    fit_pairs(cells)  # the same ranks must be connected
    item = np.unique(cells.item, return_inverse=True)[1]

    def fit(weights: FloatArray, start: FloatArray | None = None) -> FloatArray:
        k = cells.ranks
        weight = weights[cells.block]
        n, c = cells.n * weight, cells.c * weight
        rank_n = np.maximum(np.bincount(cells.rank, n, k), 1e-300)
        item_n = np.maximum(np.bincount(item, weights=n), 1e-300)
        rate = np.bincount(cells.rank, c, k) / rank_n
        p = np.clip(rate / max(rate[0], 1e-12), 1e-3, 1.0) if start is None else np.clip(start, 1e-6, 1.0)
        exposed = np.bincount(item, weights=n * p[cells.rank])
        r = np.clip(np.bincount(item, weights=c) / np.maximum(exposed, 1e-300), 0.0, 1.0 - 1e-9)
        for _ in range(MOST_STEPS if start is None else MOST_STEPS // 10):
            before = p
            for _ in range(3):  # r follows p faster if it is updated more often
                a, b = p[cells.rank], r[item]
                missed = (n - c) / np.maximum(1.0 - a * b, 1e-12)
                r = np.minimum((np.bincount(item, weights=c + missed * b * (1.0 - a))) / item_n, 1.0 - 1e-9)
            a, b = p[cells.rank], r[item]
            missed = (n - c) / np.maximum(1.0 - a * b, 1e-12)
            p = np.bincount(cells.rank, c + missed * a * (1.0 - b), k) / rank_n
            p[0] = 1.0
            if np.max(np.abs(p - before) / np.maximum(before, 1e-12)) < ENOUGH:
                break
        return p

    return fit
