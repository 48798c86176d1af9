"""The state of the engine: its store and settings, cached ledgers, the rules in force, and the clock."""

from __future__ import annotations

import queue
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import NamedTuple

import msgspec

from ...errors import RequestError
from ..stores import KIND_DELETION, LogEntry, Store
from ..wire import ActivePolicy, PolicyChange
from .experiments import counted
from .ids import IdSigner
from .ledger import Ledger
from .records import Assignment, Snapshot, encode, raw_bytes
from .reports import find_number, to_datetime
from .repository import LedgerRepository
from .rules import DAY, Kernels, Rules, Version

SNAPSHOT_INTERVAL, SNAPSHOT_SPACING = 64, 256
"""Log entries between snapshots of a ledger (more if it is large), which bound the cost of loading it; and the spacing
at which old snapshots are kept, which bounds the cost of explaining an old list."""

MAX_SNAPSHOT_INTERVAL = 512
"""Maximum number of log entries between snapshots of a large ledger."""

SMALL_SNAPSHOT, MOST_INTERVALS = 1 << 17, 4
"""Maximum size of a ledger whose snapshot is encoded at once, in bytes; and the intervals after which any is, because
those that were encoded apart were dropped."""

COMPACTION_STEP = 128
"""Maximum number of log entries that are compacted in one step."""

MAX_VERSIONS, MAX_ITEMS = 10_000, 100_000
"""Defaults of the maximum numbers of versions of the rules, and of items of one query."""

CACHE, LEDGER = 256 << 20, 16 << 20
"""Defaults of the memory for everything that is cached, and for the counts of one query, in bytes."""

LEDGERS_PER_CACHE = 16
"""How many of the largest ledgers fit into a large cache."""

SMALL_LEDGER = 512 << 10
"""Maximum size of a ledger that an operation may use while it must not block, in bytes. The time for a snapshot of a
ledger, and for weighing its counts anew, grows with its size."""


class WouldBlockError(Exception):
    """An operation must not block, and would: it has written nothing, and another thread must execute it."""


class PendingSnapshot(NamedTuple):
    """The state of a ledger that is to be encoded apart, and the last entry that an earlier snapshot includes."""

    ledger: Ledger
    state: Snapshot
    last: int

    def encoded(self) -> bytes:
        """Return the snapshot; any thread may call it."""
        return encode(self.state.packed())


