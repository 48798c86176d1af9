"""The guard of an experiment: which arms are worse than the control, by the totals of all arms."""

from __future__ import annotations

from ..stores import Store
from .arm_reports import bucket_totals, guard_p_values, harm_in_words
from .rules import Version


def harmful_arms(store: Store, version: Version) -> dict[str, str]:
    """Return why each arm of the running experiment that is to be stopped is, by name.

    It reads a row for each bucket of each arm, whatever the length of the log.
    """
    experiment = version.rules.experiment
    if experiment is None or experiment.guard is None or all(arm.stopped for arm in experiment.arms):
        return {}
    guard, arms = experiment.guard, experiment.arms
    p_values = guard_p_values(guard, bucket_totals(store.arm_totals(version.experiment), 1 + len(arms)))[1:]
    found = {arm.name: harm_in_words(guard, p) for arm, p in zip(arms, p_values, strict=True) if not arm.stopped}
    return {name: reason for name, reason in found.items() if reason is not None}
