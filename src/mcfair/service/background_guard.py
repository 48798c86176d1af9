"""The guard of experiments in a thread of its own."""

from __future__ import annotations

import logging

from .core.engine import Engine
from .group_commit import GroupCommit
from .periodic_thread import PeriodicThread

__all__ = ["GUARD_INTERVAL", "BackgroundGuard", "stop_harmful_arms"]

GUARD_INTERVAL = 5.0
"""Default interval between looks at an experiment, in seconds. The test holds however often it is made."""

logger = logging.getLogger("mcfair.service")


def stop_harmful_arms(executor: GroupCommit) -> dict[str, str]:
    """Test the arms of the running experiment, if there is one, and stop those that are harmful; return why, by name.

    The engine is not kept waiting for the test itself.
    """
    if executor.engine.version.rules.experiment is None:
        return {}
    totals = executor.submit(Engine.guarded_totals).result()
    if totals is None:
        return {}
    harmful = totals.harmful().items()
    return {arm: why for arm, why in harmful if executor.submit(Engine.stop_arm, totals.number, arm, why).result()}


class BackgroundGuard(PeriodicThread):
    """Stop arms of an experiment that are worse than the control."""

    name, failure = "mcfair-guard", "the guard of the experiment cannot stop an arm"

    def step(self) -> None:
        """Test the arms of the running experiment, stop those that are harmful, and log it."""
        experiment = self.executor.engine.version.rules.experiment
        for arm, reason in stop_harmful_arms(self.executor).items():
            logger.warning("the experiment %r stops its arm %r: it %s", experiment and experiment.name, arm, reason)
