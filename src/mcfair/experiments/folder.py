"""Folder of finished runs: each is written whole or not at all, and read only if every byte of it is as written."""

from __future__ import annotations

import dataclasses
import io
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..arrays import FloatArray
from ..errors import MCFairWarning, TraceError
from ..simulation.trace import Trace, read_files, read_regular, sealed, unsealed

if TYPE_CHECKING:
    import polars as pl


PREFIX = ".mcfair-"
"""Begin of the names of folders that live as long as the process that made them."""


class Outcome(NamedTuple):
    """What tables need of a run: figures at the end, the table of its queries, and examination probabilities."""

    sessions: int
    figures: dict[str, float]
    queries: pl.DataFrame
    p: FloatArray

    @classmethod
    def of(cls, trace: Trace) -> Outcome:
        """Take it from a run."""
        return cls(trace.sessions, trace.figures, trace.queries(), trace.state.p)


@contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """Yield a folder for drafts that is removed at the end; those of processes that were killed are removed first.

    A lock tells whether the process that made a folder still runs; without locks, nothing is known to be left behind.
    """
    for left in parent.glob(f"{PREFIX}*"):
        if (lock := locked(left)) is not None:
            shutil.rmtree(left, ignore_errors=True)
            os.close(lock)
    for _ in range(3):  # another process may have taken it away before it was locked
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        if (lock := locked(folder)) is not None:
            break
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def locked(folder: Path) -> int | None:
    """Lock a folder and return what holds the lock; None if another process does, or there are no locks."""
    try:
        import fcntl

        place = os.open(folder, os.O_RDONLY)
    except (ImportError, OSError):
        return None
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(place)
        return None
    return place


@dataclasses.dataclass
class Folder:
    """Finished runs on disk, in `runs`, and what was derived from them: times of runs, limits.

    Parameters
    ----------
    path
        The folder.
    drafts
        A scratch folder on the same disk.
    """

    path: Path
    drafts: Path

    @classmethod
    @contextmanager
    def open(cls, path: str | Path | None) -> Iterator[Folder]:
        """Open a folder and create it if it does not exist; without a path, one that is removed at the end.

        Raises
        ------
        TraceError
            If it cannot be written to.
        """
        with ExitStack() as stack:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory()) if path is None else path)
            try:
                place.mkdir(parents=True, exist_ok=True)
                drafts = stack.enter_context(scratch_folder(place))
            except OSError as error:
                raise TraceError(f"cannot write to {place}: {error.strerror or error}") from None
            yield cls(place, drafts)

    def load(self, keys: Sequence[str]) -> dict[str, Outcome]:
        """Read the runs that are stored and sound, by key; warn once of those that are damaged."""
        import polars as pl

        found, damaged = {}, []
        for key in keys:
            place = self.path / "runs" / key
            try:
                about, files = read_files(place)
                if about.get("key") != key:
                    raise ValueError("it holds another run")
                metrics = pl.read_parquet(io.BytesIO(files["metrics.parquet"]))
                last = metrics.filter(pl.col("sessions") == pl.col("sessions").max())
                figures = dict(zip(last["metric"].to_list(), last["value"].to_list(), strict=True))
                queries = pl.read_parquet(io.BytesIO(files["queries.parquet"]))
                found[key] = Outcome(about["sessions"], figures, queries, np.array(about["examination"]))
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                if os.path.lexists(place):
                    damaged.append(f"{key}: {getattr(error, 'strerror', None) or error}")
        if damaged:
            others = f", and {len(damaged) - 1} more" if len(damaged) > 1 else ""
            warnings.warn(
                f"{self.path}: stored runs that are damaged are made again: {damaged[0]}{others}",
                MCFairWarning,
                stacklevel=4,
            )
        return found

    def save(self, key: str, trace: Trace) -> None:
        """Store a run in place of what has its key.

        Raises
        ------
        TraceError
            If it cannot be written.
        """
        draft = self.drafts / key
        trace = dataclasses.replace(trace, provenance={**trace.provenance, "key": key})
        with suppress(FileNotFoundError):
            shutil.rmtree(draft)
        trace.save(draft)
        self._publish(draft, self.path / "runs" / key)

    def recall(self, kind: str, key: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return plain data that was stored under a key, computed now if there is none or it is damaged.

        Without a key it is computed and not stored.

        Raises
        ------
        TraceError
            If it cannot be written.
        """
        if not key:
            return compute()
        place = self.path / kind / f"{key}.json"
        with suppress(OSError, ValueError):
            stored = unsealed(read_regular(place))
            if stored.pop("key", None) == key:
                return stored
        value = compute()
        draft = self.drafts / place.name
        try:
            draft.write_bytes(sealed({**value, "key": key}))
        except OSError as error:
            raise TraceError(f"cannot write {place}: {error.strerror}") from None
        self._publish(draft, place)
        return value

    def _publish(self, draft: Path, place: Path) -> None:
        """Move a draft to its place; what is there, perhaps damaged or written by another process, makes room."""
        for attempt in range(10):
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                draft.replace(place)
                return
            except OSError as error:  # a folder that is not empty is in the way
                if not os.path.lexists(place):
                    raise TraceError(f"cannot write {place}: {error.strerror}") from None
            with suppress(OSError):
                place.replace(self.drafts / f"{place.name}-{attempt}")
        raise TraceError(f"cannot write {place}: another process writes there")
