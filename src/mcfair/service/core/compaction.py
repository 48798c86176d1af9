"""Compaction: expired log entries become part of base snapshots, in the background and in small steps."""

from __future__ import annotations

import math
import queue
import time
from functools import partial
from typing import NamedTuple

from ..stores import KIND_IMPRESSION, LogEntry
from .deletions import DeletionOperations
from .history import HistoryOperations
from .ledger import Ledger
from .ranking import CANDIDATES_REUSED
from .records import encode
from .repository import LedgerRepository

LARGE_LEDGER, LARGE_SNAPSHOT = 1 << 18, 1 << 15
"""Size above which a ledger is compacted apart, in memory and as a compressed snapshot, in bytes."""

APART_RETRY = 1_000
"""Time in ms after which a query is looked at again that could not be compacted apart."""

NEVER = 2**62
"""A time in ms that does not come."""

IDLE_STEP = 512
"""Maximum number of idle items that are deleted in one step."""

VERSION_STEP = 1_000
"""Maximum number of versions of the rules that are dropped at the end of a pass of compaction."""


class CompactionOperations(DeletionOperations, HistoryOperations):
    """The background work of the engine."""

    def compact_expired(self, seconds: float = math.inf) -> int:
        """Continue deletions, and compact expired log entries into base snapshots; return the number compacted.

        A call stops after `seconds` and the next one continues there. The schedule (`requests_due`, `queries_due`)
        records the earliest time at which anything can expire; until then the store is not read at all.
        """
        self.refresh()
        if not self.store.leads():
            self.compaction_began = None  # another instance continues
            return 0
        now, end = self.now(), time.monotonic() + seconds
        self.continue_deletions(end)
        self.purge(end)
        if now >= self.requests_due:
            self.work_on("idempotency keys", partial(self.expire_requests, now))
        return self.compact_queries(now, end) if now >= self.queries_due else 0

    def expire_requests(self, now: int) -> int:
        """Delete expired idempotency keys; return when the next ones expire, in ms."""
        window = max(map(self.idempotency_window, self.repository.versions.values()))
        oldest = self.store.expire_requests(now - window)
        self.requests_due = (now if oldest is None else min(now, oldest)) + window + 1
        return self.requests_due

    def compact_queries(self, now: int, end: float) -> int:
        """Compact queries in order of their numbers, from where the last call stopped."""
        if self.compaction_began is None:
            self.compaction_began = now
        if not self.compaction_cursor:  # a list ranked from now on expires at this time at the earliest
            self.next_expiry = now + min(each.retention for each in self.repository.versions.values())
            crowded = len(self.repository.versions) > self.max_versions // 2
            self.oldest_version = self.version.number if crowded else 0
        compacted = 0
        while numbers := self.store.numbers(self.compaction_cursor, 1):
            step = 0
            if numbers[0] not in self.compacting:
                step = self.work_on(f"query {numbers[0]}", partial(self.compact_query, numbers[0], now))
            compacted += step
            if step < self.compaction_step:
                self.compaction_cursor = numbers[0]
                if self.oldest_version:
                    oldest = next(iter(self.store.log(numbers[0], 0)), None)
                    self.oldest_version = min(self.oldest_version, oldest.version if oldest else self.oldest_version)
            if time.monotonic() > end:
                return compacted
        self.compaction_cursor, self.compaction_began, self.queries_due = 0, None, self.next_expiry
        if dropped := self.repository.unreferenced_versions(self.oldest_version)[:VERSION_STEP]:
            self.store.delete_versions(dropped)
            self.repository.drop_versions(dropped)
        return compacted

    @property
    def is_behind(self) -> bool:
        """Whether the last run of compaction left work behind."""
        return self.compaction_began is not None or self.purging or bool(self.deletions or self.compacting)

    def compaction_seconds(self) -> float:
        """Return for how long the present pass of compaction over all queries has run; 0 if there is none."""
        began = self.compaction_began
        return 0.0 if began is None else max(0.0, (self.latest - began) / 1000)

    def compact_query(self, number: int, now: int) -> int:
        """Compact the first expired entries of a query's log into its base snapshot; return their number.

        Reads the base snapshot and at most one step of the log, however long the log is. A large ledger is left to
        those who work apart, if anybody does: to load it and to write it takes much longer than a run of compaction.
        """
        found = expired_entries(self.repository, number, now, self.compaction_step)
        self.next_expiry = min(self.next_expiry, found.due)
        if not found.needed:
            return 0
        if self.apart is not None and self.is_large(number):
            self.leave_apart(number, now)
            return 0
        if not self.store.lock(number):
            return 0
        loaded = self.cached(number)
        step = next_base(self.repository, found, now, loaded)
        self.write_base(step, loaded, now)
        return len(found.expired)

    def is_large(self, number: int) -> bool:
        """Return whether the ledger of a query is large, by its size in the cache or that of its last snapshot."""
        if (ledger := self.ledgers.get(number)) is not None:
            return ledger.nbytes > LARGE_LEDGER
        stored = self.store.snapshot(number)
        return stored is not None and len(stored[1]) > LARGE_SNAPSHOT

    def install_base(self, step: NewBase, now: int) -> bool:
        """Write a base snapshot that was computed apart; return False if what it was computed from is not true now."""
        number, found = step.number, step.found
        if not (self.store.leads() and self.store.lock(number)):
            return False
        head = self.store.head(number)
        if head is None or self.store.base(number) != found.base or (found.live is None and head[2] != step.seq):
            return False
        self.write_base(step, self.cached(number), now)
        return True

    def leave_apart(self, number: int, now: int) -> None:
        """Leave the compaction of a query to another thread; if that has too much to do, try again later."""
        try:
            self.apart.put_nowait(number)  # type: ignore[union-attr]
            self.compacting.add(number)
        except queue.Full:
            self.next_expiry = min(self.next_expiry, now + APART_RETRY)

    def finish_apart(self, number: int, due: int | None, damage: str | None) -> None:
        """Record that a query was compacted apart, and when more of it expires, or what was damaged.

        A damaged query is left out from then on, as by `work_on`; one that changed meanwhile is tried again.
        """
        if damage is not None:
            self.damaged[f"query {number}"] = f"background work leaves query {number} out: {damage}"
        else:
            retry = self.now() + APART_RETRY
            due = max(retry, due or 0)
            self.next_expiry, self.queries_due = min(self.next_expiry, due), min(self.queries_due, due)

    def write_base(self, step: NewBase, loaded: Ledger | None, now: int) -> None:
        """Write a base snapshot, and delete what it replaces; `loaded` is the cached ledger."""
        number, found = step.number, step.found
        if found.live is None and step.time + step.longest > now:
            self.next_expiry = min(self.next_expiry, step.time + step.longest)
        if loaded is not None and found.live is None:
            loaded.mature(step.age, step.until)
        self.book_expired(number, found.base, found.expired)
        self.store.add_snapshot(number, step.seq, step.time, step.body)
        last = self.store.compact(number, step.seq, step.until - step.longest, 4 * self.compaction_step)
        unused = last if found.live is None and last == step.seq else last - CANDIDATES_REUSED
        dropped, freed = self.store.delete_candidates(number, unused), self.store.free_rows(number, last)
        base, revision, head = self.store.head(number) or (0, 0, 0)
        if loaded is not None:
            loaded.evict_candidates(dropped)
            loaded.free_rows(freed)
            loaded.base, loaded.revision = base, revision
        if step.idle and head == step.head:
            if loaded is not None:
                self.delete_rows(loaded, step.idle)
            else:
                self.append_deletion(number, head, revision, max(now, step.head_time), step.idle)


