"""The guard of an experiment: reading the totals of its arms, and stopping an arm by a new version of the rules."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from ..stores import StoredArm
from ..wire import OnlineExperiment
from .arm_reports import bucket_totals, guard_p_values, harm_in_words
from .engine_state import EngineState

__all__ = ["ArmGuardOperations", "GuardedTotals"]


class GuardedTotals(NamedTuple):
    """An experiment with a guard, the number of the version with which it began, and the totals of its arms."""

    number: int
    experiment: OnlineExperiment
    rows: list[StoredArm]

    def harmful(self) -> dict[str, str]:
        """Return why each arm that is to be stopped is, by name; any thread may call it."""
        guard, arms = self.experiment.guard, self.experiment.arms
        if guard is None:
            return {}
        p_values = guard_p_values(guard, bucket_totals(self.rows, 1 + len(arms)))[1:]
        found = {arm.name: harm_in_words(guard, p) for arm, p in zip(arms, p_values, strict=True) if not arm.stopped}
        return {name: reason for name, reason in found.items() if reason is not None}


class ArmGuardOperations(EngineState):
    """The operations of the guard."""

    def guarded_totals(self) -> GuardedTotals | None:
        """Return the totals of the running experiment; None if it needs no guard, or another instance looks after it.

        It reads a row for each bucket of each arm, whatever the length of the log.
        """
        experiment = self.version.rules.experiment
        if experiment is None or experiment.guard is None or all(arm.stopped for arm in experiment.arms):
            return None
        if not self.store.leads():
            return None
        return GuardedTotals(self.version.experiment, experiment, self.store.arm_totals(self.version.experiment))

    def stop_arm(self, number: int, name: str, reason: str) -> bool:
        """Stop an arm of the experiment that began with a version; return whether it was running until now."""
        experiment = self.version.rules.experiment
        if experiment is None or self.version.experiment != number:
            return False
        if not any(arm.name == name and arm.stopped is None for arm in experiment.arms):
            return False
        arms = [msgspec.structs.replace(arm, stopped=reason) if arm.name == name else arm for arm in experiment.arms]
        stopped = msgspec.structs.replace(experiment, arms=arms)
        self.activate(msgspec.structs.replace(self.version.rules, experiment=stopped))
        return True
