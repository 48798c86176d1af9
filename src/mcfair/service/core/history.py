"""History: counts by hour, and figures by hour and day.

Lists and clicks are counted from the log, never twice: in one transaction with the counts, the entry is written up to
which a query is booked, and only if nobody has moved it since it was read. Compaction counts what it deletes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import msgspec

from ..stores import LogEntry, Store, StoredPeriod, StoredSummary
from .engine_state import EngineState
from .records import encode
from .summaries import (
    HISTORY_GROUPS,
    HOUR,
    Counts,
    Present,
    StoreFigures,
    booked_counts,
    decode_figures,
    decode_items,
    decode_queries,
)

DAY_MS = 24 * HOUR
HOURS_KEPT, DAYS_KEPT = 28, 3 * 365
"""Days for which hours are kept, and after that, days."""

PRESENT = 0
"""Resolution of the present figures; `start` is the place in `Present`."""


class SummaryUpdate(NamedTuple):
    """The summary of a query, if it changes, and the counts of its log entries after `before` up to `booked`."""

    number: int
    before: int | None
    booked: int
    counts: Counts
    summary: StoredSummary | None


class ErasedGroups(NamedTuple):
    """The figures of a period without the names of groups that do not exist any more; `digest` is of those before."""

    resolution: int
    start: int
    digest: bytes
    body: bytes

    @classmethod
    def of(cls, period: StoredPeriod, names: Collection[str | None]) -> ErasedGroups | None:
        """Return what is to be written if only the groups of these names exist; None if the period has no other."""
        figures = None if period.body is None else decode_figures(period.body).with_groups(names)
        if figures is None or period.body is None:
            return None
        return cls(period.resolution, period.start, digest(period.body), encode(figures))


def digest(body: bytes) -> bytes:
    """Return a digest of stored figures."""
    return hashlib.blake2b(body, digest_size=16).digest()


def read_present(store: Store) -> Present | None:
    """Read the present figures; None if there are none yet."""
    bodies = [each.body for each in store.periods(PRESENT, 0, len(Present._fields), len(Present._fields))]
    if len(bodies) < len(Present._fields):
        return None
    figures, *lists = (body or b"" for body in bodies)
    decode = (decode_queries, decode_queries, decode_items, decode_items)
    return Present(decode_figures(figures), *(read(body) for read, body in zip(decode, lists, strict=True)))  # type: ignore[arg-type]


class HistoryOperations(EngineState):
    """The operations that write summaries and history, each in bounded time."""

    def book_expired(self, number: int, base: int, entries: Sequence[LogEntry]) -> None:
        """Book the entries after the base that compaction is about to delete, as far as they are not booked yet."""
        before = self.store.booked(number)
        last = entries[-1].seq if entries else 0
        if last > (base if before is None else before):
            fresh = entries if before is None else [entry for entry in entries if entry.seq > before]
            if self.store.book([(number, before, last)]):
                self.add_counts(booked_counts(fresh))

    def write_summaries(self, updates: Sequence[SummaryUpdate]) -> None:
        """Book log entries of queries and write their summaries; leave out what another instance has booked."""
        moved = self.store.book([each[:3] for each in updates if each.before != each.booked])
        counts: Counts = {}
        for each in updates:
            for hour, more in each.counts.items() if each.number in moved else ():
                counts[hour] = [total + one for total, one in zip(counts.get(hour, (0, 0, 0)), more, strict=True)]
        self.store.add_summaries(
            [
                each.summary
                for each in updates
                if each.summary is not None and (each.number in moved or each.before == each.booked)
            ]
        )
        self.add_counts(counts)

    def add_counts(self, counts: Counts) -> None:
        """Add counts by hour to the history."""
        for each in counted_periods(counts, self.now()):
            self.store.add_to_period(*each[:5])

    def write_present(self, present: Present, seen: int) -> None:
        """Write the present figures, and those of the current hour; fold old hours into days.

        `seen` is a query that the figures include, 0 if there is none: if it was deleted since, perhaps with all
        others, the figures are dropped. So are those that are older than what is stored, unless that is of the future:
        then the clock was ahead, and was corrected since.
        """
        figures = present.figures
        stored = self.store.periods(PRESENT, 0, 1, 1)
        time = decode_figures(stored[0].body).time if stored and stored[0].body else 0
        if (seen and self.store.key_of(seen) is None) or figures.time < time <= self.now():
            return
        for place, part in enumerate(present):
            self.store.set_figures(PRESENT, place, encode(part))
        hour = current_figures(figures)
        self.store.set_figures(HOUR, hour.start, hour.body or b"")
        self.fold_hours()

    def erase_groups(self, periods: Sequence[ErasedGroups]) -> None:
        """Erase the names of groups from periods that have not changed since they were read."""
        for each in periods:
            stored = self.store.periods(each.resolution, each.start, each.start + 1, 1)
            if stored and stored[0].body is not None and digest(stored[0].body) == each.digest:
                self.store.erase_figures(each.resolution, each.start, each.body)

    def fold_hours(self) -> None:
        """Fold hours that are too old into days, and delete days that are too old."""
        today = self.now() // DAY_MS * DAY_MS
        first, oldest = today - HOURS_KEPT * DAY_MS, today - DAYS_KEPT * DAY_MS
        old = self.store.periods(HOUR, 0, first, 10_000)
        for each in summed(old, DAY_MS):
            if each.start >= oldest:
                self.store.add_to_period(*each[:5])
                if each.body is not None:
                    self.store.set_figures(DAY_MS, each.start, each.body)
        if old:
            self.store.delete_periods(HOUR, first)
        self.store.delete_periods(DAY_MS, oldest)


def counted_periods(counts: Counts, now: int) -> list[StoredPeriod]:
    """Return the periods that counts by hour belong to: days if hours so old are not kept, none if days are not."""
    today = now // DAY_MS * DAY_MS
    found = []
    for hour, (lists, clicks, retracted) in sorted(counts.items()):
        if hour >= today - HOURS_KEPT * DAY_MS:
            found.append(StoredPeriod(HOUR, hour, lists, clicks, retracted, None))
        elif hour >= today - DAYS_KEPT * DAY_MS:
            found.append(StoredPeriod(DAY_MS, hour // DAY_MS * DAY_MS, lists, clicks, retracted, None))
    return found


def current_figures(figures: StoreFigures) -> StoredPeriod:
    """Return the present figures as those of the current hour."""
    groups, others = figures.largest_groups(HISTORY_GROUPS)
    kept = msgspec.structs.replace(figures, groups=groups, others=others)
    return StoredPeriod(HOUR, figures.time - figures.time % HOUR, 0, 0, 0, encode(kept))


def summed(periods: Iterable[StoredPeriod], resolution: int) -> list[StoredPeriod]:
    """Sum periods up to longer ones, or those of one start; the figures are those of the last one that has any."""
    found: dict[int, StoredPeriod] = {}
    for each in periods:
        start = each.start // resolution * resolution
        sums = found.get(start, StoredPeriod(resolution, start, 0, 0, 0, None))
        counts = (sums.lists + each.lists, sums.clicks + each.clicks, sums.retracted + each.retracted)
        found[start] = StoredPeriod(resolution, start, *counts, each.body or sums.body)
    return [found[start] for start in sorted(found)]