class EngineState:
    """The service without threads and without a network.

    The engine caches ledgers, versions and keys in memory. The cache is updated while a transaction is open, so after
    a rollback it must be dropped: see `drop_cache`.

    Parameters
    ----------
    store
        The store; the engine never begins or commits a transaction itself.
    rules
        Computes the new rules from the stored ones; the stored rules stay if left out.
    clock
        Returns the time in ms.
    cache
        Memory for everything that is cached, in bytes; ledgers that do not fit are evicted and loaded again when
        needed.
    snapshot_interval, snapshot_spacing
        Log entries between snapshots of a ledger, and between those that are kept when they are old.
    compaction_step
        Maximum number of log entries that are compacted in one step.
    max_items
        Maximum number of items of one query at a time.
    max_versions
        Maximum number of versions of the rules. Once there are half as many, those that nothing refers to are dropped.
    max_ledger
        Maximum size of the counts of one query, in bytes; by default 16 MB, or a sixteenth of the cache if that is
        more.
    """

    def __init__(
        self,
        store: Store,
        rules: Callable[[Rules], Rules] | None = None,
        *,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        cache: int = CACHE,
        snapshot_interval: int = SNAPSHOT_INTERVAL,
        snapshot_spacing: int = SNAPSHOT_SPACING,
        compaction_step: int = COMPACTION_STEP,
        max_items: int = MAX_ITEMS,
        max_versions: int = MAX_VERSIONS,
        max_ledger: int | None = None,
    ) -> None:
        self.store, self.clock, self.cache_limit = store, clock, cache
        self.snapshot_interval, self.snapshot_spacing = snapshot_interval, snapshot_spacing
        self.compaction_step, self.max_items, self.max_versions = compaction_step, max_items, max_versions
        self.max_ledger = max(LEDGER, cache // LEDGERS_PER_CACHE) if max_ledger is None else max_ledger
        self.ids = IdSigner(store.secret)
        self.latest = 0
        self.compaction_cursor = 0
        self.compaction_began: int | None = None
        self.oldest_version = 0  # the oldest one that any query visited by this pass refers to; 0 if not recorded
        self.optimistic = False
        self.nonblocking = False  # whether operations are executed by an event loop, see `check_nonblocking`
        self.touched: set[int] = set()
        self.compiled: set[Kernels] | None = None  # what is compiled; None if an operation may compile
        # Queries to compact and snapshots to encode in another thread; None if the engine is to do it by itself.
        self.apart: queue.Queue[int | PendingSnapshot] | None = None
        self.compacting: set[int] = set()  # queries that are compacted in another thread
        self.damaged: dict[str, str] = {}  # what background work leaves out, such as a query, and why
        self.drop_cache()
        stored = self.version.rules if self.repository.versions else Rules()
        wanted = stored if rules is None else rules(stored)
        if not self.repository.versions or wanted != stored:
            self.activate(wanted)

    def drop_cache(self) -> None:
        """Drop all cached state. After a failed commit only the store is authoritative.

        The store may have lost what was acknowledged, as in a failover: sequence numbers then come again, under another
        epoch.
        """
        self.epoch = secrets.randbits(32)
        self.ledgers: OrderedDict[int, Ledger] = OrderedDict()
        self.sizes: dict[int, int] = {}
        self.cached_bytes = 0
        self.by_key: dict[bytes, int] = {}
        self.repository = LedgerRepository(self.store, self.compiled)
        self.read_settings()

    def refresh(self) -> None:
        """Read rules, API keys and deletions again if another instance has changed them."""
        if self.store.changed_elsewhere():
            self.repository.read_versions()
            self.read_settings()

    def read_settings(self) -> None:
        """Read the rules in force, the API keys and the deletions under way."""
        if self.repository.versions:
            self.version = self.repository.in_force
        self.api_keys = {key.id: key for key in self.store.all_keys()}
        self.deletions = {each.number: each for each in self.store.deletions()}
        self.purging = True  # whether rows of deleted queries may be stored
        self.reset_expiry_schedule()

    def now(self) -> int:
        """Return the time in ms; it never decreases, even if the clock does."""
        self.latest = max(self.latest, self.clock())
        return self.latest

    # --- ledgers ------------------------------------------------------------------------------------------------------

    def ledger(self, number: int) -> Ledger | None:
        """Return the ledger of a query number, from the cache or the store."""
        ledger = self.cached(number)
        if self.nonblocking:
            self.check_nonblocking(ledger)
        if ledger is None:
            if self.store.key_of(number) is None:
                return None
            ledger = self.repository.ledger(number)
            self.cache_ledger(ledger)
        self.ledgers.move_to_end(number)
        if self.deletions:
            self.delete_from(ledger)
        return ledger

    def check_nonblocking(self, ledger: Ledger | None) -> None:
        """Raise WouldBlockError unless operations on a ledger read at most a few rows, and compute for a short time.

        It must be in memory and small. Loading it, and impressions that mature, take reading the log.
        """
        if ledger is None or self.deletions or ledger.nbytes > SMALL_LEDGER or ledger.matures(self.version, self.now()):
            raise WouldBlockError

    def cached(self, number: int) -> Ledger | None:
        """Return the ledger of a query number if it is cached.

        Where several instances share the store, a cached ledger may be out of date. An optimistic operation appends to
        the log, which fails then; any other operation must not use such a ledger.
        """
        self.touched.add(number)
        ledger = self.ledgers.get(number)
        if ledger is None or not self.store.shared or self.optimistic:
            return ledger
        if self.store.head(number) == (ledger.base, ledger.revision, ledger.seq):
            return ledger
        self.evict(number)
        return None

    def ledger_of(self, key: bytes) -> Ledger | None:
        """Return the ledger of a query id."""
        number = self.by_key.get(key)
        if number is None and self.nonblocking:
            raise WouldBlockError
        ledger = None if number is None else self.ledger(number)
        if ledger is None and (number := self.store.find_query(key)) is not None:
            ledger = self.ledger(number)
        return ledger

    def cache_ledger(self, ledger: Ledger) -> None:
        """Add a ledger to the cache or update its size; evict the least recently used ones beyond the limit."""
        size, before = ledger.nbytes, self.sizes.get(ledger.number, 0)
        if size == before:
            return  # cached already, and of the same size
        self.ledgers[ledger.number] = ledger
        self.by_key[ledger.key] = ledger.number
        self.cached_bytes += size - before
        self.sizes[ledger.number] = size
        while self.cached_bytes + self.repository.nbytes > self.cache_limit and len(self.ledgers) > 1:
            self.evict(next(iter(self.ledgers)))

    def evict(self, number: int) -> None:
        """Evict a ledger from the cache."""
        ledger = self.ledgers.pop(number, None)
        if ledger is not None:
            self.cached_bytes -= self.sizes.pop(number)
            if self.by_key.get(ledger.key) == number:  # otherwise the query was deleted elsewhere, and created again
                del self.by_key[ledger.key]

    def evict_all(self, numbers: Collection[int]) -> None:
        """Evict ledgers that are out of date, with the candidate sets of their queries."""
        for number in numbers:
            self.evict(number)
        self.repository.evict_candidates(numbers)

    def take_snapshot(self, ledger: Ledger) -> None:
        """Write a snapshot of a ledger if enough entries were logged since the last one.

        The state of a large ledger is only copied: to compress it takes a hundred times as long as to rank.
        """
        since = ledger.since_snapshot
        worthwhile = since * 256 >= ledger.nbytes // 8 or since >= MAX_SNAPSHOT_INTERVAL
        if since < self.snapshot_interval or not worthwhile:
            return
        last = ledger.seq - since
        if self.apart is None or ledger.nbytes <= SMALL_SNAPSHOT or since >= MOST_INTERVALS * MAX_SNAPSHOT_INTERVAL:
            snapshot = ledger.snapshot()
            self.write_snapshot(ledger, snapshot.seq, snapshot.time, encode(snapshot), last)
        elif not (ledger.encoding or self.apart.full()):
            ledger.encoding = True
            self.apart.put_nowait(PendingSnapshot(ledger, ledger.snapshot(raw_bytes), last))

    def install_snapshot(self, pending: PendingSnapshot, body: bytes) -> None:
        """Write a snapshot that was encoded apart, unless the ledger it was taken of was dropped since.

        A ledger is dropped if entries that it has recorded were not committed.
        """
        ledger, state = pending.ledger, pending.state
        if self.cached(ledger.number) is ledger and ledger.base <= state.seq and self.store.lock(ledger.number):
            self.write_snapshot(ledger, state.seq, state.time, body, pending.last)

    def write_snapshot(self, ledger: Ledger, seq: int, time: int, body: bytes, last: int) -> None:
        """Write the snapshot of a ledger after an entry; delete the one before, unless old entries need it."""
        if seq > ledger.base:
            self.store.add_snapshot(ledger.number, seq, time, body)
            if last // self.snapshot_spacing == seq // self.snapshot_spacing and last > ledger.base:
                self.store.delete_snapshot(ledger.number, last)
        ledger.since_snapshot = ledger.seq - seq

    # --- queries ------------------------------------------------------------------------------------------------------

    def exists(self, number: int) -> bool:
        """Return whether a query exists; rows of one that was deleted may still be stored."""
        return self.cached(number) is not None or self.store.key_of(number) is not None

    def find_number(self, query: str | None, query_id: str | None) -> int:
        """Return the number of an existing query, given by its text or its id; raise NotFoundError if there is none."""
        return find_number(self.store, query, query_id)

    def remove_query(self, number: int) -> None:
        """Delete a query from the store."""
        self.store.delete_query(number)
        self.purging = True

    def delete_from(self, ledger: Ledger) -> None:
        """Delete the items whose deletion is under way from one query."""
        for deletion in self.deletions.values():
            if (row := self.repository.row_to_delete(ledger, deletion)) is not None:
                self.delete_rows(ledger, [row])

    def delete_rows(self, ledger: Ledger, rows: list[int]) -> None:
        """Delete the items of some rows: append the deletion to the log and erase the ids."""
        when = max(self.now(), ledger.time)
        self.append_deletion(ledger.number, ledger.seq, ledger.revision, when, rows)
        ledger.record_deletion(ledger.seq + 1, when, rows, self.version)

    def append_deletion(self, number: int, head: int, revision: int, when: int, rows: list[int]) -> None:
        """Append the deletion of some rows to a log, after its last entry, and erase the ids."""
        entry = LogEntry(head + 1, when, KIND_DELETION, self.version.number, None, encode(rows), None)
        self.store.append(number, entry, revision)
        for row in rows:
            self.store.erase_item(number, row, head + 1)

    def count_list(self, ledger: Ledger, version: Version, assignment: Assignment, before: bytes, after: bytes) -> None:
        """Add to the totals of an arm what a change of the feedback state of a list counts, in the same transaction.

        Totals of an experiment that has been replaced are not kept.
        """
        change = counted(assignment, after).minus(counted(assignment, before))
        if any(change) and version.experiment == self.version.experiment:
            key = (version.experiment, assignment.arm, assignment.bucket)
            self.store.add_to_arm(ledger.number, key, change)

    # --- rules --------------------------------------------------------------------------------------------------------

    def active_policy(self) -> ActivePolicy:
        """Return the rules in force."""
        version = self.version
        return ActivePolicy(
            version=version.number,
            since=to_datetime(version.since),
            fitted=version.fitted,
            **msgspec.structs.asdict(version.rules),
        )

    def change(self, change: PolicyChange) -> ActivePolicy:
        """Change the rules in force; a change without effect creates no version."""
        rules = self.version.rules.changed(change)
        if rules != self.version.rules:
            arms = [] if rules.experiment is None else [arm.policy for arm in rules.experiment.arms]
            version = self.repository.new_version(rules, self.now())
            for policy in (rules.policy, *arms):
                named = msgspec.structs.replace(rules, policy=policy)
                self.repository.check_compiled(msgspec.structs.replace(version, rules=named))
            self.activate(rules)
        return self.active_policy()

    def require_compiled(self, compiled: set[Kernels]) -> None:
        """From now on raise NotCompiledError instead of compiling; `compiled` is what is compiled already."""
        self.compiled = self.repository.compiled = compiled

    def activate(self, rules: Rules, fitted: str | None = None, visits: int = 0) -> None:
        """Write rules as a new version and put it in force; it keeps the fitted prior unless there is a new one."""
        if len(self.repository.versions) >= self.max_versions:
            raise RequestError(
                f"the store has {self.max_versions:,} versions of the rules, and no more are allowed: versions are "
                "dropped once the impressions ranked by them have expired",
                "policy",
            )
        version = self.repository.new_version(rules, self.now(), fitted, visits)
        self.store.add_version(version.number, encode(version))
        if version.experiment == version.number:  # a new one: the totals of earlier ones are not kept
            self.store.delete_arm_totals(version.number)
        self.repository.add_version(version)
        self.version = version
        self.reset_expiry_schedule()

    def idempotency_window(self, version: Version) -> int:
        """Return how long an idempotency key is valid under a version of the rules, in ms."""
        return min(round(DAY * 1000), version.retention)

    def reset_expiry_schedule(self) -> None:
        """Clear the expiry schedule. Every operation other than rank and feedback may bring expiry forward."""
        self.requests_due = self.queries_due = self.next_expiry = 0
