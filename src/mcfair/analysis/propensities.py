"""Propensities: the examination of ranks, fitted from the lists and clicks of a log."""

from __future__ import annotations

import numpy as np

from ..arrays import FloatArray
from ..errors import TraceError
from ..simulation.trace import Trace

__all__ = ["fit_examination"]

ITERATIONS = 500

TOLERANCE = 1e-10
"""Largest change of an examination probability at which the fit has converged."""


def fit_examination(log: Trace) -> tuple[float, ...]:
    """Fit the examination of ranks to the clicks of a log, relative to rank 1.

    Assumes that the click rate of item d at rank j is a product `p_j γ_d` of examination and attractiveness, the
    position-based model. Its parameters maximise the Poisson likelihood of the clicks by rank and item:
    `p_j = Σ_d C(d, j) / Σ_d F(d, j) γ_d` and `γ_d = Σ_j C(d, j) / Σ_j F(d, j) p_j` in turn. In lists of random order
    every rank has the same items, and p_j is the click rate of the rank relative to that of rank 1. In other lists it
    rests on items that were shown at several ranks. Users who read from the top violate the assumption: for them p is
    an average over the lists of the log, and other lists would have another. Trust in high ranks is taken for
    examination.

    Parameters
    ----------
    log
        A run with lists and clicks, as `simulate(record=True)` returns it, in which the items moved between ranks.

    Returns
    -------
    tuple of float
        Relative examination of the ranks 1 to k_s, never rising, the first 1: an `examination` of `Setting`. A rank
        above which nothing was ever clicked has that of the rank before it.

    Raises
    ------
    TraceError
        If lists and clicks were not recorded, or nothing was clicked.

    Examples
    --------
    >>> import mcfair as mf
    >>> data = mf.synthetic("mq2008-like")
    >>> log = mf.simulate(data, "RandomK", "online", steps=20_000, clicks="PositionBased(severity=2)", record=True)
    >>> float(abs(np.array(fit_examination(log)) - mf.examination(5, 2.0)).max().round(1))
    0.0
    """
    if log.lists is None or log.clicks is None or log.arrivals is None:
        raise TraceError("the examination of ranks is fitted from lists and clicks: simulate with record=True")
    F, C = counts_by_rank(log)
    if not C.any():
        raise TraceError("no item was clicked in this log, so the examination of ranks cannot be fitted")
    p = np.ones(F.shape[1])
    for _ in range(ITERATIONS):
        shown = F @ p
        attraction = np.divide(C.sum(axis=1), shown, out=np.zeros_like(shown), where=shown > 0)
        expected = attraction @ F
        fitted = np.divide(C.sum(axis=0), expected, out=np.zeros_like(p), where=expected > 0)
        fitted /= fitted[0] if fitted[0] > 0 else fitted.max()
        change, p = float(np.abs(fitted - p).max()), fitted
        if change < TOLERANCE:
            break
    return tuple(np.minimum.accumulate(np.minimum(p, 1.0)).tolist())  # a setting takes probabilities that never rise


def counts_by_rank(log: Trace) -> tuple[FloatArray, FloatArray]:
    """Count how often each item was shown and clicked at each rank, (items, k_s) each."""
    assert log.lists is not None
    assert log.clicks is not None
    assert log.arrivals is not None
    items, ranks = log.data.items, log.lists.shape[1]
    shown = log.lists >= 0
    first = log.data.offsets[log.arrivals][:, None]
    cell = (first + log.lists) * ranks + np.arange(ranks)
    F = np.bincount(cell[shown], minlength=items * ranks)
    C = np.bincount(cell[shown & log.clicks], minlength=items * ranks)
    return F.reshape(items, ranks).astype(np.float64), C.reshape(items, ranks).astype(np.float64)
