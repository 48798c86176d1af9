"""Results of an experiment from the totals of its arms, and the test by which its guard stops an arm.

Sessions are assigned to arms and to buckets of an arm at random, so the buckets of an arm are independent samples of
it, whatever the lists of one session have in common. Means are ratios of totals, and their spread is that between
buckets.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...analysis.resampling import interval, ratio_of_sums
from ...analysis.significance import fisher
from ...arrays import FloatArray
from ...errors import NotFoundError
from ..stores import Store, StoredArm
from ..wire import CONTROL, ArmGuard, ArmReport, ExperimentReport, MeasuredDifference, OnlineExperiment
from .comparison import measured
from .experiments import BUCKETS, UNIT
from .reports import to_datetime
from .repository import LedgerRepository
from .rules import Version

MEASURES = ("clicks_per_list", "ndcg", "unfairness")
"""The means that arms are compared by, in the order of the totals after the number of lists."""

LEAST_LISTS, LEAST_CLICKS = 500, 50
"""Lists of an arm and of the control below which the guard does not judge: means are not yet normally distributed. For
clicks, the number that the arm should have by the rate of the control."""

EFFECTS = {"unfairness": 0.05, "clicks": 0.1}
"""Excess over the margin that the guard is most sensitive to: of unfairness, and relative to the control's clicks."""

RESAMPLES = 10_000


def bucket_totals(rows: list[StoredArm], arms: int) -> FloatArray:
    """Return totals as an array, shape (arms, buckets, 4): lists, clicks, NDCG and unfairness."""
    found = np.zeros((arms, BUCKETS, 4))
    for arm, bucket, totals in rows:
        if arm < arms and bucket < BUCKETS:
            found[arm, bucket] = totals
    found[:, :, 2:] /= UNIT
    return found


class RatioOfBuckets(NamedTuple):
    """A ratio of two totals, the variance of it between buckets, and the degrees of freedom of the variance."""

    value: float
    variance: float
    freedom: int

    @classmethod
    def of(cls, above: FloatArray, below: FloatArray) -> RatioOfBuckets:
        """Compute Σa/Σb with the variance by the delta method, `B/(B-1) Σ(a - rb)² / (Σb)²` over B buckets."""
        used = below > 0
        a, b, buckets = above[used], below[used], int(used.sum())
        if buckets < 2:
            return cls(math.nan, math.nan, 0)
        value, total = float(a.sum() / b.sum()), float(b.sum())
        spread = float(((a - value * b) ** 2).sum())
        return cls(value, spread * buckets / (buckets - 1) / (total * total), buckets - 1)


def anytime_p(excess: float, variance: float, freedom: float, effect: float) -> float:
    """Compute a p-value of the hypothesis that an excess is at most 0 which holds at every time, looks or not.

    The mixture sequential probability ratio test: with normal estimates of variance V the likelihood ratio, averaged
    over a normal distribution of the true excess with the standard deviation τ, is
    `Λ = sqrt(V/(V + τ²)) exp(z² τ²/(2(V + τ²)))` with `z = excess/√V`. Under the hypothesis the probability that Λ
    ever reaches 1/α is at most α (Ville's inequality), so 1/Λ is a p-value however often and whenever it is looked at.
    The variance is an estimate, so z is the normal quantile of Student's t.

    Parameters
    ----------
    excess, variance, freedom
        The estimate, its variance and the degrees of freedom of that.
    effect
        τ, which decides for which excess the test is most sensitive, never its level.

    Returns
    -------
    float
        From 0 to 1; 1 if the excess is not positive.

    Examples
    --------
    >>> anytime_p(-1.0, 0.01, 60, 0.1), anytime_p(0.1, 0.01, 60, 0.1)
    (1.0, 1.0)
    >>> 1e-7 < anytime_p(1.0, 0.01, 60, 0.1) < 1e-6
    True
    """
    if not (excess > 0.0 and variance > 0.0 and freedom > 0 and effect > 0.0):
        return 1.0
    from scipy.special import ndtri, stdtr

    z = -float(ndtri(stdtr(freedom, -excess / math.sqrt(variance))))
    share = effect * effect / (variance + effect * effect)
    return math.exp(-max(0.0, 0.5 * math.log(1.0 - share) + 0.5 * min(z * z, 1_400.0) * share))


def guard_p_values(guard: ArmGuard, totals: FloatArray) -> list[dict[str, float]]:
    """Compute the p-values of the guard for each arm by measure, adjusted for the number of both (Bonferroni).

    Parameters
    ----------
    guard
        The margins; measures without one are left out.
    totals : (arms, buckets, 4) array
        The control comes first; it has no p-values.

    Returns
    -------
    list of dict
        An arm is to be stopped if one of its p-values is at most the level of the guard.
    """
    margins = {name: margin for name in EFFECTS if (margin := getattr(guard, name)) is not None}
    tests = max(1, len(margins) * (len(totals) - 1))
    found: list[dict[str, float]] = [{}]
    for arm in totals[1:]:
        raw = {name: harm_p(name, margin, totals[0], arm) for name, margin in margins.items()}
        found.append({name: min(1.0, tests * p) for name, p in raw.items()})
    return found


