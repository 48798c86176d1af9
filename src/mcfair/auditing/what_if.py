"""Estimates of other policies on the candidates and visits of a log, with the merit that the audit assumes.

This is an estimate. Users are taken to click with the probability of exposure times merit, and all lists are as long
as the usual one of the log. Where propensities were logged, the click rate is also estimated without these assumptions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

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

MOST_UNSUPPORTED = 0.05
"""Share of what a policy shows that the log may lack; above it, there is no estimate."""

LOGGED = "as logged"


class OffPolicyEstimate(NamedTuple):
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
    groups : DataFrame
        Exposure of each group, its share, and the ratio of the share to that of merit; empty without groups.
    off_policy : OffPolicyEstimate or None
        The click rate by inverse propensity scoring, if propensities were logged.
    """

    policy: str
    label: str
    unfairness: float
    ndcg: float
    clicks_per_impression: float
    groups: pl.DataFrame
    off_policy: OffPolicyEstimate | None = None

    def least_served(self) -> str:
        """Return the group with the least exposure for its merit."""
        behind = self.groups.drop_nans("ratio").sort("ratio", maintain_order=True).head(1).rows(named=True)
        return f"{behind[0]['group']} ({behind[0]['ratio']:.3g})" if behind else "none"

    def to_dict(self) -> dict[str, Any]:
        """Return the estimate as plain data."""
        figures = {name: getattr(self, name) for name in ("unfairness", "ndcg", "clicks_per_impression")}
        off_policy = None if self.off_policy is None else self.off_policy._asdict()
        groups = self.groups.to_dicts()
        return {"policy": self.policy, "estimate": True, **figures, "off_policy": off_policy, "groups": groups}


def policy_table(estimates: Sequence[Estimate]) -> pl.DataFrame:
    """Return the estimates as a table, one row for each policy and group."""
    rows = []
    for each in estimates:
        found = each.to_dict()
        found |= {f"ips_{name}": value for name, value in (found.pop("off_policy") or {}).items()}
        rows += [found | group for group in found.pop("groups") or [dict.fromkeys(each.groups.columns)]]
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
    place, times = 1 + np.arange(data.items) - np.repeat(offsets[:-1], data.sizes), np.repeat(visits, data.sizes)
    visited = np.repeat(np.arange(data.queries, dtype=np.int32), visits)

    def handed_out(p: FloatArray, state: State | None) -> Handed:
        E, w = counts.exposure(p), counts.slot_weights(p)
        if state is not None:  # in the queries for which a policy was run
            p = p[: state.p.size]
            E[kept], w[kept] = dataclasses.replace(state, p=p).E, times * rank_weights(p, place)
        return E, w

    def estimated(policy: str, label: str, state: State | None = None) -> Estimate:
        p = figures.assumed.p
        return estimate(policy, label, figures, handed_out(p, state), handed_out(p[: figures.assumed.k], state))

    estimates = [estimated(LOGGED, LOGGED)]
    for policy in chosen:
        state = State.empty(data, setting.p(int(data.sizes.max())))
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
        found = estimated(repr(policy), policy.label, state)
        scored = off_policy(counts, kept, state.F, times) if counts.clicked else None
        estimates.append(dataclasses.replace(found, off_policy=scored))
    return estimates


Handed = tuple[FloatArray, FloatArray]
"""The exposure of items, and what the lists handed out at each of their places."""


def estimate(policy: str, label: str, figures: LogMeasures, every: Handed, first: Handed) -> Estimate:
    """Return the figures of lists on the candidates of a log; `first` is of the ranks that count in NDCG."""
    counts, R, E = figures.counts, figures.assumed.R, every[0]
    visits, offsets, names = counts.visits, counts.offsets, counts.group_names
    gain, ideal = per_query(R * first[0], offsets), per_query(R[descending(R, offsets)] * first[1], offsets)
    exposure = merit = np.zeros(0)
    if names:
        exposure = sums_at(counts.groups, E, len(names))
        merit = sums_at(counts.groups, R * visits[counts.item_query], len(names))
    share, judged = shares(exposure), ideal > 0
    return Estimate(
        policy=policy,
        label=label,
        unfairness=unfairness(E, R, offsets, visits=visits),
        ndcg=float((visits[judged] * gain[judged] / ideal[judged]).sum() / max(visits[judged].sum(), 1)),
        clicks_per_impression=float((R * E).sum() / visits.sum()),
        groups=pl.DataFrame(
            {"group": names, "exposure": exposure, "exposure_share": share, "ratio": ratio(share, shares(merit))}
        ),
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
    if not counts.weights:
        return None
    share: FloatArray = F / np.maximum(visits, 1)[:, None]
    inside = kept[counts.cell_item] & (counts.cell_rank <= F.shape[1])
    item, rank = (np.cumsum(kept) - 1)[counts.cell_item[inside]], counts.cell_rank[inside] - 1
    pi = share[item, rank]
    logged = np.zeros(F.shape, np.bool_)
    logged[item, rank] = counts.shown[inside] > 0
    unsupported = float(F[~logged].sum() / max(F.sum(), 1))
    weight, clicks, squares = (counts.weights[name][inside] for name in ("weight", "weighted_clicks", "squared_weight"))
    rows, total = counts.shown[inside].sum(), float(pi @ weight)
    if unsupported > MOST_UNSUPPORTED or not total > 0:
        return OffPolicyEstimate(
            click_rate=np.nan, self_normalised=np.nan, effective_sample_size=0.0, unsupported=unsupported
        )
    clicked = float(pi @ clicks)
    return OffPolicyEstimate(
        click_rate=clicked / rows,
        self_normalised=clicked / total,
        effective_sample_size=total * total / float((pi * pi) @ squares),
        unsupported=unsupported,
    )
