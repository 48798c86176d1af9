"""The function that fits examination probabilities to a log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .counting import count_log
from .examining import FittedExamination, fitted_examination
from .opening import open_log

__all__ = ["fit_examination"]


def fit_examination(
    log: Any,
    method: str | None = None,
    *,
    ranks: int | None = None,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    first_rank: int | None = None,
    resamples: int = 200,
    seed: int = 0,
) -> FittedExamination:
    """Fit the probability that users examine each rank, relative to rank 1, to a click log.

    Parameters
    ----------
    log, format, columns, first_rank
        The log, as for `audit`.
    method
        ctr: click rates by rank, for random lists or logged propensities; harvesting: the same items at several ranks;
        em: expectation maximisation. By default ctr if propensities were logged, else harvesting.
    ranks
        The last rank to fit; by default the last one of the log.
    resamples, seed
        For the 95 % intervals.

    Returns
    -------
    FittedExamination

    Raises
    ------
    DataError
        If the log cannot be read, or its clicks do not determine the probabilities.
    SettingError
        If the method is unknown.

    Examples
    --------
    >>> import polars as pl
    >>> rows = {"query": ["q"] * 4, "item": ["a", "a", "b", "b"], "rank": [1, 2] * 2, "clicked": [1, 1, 1, 0]}
    >>> fit_examination(pl.DataFrame(rows), "ctr").p.tolist()
    [1.0, 0.5]
    """
    counts = count_log(open_log(log, format=format, columns=columns), first_rank)
    return fitted_examination(counts, method, ranks=ranks, resamples=resamples, seed=seed)
