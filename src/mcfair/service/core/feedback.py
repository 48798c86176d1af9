"""Feedback: apply events to impressions, each at most once."""

from __future__ import annotations

import itertools
import time
from collections.abc import Collection, Iterable, Sequence

from ..stores import KIND_FEEDBACK, KIND_IMPRESSION, LogEntry
from ..wire import Event, EventResult, FeedbackResults
from .engine_state import EngineState
from .ids import Position
from .ledger import Ledger
from .records import (
    CLICKED,
    SHOWN,
    UNCLICKED,
    UNSHOWN,
    Assignment,
    BitChanges,
    decode_feedback,
    decode_impression,
    decode_positions,
    encode,
)
from .rules import Version

SLICE_SECONDS, SLICE_LEDGERS, SLICE_BYTES = 0.002, 32, 64 << 20
"""Bounds of one slice of a batch: the time of deciding its events, and the number and the size of their ledgers."""

Events = Sequence[Event | EventResult]
"""Events; one that does not fit its type is its result already."""


class FeedbackOperations(EngineState):
    """The operation of feedback, and the impressions that it applies to."""

    def feedback(
        self,
        events: Events,
        retract: bool = False,
        kept: Sequence[EventResult | None] | None = None,
        sliced: bool = False,
    ) -> FeedbackResults:
        """Apply events, or retract them; return one result per event.

        If `sliced`, apply a slice of them that takes limited time and memory, and return the results of that: at least
        one, those of the first events. `kept` has the results of a slice; None stands for events to apply again.
        """
        now, bounded = self.now(), sliced and kept is None
        opened: dict[Position | None, OpenImpression | EventResult] = {}
        pinned = PinnedLedgers()
        results: list[EventResult] = []
        end = time.perf_counter() + SLICE_SECONDS
        for event, known in zip(events, kept or itertools.repeat(None)):  # noqa: B905 (the slice may be shorter)
            if isinstance(event, EventResult):
                results.append(event)
                continue
            if known is not None:
                results.append(known)
                continue
            position = self.ids.position(event.impression)
            each = opened.get(position)
            if each is None:  # a slice never ends between events on the same impression
                if bounded and results and time.perf_counter() > end:
                    break
                if position is not None and not self.pin(position, pinned, bounded and bool(results)):
                    break
                each = opened[position] = self.open_impression(position, now, pinned)
            results.append(each.apply(event, retract) if isinstance(each, OpenImpression) else each)
        for each in opened.values():
            if isinstance(each, OpenImpression) and each.bits != each.before:
                self.write_feedback(each, now)
        return FeedbackResults(results)

    def pin(self, position: Position, pinned: PinnedLedgers, bounded: bool) -> bool:
        """Pin the ledger of an impression, to be used until the events are written.

        The cache may evict it before that, and a ledger loaded a second time would miss the unwritten events of the
        first. A cached ledger that ends before the impression is loaded again, once: another instance has ranked since.
        Return False if the slice must end before that, or because there is no room for the ledger.
        """
        number, seq = position.number, position.seq
        if number in pinned.ledgers:
            return not (bounded and self.store.shared and pinned.is_behind(number, seq))
        if bounded and (len(pinned.ledgers) >= SLICE_LEDGERS or pinned.nbytes > SLICE_BYTES):
            return False
        pinned.add(number, self.ledger(number))
        if self.store.shared and pinned.is_behind(number, seq):
            self.evict(number)
            pinned.add(number, self.ledger(number))
            pinned.reloaded.add(number)
        return True

    def prefetch(self, batches: Iterable[Events]) -> None:
        """Read the first impressions of batches of events at once, those of queries whose ledgers are cached."""
        found = (self.place(event) for events in batches for event in itertools.islice(events, 2 * SLICE_LEDGERS))
        places = {(each.number, each.seq) for each in found if each is not None and each.number in self.ledgers}
        if places:
            self.store.prefetch(list(places))

    def place(self, event: Event | EventResult) -> Position | None:
        """Return the position of the impression of an event; None if it has none."""
        return None if isinstance(event, EventResult) else self.ids.position(event.impression)

    def kept_results(self, events: Events, results: FeedbackResults, lost: Collection[int]) -> list[EventResult | None]:
        """Return the results of a slice, with None for the events on queries that have lost."""
        places = map(self.place, events[: len(results.results)])
        return [
            None if place is not None and place.number in lost else result
            for place, result in zip(places, results.results, strict=True)
        ]

    def open_impression(
        self, position: Position | None, now: int, pinned: PinnedLedgers
    ) -> OpenImpression | EventResult:
        """Open an impression for feedback; return the result of its events if it cannot be opened.

        `pinned` has the ledgers of the batch, see `pin`.
        """
        if position is None:
            return EventResult("unknown_impression")
        # The entry is read after the ledger was loaded: appending to it proves that nobody changed the entry since.
        ledger = pinned.ledgers[position.number]
        if ledger is None:
            return EventResult("unknown_impression")
        entry = self.find_impression(position)
        if entry is None:
            return EventResult("expired" if self.is_compacted(position) else "unknown_impression")
        made, candidates = self.repository.impression(ledger, entry)
        version = self.repository.version(entry)
        if now >= entry.time + version.retention:
            return EventResult("expired")
        rows = candidates.rows_at(decode_positions(made.shown)).tolist()
        return OpenImpression(ledger, entry, rows, version, made.bits(entry.bits), made.assignment)

    def find_impression(self, position: Position) -> LogEntry | None:
        """Return the log entry of an impression; None if there is none, or if the entry has another epoch."""
        entry = self.store.entry(position.number, position.seq)
        if entry is None or entry.kind != KIND_IMPRESSION or decode_impression(entry.body).epoch != position.epoch:
            return None
        return entry if self.exists(position.number) and not self.is_compacted(position) else None

    def is_compacted(self, position: Position | None) -> bool:
        """Return whether a position belongs to the compacted part of a log."""
        if position is None:
            return False
        ledger = self.cached(position.number)
        base = self.store.base(position.number) if ledger is None else ledger.base
        return position.seq <= base and self.exists(position.number)

    def write_feedback(self, each: OpenImpression, now: int) -> None:
        """Append the effect of events on one impression to the log and record it in the ledger."""
        ledger, entry = each.ledger, each.entry
        changes = BitChanges(
            entry.seq,
            each.version.examination,
            each.version.bucket(entry.time),
            [
                (rank, each.rows[rank], before, after)
                for rank, (before, after) in enumerate(zip(each.before, each.bits, strict=True))
                if before != after
            ],
        )
        seq, when = ledger.seq + 1, max(now, ledger.time)
        history = [] if entry.bits is None else decode_feedback(entry.bits)
        self.store.append(
            ledger.number,
            LogEntry(seq, when, KIND_FEEDBACK, self.version.number, None, encode(changes), None),
            ledger.revision,
        )
        if each.assignment is not None:
            self.count_list(ledger, each.version, each.assignment, each.before, bytes(each.bits))
        self.store.set_bits(ledger.number, entry.seq, encode(history + changes.history(seq)))
        ledger.record_feedback(seq, when, changes, self.version)
        self.take_snapshot(ledger)


