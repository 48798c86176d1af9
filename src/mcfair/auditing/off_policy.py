"""Off-policy estimates: the click rate of another policy from logged propensities, where the log supports it."""

from __future__ import annotations

import dataclasses

import numpy as np

from ..arrays import BoolArray, CountArray, FloatArray, IntArray
from .log_counts import LogCounts

__all__ = ["OffPolicyEstimate", "off_policy"]

MOST_UNSUPPORTED = 0.05
"""Share of what a policy shows that the log may lack; above it, there is no estimate."""


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class OffPolicyEstimate:
    """The click rate of a policy, estimated by inverse propensity scoring.

    Attributes
    ----------
    click_rate : float
        Clicks per shown item, `Σ c π/q / n`, with the policy's probability π and the logged propensity q of an item at
        a rank; nan if the policy shows too much that the log lacks.
    self_normalised : float
        The same divided by the mean of π/q, which varies less and is slightly biased.
    effective_sample_size : float
        `(Σ π/q)² / Σ (π/q)²`: the rows that count, of all that were logged.
    unsupported : float
        Share of what the policy shows that was never logged at its rank, of which the log knows nothing.
    """

    click_rate: float
    self_normalised: float
    effective_sample_size: float
    unsupported: float


def off_policy(counts: LogCounts, kept: BoolArray, F: CountArray, visits: IntArray) -> OffPolicyEstimate | None:
    """Estimate the click rate of a policy from the rows of the log, at the ranks at which these stood.

    Parameters
    ----------
    counts
        The log.
    kept : (items,) bool array
        Items for which the policy was run.
    F : (kept items, ranks) int array
        How often the policy showed each item at each rank.
    visits : (kept items,) int array
        How often it was run for the query of each item.

    Returns
    -------
    OffPolicyEstimate or None
        None for a log without propensities.
    """
    weight, clicks, squares = counts.weight, counts.weighted_clicks, counts.squared_weight
    if weight is None or clicks is None or squares is None:
        return None
    share: FloatArray = F / np.maximum(visits, 1)[:, None]
    inside = kept[counts.cell_item] & (counts.cell_rank <= F.shape[1])
    item, rank = (np.cumsum(kept) - 1)[counts.cell_item[inside]], counts.cell_rank[inside] - 1
    pi = share[item, rank]
    logged = np.zeros(F.shape, np.bool_)
    logged[item, rank] = counts.shown[inside] > 0
    unsupported = float(F[~logged].sum() / max(F.sum(), 1))
    rows, total = counts.shown[inside].sum(), float(pi @ weight[inside])
    if unsupported > MOST_UNSUPPORTED or not total > 0:
        return OffPolicyEstimate(
            click_rate=np.nan, self_normalised=np.nan, effective_sample_size=0.0, unsupported=unsupported
        )
    clicked = float(pi @ clicks[inside])
    return OffPolicyEstimate(
        click_rate=clicked / rows,
        self_normalised=clicked / total,
        effective_sample_size=total * total / float((pi * pi) @ squares[inside]),
        unsupported=unsupported,
    )