def harm_p(measure: str, margin: float, control: FloatArray, arm: FloatArray) -> float:
    """Compute the p-value of the hypothesis that an arm is within its margin of the control."""
    if min(control[:, 0].sum(), arm[:, 0].sum()) < LEAST_LISTS:
        return 1.0
    column = 3 if measure == "unfairness" else 1
    a, c = (RatioOfBuckets.of(each[:, column], each[:, 0]) for each in (arm, control))
    if measure == "unfairness":
        excess, weight, effect = a.value - c.value - margin, 1.0, EFFECTS[measure]
    else:
        weight, effect = 1.0 - margin, EFFECTS[measure] * c.value
        excess = weight * c.value - a.value
        if c.value * arm[:, 0].sum() < LEAST_CLICKS:
            return 1.0
    parts = [(a.variance, a.freedom), (weight * weight * c.variance, c.freedom)]
    variance = sum(part for part, _ in parts)
    spread = sum(part * part / freedom for part, freedom in parts if freedom)  # degrees of freedom after Welch
    return anytime_p(excess, variance, variance * variance / spread if spread > 0.0 else 0.0, effect)


def harm_in_words(guard: ArmGuard, p_values: dict[str, float]) -> str | None:
    """Return why an arm is to be stopped, None if it is not."""
    for measure, p in p_values.items():
        if p <= guard.level:
            margin = getattr(guard, measure)
            what = "adds more unfairness than" if measure == "unfairness" else "has fewer clicks per list than"
            return (
                f"{what} the control by more than {margin:g}{' of them' if measure == 'clicks' else ''} (p = {p:.2g})"
            )
    return None


# --- the report ------------------------------------------------------------------------------------------------------


def experiment_report(store: Store, now: int) -> ExperimentReport:
    """Return the results of the present experiment, or of the last one.

    Raises
    ------
    NotFoundError
        If there was none, or its rules are not stored any more.
    """
    repository = LedgerRepository(store)
    in_force = repository.in_force
    for version in reversed(repository.versions.values()):
        experiment = version.rules.experiment
        if version.experiment == in_force.experiment and experiment is not None:
            break
    else:
        raise NotFoundError("there is no experiment")
    begun = repository.versions.get(version.experiment, version)
    totals = bucket_totals(store.arm_totals(version.experiment), 1 + len(experiment.arms))
    guard = experiment.guard
    p_values = guard_p_values(guard, totals) if guard is not None else [{} for _ in totals]
    return ExperimentReport(
        name=experiment.name,
        running=in_force.rules.experiment is not None,
        since=to_datetime(begun.since),
        as_of=to_datetime(now),
        arms=[arm_report(version, experiment, totals, arm, p) for arm, p in enumerate(p_values)],
    )


def arm_report(
    version: Version, experiment: OnlineExperiment, totals: FloatArray, arm: int, p_values: dict[str, float]
) -> ArmReport:
    """Return the results of an arm."""
    own = None if arm == 0 else experiment.arms[arm - 1]
    lists, clicks = totals[arm, :, 0], totals[arm, :, 1]
    means, drawn = ratio_of_sums(totals[arm, :, 1:], lists[:, None])
    ends = interval(drawn, means)
    values = {name: measured(means[i], ends[:, i]) for i, name in enumerate(MEASURES)}
    return ArmReport(
        name=CONTROL if own is None else own.name,
        policy=version.rules.policy if own is None else own.policy,
        share=1.0 - sum(each.share for each in experiment.arms) if own is None else own.share,
        stopped=None if own is None else own.stopped,
        lists=int(lists.sum()),
        clicks=int(clicks.sum()),
        **values,
        differences={} if own is None else differences(totals[0], totals[arm], drawn),
        guard=p_values,
    )


def differences(control: FloatArray, arm: FloatArray, drawn: FloatArray) -> dict[str, MeasuredDifference]:
    """Return the differences of an arm from the control, with intervals and tests.

    The buckets of the two are independent of each other, and paired by their numbers for both.
    """
    means, control_drawn = ratio_of_sums(control[:, 1:], control[:, :1])
    own = arm[:, 1:].sum(axis=0) / arm[:, 0].sum() if arm[:, 0].sum() else np.full(len(MEASURES), np.nan)
    ends = interval(drawn - control_drawn, own - means)
    used = (control[:, 0] > 0) & (arm[:, 0] > 0)
    found = {}
    for i, name in enumerate(MEASURES):
        pairs: list[npt.NDArray[np.float64]] = [each[used, 1 + i] / each[used, 0] for each in (arm, control)]
        value = measured(own[i] - means[i], ends[:, i])
        p = fisher(*pairs, resamples=RESAMPLES) if used.sum() > 1 else None
        found[name] = MeasuredDifference(value=value.value, interval=value.interval, p=p)
    return found