class PinnedLedgers:
    """The ledgers of a slice by query number, None for a query that does not exist, and their size."""

    def __init__(self) -> None:
        self.ledgers: dict[int, Ledger | None] = {}
        self.reloaded: set[int] = set()
        self.nbytes = 0

    def add(self, number: int, ledger: Ledger | None) -> None:
        """Add a ledger."""
        self.ledgers[number] = ledger
        self.nbytes += 0 if ledger is None else ledger.nbytes

    def is_behind(self, number: int, seq: int) -> bool:
        """Return whether a ledger ends before an entry, and may be out of date."""
        ledger = self.ledgers[number]
        return ledger is not None and ledger.seq < seq and number not in self.reloaded


class OpenImpression:
    """An impression during feedback: its state before the events of a batch and after them."""

    def __init__(
        self,
        ledger: Ledger,
        entry: LogEntry,
        rows: list[int],
        version: Version,
        bits: bytearray,
        assignment: Assignment | None,
    ) -> None:
        self.ledger, self.entry, self.rows, self.version = ledger, entry, rows, version
        self.assignment = assignment
        self.before, self.bits = bytes(bits), bits

    def apply(self, event: Event, retract: bool) -> EventResult:
        """Apply an event, or retract it."""
        if event.type == "click":
            if event.item is None:
                return EventResult("invalid", "a click requires an item")
            if event.ranks is not None:
                return EventResult("invalid", "a click has an item, not ranks")
            row = self.ledger.index.get(event.item)
            if row is None or row not in self.rows:
                return EventResult("not_in_impression")
            return self.set([self.rows.index(row)], UNCLICKED if retract else CLICKED)
        if event.type == "shown":
            if event.item is not None:
                return EventResult("invalid", "shown has ranks, not an item")
            ranks = range(1, len(self.rows) + 1) if event.ranks is None else event.ranks
            if not all(1 <= rank <= len(self.rows) for rank in ranks):
                return EventResult("not_in_impression")
            return self.set([rank - 1 for rank in ranks], UNSHOWN if retract else SHOWN)
        return EventResult("invalid", f"unknown type {event.type!r}; available: click, shown")

    def set(self, ranks: list[int], bit: int) -> EventResult:
        """Set one bit at some ranks; an event that sets no new bit is a duplicate."""
        if all(self.bits[rank] & bit for rank in ranks):
            return EventResult("duplicate")
        for rank in ranks:
            self.bits[rank] |= bit
        return EventResult("applied")
