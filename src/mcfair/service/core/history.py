"""History: what is written of summaries, counts by hour, and figures by hour and day.

Lists and clicks are counted from the log, never twice: in one transaction with the counts, the entry is written up to
which a query is booked, and only if nobody has moved it since it was read. Compaction counts what it deletes.
"""

from __future__ import annotations

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
    booked_counts,
    decode_figures,
    decode_items,
    decode_queries,
)

__all__ = ["DAYS_KEPT", "DAY_MS", "HOURS_KEPT", "HistoryOperations", "SummaryUpdate", "Turn", "read_present"]

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


class Turn(NamedTuple):
    """Whether this instance is to summarise, the time, and the number of rows changed so far by this instance."""

    leads: bool
    now: int
    changes: int


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

    def take_turn(self) -> Turn:
        """Return whether this instance is to summarise, the time, and the rows changed so far."""
        return Turn(self.store.leads(), self.now(), self.store.changes)

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
        """Add counts by hour to the history: to days if hours so old are not kept, and nowhere if days are not."""
        today = self.now() // DAY_MS * DAY_MS
        for hour, sums in sorted(counts.items()):
            if hour >= today - HOURS_KEPT * DAY_MS:
                self.store.add_to_period(HOUR, hour, *sums)
            elif hour >= today - DAYS_KEPT * DAY_MS:
                self.store.add_to_period(DAY_MS, hour // DAY_MS * DAY_MS, *sums)

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
        groups, others = figures.largest_groups(HISTORY_GROUPS)
        kept = msgspec.structs.replace(figures, groups=groups, others=others)
        self.store.set_figures(HOUR, figures.time - figures.time % HOUR, encode(kept))
        self.fold_hours()

    def erase_groups(self, periods: Sequence[StoredPeriod], names: Collection[str | None]) -> None:
        """Add groups that no query has any more to the others, in periods that have not changed since they were read.

        `names` are the groups that exist.
        """
        for each in periods:
            figures = None if each.body is None else decode_figures(each.body).with_groups(names)
            if figures is not None and self.store.periods(each.resolution, each.start, each.start + 1, 1) == [each]:
                self.store.erase_figures(each.resolution, each.start, encode(figures))

    def fold_hours(self) -> None:
        """Fold hours that are too old into days, and delete days that are too old."""
        today = self.now() // DAY_MS * DAY_MS
        first, oldest = today - HOURS_KEPT * DAY_MS, today - DAYS_KEPT * DAY_MS
        old = self.store.periods(HOUR, 0, first, 10_000)
        for each in days_of(old):
            if each.start >= oldest:
                self.store.add_to_period(*each[:5])
                if each.body is not None:
                    self.store.set_figures(DAY_MS, each.start, each.body)
        if old:
            self.store.delete_periods(HOUR, first)
        self.store.delete_periods(DAY_MS, oldest)


def days_of(hours: Iterable[StoredPeriod]) -> list[StoredPeriod]:
    """Sum hours up to days; the figures of a day are those of its last hour that has any."""
    days: dict[int, StoredPeriod] = {}
    for each in hours:
        start = each.start // DAY_MS * DAY_MS
        day = days.get(start, StoredPeriod(DAY_MS, start, 0, 0, 0, None))
        sums = (day.lists + each.lists, day.clicks + each.clicks, day.retracted + each.retracted)
        days[start] = StoredPeriod(DAY_MS, start, *sums, each.body or day.body)
    return list(days.values())
