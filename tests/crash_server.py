"""`mcfair serve` that kills itself at a named point, or is broken on purpose; run it with the arguments of `mcfair`.

`MCFAIR_CRASH=POINT:ROWS` sends SIGKILL to the process itself at the first POINT it comes to after ROWS rows of the log
were written. `MCFAIR_BROKEN=NAME` breaks a promise, so that the tests can show that they would notice.
"""

import os
import random
import signal
import threading
import time

from mcfair.cli import app as cli
from mcfair.service import engine as engine_module
from mcfair.service import group_commit as commit_module
from mcfair.service import ranker as ranker_module
from mcfair.service.stores import KIND_FEEDBACK, sqlite

POINTS = ("before-commit", "after-commit", "between-rows", "in-commit", "in-checkpoint", "in-compaction")
"""Where to die: with a whole group not committed, with it committed but nobody told, within the rows of a group (an
impression is there, its key is not), at some to_datetime of a commit and of a checkpoint, and with a part of what has
expired folded into its base."""


def die():
    os.kill(os.getpid(), signal.SIGKILL)


class CrashingStore(sqlite.SQLiteStore):
    """A store at whose named points the process may end."""

    point, _, after = os.environ.get("MCFAIR_CRASH", "").partition(":")
    rows = 0

    def append(self, number, entry):
        super().append(number, entry)
        self.rows += 1
        self.reach("between-rows")

    def commit(self):
        self.reach("before-commit")
        self.reach("in-commit", 0.004 * random.random())
        self.reach("in-checkpoint", 0.01 * random.random())
        super().commit()
        self.reach("after-commit")

    def compact(self, number, seq):
        dropped = super().compact(number, seq)
        self.reach("in-compaction")
        return dropped

    def reach(self, point, seconds=0.0):
        """Die if this is the point; after some time, meanwhile going on."""
        if point == self.point and self.rows >= int(self.after):
            if seconds:
                threading.Timer(seconds, die).start()
            else:
                die()


# --- broken on purpose -----------------------------------------------------------------------------------------------


class HastyStore(CrashingStore):
    """Has the answers sent before it commits; it dies where feedback is lost by that."""

    group = ()
    fed = False

    def append(self, number, entry):
        super().append(number, entry)
        self.fed |= entry.kind == KIND_FEEDBACK

    def commit(self):
        commit_module.resolve_all(self.group)
        if self.fed and self.rows >= int(self.after or "0"):
            time.sleep(1.0)
            self.reach("before-commit")
        self.fed = False
        self.db.execute("COMMIT")


class HastyRanker(ranker_module.Ranker):
    """Tells its store whom to answer."""

    def commit_batch(self, operations, error):
        self.store.group = operations
        super().commit_batch(operations, error)
        self.store.group = ()


class PiecemealStore(CrashingStore):
    """Makes every row last by itself, as if there were no transactions."""

    def begin(self):
        pass

    def commit(self):
        self.reach("before-commit")
        self.reach("after-commit")


class ForgetfulEngine(engine_module.Engine):
    """Does not recognise a request that it has answered before."""

    def earlier_ranking(self, name, digest, explain):
        return None


def acknowledge_before_commit():
    sqlite.SQLiteStore = HastyStore
    ranker_module.Ranker = HastyRanker
    commit_module.FAST_COMMIT = -1.0  # the writer commits, so that the loop can answer meanwhile


def commit_piecemeal():
    sqlite.SQLiteStore = PiecemealStore


def forget_keys():
    ranker_module.Engine = ForgetfulEngine


BROKEN = {"hasty": acknowledge_before_commit, "piecemeal": commit_piecemeal, "forgetful": forget_keys}


def main():
    sqlite.SQLiteStore = CrashingStore
    if CrashingStore.point == "in-checkpoint":
        sqlite.CHECKPOINT_AT_LATEST = 8  # pages, so at almost every commit
    if broken := os.environ.get("MCFAIR_BROKEN"):
        BROKEN[broken]()
    cli.main()


if __name__ == "__main__":
    main()
