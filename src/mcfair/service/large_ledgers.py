"""Work on large ledgers in a thread of its own: to load and to compress one takes a hundred times as long as to rank.

The engine asks for it, and installs what comes back if that is still true then.
"""

from __future__ import annotations

import queue
import threading

from ..errors import StoreError, UnavailableError
from .core.compaction import expired_entries, next_base
from .core.engine import Engine
from .core.engine_state import PendingSnapshot
from .core.repository import UNREADABLE, LedgerRepository
from .group_commit import GroupCommit
from .stores import StoreCorruptError

MAX_JOBS = 4
"""Maximum number of ledgers that wait: each is in memory, as a copy."""

Job = int | PendingSnapshot | None
"""The number of a query to compact, a snapshot to encode, or None for the end."""


class LargeLedgers:
    """Compact and encode the large ledgers of an engine.

    Parameters
    ----------
    executor
        Executes the operations of the engine.
    """

    def __init__(self, executor: GroupCommit) -> None:
        self.executor = executor
        self.jobs: queue.Queue[Job] = queue.Queue(MAX_JOBS)
        executor.engine.apart = self.jobs  # type: ignore[assignment]  # the engine never ends it
        self.thread = threading.Thread(target=self.run, name="mcfair-ledgers", daemon=True)
        self.thread.start()

    def run(self) -> None:
        """Work until the end."""
        while (job := self.jobs.get()) is not None and not self.executor.closing:
            try:
                if isinstance(job, PendingSnapshot):
                    self.encode(job)
                else:
                    self.compact(job)
            except UnavailableError:
                continue  # stopping, or the store cannot be written: that is logged where it was found
            except Exception as error:  # the next ledger may be sound
                self.executor.log_unreadable(error)

    def encode(self, job: PendingSnapshot) -> None:
        """Encode a snapshot, and have it written."""
        try:
            self.executor.submit(Engine.install_snapshot, job, job.encoded()).result()
        finally:
            job.ledger.encoding = False

    def compact(self, number: int) -> None:
        """Compact what has expired of a query, step by step."""
        due, damage = None, None
        try:
            while (due := self.compact_step(number)) is None:
                pass
        except (StoreCorruptError, *UNREADABLE) as error:
            damage = f"{type(error).__name__}: {error}"
        except (StoreError, OSError) as error:  # it is tried again
            self.executor.log_unreadable(error)
        finally:
            self.executor.engine.compacting.discard(number)
        self.executor.submit(Engine.finish_apart, number, due, damage).result()

    def compact_step(self, number: int) -> int | None:
        """Compact one step of a query's log; return when the next one is due, None if that is now."""
        now = self.executor.submit(Engine.now).result()
        with self.executor.store.reader() as store, store.read_transaction():
            repository = LedgerRepository(store)
            if store.key_of(number) is None:
                return now
            found = expired_entries(repository, number, now, self.executor.engine.compaction_step)
            if not found.needed:
                return found.due
            step = next_base(repository, found, now)
        return None if self.executor.submit(Engine.install_base, step, now).result() else now

    def stop(self) -> None:
        """Stop; what is under way has no effect any more once the executor is closed."""
        while True:
            try:
                self.jobs.put_nowait(None)
            except queue.Full:
                self.jobs.get_nowait()
            else:
                return
