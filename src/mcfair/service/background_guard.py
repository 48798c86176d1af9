"""The guard of experiments in a thread of its own."""

from __future__ import annotations

import logging

from .core.engine import Engine
from .periodic_thread import PeriodicThread

__all__ = ["GUARD_INTERVAL", "BackgroundGuard"]

GUARD_INTERVAL = 5.0
"""Default interval between looks at an experiment, in seconds. The test holds however often it is made."""

logger = logging.getLogger("mcfair.service")


class BackgroundGuard(PeriodicThread):
    """Stop arms of an experiment that are worse than the control."""

    name, failure = "mcfair-guard", "the guard of the experiment cannot stop an arm"

    def step(self) -> None:
        """Test the arms of the running experiment, if there is one, and stop those that are harmful."""
        if self.executor.engine.version.rules.experiment is None:
            return
        totals = self.executor.submit(Engine.guarded_totals).result()
        for arm, reason in ({} if totals is None else totals.harmful()).items():
            if totals is not None and self.executor.submit(Engine.stop_arm, totals.number, arm, reason).result():
                logger.warning("the experiment %r stops its arm %r: it %s", totals.experiment.name, arm, reason)
