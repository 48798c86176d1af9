"""What an audit assumes: how much attention each rank gets, and what items deserve."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
import scipy.sparse as sp

from ..analysis.propensities import BLOCKS, FittedExamination, RankCounts, fit_propensities, run_counts
from ..analysis.resampling import FEW_CLUSTERS
from ..arrays import FloatArray
from ..errors import DataError, SettingError
from ..estimators import IPS, Estimator
from ..options import explicit_options
from ..simulation.trace import Trace
from ..users.examination import described_examination, examination, parse_examination
from . import Reading, ReadingOptions
from .counts import LogCounts, count_log, sums_at
from .log import ClickLog
from .readers import open_log, with_catalogue

# --- the log ---------------------------------------------------------------------------------------------------------


def load_log(source: Any, items: Any = None, **options: Unpack[ReadingOptions]) -> tuple[ClickLog, LogCounts]:
    """Open a log, add the table of items, and count it here or on a cluster.

    Parameters
    ----------
    source
        The log, as for `open_log`.
    items
        A file or table with groups, merit or candidates.
    **options
        The fields of `Reading`.

    Returns
    -------
    ClickLog
        The log as it was understood.
    LogCounts
        Its counts.

    Raises
    ------
    DataError
        If the log cannot be read or used.
    SettingError
        If an option is not allowed.
    """
    how = Reading(**options)
    log = open_log(source, format=how.format, columns=how.columns, separator=how.separator)
    if items is not None:
        log = with_catalogue(log, items)
    return log, count_log(log, how.first_rank, how.missing_click, how.cluster)


# --- exposure --------------------------------------------------------------------------------------------------------

FITTED = "fitted"

ALTERNATIVES = ("log2", "rbp(0.8)", "1/rank", "equal")
"""Models under which conclusions are compared."""


@dataclasses.dataclass(frozen=True, eq=False)
class ExposureModel:
    """The examination probability of each rank, with the name of the model and its formula."""

    name: str
    formula: str
    p: FloatArray


def exposure_model(given: str | float | Sequence[float] | FloatArray, ranks: int) -> ExposureModel:
    """Return a model for so many ranks.

    Parameters
    ----------
    given
        log2 (the default of the paper), rbp or rbp(0.9), 1/rank, equal; a severity s for `(1/log2(j + 1))^s`; or the
        probabilities themselves, as numbers or as text such as 1,0.6,0.4. Ranks beyond their end have no exposure.
    ranks
        The last rank of the log.

    Returns
    -------
    ExposureModel

    Raises
    ------
    SettingError
        If the text names no model, or the probabilities rise or are not from 0 to 1.

    Examples
    --------
    >>> exposure_model("rbp(0.5)", 3).p.tolist(), exposure_model("1/rank", 2).p.tolist()
    ([1.0, 0.5, 0.25], [1.0, 0.5])
    """
    model = parse_examination(given, also=("fitted",))
    p = np.array(model) if isinstance(model, tuple) else examination(ranks, model)
    return ExposureModel(*described_examination(model), p)


def chosen_model(counts: LogCounts, given: str | float | Sequence[float] | FloatArray, seed: int) -> ExposureModel:
    """Return the exposure model that was chosen, fitted to the log if that was chosen."""
    if isinstance(given, str) and given.strip().lower() == FITTED:
        found = fit_propensities(rank_counts(counts), seed=seed)
        return ExposureModel(FITTED, f"fitted to the log by {found.method}", found.falling)
    return exposure_model(given, counts.ranks)


@explicit_options(Reading, ReadingOptions)
def fit_examination(
    log: Any,
    method: str | None = None,
    *,
    ranks: int | None = None,
    resamples: int = 200,
    seed: int = 0,
    **reading: Unpack[ReadingOptions],
) -> FittedExamination:
    """Fit the probability that users examine each rank, relative to rank 1, to a click log.

    Parameters
    ----------
    log
        The log, as for `audit`; or a run, as `simulate(record=True)` returns it.
    method
        ctr: click rates by rank, for random lists or logged propensities; harvesting: the same items at several ranks;
        em: expectation maximisation. By default ctr if propensities were logged, else harvesting.
    ranks
        The last rank to fit; by default the last one of the log.
    resamples, seed
        For the 95 % intervals.
    **reading
        How the log is read, as for `audit`: format, columns, separator, first_rank, missing_click and cluster.

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
    if isinstance(log, Trace):
        return fit_propensities(run_counts(log, ranks), method, resamples=resamples, seed=seed)
    opened, counts = load_log(log, **reading)
    if not counts.clicked:
        raise DataError(f"{opened.name}: {opened.lacking}")
    return fit_propensities(rank_counts(counts, ranks), method, resamples=resamples, seed=seed)


