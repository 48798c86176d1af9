"""Merit: what items deserve, which no log contains, so that its source is always stated."""

from __future__ import annotations

import numpy as np

from ..arrays import FloatArray
from ..errors import SettingError
from ..estimators.base import Estimator
from .log_counts import LogCounts

__all__ = ["UNIFORM", "merit_of", "merit_source"]

GIVEN, UNIFORM = "given", "uniform"

DEFAULT_ESTIMATOR = "IPS"

CHUNK = 4_000_000
"""Counts of items at ranks that are held at a time."""


def merit_source(counts: LogCounts, given: str | Estimator | None) -> str:
    """Return the text of the source of merit: given, uniform or an estimator.

    Parameters
    ----------
    counts
        The log.
    given
        What the user chose; by default what the log states, else the paper's estimator.

    Returns
    -------
    str

    Raises
    ------
    SettingError
        If the log states no merit but is to be used.
    PartError
        If there is no such estimator.
    """
    if given is None:
        return GIVEN if counts.relevance is not None else repr(Estimator.of(DEFAULT_ESTIMATOR))
    if given == GIVEN and counts.relevance is None:
        raise SettingError("merit = 'given' is not allowed: the log has no column relevance or grade")
    return given if isinstance(given, str) and given in (GIVEN, UNIFORM) else repr(Estimator.of(given))


def merit_of(counts: LogCounts, p: FloatArray, source: str) -> FloatArray:
    """Return the merit of each item.

    Parameters
    ----------
    counts
        The log.
    p : (ranks,) array
        Examination probability of each rank, by which an estimator corrects clicks.
    source
        As `merit_source` returns it.

    Returns
    -------
    (items,) array
    """
    if source == UNIFORM:
        return np.ones(counts.items)
    if source == GIVEN and counts.relevance is not None:
        return counts.relevance
    estimator = Estimator.of(source)
    E, C, R = counts.exposure(p), counts.C.astype(np.int32), np.empty(counts.items)
    step = max(1, CHUNK // p.size)
    for begin in range(0, counts.items, step):
        end = min(begin + step, counts.items)
        low, high = np.searchsorted(counts.cell_item, (begin, end))
        F = np.zeros((end - begin, p.size), np.int32)
        inside = counts.cell_rank[low:high] <= p.size
        np.add.at(
            F,
            (counts.cell_item[low:high][inside] - begin, counts.cell_rank[low:high][inside] - 1),
            counts.shown[low:high][inside].astype(np.int32),
        )
        R[begin:end] = estimator.estimates(C[begin:end], E[begin:end], F, p)[0]
    return R
