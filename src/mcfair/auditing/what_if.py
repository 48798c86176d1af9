"""Estimates of other policies on the candidates and visits of a log, with the merit that the audit assumes.

This is an estimate. Users are taken to click with the probability of exposure times merit, and all lists are as long
as the usual one of the log. Where propensities were logged, the click rate is also estimated without these assumptions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from ..arrays import BoolArray, CountArray, FloatArray, IntArray
from ..data.dataset import Dataset
from ..errors import DataError
from ..metrics.exposure import unfairness
from ..policies.base import Policy
from ..simulation.run import Run
from ..simulation.setting import Setting
from ..state import State
from .counts import LogCounts, rank_weights, sums_at
from .measures import LogMeasures, descending, per_query, ratio, shares

__all__ = ["Estimate", "OffPolicyEstimate", "estimate_policies", "off_policy", "policy_table"]

MOST_UNSUPPORTED = 0.05
"""Share of what a policy shows that the log may lack; above it, there is no estimate."""

LOGGED = "as logged"


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


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Estimate:
    """Estimated figures of a policy on the log.

    Attributes
    ----------
    policy, label
        The policy, and its short name.
    unfairness, ndcg, clicks_per_impression
        Over all queries, as in the audit; a query with one candidate stays as it was logged.
    exposure, exposure_share, ratio : (groups,) arrays
        Exposure of each group, its share, and the share over that of merit; empty without groups.
    off_policy : OffPolicyEstimate or None
        The click rate by inverse propensity scoring, if propensities were logged.
    """

    policy: str
    label: str
    unfairness: float
    ndcg: float
    clicks_per_impression: float
    exposure: FloatArray
    exposure_share: FloatArray
    ratio: FloatArray
    off_policy: OffPolicyEstimate | None = None

    def least_served(self, names: tuple[str, ...]) -> str:
        """Return the group with the least exposure for its merit."""
        if not np.isfinite(self.ratio).any():
            return "none"
        behind = int(np.nanargmin(self.ratio))
        return f"{names[behind]} ({self.ratio[behind]:.3g})"

    def to_dict(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Return the estimate as plain data."""
        groups = zip(names, self.exposure.tolist(), self.exposure_share.tolist(), self.ratio.tolist(), strict=True)
        return {
            "policy": self.policy,
            "estimate": True,
            "unfairness": self.unfairness,
            "ndcg": self.ndcg,
            "clicks_per_impression": self.clicks_per_impression,
            "off_policy": None if self.off_policy is None else dataclasses.asdict(self.off_policy),
            "groups": [
                {"group": name, "exposure": exposure, "exposure_share": share, "ratio": against}
                for name, exposure, share, against in groups
            ],
        }


def policy_table(estimates: Sequence[Estimate], names: tuple[str, ...]) -> pl.DataFrame:
    """Return the estimates as a table, one row for each policy and group."""
    rows = []
    for each in estimates:
        found = each.to_dict(names)
        found |= {f"ips_{name}": value for name, value in (found.pop("off_policy") or {}).items()}
        groups = found.pop("groups") or [{"group": None, "exposure": None, "exposure_share": None, "ratio": None}]
        rows += [found | group for group in groups]
    return pl.DataFrame(rows, infer_schema_length=None)


def estimate_policies(figures: LogMeasures, policies: Sequence[Policy | str], seed: int) -> list[Estimate]:
    """Estimate policies on the candidates of a log, after the log itself under the same assumptions.

    Parameters
    ----------
    figures
        The figures of the log, with the exposure model and the merit.
    policies
        Policies or their texts.
    seed
        Seed of randomised policies.

    Returns
    -------
    list of Estimate

    Raises
    ------
    DataError
        If no query has two candidates.
    PolicyError
        If a policy is unknown or fails.
    """
    chosen = [Policy.of(each) for each in policies]
    counts = figures.counts
    wide = counts.sizes >= 2
    if not wide.any():
        raise DataError("policies cannot be estimated: no query of the log has two candidates")
    kept = np.repeat(wide, counts.sizes)
    R = figures.assumed.R[kept]
    offsets = np.concatenate(([0], np.cumsum(counts.sizes[wide])))
    grouped = {"providers": counts.groups[kept], "provider_names": counts.group_names} if counts.group_names else {}
    # Merit by clicks over exposure may exceed 1: policies see it as it is, and no clicks are drawn from R.
    data = Dataset(offsets=offsets, y=R > 0, R=np.minimum(R, 1.0), scores=R, name="log", **grouped)  # type: ignore[arg-type]
    visits = counts.visits[wide]
    usual = counts.patterns[0].size if counts.patterns and counts.patterns[0].size > 1 else counts.ranks
    setting = Setting(
        steps=int(visits.sum()), k=min(usual, figures.assumed.p.size), examination=tuple(figures.assumed.p)
    )
    k, assumed = figures.assumed.k, figures.assumed.p
    first = (counts.exposure(assumed[:k]), counts.slot_weights(assumed[:k])) if k else (figures.E, figures.w)
    estimates = [estimate(LOGGED, LOGGED, figures, figures.E, figures.w, first)]
    p = setting.p(int(data.sizes.max()))
    for policy in chosen:
        state = State.empty(data, p)
        visited = np.repeat(np.arange(data.queries, dtype=np.int32), visits)
        run = Run(
            data,
            np.ones(data.queries, np.bool_),
            policy,
            setting,
            seed=seed,
            state=state,
            ends=np.array([setting.steps]),
            record=False,
            visited=visited,
        )
        run.play(1, None)
        place = 1 + np.arange(data.items) - np.repeat(offsets[:-1], data.sizes)
        times = np.repeat(visits, data.sizes)
        E, w = replaced((figures.E, figures.w), kept, state.E, times * rank_weights(p, place))
        cut = (E, w)
        if k:
            cut = replaced(first, kept, state.F[:, :k] @ p[:k], times * rank_weights(p[:k], place))
        found = estimate(repr(policy), policy.label, figures, E, w, cut)
        scored = off_policy(counts, kept, state.F, times) if counts.clicked else None
        estimates.append(dataclasses.replace(found, off_policy=scored))
    return estimates


def replaced(
    logged: tuple[FloatArray, FloatArray], kept: BoolArray, E: FloatArray, w: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return exposure and places of the log, with those of a policy in the queries for which it was run."""
    both = logged[0].copy(), logged[1].copy()
    both[0][kept], both[1][kept] = E, w
    return both


def estimate(
    policy: str, label: str, figures: LogMeasures, E: FloatArray, w: FloatArray, first: tuple[FloatArray, FloatArray]
) -> Estimate:
    """Return the figures of an exposure on the candidates of a log; `w` is what its lists give at their places.

    `first` has both for the ranks that count in NDCG.
    """
    counts, R = figures.counts, figures.assumed.R
    visits, offsets = counts.visits, counts.offsets
    gain, ideal = per_query(R * first[0], offsets), per_query(R[descending(R, offsets)] * first[1], offsets)
    names = counts.group_names
    exposure = merit = np.zeros(0)
    if names:
        exposure = sums_at(counts.groups, E, len(names))
        merit = sums_at(counts.groups, R * visits[counts.item_query], len(names))
    judged = ideal > 0
    return Estimate(
        policy=policy,
        label=label,
        unfairness=unfairness(E, R, offsets, visits=visits),
        ndcg=float((visits[judged] * gain[judged] / ideal[judged]).sum() / max(visits[judged].sum(), 1)),
        clicks_per_impression=float((R * E).sum() / visits.sum()),
        exposure=exposure,
        exposure_share=shares(exposure),
        ratio=ratio(shares(exposure), shares(merit)),
    )


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
