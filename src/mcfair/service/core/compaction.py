"""Compaction: expired log entries become part of base snapshots, in the background and in small steps."""

from __future__ import annotations

import math
import time
from functools import partial

from ..stores import KIND_IMPRESSION, LogEntry
from .deletions import DeletionOperations
from .history import HistoryOperations
from .ledger import Ledger
from .ranking import CANDIDATES_REUSED
from .records import encode

__all__ = ["CompactionOperations"]

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
        return self.compaction_began is not None or self.purging or bool(self.deletions)

    def compaction_seconds(self) -> float:
        """Return for how long the present pass of compaction over all queries has run; 0 if there is none."""
        began = self.compaction_began
        return 0.0 if began is None else max(0.0, (self.latest - began) / 1000)

    def compact_query(self, number: int, now: int) -> int:
        """Compact the first expired entries of a query's log into its base snapshot; return their number.

        Reads the base snapshot and at most one step of the log, however long the log is. Entries that were pending at
        the base are compacted, but stay in the log for as long as a decision after the base may depend on when they
        matured.
        """
        base = self.store.base(number)
        expired: list[LogEntry] = []
        live: LogEntry | None = None
        for entry in self.store.log(number, base, base + self.compaction_step + 1):
            if len(expired) == self.compaction_step or self.expiry(entry) > now:
                live = entry
                self.next_expiry = min(self.next_expiry, self.expiry(live))
                break
            expired.append(entry)
        longest = self.repository.longest_maturation(self.version if live is None else self.repository.version(live))
        if not expired and not (live is None and self.outlived_maturation(number, base, longest, now)):
            return 0
        if not self.store.lock(number):
            return 0
        loaded = self.cached(number)
        ledger = self.repository.ledger(number, from_base=True)
        self.repository.apply_all(ledger, expired)
        until = now if live is None else live.time
        # Mature by the rules of the next entry: what it needs of the log stays stored, and nothing needs more.
        age = (self.version if live is None else self.repository.version(live)).maturation
        ledger.mature(age, until)
        if live is None and ledger.time + longest > now:
            self.next_expiry = min(self.next_expiry, ledger.time + longest)
        if loaded is not None and live is None:
            loaded.mature(age, until)
        self.book_expired(number, base, expired)
        self.store.add_snapshot(number, ledger.seq, ledger.time, encode(ledger.snapshot()))
        last = self.store.compact(number, ledger.seq, until - longest, 4 * self.compaction_step)
        unused = last if live is None and last == ledger.seq else last - CANDIDATES_REUSED
        dropped, freed = self.store.delete_candidates(number, unused), self.store.free_rows(number, last)
        if loaded is not None:
            loaded.evict_candidates(dropped)
            loaded.free_rows(freed)
            loaded.base, loaded.revision, _ = self.store.head(number) or (0, 0, 0)
        if live is None or self.expiry(live) > now:  # otherwise the next step continues, and would find them again
            self.delete_idle_items(ledger, loaded, now)
        return len(expired)

    def delete_idle_items(self, base: Ledger, loaded: Ledger | None, now: int) -> None:
        """Delete items that need no row: never shown or clicked, and no candidates of any impression after the base.

        If such an item comes again, it is a newcomer. The current ledger is loaded only if the base has such items.
        """
        base.refresh(self.version, max(now, base.time))
        if base.idle_rows(base.seq):
            ledger = loaded or self.repository.ledger(base.number)
            ledger.refresh(self.version, max(now, ledger.time))
            if rows := ledger.idle_rows(base.seq)[:IDLE_STEP]:
                self.delete_rows(ledger, rows)

    def expiry(self, entry: LogEntry) -> int:
        """Return when an entry can be compacted, in ms: an impression after its retention, others at once."""
        return entry.time + (self.repository.version(entry).retention if entry.kind == KIND_IMPRESSION else 0)

    def outlived_maturation(self, number: int, base: int, longest: int, now: int) -> bool:
        """Return whether entries up to the base are stored that no decision can depend on any more."""
        entry = self.store.entry(number, base)
        if entry is None:
            return False
        due = entry.time + longest
        self.next_expiry = min(self.next_expiry, max(due, now + 1))
        return due <= now
