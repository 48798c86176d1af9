"""Archive of finished runs on disk, each in a folder named after the key of its task."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable
from pathlib import Path

from ..errors import TraceError
from ..simulation.trace import Trace
from .tasks import Task

__all__ = ["Archive"]

ABANDONED_AFTER = 3600
"""Age in seconds at which a partly written run was left by a process that died; none takes so long to write."""


class Archive:
    """Finished runs on disk. A run is written to a temporary folder that is then renamed, so it is never partial.

    Parameters
    ----------
    folder
        Where the runs are stored; created if it does not exist.

    Raises
    ------
    TraceError
        If the folder cannot be written to.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     "no such key" in Archive(folder)
    False
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for draft in self.folder.glob(".*-*"):
                if time.time() - draft.stat().st_mtime > ABANDONED_AFTER:
                    shutil.rmtree(draft, ignore_errors=True)
            probe = self.folder / ".writable"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise TraceError(f"cannot write to {self.folder}: {error.strerror or error}") from None

    def __contains__(self, key: str) -> bool:
        return (self.folder / key / "run.json").exists()

    def save(self, task: Task, trace: Trace) -> None:
        """Write a run; one that another process wrote in the meantime is kept instead."""
        try:
            trace.save(self.folder / task.key)
        except TraceError:
            if task.key not in self:
                raise

    def load(self, key: str) -> Trace:
        """Read a run."""
        return Trace.load(self.folder / key)

    def missing(self, tasks: Iterable[Task]) -> list[Task]:
        """Return the tasks whose runs are not stored."""
        return [task for task in tasks if task.key not in self]