def rank_counts(counts: LogCounts, ranks: int | None = None) -> RankCounts:
    """Add up the counts of a log by item and rank, for the first ranks.

    Items are resampled with their queries or, if there are few queries, on their own.
    """
    k = min(ranks or counts.ranks, counts.ranks)
    inside = counts.cell_rank <= k
    code, place = np.unique(counts.cell_item[inside] * k + counts.cell_rank[inside] - 1, return_inverse=True)
    values: dict[str, Any] = {"n": counts.shown, "c": counts.clicks, **counts.weights}
    sums = {name: sums_at(place, x[inside], code.size) for name, x in values.items() if name != "squared_weight"}
    source = np.arange(counts.items) if counts.queries < FEW_CLUSTERS else counts.item_query
    blocks = min(BLOCKS, int(source.max()) + 1)
    return RankCounts(item=code // k, rank=code % k, block=(source % blocks)[code // k], blocks=blocks, ranks=k, **sums)


# --- merit -----------------------------------------------------------------------------------------------------------

GIVEN, UNIFORM = "given", "uniform"

CHUNK = 4_000_000
"""Counts of items at ranks that are held at a time."""


def merit_source(log: ClickLog, counts: LogCounts, given: str | Estimator | None) -> str | Estimator:
    """Return the source of merit: given, uniform or an estimator.

    Parameters
    ----------
    log, counts
        The log.
    given
        What the user chose; by default what the log states, else the paper's estimator.

    Returns
    -------
    str or Estimator

    Raises
    ------
    SettingError
        If the log states no merit but is to be used.
    DataError
        If an estimator is to read clicks that the log does not have.
    PartError
        If there is no such estimator.
    """
    if given == GIVEN and counts.relevance is None:
        raise SettingError("merit = 'given' is not allowed: the log has no column relevance or grade")
    if given is None and counts.relevance is not None:
        return GIVEN
    if isinstance(given, str) and given in (GIVEN, UNIFORM):
        return given
    estimator = IPS() if given is None else Estimator.of(given)
    if not counts.clicked:
        raise DataError(
            f"{log.name}: {log.lacking}; without clicks, merit must be given (relevance or grade) or uniform"
        )
    return estimator


def merit_of(counts: LogCounts, p: FloatArray, source: str | Estimator) -> FloatArray:
    """Return the merit of each item: an estimator reads the clicks, a pooled one is fitted to those of all items first.

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
    if isinstance(source, str):
        assert counts.relevance is not None
        return counts.relevance
    E, C = counts.exposure(p), counts.C.astype(np.int32)
    cells, shape = (counts.cell_item, counts.cell_rank - 1), (counts.items, max(counts.ranks, p.size))
    F = sp.csr_array((counts.shown.astype(np.int32), cells), shape=shape)[:, : p.size]
    if source.pooled:
        source = source.refit(C, E, F.toarray(), p)
    step = max(1, CHUNK // p.size)
    parts = (slice(begin, begin + step) for begin in range(0, counts.items, step))
    return np.concatenate([source.estimates(C[each], E[each], F[each].toarray(), p)[0] for each in parts])
