"""Proofs on stored logs: that the counters follow from them, and that every ranking can be repeated."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import numpy as np

from ...errors import ConflictError, StoreError
from ..stores import KIND_FEEDBACK, KIND_IMPRESSION, LogEntry, Store, StoreCorruptError
from .ledger import Ledger
from .records import (
    FeedbackHistory,
    Snapshot,
    decode_flips,
    decode_impression,
    decode_positions,
    decode_snapshot,
    encode,
)
from .repository import PAGE_SIZE, UNREADABLE, LedgerRepository

Progress = Callable[[int], None]
"""Called with the number of each query that is done."""


def verify(store: Store, progress: Progress = lambda done: None) -> list[str]:
    """Verify that base snapshot + log = counters for every query; return the faults found.

    Applying the log to the base must reproduce every later snapshot, the feedback state of each impression must follow
    from its feedback entries, and nothing may be missing.
    """
    faults = store.check()
    try:
        repository = LedgerRepository(store)
        for number in repository.numbers():
            try:
                found = QueryVerification(repository, number).faults()
            except (StoreError, *UNREADABLE) as error:
                found = [str(error)]
            if found and store.key_of(number) is not None:  # otherwise it was deleted meanwhile
                faults += [f"query {number}: {fault}" for fault in found]
            progress(number)
    except StoreCorruptError as error:  # in what all queries share
        faults.append(str(error))
    return faults


class QueryVerification:
    """The verification of one query, page by page of its log, while entries may be added or compacted.

    Feedback changes the state of entries that were read before. The states that the log implies are therefore compared
    with the stored ones at the end, in one transaction with the rest of the log.
    """

    def __init__(self, repository: LedgerRepository, number: int) -> None:
        self.repository, self.store, self.number = repository, repository.store, number
        self.found: list[str] = []
        self.bits: dict[int, bytearray] = {}
        self.feedback: dict[int, FeedbackHistory] = {}
        self.with_state: set[int] = set()

    def faults(self) -> list[str]:
        """Verify the query; return the faults found."""
        with self.store.read_transaction():
            base = self.store.base(self.number)
            stored = self.store.snapshot(self.number, base) if base else None
            if base and (stored is None or stored[0] != base):
                return [f"the base snapshot at entry {base} is missing"]
            self.ledger = self.repository.ledger(self.number, from_base=True)
        ended = False
        while not ended:
            with self.store.read_transaction():
                if self.store.base(self.number) > self.ledger.seq:  # compaction has overtaken: begin again
                    return QueryVerification(self.repository, self.number).faults()
                page = list(islice(self.store.log(self.number, self.ledger.seq), PAGE_SIZE))
                self.check_page(page)
                ended = len(page) < PAGE_SIZE
                if ended:
                    self.check_end()
        return self.found

    def check_page(self, page: list[LogEntry]) -> None:
        """Apply entries to the ledger; compare it with the snapshots among them."""
        first, last = self.ledger.seq, page[-1].seq if page else self.ledger.seq
        snapshots = {seq: decode_snapshot(body) for seq, body in self.store.snapshots(self.number, first, last)}
        for entry in page:
            self.repository.apply(self.ledger, entry)
            if entry.kind == KIND_IMPRESSION:
                self.bits[entry.seq] = decode_impression(entry.body).bits(None)
                self.with_state |= {entry.seq} if entry.bits is not None else set()
            elif entry.kind == KIND_FEEDBACK:
                self.apply_feedback(entry)
            if entry.seq in snapshots and differ(self.ledger.snapshot(), snapshots[entry.seq]):
                self.found.append(f"base and log up to entry {entry.seq} do not reproduce the snapshot there")

    def apply_feedback(self, entry: LogEntry) -> None:
        """Apply a feedback entry to the state of its impression."""
        changes = decode_flips(entry.body)
        bits = self.bits.get(changes.impression)
        if bits is None:
            return  # the impression was compacted
        for rank, _, before, after in changes.changes:
            if bits[rank] != before:
                self.found.append(
                    f"feedback {entry.seq} counts rank {rank + 1} of impression {changes.impression} twice"
                )
            bits[rank] = after
        self.feedback.setdefault(changes.impression, []).extend(changes.history(entry.seq))

    def check_end(self) -> None:
        """Compare the stored feedback states, snapshots and items with the whole log."""
        for seq in sorted(self.with_state | self.feedback.keys()):
            entry = self.store.entry(self.number, seq)
            expected = encode(self.feedback[seq]) if seq in self.feedback else None
            if entry is not None and entry.bits != expected:
                self.found.append(f"the feedback state of impression {seq} does not follow from its feedback entries")
        ledger, base = self.ledger, self.store.base(self.number)
        outside = [seq for seq, _ in self.store.snapshots(self.number, ledger.seq)]
        outside += [seq for seq, _ in self.store.snapshots(self.number, -1, base - 1)]
        if outside:
            self.found.append(f"the snapshot at entry {outside[0]} is outside the log")
        for number, _, summary in self.store.summaries(self.number - 1, 1):
            if summary is None or number != self.number:
                continue
            if max(summary.booked, summary.seq) > ledger.seq:
                self.found.append(f"history has counted entry {summary.booked}, but the log ends with {ledger.seq}")
            elif summary.seq == ledger.seq and summary.visits != ledger.visits:
                self.found.append(f"the summary has {summary.visits} visits, but there were {ledger.visits}")
        if any((block.F < 0).any() or (block.C < 0).any() for block in ledger.counts.blocks.values()):
            self.found.append("a counter is negative")
        try:
            self.repository.ledger(self.number)
        except StoreCorruptError as error:
            self.found.append(str(error))


def differ(a: Snapshot, b: Snapshot) -> bool:
    """Return whether two snapshots differ."""
    return encode(a) != encode(b)


def replay(store: Store, progress: Progress = lambda done: None) -> tuple[int, int, list[str]]:
    """Repeat every decision in the log from the base of each query, and compare the lists.

    Returns the number of queries and of lists, and the differences.
    """
    repository = LedgerRepository(store)
    queries = lists = 0
    faults = []
    for number in repository.numbers():
        more = 0
        try:
            more, found = replay_query(repository, number)
        except (StoreCorruptError, *UNREADABLE) as error:
            found = [str(error)]
        if not found or store.key_of(number) is not None:  # otherwise it was deleted meanwhile
            lists += more
            faults += [f"query {number}: {fault}" for fault in found]
            queries += 1
        progress(number)
    return queries, lists, faults


def replay_query(repository: LedgerRepository, number: int) -> tuple[int, list[str]]:
    """Repeat the decisions of one query; return the number of lists and the differences."""
    store = repository.store
    lists, faults = 0, []
    ledger = repository.ledger(number, from_base=True)
    ended = False
    while not ended:
        with store.read_transaction():
            if store.base(number) > ledger.seq:  # compaction has overtaken: begin again
                return replay_query(repository, number)
            page = list(islice(store.log(number, ledger.seq), PAGE_SIZE))
            for entry in page:
                if entry.kind == KIND_IMPRESSION:
                    lists += 1
                    faults += repeated_list_faults(repository, ledger, entry)
                repository.apply(ledger, entry)
            ended = len(page) < PAGE_SIZE
            if ended and differ(ledger.snapshot(), repository.ledger(number).snapshot()):
                faults.append("the replayed counters differ from the current ones")
    return lists, faults


def repeated_list_faults(repository: LedgerRepository, ledger: Ledger, entry: LogEntry) -> list[str]:
    """Repeat the decision of an impression; return how it differs."""
    try:
        decision, _, _ = repository.repeat_decision(ledger, entry)
    except ConflictError as error:
        return [f"list {entry.seq}: {error}"]
    impression = decode_impression(entry.body)
    if np.array_equal(decision.pi, decode_positions(impression.policy_list or impression.shown)):
        return []
    return [f"the replayed list {entry.seq} differs from the stored one"]
