"""The function that audits a log: how fair its rankings are, to whom, and how far from what was possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import numpy as np
import polars as pl

from ..analysis.propensities import fit_propensities
from ..arrays import FloatArray
from ..errors import SettingError, unknown
from ..estimators.base import Estimator
from ..policies.base import Policy
from .bootstrap import bootstrap, intervals
from .exposure_models import ALTERNATIVES, ExposureModel, exposure_model
from .fitting import rank_counts
from .loading import ReadingOptions, load_log
from .log_counts import LogCounts
from .log_measures import Assumptions, LogMeasures
from .merit import merit_of, merit_source
from .over_time import unfairness_over_time
from .result import Audit

__all__ = ["audit"]

FITTED = "fitted"


def audit(
    log: Any,
    *,
    items: Any = None,
    merit: str | Estimator | None = None,
    examination: str | float | Sequence[float] | FloatArray = "log2",
    top: int = 3,
    target: Mapping[str, float] | None = None,
    policies: Sequence[Policy | str] = (),
    resamples: int = 200,
    seed: int = 0,
    **reading: Unpack[ReadingOptions],
) -> Audit:
    """Audit the rankings of a log: exposure against merit, by item and by group, and the distance to the floor.

    Parameters
    ----------
    log
        A file, a folder, the URL of a store, or a pandas, Polars or Arrow table; see `format`.
    items
        A file or table with the group of items, or with the candidates of each query and their relevance or grade.
    merit
        Merit of items: "given" (relevance or grade of the log), "uniform", or an estimator such as "IPS", which reads
        the clicks. By default what the log states, else the clicks.
    examination
        Exposure of each rank: log2, rbp(0.8), 1/rank, equal, fitted, a severity, or probabilities.
    top
        An item is selected if it is shown among so many ranks; impact ratios compare the rates of groups.
    target
        Share of attention that each group should have, for AWRF.
    policies
        Policies to estimate: what they would have shown with the same candidates.
    resamples
        Resamples for the 95 % intervals.
    seed
        Seed of the resamples.
    **reading
        How the log is read. `format` is flat, lists, ubi, metarank, open-bandit, store or simulation; by default it is
        guessed from the content. `columns` has columns by role, such as {"query": "q_text"}, where they do not have
        their usual names. `first_rank` is the number of the first rank, 0 or 1; by default it is 1, and a log with a
        rank of 0 is refused. `cluster` is the address of a Dask scheduler whose workers read and count the log, for a
        table in files that all of them can read.

    Returns
    -------
    Audit

    Raises
    ------
    DataError
        If the log cannot be read or used.
    SettingError, PartError
        If an option is not allowed.

    Examples
    --------
    >>> found = audit(
    ...     pl.DataFrame({"query": ["q"] * 2, "item": ["a", "b"], "rank": [1, 2], "clicked": [1, 0]}), merit="uniform"
    ... )
    >>> found.figures.E.round(3).tolist()
    [1.0, 0.631]
    """
    for name, value, least in (("top", top, 1), ("resamples", resamples, 1), ("seed", seed, 0)):
        if value < least:
            raise SettingError(f"{name} = {value} is not allowed: expected a whole number of at least {least}")
    opened, counts = load_log(log, items, **reading)
    source = merit_source(counts, merit)
    model = chosen_model(counts, examination, seed)
    aims = checked_target(target, counts.group_names)

    def measured(other: LogCounts, p: FloatArray) -> LogMeasures:
        assumed = Assumptions(p=p, R=merit_of(other, p, source), top=top, target=aims)
        return LogMeasures.of(other, assumed)

    figures = measured(counts, model.p)
    drawn, resampled = bootstrap(figures, lambda other: measured(other, model.p), resamples, seed)
    values = figures.summary()
    others = [exposure_model(each, counts.ranks) for each in ALTERNATIVES if each != model.name]
    compared = [(model, figures), *((each, measured(counts, each.p)) for each in others)]
    estimates = []
    if policies:
        from .what_if import estimate_policies

        estimates = estimate_policies(figures, policies, seed)
    return Audit(
        name=opened.name,
        format=opened.format,
        notes=opened.notes,
        files=opened.files,
        counts=counts,
        model=model,
        merit=source,
        figures=figures,
        values=values,
        intervals=intervals(drawn, values),
        resampled=resampled,
        resamples=resamples,
        sensitivity=sensitivity_table(compared, counts),
        over_time=unfairness_over_time(figures),
        policies=estimates,
    )


def chosen_model(counts: LogCounts, given: str | float | Sequence[float] | FloatArray, seed: int) -> ExposureModel:
    """Return the exposure model that was chosen, fitted to the log if that was chosen."""
    if isinstance(given, str) and given.strip().lower() == FITTED:
        found = fit_propensities(rank_counts(counts), seed=seed)
        return ExposureModel(FITTED, f"fitted to the log by {found.method}", found.falling)
    return exposure_model(given, counts.ranks)


def checked_target(target: Mapping[str, float] | None, groups: tuple[str, ...]) -> FloatArray | None:
    """Validate shares by group; scale them to sum to 1."""
    if not target:
        return None
    for name, share in target.items():
        if name not in groups:
            raise SettingError(unknown("group", name, groups[:40]))
        if not 0 <= share < np.inf:
            raise SettingError(f"target of {name!r} = {share} is not allowed: expected a share of at least 0")
    shares = np.array([float(target.get(name, 0.0)) for name in groups])
    if not shares.sum() > 0:
        raise SettingError("target is not allowed: expected a share above 0 for at least one group")
    return np.asarray(shares / shares.sum())


def sensitivity_table(compared: Sequence[tuple[ExposureModel, LogMeasures]], counts: LogCounts) -> pl.DataFrame:
    """Return the main figures under each exposure model, the chosen one first."""
    rows = []
    summaries = [figures.summary() for _, figures in compared]
    several = bool(counts.group_names) and all(np.isfinite(each.groups["ratio"]).sum() > 1 for each in summaries)
    for (model, _), found in zip(compared, summaries, strict=True):
        row: dict[str, Any] = {"exposure_model": model.name, "formula": model.formula}
        for name in ("unfairness", "floor", "distance", "relative_unfairness", "disparate_treatment", "ndcg"):
            if name in found.measures:
                row[name] = float(found.measures[name])
        if several:  # one group alone, or none, is not served least
            behind = np.argsort(np.nan_to_num(found.groups["ratio"], nan=np.inf), kind="stable")[0]
            row |= {"least_served": counts.group_names[behind], "its_ratio": float(found.groups["ratio"][behind])}
        rows.append(row)
    return pl.DataFrame(rows)
