"""Summaries of all queries: a walk that computes those of changed queries, adds all of them up, and counts the log.

The walk reads committed rows page by page, beside the engine, and submits what is to be written in small steps. A
thread repeats it in the background. Figures of a small store are brought up to date by whoever asks for them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Set
from concurrent.futures import Future
from typing import Any, Protocol

import msgspec

from ..errors import StoreError, UnavailableError
from .core.engine import Engine
from .core.history import DAY_MS, SummaryUpdate, read_present
from .core.records import encode
from .core.repository import UNREADABLE, LedgerRepository
from .core.summaries import (
    HOUR,
    Counts,
    FigureSums,
    Present,
    StoreFigures,
    booked_counts,
    decode_figures,
    decode_query_figures,
    summarize,
)
from .stores import Store, StoreCorruptError, StoredSummary

__all__ = ["SUMMARY_INTERVAL", "Summarizer"]

SUMMARY_INTERVAL = 5.0
"""Default interval between walks, in seconds."""

SMALL_STORE = 1_000
"""Number of queries up to which figures are brought up to date when they are asked for."""

PAGE, STEP, BOOKED_STEP = 32, 16, 4_000
"""Queries that are read at a time, those that are written in one step, and log entries that are booked in one step."""

REST = 4.0
"""Rests of the background walk, relative to the time of its work: requests are ranked by the same interpreter."""

MAX_AGE, ASKED_AGE = 3_600_000, 10_000
"""Age of a summary, in ms, at which it is computed again because counts may have decayed or matured without an entry:
in the background, and for those who ask."""

IDLE_SECONDS = 60.0
"""Interval at which the time of unchanged figures is written."""

logger = logging.getLogger("mcfair.service")


class Executor(Protocol):
    """Executes the operations of an engine: see `mcfair.service.group_commit.GroupCommit`."""

    store: Store

    def submit(self, work: Callable[..., Any], *args: Any) -> Future[Any]:
        """Submit an operation from any thread; the future resolves once its effect is durable."""

    def log_unreadable(self, error: Exception | str) -> None:
        """Log damaged or unreadable data, each cause once."""


class Summarizer:
    """Summarise all queries, in the background once it is started, or when figures are asked for.

    Attributes
    ----------
    latest
        The figures of the last walk of this instance, or those that it has read last; None before.
    """

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.latest: StoreFigures | None = None
        self.lock = threading.Lock()  # one walk for those who ask at a time; the thread does not keep them waiting
        self.stopped = threading.Event()
        self.thread: threading.Thread | None = None
        self.names: set[str | None] | None = None  # the groups of the last walk
        self.published: tuple[Present, float] | None = None  # the figures that were written last, and when that was
        self.unchanged = -1  # the number of changed rows at which a walk has found nothing to write

    # --- when asked --------------------------------------------------------------------------------------------------

    def current(self, store: Store, now: int) -> Present:
        """Return the figures of all queries: if there are few, those of a time in ms, else those of the last walk.

        `store` is a reader that was opened after that time.
        """
        if len(store.numbers(0, SMALL_STORE + 1)) > SMALL_STORE and (found := read_present(store)) is not None:
            return found
        with self.lock:
            return self.walk(store, now, resting=False)

    # --- in the background -------------------------------------------------------------------------------------------

    def start(self, interval: float = SUMMARY_INTERVAL) -> None:
        """Start the thread that repeats the walk."""
        self.thread = threading.Thread(target=self.run, args=(interval,), name="mcfair-summaries", daemon=True)
        self.thread.start()

    def stop(self) -> None:
        """Stop the thread, and wait until it has closed its reader."""
        self.stopped.set()
        if self.thread is not None:
            self.thread.join(10.0)

    def run(self, interval: float) -> None:
        """Walk over all queries until stopped, on one of the instances that share a store."""
        while not self.stopped.wait(interval):
            try:
                self.repeat()
            except UnavailableError:
                continue  # stopping, or the store cannot be written: that is logged where it was found
            except (StoreError, OSError) as error:
                self.executor.log_unreadable(error)
            except Exception as error:  # its message may quote stored data
                logger.error("queries cannot be summarised: %s", type(error).__name__)

    def repeat(self) -> None:
        """Walk over all queries if anything has changed; if another instance does that, read its figures."""
        leads, now, changes = self.executor.submit(Engine.take_turn).result()
        shared = self.executor.store.shared
        if leads and not shared and changes == self.unchanged and not self.is_overdue():
            return
        with self.executor.store.reader() as store:
            if leads:
                self.walk(store, now, resting=True)
            elif (found := read_present(store)) is not None:
                self.latest = found.figures
        # Entries that were appended during the walk must not be taken for rows that it has written itself.
        wrote = self.executor.submit(Engine.take_turn).result().changes != changes
        self.unchanged = -1 if wrote else changes

    # --- the walk ----------------------------------------------------------------------------------------------------

    def walk(self, store: Store, now: int, *, resting: bool) -> Present:
        """Summarise all queries, write what has changed, and return the figures.

        If the store cannot be written, the figures are computed all the same.
        """
        walk = SummaryWalk(store, now, MAX_AGE if resting else ASKED_AGE, self.executor.log_unreadable)
        writable = True
        begun = time.perf_counter()
        for updates in walk.steps():
            writable = writable and self.write(Engine.write_summaries, updates)
            if resting and self.stopped.wait(REST * (time.perf_counter() - begun)):
                raise UnavailableError("the service is stopping")
            begun = time.perf_counter()
        present = walk.present()
        if writable and not self.is_published(present):
            if self.write(Engine.write_present, present, walk.last):
                self.published = present, time.monotonic()
            self.erase_groups(store, walk.sums.groups.keys())
        self.latest = present.figures
        return present

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
                if any(each.body and decode_figures(each.body).with_groups(names) for each in page):
                    self.write(Engine.erase_groups, page, self.names)

    def write(self, work: Callable[..., None], *args: Any) -> bool:
        """Execute an operation that writes; return whether the store could be written."""
        try:
            self.executor.submit(work, *args).result()
        except UnavailableError:
            return False
        return True


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
    """

    def __init__(self, store: Store, now: int, max_age: int, log_unreadable: Callable[[Exception], None]) -> None:
        self.store, self.now, self.log_unreadable = store, now, log_unreadable
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
                if stored is not None and self.is_current(stored, head) and number not in affected:
                    self.sums.add(number, stored.visits, decode_query_figures(stored.body))
                else:
                    for update in self.updates(number, stored):
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

    def updates(self, number: int, stored: StoredSummary | None) -> Iterator[SummaryUpdate]:
        """Summarise a query and add it up; iterate over what is to be written. A damaged query is left out.

        A long log is booked in steps of bounded length, all but the last without the summary.
        """
        try:
            ledger = self.repository.reported_ledger(number)
            if ledger is None:  # deleted meanwhile
                return
            figures = summarize(ledger, self.version, self.now)
            booked, seq = None if stored is None else stored.booked, ledger.seq
            after = ledger.base if booked is None else booked
            for until in range(after + BOOKED_STEP, seq, BOOKED_STEP):
                yield SummaryUpdate(number, booked, until, self.counts(number, after, until), None)
                booked = after = until
            counts = self.counts(number, after, seq)
        except (StoreCorruptError, *UNREADABLE) as error:
            self.log_unreadable(error)
            return
        self.sums.add(number, ledger.visits, figures)
        summary = StoredSummary(number, seq, seq, self.version.number, self.now, ledger.visits, encode(figures))
        yield SummaryUpdate(number, booked, seq, counts, summary)

    def counts(self, number: int, after: int, until: int) -> Counts:
        """Count the lists and clicks of the log entries of a query with `after < seq <= until` by hour."""
        counts = booked_counts(self.store.feedback(number, after, until))
        for hour, lists in self.store.count_lists(number, after, until, HOUR):
            counts.setdefault(hour, [0, 0, 0])[0] += lists
        return counts
