"""The body of background work: it answers reads, and repeats summaries, fits and the guard of experiments.

It is given a way to open readers of the store and a writer, and runs in a thread, or in a process of its own.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from ...errors import MCFairError, NotFoundError, RequestError, StoreError, UnavailableError
from ..core.arm_guards import harmful_arms
from ..core.fits import PriorFits
from ..core.installing import Install, RuleInstall, StoppedArm, Turn
from ..core.repository import LedgerRepository
from ..core.summaries import Counts, Present, StoreFigures
from ..stores import Store
from ..wire import encoder
from .summaries import CurrentFigures, Summaries

T = TypeVar("T")

COMPARISONS = 4
"""Comparisons that are computed or wait for it; further ones are refused, so that other reads keep their places."""

COMPARE_SECONDS = 5.0
"""When a comparison that was refused may be asked for again."""

FAILURES = (
    "queries cannot be summarised",
    "the prior of the estimator cannot be fitted",
    "the guard of the experiment cannot stop an arm",
)
"""Messages in the log for the steps of the repeated work that fail, in the order of `Intervals`."""

IDLE_READERS = 2
"""Readers of a shared store that are kept open: each of them is a connection."""

STOP_SECONDS = 10.0
"""How long a step under way may take to end when the work is stopped."""

logger = logging.getLogger("mcfair.service")


class Intervals(NamedTuple):
    """Intervals of the repeated work, in seconds; 0 leaves it to the caller."""

    summaries: float
    fits: float
    guard: float


DEFAULT_INTERVALS = Intervals(20.0, 5.0, 5.0)
"""The intervals of a service. The test of the guard holds however often it is made."""


@dataclass
class Step:
    """Repeated work: its function, what the log reports if it fails, its interval, and the time at which it is due."""

    run: Callable[[], None]
    failure: str
    interval: float
    due: float


class Writer(Protocol):
    """What background work needs of those who write."""

    def turn(self) -> Turn:
        """Return whether this instance is to do background work, the time, and the rows changed so far."""

    def install(self, what: Install) -> None:
        """Install summaries or figures; raise UnavailableError if the store cannot be written."""

    def install_rules(self, what: RuleInstall) -> bool:
        """Install a change of the rules; return whether it took effect."""


class Readers:
    """Opens readers of a store; those of a shared one are used again, because connecting takes longer than a read.

    Parameters
    ----------
    open_reader
        Opens a reader of the store, from any thread.
    """

    def __init__(self, open_reader: Callable[[], AbstractContextManager[Store]]) -> None:
        self.open_reader = open_reader
        self.idle: list[tuple[Store, ExitStack]] = []
        self.closed = False

    @contextmanager
    def __call__(self) -> Iterator[Store]:
        """Open a reader, or use one again; one that an error came from is closed."""
        try:
            store, opened = self.idle.pop()
        except IndexError:
            opened = ExitStack()
            store = opened.enter_context(self.open_reader())
        kept = False
        try:
            yield store
            kept = True
        except (NotFoundError, RequestError):
            kept = True
            raise
        finally:
            if kept and store.shared and len(self.idle) < IDLE_READERS and not self.closed:
                self.idle.append((store, opened))
            else:
                opened.close()

    def close(self) -> None:
        """Close the readers that are not in use, and keep no others."""
        self.closed = True
        while self.idle:
            self.idle.pop()[1].close()


class Reading:
    """One read: a reader of the store, which sees what was committed before, and the time in ms."""

    def __init__(self, worker: Worker, store: Store, now: int) -> None:
        self.worker, self.store, self.now = worker, store, now
        self.found: Present | None = None

    @contextmanager
    def figures(self) -> Iterator[tuple[Present, Counts]]:
        """Return the figures of all queries, and the counts that history has not booked yet.

        Inside the block the reader stays in the state that they are of.
        """
        with self.worker.current.reading(self.store, self.now) as found:
            self.found = found[0]
            self.worker.publish(self.found.figures)
            yield found

    def present(self) -> Present:
        """Return the figures of all queries: the same for all parts of a page."""
        if self.found is None:
            with self.figures() as (found, _):
                return found
        return self.found

    def comparing(self) -> AbstractContextManager[None]:
        """Wait for the place of the one comparison that is computed at a time."""
        return self.worker.comparing()


class Worker:
    """Answers reads, and repeats background work in a thread once it is started.

    Parameters
    ----------
    open_reader
        Opens a reader of the store, from any thread.
    writer
        Writes what is to last.
    log_unreadable
        Logs damaged or unreadable data, each cause once.
    publish
        Called with the figures of all queries whenever there are others.
    """

    def __init__(
        self,
        open_reader: Callable[[], AbstractContextManager[Store]],
        writer: Writer,
        log_unreadable: Callable[[Exception], None],
        publish: Callable[[StoreFigures], None] = lambda figures: None,
    ) -> None:
        self.open_reader, self.writer = Readers(open_reader), writer
        self.log_unreadable, self.on_figures = log_unreadable, publish
        self.current = CurrentFigures(log_unreadable)
        self.summaries, self.fits = Summaries(self.install, self.rest, log_unreadable), PriorFits()
        self.places, self.comparison = threading.BoundedSemaphore(COMPARISONS), threading.Lock()
        self.figures: StoreFigures | None = None  # the latest ones
        self.unchanged: dict[Callable[[], None], int | None] = {}  # rows changed when a step has found nothing to do
        self.stopped = threading.Event()
        self.thread: threading.Thread | None = None

    # --- reads -------------------------------------------------------------------------------------------------------

    def read(self, function: Callable[..., T], now: int, arguments: dict[str, Any]) -> T:
        """Execute a read: a function of a `Reading` and its arguments."""
        with self.reading(now) as reading:
            return function(reading, **arguments)

    def iterate(
        self, function: Callable[..., Iterator[bytes]], now: int, arguments: dict[str, Any]
    ) -> Generator[bytes, None, None]:
        """Execute a read whose result is a stream."""
        with self.reading(now) as reading:
            yield from function(reading, **arguments)

    @contextmanager
    def reading(self, now: int) -> Iterator[Reading]:
        """Open a reader; convert its errors to UnavailableError, and log their cause, which may name paths."""
        if self.stopped.is_set():
            raise UnavailableError("the service is stopping")
        try:
            with self.open_reader() as store:
                yield Reading(self, store, now)
        except (StoreError, OSError) as error:
            self.log_unreadable(error)
            raise UnavailableError("the store cannot be read") from error

    @contextmanager
    def comparing(self) -> Iterator[None]:
        """Take the place of the one comparison that is computed at a time: each takes a processor for seconds."""
        if not self.places.acquire(blocking=False):
            raise UnavailableError("other comparisons are being computed", COMPARE_SECONDS)
        try:
            with self.comparison:
                yield
        finally:
            self.places.release()

    # --- repeated work -----------------------------------------------------------------------------------------------

    def start(self, intervals: Intervals) -> None:
        """Start the thread that repeats what has an interval."""
        steps = zip((self.summarize, self.fit, self.guard), FAILURES, intervals, strict=True)
        now = time.monotonic()
        self.steps = [Step(step, what, seconds, now + seconds) for step, what, seconds in steps if seconds > 0.0]
        if self.steps:
            self.thread = threading.Thread(target=self.run, name="mcfair-background", daemon=True)
            self.thread.start()

    def stop(self) -> None:
        """Stop the thread, and wait until it has closed its reader; refuse later reads."""
        self.stopped.set()
        if self.thread is not None:
            self.thread.join(STOP_SECONDS)
        self.open_reader.close()

    def run(self) -> None:
        """Repeat what is due until stopped."""
        while not self.stopped.wait(max(0.0, min(step.due for step in self.steps) - time.monotonic())):
            self.run_due()

    def run_due(self) -> None:
        """Do what is due; a step that fails is logged, and repeated when it is due again."""
        for step in [each for each in self.steps if time.monotonic() >= each.due]:
            step.due = math.inf  # a walk that rests does not begin another one
            try:
                step.run()
            except UnavailableError:
                pass  # stopping, or the store cannot be written: that is logged where it was found
            except (StoreError, OSError) as error:
                self.log_unreadable(error)
            except MCFairError as error:
                logger.error("%s: %s", step.failure, error)
            except Exception as error:  # its message may quote stored data
                logger.error("%s: %s", step.failure, type(error).__name__)
            step.due = time.monotonic() + step.interval

    def rest(self, seconds: float) -> None:
        """Rest from a walk, and do what else is due meanwhile."""
        if self.thread is threading.current_thread():
            if self.stopped.wait(seconds):
                raise UnavailableError("the service is stopping")
            self.run_due()

    def is_new(self, step: Callable[[], None], turn: Turn) -> bool:
        """Return whether anything was written since a step has found nothing to do."""
        return turn.changes is None or turn.changes != self.unchanged.get(step)

    def summarize(self) -> None:
        """Summarise all queries if anything has changed; if another instance does that, read its figures."""
        turn = self.writer.turn()
        if turn.leads and not self.is_new(self.summarize, turn) and not self.summaries.is_overdue():
            return
        with self.open_reader() as store:
            self.summaries.step(store, turn)
        if self.summaries.latest is not None:
            self.publish(self.summaries.latest)
        # Entries that were appended during the walk must not be taken for rows that it has written itself.
        if self.writer.turn().changes == turn.changes:
            self.unchanged[self.summarize] = turn.changes

    def fit(self) -> None:
        """Fit the prior of a pooled estimator, if that is due."""
        turn = self.writer.turn()
        if turn.leads and self.is_new(self.fit, turn):
            with self.open_reader() as store:
                self.fits.step(store, turn.now, self.writer.install_rules)
            self.unchanged[self.fit] = turn.changes

    def guard(self) -> None:
        """Stop the harmful arms of the running experiment."""
        self.stop_harmful_arms()

    def stop_harmful_arms(self) -> dict[str, str]:
        """Test the arms of the running experiment, and stop those that are harmful; return why, by name."""
        if not self.writer.turn().leads:
            return {}
        with self.open_reader() as store:
            version = LedgerRepository(store).in_force
            harmful = harmful_arms(store, version)
        stopped = {}
        for arm, why in harmful.items():
            if self.writer.install_rules(StoppedArm(version.experiment, arm, why)):
                stopped[arm] = why
                name = "" if version.rules.experiment is None else version.rules.experiment.name
                logger.warning("the experiment %r stops its arm %r: it %s", name, arm, why)
        return stopped

    # --- effects -----------------------------------------------------------------------------------------------------

    def install(self, what: Install) -> bool:
        """Install something; return whether the store could be written."""
        try:
            self.writer.install(what)
        except UnavailableError:
            return False
        return True

    def publish(self, figures: StoreFigures) -> None:
        """Publish figures unless they are the same as the last ones."""
        if figures != self.figures:
            self.figures = figures
            self.on_figures(figures)


# --- reads, encoded --------------------------------------------------------------------------------------------------


class Read(NamedTuple):
    """A function of a `Reading` and arguments of some types."""

    function: Callable[..., Any]
    types: Mapping[str, Any]

    def convert(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments in their types, from plain data."""
        return {name: msgspec.convert(value, self.types.get(name, Any)) for name, value in arguments.items()}


class Reply(msgspec.Struct, array_like=True):
    """A response, encoded; without headers it is JSON that must not be stored."""

    status: int
    headers: list[tuple[bytes, bytes]] | None
    body: bytes


def answer(worker: Worker, read: Read, now: int, arguments: dict[str, Any]) -> Reply:
    """Execute a read, and encode its result."""
    result = worker.read(read.function, now, arguments)
    return result if isinstance(result, Reply) else Reply(200, None, encoder.encode(result))
