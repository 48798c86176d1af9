"""Fits of the prior of a pooled estimator in a thread of their own: requests do not wait for them."""

from __future__ import annotations

import logging
import threading

from ..errors import MCFairError, UnavailableError
from .core.engine import Engine
from .group_commit import GroupCommit

__all__ = ["FIT_INTERVAL", "BackgroundFits"]

FIT_INTERVAL = 5.0
"""Default interval at which it is checked whether a fit is due, in seconds."""

logger = logging.getLogger("mcfair.service")


class BackgroundFits:
    """Fit the prior whenever that is due.

    Parameters
    ----------
    executor
        Executes the operations of the engine: collecting the counts, and putting the fitted prior in force.
    interval
        Interval between checks, in seconds.
    """

    def __init__(self, executor: GroupCommit, interval: float = FIT_INTERVAL) -> None:
        self.executor, self.interval = executor, interval
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run, name="mcfair-fits", daemon=True)
        self.thread.start()

    def run(self) -> None:
        """Check and fit until stopped; a fit that fails is logged once, and tried again when the next one is due."""
        failed = 0
        while not self.stopped.wait(self.interval):
            if not self.executor.engine.version.estimator.pooled:
                continue  # most rules: the engine is not kept from its work
            try:
                counts = self.executor.submit(Engine.due_fit).result()
                if counts is not None and counts.visits > failed:
                    failed = round(counts.visits * (1.0 + counts.estimator.growth))  # unless it succeeds
                    self.executor.submit(Engine.set_prior, counts.fit(), counts.visits).result()
                    failed = 0
            except UnavailableError:
                continue  # stopping, or the store cannot be written: that is logged where it was found
            except MCFairError as error:
                logger.error("the prior of the estimator cannot be fitted: %s", error)

    def stop(self) -> None:
        """Stop; a fit that is being computed has no effect any more once the executor is closed."""
        self.stopped.set()
