"""Feedback: apply events to impressions, each at most once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

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

__all__ = ["FeedbackOperations", "OpenImpression"]


class FeedbackOperations(EngineState):
    """The operation of feedback, and the impressions that it applies to."""

    def feedback(
        self, events: list[Event], retract: bool = False, kept: Mapping[int, EventResult] | None = None
    ) -> FeedbackResults:
        """Apply events, or retract them; return one result per event.

        `kept` has the results of events, by their places, that were applied already and must not be applied again.
        """
        now, kept = self.now(), kept or {}
        opened: dict[Position | None, OpenImpression | EventResult] = {}
        positions = [None if i in kept else self.ids.position(event.impression) for i, event in enumerate(events)]
        pinned = self.pin_ledgers(positions)
        results = []
        for i, (event, position) in enumerate(zip(events, positions, strict=True)):
            if i in kept:
                results.append(kept[i])
                continue
            each = opened.get(position)
            if each is None:
                each = opened[position] = self.open_impression(position, now, pinned)
            results.append(each if isinstance(each, EventResult) else each.apply(event, retract))
        for each in opened.values():
            if isinstance(each, OpenImpression) and each.bits != each.before:
                self.write_feedback(each, now)
        return FeedbackResults(results)

    def pin_ledgers(self, positions: list[Position | None]) -> dict[int, Ledger]:
        """Return the ledgers of a batch by query number, to be used until all of its events are written.

        The cache may evict some of them before that, and a ledger loaded a second time would miss the unwritten events
        of the first. A cached ledger that ends before an impression is loaded again: another instance has ranked since.
        """
        pinned: dict[int, Ledger] = {}
        newest: dict[int, int] = {}
        for position in positions:
            if position is not None:
                newest[position.number] = max(position.seq, newest.get(position.number, 0))
        for number, seq in newest.items():
            ledger = self.ledger(number)
            if ledger is not None and ledger.seq < seq and self.store.shared:
                self.evict(number)
                ledger = self.ledger(number)
            if ledger is not None:
                pinned[number] = ledger
        return pinned

    def prefetch(self, batches: Iterable[list[Event]]) -> None:
        """Read the impressions of batches of events at once, those of queries whose ledgers are cached."""
        found = (self.ids.position(event.impression) for events in batches for event in events)
        places = {(each.number, each.seq) for each in found if each is not None and each.number in self.ledgers}
        if places:
            self.store.prefetch(list(places))

    def kept_results(
        self, events: list[Event], results: FeedbackResults, lost: Collection[int]
    ) -> dict[int, EventResult]:
        """Return the results of the events, by their places, that do not belong to queries that have lost."""
        positions = [self.ids.position(event.impression) for event in events]
        return {
            i: result
            for i, (position, result) in enumerate(zip(positions, results.results, strict=True))
            if position is None or position.number not in lost
        }

    def open_impression(
        self, position: Position | None, now: int, pinned: dict[int, Ledger]
    ) -> OpenImpression | EventResult:
        """Open an impression for feedback; return the result of its events if it cannot be opened.

        `pinned` has the ledgers of the batch, see `pin_ledgers`.
        """
        if position is None:
            return EventResult("unknown_impression")
        # The entry is read after the ledger was loaded: appending to it proves that nobody changed the entry since.
        ledger = pinned.get(position.number)
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
