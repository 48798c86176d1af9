"""`mcfair serve` that kills itself at a named point, or has a deliberate fault; run it with the arguments of `mcfair`.

`MCFAIR_CRASH=POINT:ROWS` sends SIGKILL to the process itself the first time it reaches POINT after ROWS log entries
were written. `MCFAIR_FAULT=NAME` installs the overrides of a deliberate fault; `MCFAIR_FAULTY=0` switches the fault
itself off, so that the same overrides can be shown to be harmless without it.
"""

import os
import random
import signal
import sys
import threading
import time

from mcfair.cli import app as cli
from mcfair.service import ranker as ranker_module
from mcfair.service.core import engine as engine_module
from mcfair.service.group_commit import GroupCommit
from mcfair.service.stores import KIND_FEEDBACK, sqlite

POINTS = ("before-commit", "after-commit", "between-rows", "in-commit", "in-checkpoint", "in-compaction")
"""Where to crash: with a whole batch not committed, with a batch committed but not acknowledged, within the rows of a
batch (an impression is written, its idempotency key is not), at some moment of a commit or a checkpoint, and with a
part of the expired log entries compacted."""

FAULTY = os.environ.get("MCFAIR_FAULTY") != "0"


def kill_self():
    os.kill(os.getpid(), signal.SIGKILL)


class Crashing:
    """The methods of a store that may kill the process at named points."""

    point, _, after = os.environ.get("MCFAIR_CRASH", "").partition(":")
    appended = 0

    def append(self, number, entry, revision=None):
        super().append(number, entry, revision)
        self.appended += 1
        self.reach("between-rows")

    def commit(self):
        self.reach("before-commit")
        self.reach("in-commit", 0.004 * random.random())
        self.reach("in-checkpoint", 0.01 * random.random())
        lost = super().commit()
        self.reach("after-commit")
        return lost

    def compact(self, number, seq, before, limit):
        dropped = super().compact(number, seq, before, limit)
        self.reach("in-compaction")
        return dropped

    def reach(self, point, seconds=0.0):
        """Kill the process if this is the point; with a delay, the process goes on until then."""
        if point == self.point and self.appended >= int(self.after):
            if seconds:
                threading.Timer(seconds, kill_self).start()
            else:
                kill_self()


class CrashingStore(Crashing, sqlite.SQLiteStore):
    """A store in SQLite that may kill the process."""


def crash_on_postgresql():
    """Replace the store in PostgreSQL by one that may kill the process."""
    from mcfair.service.stores import postgres

    base_class = postgres.PostgresStore

    class CrashingPostgresStore(Crashing, base_class):
        def write_rows(self, won, commit):
            self.reach("between-rows")
            super().write_rows(won, commit)

        def append(self, number, entry, revision=None):
            self.appended += 1
            base_class.append(self, number, entry, revision)

    postgres.PostgresStore = CrashingPostgresStore


# --- deliberate faults -----------------------------------------------------------------------------------------------


class EarlyAcknowledgingStore(CrashingStore):
    """Resolves the futures of a batch before it commits; it crashes where that loses acknowledged feedback."""

    batch = ()
    has_feedback = False

    def append(self, number, entry, revision=None):
        super().append(number, entry, revision)
        self.has_feedback |= entry.kind == KIND_FEEDBACK

    def commit(self):
        if FAULTY:
            for each in self.batch:
                each.loop.call_soon_threadsafe(each.resolve)
            if self.has_feedback and self.appended >= int(self.after or "0"):
                time.sleep(1.0)  # time for the responses to be sent
                self.reach("before-commit")
        self.has_feedback = False
        return super().commit()

    def reach(self, point, seconds=0.0):
        """Crash only where feedback is at stake: a batch without it would prove nothing."""
        if not FAULTY or point != "before-commit" or self.has_feedback:
            super().reach(point, seconds)


class EarlyAcknowledgingExecutor(GroupCommit):
    """Passes each batch to its store before the commit, for which the loop does not wait, so that it can respond."""

    def __init__(self, *args):
        super().__init__(*args, quick_seconds=0.0)  # the loop never commits itself: it has to respond meanwhile

    def commit_batch(self, items, error):
        self.store.batch = [each for each in items if each.loop is not None]
        super().commit_batch(items, error)
        self.store.batch = ()


class EarlyAcknowledgingRanker(ranker_module.Ranker):
    """Has an executor that acknowledges too early."""

    def __init__(self, *args, **settings):
        super().__init__(*args, executor_class=EarlyAcknowledgingExecutor, **settings)


class StoreWithoutTransactions(CrashingStore):
    """Makes every row durable on its own, as if there were no transactions."""

    def begin(self, **options):
        if not FAULTY:
            super().begin(**options)

    def commit(self):
        if not FAULTY:
            return super().commit()
        self.reach("before-commit")
        self.reach("after-commit")
        return ()


class EngineWithoutIdempotency(engine_module.Engine):
    """Does not recognise a repeated request."""

    def earlier_ranking(self, number, name, digest, explain):
        earlier = super().earlier_ranking(number, name, digest, explain)
        return None if FAULTY else earlier


def acknowledge_before_commit():
    sqlite.SQLiteStore = EarlyAcknowledgingStore
    ranker_module.Ranker = EarlyAcknowledgingRanker


def no_transactions():
    sqlite.SQLiteStore = StoreWithoutTransactions


def lose_idempotency_keys():
    ranker_module.Engine = EngineWithoutIdempotency


FAULTS = {
    "acknowledge-before-commit": acknowledge_before_commit,
    "no-transactions": no_transactions,
    "lose-idempotency-keys": lose_idempotency_keys,
}


def main():
    sqlite.SQLiteStore = CrashingStore
    if any(word.startswith("postgresql://") for word in sys.argv):
        crash_on_postgresql()
    if CrashingStore.point == "in-checkpoint":
        sqlite.CHECKPOINT_AT_LATEST = 8  # pages, so at almost every commit
    if fault := os.environ.get("MCFAIR_FAULT"):
        FAULTS[fault]()
    cli.main()


if __name__ == "__main__":
    main()
