"""Background work that is repeated in a thread of its own: requests do not wait for it."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod

from ..errors import MCFairError, UnavailableError
from .group_commit import GroupCommit

__all__ = ["PeriodicThread"]

logger = logging.getLogger("mcfair.service")


class PeriodicThread(ABC):
    """Repeat a step of background work until stopped.

    Parameters
    ----------
    executor
        Executes the operations of the engine.
    interval
        Interval between steps, in seconds.
    """

    name: str
    failure: str
    """Name of the thread, and what the log reports of a step that failed."""

    def __init__(self, executor: GroupCommit, interval: float) -> None:
        self.executor, self.interval = executor, interval
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run, name=self.name, daemon=True)
        self.thread.start()

    @abstractmethod
    def step(self) -> None:
        """Do what is due."""

    def run(self) -> None:
        """Repeat the step; one that fails is logged, and tried again when the next one is due."""
        while not self.stopped.wait(self.interval):
            try:
                self.step()
            except UnavailableError:
                continue  # stopping, or the store cannot be written: that is logged where it was found
            except MCFairError as error:
                logger.error("%s: %s", self.failure, error)

    def stop(self) -> None:
        """Stop; a step that is under way has no effect any more once the executor is closed."""
        self.stopped.set()