class ExpiredEntries(NamedTuple):
    """The first expired log entries of a query after its base, and the first live one, if there is any.

    They are `needed` for a new base, or a base without them is. `due` is when the next entries expire at the earliest.
    """

    number: int
    base: int
    expired: list[LogEntry]
    live: LogEntry | None
    longest: int
    needed: bool
    due: int


class NewBase(NamedTuple):
    """A base snapshot, what it was computed from, and what follows from it.

    `idle` are rows of items that need none: never shown or clicked, and no candidates of any impression after the base.
    If such an item comes again, it is a newcomer. They were found at the log entry `head`.
    """

    number: int
    found: ExpiredEntries
    seq: int
    time: int
    body: bytes
    age: int
    until: int
    longest: int
    idle: list[int]
    head: int
    head_time: int


def expiry(repository: LedgerRepository, entry: LogEntry) -> int:
    """Return when an entry can be compacted, in ms: an impression after its retention, others at once."""
    return entry.time + (repository.version(entry).retention if entry.kind == KIND_IMPRESSION else 0)


def expired_entries(repository: LedgerRepository, number: int, now: int, step: int) -> ExpiredEntries:
    """Read the next entries of a query that can be compacted.

    Entries that were pending at the base are compacted, but stay in the log for as long as a decision after the base
    may depend on when they matured.
    """
    store, due = repository.store, NEVER
    base = store.base(number)
    expired: list[LogEntry] = []
    live: LogEntry | None = None
    for entry in store.log(number, base, base + step + 1):
        if len(expired) == step or expiry(repository, entry) > now:
            live, due = entry, expiry(repository, entry)
            break
        expired.append(entry)
    longest = repository.longest_maturation(repository.in_force if live is None else repository.version(live))
    needed = bool(expired)
    if not needed and live is None and (last := store.entry(number, base)) is not None:
        needed = last.time + longest <= now  # no decision can depend on it any more
        due = max(last.time + longest, now + 1)
    return ExpiredEntries(number, base, expired, live, longest, needed, due)


def next_base(repository: LedgerRepository, found: ExpiredEntries, now: int, loaded: Ledger | None = None) -> NewBase:
    """Compute a base snapshot that includes expired entries; `loaded` is the present ledger, if it is in memory."""
    number, live = found.number, found.live
    base = repository.ledger(number, from_base=True)
    repository.apply_all(base, found.expired)
    # Mature by the rules of the next entry: what it needs of the log stays stored, and nothing needs more.
    version = repository.in_force if live is None else repository.version(live)
    until = now if live is None else live.time
    base.mature(version.maturation, until)
    body = encode(base.snapshot())
    idle: list[int] = []
    head = head_time = 0
    if live is None or expiry(repository, live) > now:  # otherwise the next step continues, and would find them again
        base.refresh(repository.in_force, max(now, base.time))
        if base.idle_rows(base.seq):
            ledger = loaded or repository.ledger(number)
            ledger.refresh(repository.in_force, max(now, ledger.time))
            idle, head, head_time = ledger.idle_rows(base.seq)[:IDLE_STEP], ledger.seq, ledger.time
    return NewBase(
        number, found, base.seq, base.time, body, version.maturation, until, found.longest, idle, head, head_time
    )
