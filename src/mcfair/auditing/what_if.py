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

from ..arrays import FloatArray
from ..data.dataset import Dataset
from ..errors import DataError
from ..metrics.exposure import unfairness
from ..policies.base import Policy, as_policy
from ..simulation.run import Run
from ..simulation.setting import Setting
from ..state import State
from . import item_measures as items
from .group_measures import ratio, shares
from .log_counts import sums_at
from .log_measures import LogMeasures
from .off_policy import OffPolicyEstimate, off_policy

__all__ = ["Estimate", "estimate_policies", "policy_table"]

LOGGED = "as logged"


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
    chosen = [as_policy(each) for each in policies]
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
    estimates = [estimate(LOGGED, LOGGED, figures, figures.E, figures.w)]
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
        place = np.arange(data.items) - np.repeat(offsets[:-1], data.sizes)
        E, w = figures.E.copy(), figures.w.copy()
        E[kept] = state.E
        w[kept] = np.repeat(visits, data.sizes) * np.append(p, 0.0)[np.minimum(place, p.size)]
        found = estimate(repr(policy), policy.label, figures, E, w)
        scored = off_policy(counts, kept, state.F, np.repeat(visits, data.sizes))
        estimates.append(dataclasses.replace(found, off_policy=scored))
    return estimates


def estimate(policy: str, label: str, figures: LogMeasures, E: FloatArray, w: FloatArray) -> Estimate:
    """Return the figures of an exposure on the candidates of a log; `w` is what its lists give at their places."""
    counts, R = figures.counts, figures.assumed.R
    visits, offsets = counts.visits, counts.offsets
    gain = items.per_query(R * E, offsets)
    ideal = items.per_query(R[items.descending(R, offsets)] * w, offsets)
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
        clicks_per_impression=float(gain.sum() / visits.sum()),
        exposure=exposure,
        exposure_share=shares(exposure),
        ratio=ratio(shares(exposure), shares(merit)),
    )
