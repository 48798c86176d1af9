"""Fits of the prior of a pooled estimator in a thread of their own."""

from __future__ import annotations

from .core.engine import Engine
from .periodic_thread import PeriodicThread

__all__ = ["FIT_INTERVAL", "BackgroundFits"]

FIT_INTERVAL = 5.0
"""Default interval at which it is checked whether a fit is due, in seconds."""


class BackgroundFits(PeriodicThread):
    """Fit the prior whenever that is due."""

    name, failure = "mcfair-fits", "the prior of the estimator cannot be fitted"
    failed = 0  # visits until which no fit is tried again, because the last one failed

    def step(self) -> None:
        """Collect the counts, fit, and put the fitted prior in force, if a fit is due."""
        if not self.executor.engine.version.estimator.pooled:
            return  # most rules: the engine is not kept from its work
        counts = self.executor.submit(Engine.due_fit).result()
        if counts is not None and counts.visits > self.failed:
            self.failed = round(counts.visits * (1.0 + counts.estimator.growth))  # unless it succeeds
            self.executor.submit(Engine.set_prior, counts.fit(), counts.visits).result()
            self.failed = 0
