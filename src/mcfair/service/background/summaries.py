"""Summaries of all queries: a walk that computes those of changed queries, adds all of them up, and counts the log.

A walk reads committed rows page by page, beside those who write, and installs what has changed in small steps. Figures
of a small store are brought up to date for whoever asks for them, which writes nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager

import msgspec

from ..core.history import DAY_MS, ErasedGroups, SummaryUpdate, read_present
from ..core.installing import Install, PresentFigures, SummaryStep, Turn, WithoutGroups
from ..core.records import encode
from ..core.repository import UNREADABLE, LedgerRepository
from ..core.summaries import (
    HOUR,
    Counts,
    FigureSums,
    Present,
    StoreFigures,
    booked_counts,
    decode_query_figures,
    summarize,
)
from ..stores import Store, StoreCorruptError, StoredSummary

SMALL_STORE = 1_000
"""Number of queries up to which figures are brought up to date when they are asked for."""

ASKED_SECONDS = 2.0
"""Maximum time for bringing figures up to date when they are asked for, if there are figures of a walk instead."""

PAGE, STEP, BOOKED_STEP = 32, 16, 4_000
"""Queries that are read at a time, those that are installed in one step, and log entries that are booked in one."""

REST = 4.0
"""Rests of the background walk, relative to the time of its work."""

MAX_AGE, ASKED_AGE = 3_600_000, 10_000
"""Age of a summary, in ms, at which it is computed again because counts may have decayed or matured without an entry:
in the background, and for those who ask."""

IDLE_SECONDS = 60.0
"""Interval at which the time of unchanged figures is written."""


class CurrentFigures:
    """The figures of all queries for those who ask: of the time of the call if there are few, else of the last walk."""

    def __init__(self, log_unreadable: Callable[[Exception], None]) -> None:
        self.log_unreadable = log_unreadable
        self.lock = threading.Lock()
        self.computed: dict[int, StoredSummary] = {}  # what the last walk has computed, because nothing is written
        self.held: Present | None = None  # the figures of the last walk of a store that is not small

    @contextmanager
    def reading(self, store: Store, now: int) -> Iterator[tuple[Present, Counts]]:
        """Return the figures of all queries, and the counts of log entries that history has not booked yet.

        Inside the block the reader stays in the state that they are of.
        """
        small = len(store.numbers(0, SMALL_STORE + 1)) <= SMALL_STORE
        if not small and self.held is None and read_present(store) is None:
            with self.lock:
                if self.held is None:
                    walk = SummaryWalk(store, now, ASKED_AGE, self.log_unreadable)
                    for _ in walk.steps():
                        pass
                    self.held = walk.present()
        with store.read_transaction():
            walked = read_present(store) or self.held
            yield (walked, {}) if walked is not None and not small else self.present(store, now, walked)

    def present(self, store: Store, now: int, walked: Present | None) -> tuple[Present, Counts]:
        """Return figures of now; those of the last walk, if there are any, if that takes too long."""
        with self.lock:
            walk = SummaryWalk(store, now, ASKED_AGE, self.log_unreadable, self.computed)
            unbooked: Counts = {}
            end = time.monotonic() + ASKED_SECONDS
            for updates in walk.steps():
                for each in updates:
                    add_counts(unbooked, each.counts)
                if walked is not None and time.monotonic() > end:
                    self.computed |= walk.computed  # the next one gets further
                    return walked, {}
            self.computed = walk.computed
            return walk.present(), unbooked


def add_counts(sums: Counts, more: Counts) -> None:
    """Add counts by hour."""
    for hour, counts in more.items():
        sums[hour] = [a + b for a, b in zip(sums.get(hour, (0, 0, 0)), counts, strict=True)]


class Summaries:
    """Summarise all queries again and again.

    Parameters
    ----------
    install
        Installs what has changed; returns whether the store could be written.
    rest
        Rests for some seconds.
    log_unreadable
        Called with the damage of queries that are left out.
    """

    def __init__(
        self,
        install: Callable[[Install], bool],
        rest: Callable[[float], None],
        log_unreadable: Callable[[Exception], None],
    ) -> None:
        self.install, self.rest, self.log_unreadable = install, rest, log_unreadable
        self.latest: StoreFigures | None = None
        self.names: set[str | None] | None = None  # the groups of the last walk
        self.published: tuple[Present, float] | None = None  # the figures that were written last, and when that was

    def step(self, store: Store, turn: Turn) -> None:
        """Summarise all queries; on an instance that does not lead, read the figures of the one that does."""
        if turn.leads:
            self.walk(store, turn.now)
        elif (found := read_present(store)) is not None:
            self.latest = found.figures

    def walk(self, store: Store, now: int) -> None:
        """Summarise all queries, and install what has changed."""
        walk = SummaryWalk(store, now, MAX_AGE, self.log_unreadable)
        writable = True
        begun = time.perf_counter()
        for updates in walk.steps():
            if updates:
                writable = writable and self.install(SummaryStep(updates))
            self.rest(REST * (time.perf_counter() - begun))
            begun = time.perf_counter()
        present = walk.present()
        if writable and not self.is_published(present):
            if self.install(PresentFigures(present, walk.last)):
                self.published = present, time.monotonic()
            self.erase_groups(store, walk.sums.groups.keys())
        self.latest = present.figures

    def is_published(self, present: Present) -> bool:
        """Return whether the same figures were written a short time ago, in the same hour."""
        if self.published is None or self.is_overdue():
            return False
        before, now = self.published[0].figures.time, present.figures.time
        figures = msgspec.structs.replace(present.figures, time=before)
        return before // HOUR == now // HOUR and present._replace(figures=figures) == self.published[0]

    def is_overdue(self) -> bool:
        """Return whether the time of the figures is to be written although they have not changed."""
        return self.published is None or time.monotonic() - self.published[1] >= IDLE_SECONDS

    def erase_groups(self, store: Store, names: Set[str | None]) -> None:
        """Erase the names of groups that do not exist any more from the history, if there are any since the last walk.

        A group that is not told apart, because there are too many, counts as one that does not exist.
        """
        gone = self.names is None or not self.names <= names
        self.names = set(names)
        for resolution in (HOUR, DAY_MS) if gone else ():
            until = 2**62
            while page := store.periods(resolution, 0, until, STEP):
                until = page[0].start
                if erased := [found for each in page if (found := ErasedGroups.of(each, names)) is not None]:
                    self.install(WithoutGroups(erased))


class SummaryWalk:
    """One walk over all queries of a reader.

    Parameters
    ----------
    store
        The reader.
    now
        The time in ms.
    max_age
        Age of a summary, in ms, at which it is computed again although nothing was appended to the log.
    log_unreadable
        Called with the damage of queries that are left out.
    known
        Summaries that an earlier walk has computed and that are not stored, by query. Those that are used again, and
        those that this walk computes, are in `computed`, for a later walk.
    """

    def __init__(
        self,
        store: Store,
        now: int,
        max_age: int,
        log_unreadable: Callable[[Exception], None],
        known: dict[int, StoredSummary] | None = None,
    ) -> None:
        self.store, self.now, self.log_unreadable, self.known = store, now, log_unreadable, known
        self.computed: dict[int, StoredSummary] = {}
        self.repository = LedgerRepository(store)
        self.version = self.repository.in_force
        self.oldest = now - max_age
        self.sums = FigureSums()
        self.last = 0

    def steps(self) -> Iterator[list[SummaryUpdate]]:
        """Iterate over what is to be written, in small steps; a step is empty where the caller may rest."""
        while page := self.store.summaries(self.last, PAGE):
            pending: list[SummaryUpdate] = []
            affected = {
                number
                for deletion in self.store.deletions()
                for number, _ in self.store.rows_of_item(deletion.item, self.last, PAGE, deletion.number)
            }
            for number, head, stored in page:
                if number not in affected and stored is not None and self.is_current(stored, head):
                    self.sums.add(number, stored.visits, decode_query_figures(stored.body))
                else:
                    for update in self.updates(number, head, stored, number not in affected):
                        pending.append(update)
                        full = len(pending) >= STEP or update.summary is None  # a step has a query once
                        yield pending if full else []
                        pending = [] if full else pending
                self.last = number
            yield pending

    def present(self) -> Present:
        """Return the figures of all queries, after the last step."""
        return self.sums.present(self.now, self.version.number)

    def is_current(self, stored: StoredSummary, head: int) -> bool:
        """Return whether the summary of a query, whose log ends with the entry `head`, is not to be computed again."""
        version = self.version
        if (stored.booked, stored.seq, stored.version) != (head, head, version.number):
            return False
        if self.oldest < stored.time <= self.now:  # a later one is of a clock that was ahead
            return True
        return not version.maturation and version.bucket(stored.time) == version.bucket(self.now)  # it decays in steps

    def updates(self, number: int, head: int, stored: StoredSummary | None, usable: bool) -> Iterator[SummaryUpdate]:
        """Summarise a query and add it up; iterate over what is to be written. A damaged query is left out.

        A known summary is used again if it is `usable`. A long log is booked in steps of bounded length, all but the
        last without the summary.
        """
        summary = self.known.get(number) if self.known and usable else None
        try:
            if summary is None or not self.is_current(summary, head):
                ledger = self.repository.reported_ledger(number)
                if ledger is None:  # deleted meanwhile
                    return
                figures, base = summarize(ledger, self.version, self.now), ledger.base
                version, visits = self.version.number, ledger.visits
                summary = StoredSummary(number, ledger.seq, ledger.seq, version, self.now, visits, encode(figures))
            else:
                figures, base = decode_query_figures(summary.body), self.store.base(number)
            booked, seq = None if stored is None else stored.booked, summary.seq
            after = base if booked is None else booked
            for until in range(after + BOOKED_STEP, seq, BOOKED_STEP):
                yield SummaryUpdate(number, booked, until, self.counts(number, after, until), None)
                booked = after = until
            counts = self.counts(number, after, seq)
        except (StoreCorruptError, *UNREADABLE) as error:
            self.log_unreadable(error)
            return
        if self.known is not None:
            self.computed[number] = summary
        self.sums.add(number, summary.visits, figures)
        yield SummaryUpdate(number, booked, seq, counts, summary)

    def counts(self, number: int, after: int, until: int) -> Counts:
        """Count the lists and clicks of the log entries of a query with `after < seq <= until` by hour."""
        counts = booked_counts(self.store.feedback(number, after, until))
        for hour, lists in self.store.count_lists(number, after, until, HOUR):
            counts.setdefault(hour, [0, 0, 0])[0] += lists
        return counts
