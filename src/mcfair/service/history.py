"""Everything derived from stored logs: past ledgers, repeated decisions, verification, replay, export, fairness."""

from __future__ import annotations

import datetime
import zlib
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import msgspec
import numpy as np

from ..analysis.limits import fairness_floor
from ..arrays import FloatArray, IntArray
from ..data.dataset import Dataset
from ..errors import StoreError
from ..metrics.exposure import query_unfairness
from ..policies.selection import top_k_scratch
from .decision import Decision, decide
from .ledger import BitChanges, Candidates, Examinations, Impression, Ledger, Snapshot
from .rules import Rules, Version
from .stores import KIND_FEEDBACK, KIND_IMPRESSION, LogEntry, Store, StoreCorruptError
from .wire import Fairness, GroupFairness, ItemState, QueryState

__all__ = ["LedgerRepository", "export", "fairness", "replay", "to_datetime", "verify"]

PAGE_SIZE = 256
"""Query numbers, or entries of a log, that are read from a store in one transaction.

Scans over a store hold no transaction between pages, so that a slow one does not keep the write-ahead log from being
checkpointed. What they report of a query is consistent in itself; different queries are read at different times.
"""

UNREADABLE = (
    msgspec.MsgspecError, zlib.error, ValueError, LookupError, TypeError, ArithmeticError, AttributeError,
    AssertionError, MemoryError,
)  # fmt: skip
"""Errors that decoding and applying damaged rows may end in."""

decode_impression = msgspec.msgpack.Decoder(Impression).decode
decode_flips = msgspec.msgpack.Decoder(BitChanges).decode
decode_snapshot = msgspec.msgpack.Decoder(Snapshot).decode
decode_version = msgspec.msgpack.Decoder(Version).decode
decode_row = msgspec.msgpack.Decoder(int).decode
encode = msgspec.msgpack.Encoder().encode


def to_datetime(time: int) -> datetime.datetime:
    """Convert a time in ms to a datetime."""
    return datetime.datetime.fromtimestamp(time / 1000, datetime.UTC)


class LedgerRepository:
    """Loads ledgers from snapshots and logs, and holds every version of the rules."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.versions: dict[int, Version] = {}
        self.longest_maturation = 0  # over all versions, in ms
        self.examinations = Examinations()
        self.scratch = top_k_scratch(0)
        for _, body in store.versions():
            self.add_version(decode_version(body))

    def add_version(self, version: Version) -> None:
        """Add a version of the rules."""
        number = self.examinations.number(version.rules.examination)
        if number != version.examination:
            raise StoreError(
                f"version {version.number} of the rules refers to examination {version.examination}: expected {number}"
            )
        self.versions[version.number] = version
        self.longest_maturation = max(self.longest_maturation, version.maturation)

    @property
    def in_force(self) -> Version:
        """The version for requests that do not name a policy."""
        return next(version for version in reversed(self.versions.values()) if version.default)

    def new_version(self, rules: Rules, now: int, default: bool) -> Version:
        """Build the next version."""
        before = self.in_force if self.versions else None
        decaying = before is not None and before.half_life and rules.half_life is not None
        return Version(
            number=1 + max(self.versions, default=0), since=now, rules=rules,
            examination=self.examinations.number(rules.examination),
            decaying_since=before.decaying_since if before is not None and decaying else now, default=default,
        )  # fmt: skip

    def empty(self, number: int, key: bytes) -> Ledger:
        """Return the ledger of a query without observations."""
        return Ledger(number, key, self.examinations, self.longest_maturation)

    def ledger(self, number: int, before: LogEntry | None = None, *, from_base: bool = False) -> Ledger:
        """Load the ledger of a query, as it is, as it was before a log entry, or as it is in the base snapshot."""
        try:
            with self.store.read_transaction():
                return self.rebuild(number, before, from_base)
        except UNREADABLE as error:
            raise StoreCorruptError(f"query {number} cannot be read: {type(error).__name__}: {error}") from error

    def rebuild(self, number: int, before: LogEntry | None, from_base: bool) -> Ledger:
        """Rebuild a ledger from a snapshot and the log entries after it.

        Snapshots do not record which of their counts are pending, so the snapshot must be old enough that everything in
        it has matured under every version of the rules; the log after it supplies the rest.
        """
        key = self.store.key_of(number)
        if key is None:
            raise StoreCorruptError(f"query {number} does not exist")
        ledger = self.empty(number, key)
        ledger.add_items(self.store.items(number))
        if from_base:
            base = self.store.base(number)
            found = self.store.snapshot(number, base) if base else None
        else:
            matured_by = None
            if self.longest_maturation and (newest := before or self.store.last_entry(number)) is not None:
                matured_by = newest.time - self.longest_maturation
            found = self.store.snapshot(number, before.seq - 1 if before else None, matured_by)
            if found is None and (base := self.store.base(number)):
                found = self.store.snapshot(number, base)
        if found is not None:
            ledger.restore(decode_snapshot(found))
        if not from_base:
            for entry in self.store.log(number, ledger.seq, before.seq - 1 if before else None):
                self.apply(ledger, entry)
            ledger.since_snapshot = 0 if found is None else ledger.seq - decode_snapshot(found).seq
        ledger.candidate_number = self.store.last_candidates(number)
        return ledger

    def apply(self, ledger: Ledger, entry: LogEntry) -> None:
        """Apply a log entry to a ledger."""
        if entry.seq != ledger.seq + 1:
            raise StoreCorruptError(
                f"the log of query {ledger.number} has a gap between entries {ledger.seq} and {entry.seq}"
            )
        if entry.kind == KIND_IMPRESSION:
            impression, candidates, version = self.impression(ledger, entry)
            ledger.admit(candidates, version, entry.time)
            rows = candidates.rows[decode_positions(impression.shown)]
            ledger.record_impression(entry.seq, entry.time, rows, impression.initial_bits(), version)
        elif entry.kind == KIND_FEEDBACK:
            ledger.record_feedback(entry.seq, entry.time, decode_flips(entry.body))
        else:
            ledger.record_deletion(entry.seq, entry.time, decode_row(entry.body))

    def impression(self, ledger: Ledger, entry: LogEntry) -> tuple[Impression, Candidates, Version]:
        """Decode an impression, its candidates and its version of the rules."""
        assert entry.candidates is not None
        assert entry.version is not None
        found = ledger.candidates.get(entry.candidates)
        if found is None:
            n, body = self.store.candidates(ledger.number, entry.candidates)
            found = Candidates.unpacked(body, n)
        return decode_impression(entry.body), found, self.versions[entry.version]

    def repeat_decision(self, ledger: Ledger, entry: LogEntry) -> tuple[Decision, Candidates, Version]:
        """Repeat the decision of an impression on the ledger as it was before it."""
        impression, candidates, version = self.impression(ledger, entry)
        ledger.admit(candidates, version, entry.time)
        return self.decide(ledger, candidates, version, entry.time, impression.ranks), candidates, version

    def decide(self, ledger: Ledger, candidates: Candidates, version: Version, now: int, k: int) -> Decision:
        """Rank k of the candidates with the policy of a version. Call `Ledger.admit` first."""
        n = candidates.rows.size
        if self.scratch.items.size <= n:
            self.scratch = top_k_scratch(2 * n)
        view, rng = ledger.view(candidates, version, now, k), ledger.draws(version.rules.seed)
        return decide(version.policy, view, rng, version.theta, self.scratch)

    def all_ledgers(self) -> Iterator[Ledger]:
        """Load the ledger of every query, one at a time, except queries that are deleted meanwhile."""
        for number in self.numbers():
            with self.store.read_transaction():
                ledger = None if self.store.key_of(number) is None else self.ledger(number)
            if ledger is not None:
                yield ledger

    def numbers(self) -> Iterator[int]:
        """Iterate over the numbers of all queries."""
        last = 0
        while numbers := self.store.numbers(last, PAGE_SIZE):
            yield from numbers
            last = numbers[-1]


def encode_positions(places: IntArray) -> bytes:
    """Encode positions among the candidates, 16 bits each."""
    return places.astype(np.uint16).tobytes()


def decode_positions(packed: bytes) -> IntArray:
    """Decode positions among the candidates."""
    return np.frombuffer(packed, np.uint16).astype(np.int64)


# --- query state and fairness ----------------------------------------------------------------------------------------


def observed_state(ledger: Ledger, version: Version, now: int) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return the rows of all items that are not deleted, their exposure and their estimated relevance.

    The exposure excludes the starting exposure of newcomers: only policies use that, and no user has seen it.
    """
    rows = np.array([row for row in range(ledger.rows) if row not in ledger.deleted], np.int64)
    if not rows.size:
        return rows, np.zeros(0), np.zeros(0)
    q = ledger.view(Candidates.of(rows, ledger.priors[rows]), version, now, 1)
    return rows, ledger.E[rows], q.R


def least_unfairness(ledger: Ledger, rows: IntArray, E: FloatArray, R: FloatArray) -> float:
    """Compute the fairness floor of a query: the least unfairness that the same visits could have reached, knowing R.

    The exposure available at each rank is fixed and its assignment to items is free. The floor is exact for lists that
    were shown in full, under an examination that does not increase with rank. For partly shown lists only the sums by
    rank are available and other lists could have done better; the result then never exceeds the actual unfairness.
    """
    if rows.size < 2 or not E.any():
        return 0.0
    by_rank = np.zeros(max(block.ranks for block in ledger.blocks.values()))
    for block in ledger.blocks.values():
        by_rank[: block.ranks] += block.F[rows].sum(axis=0) * block.weights
    scale = max(1.0, float(R.max()))
    data = Dataset(offsets=[0, rows.size], y=np.zeros(rows.size), R=R / scale)
    floor = fairness_floor(data, [1], np.sort(by_rank)[::-1][: rows.size])
    return min(floor.unfairness * scale * scale, float(query_unfairness(E, R)))


def query_state(ledger: Ledger, version: Version, now: int) -> QueryState:
    """Summarise the observations of a query over all its items."""
    rows, E, R = observed_state(ledger, version, now)
    due = float(R.sum())
    had = float(E.sum())
    return QueryState(
        query_id=ledger.key.hex(), visits=ledger.visits,
        unfairness=float(query_unfairness(E, R)) if rows.size else 0.0,
        floor=least_unfairness(ledger, rows, E, R),
        items=[
            ItemState(
                id=str(ledger.ids[row]), group=ledger.groups[row], exposure=float(E[i]), clicks=float(ledger.C[row]),
                relevance=float(R[i]), exposure_share=float(E[i]) / had if had else 0.0,
                merit_share=float(R[i]) / due if due else 0.0,
            )
            for i, row in enumerate(rows.tolist())
        ],
    )  # fmt: skip


def fairness(store: Store, now: int) -> Fairness:
    """Compute fairness over all queries: means over queries, and received and merited exposure by group."""
    repository = LedgerRepository(store)
    version = repository.in_force
    queries = visits = 0
    unfair = floors = total = 0.0
    groups: dict[str | None, list[float]] = {}
    for ledger in repository.all_ledgers():
        state = query_state(ledger, version, now)
        queries += 1
        visits += state.visits
        unfair += state.unfairness
        floors += state.floor
        exposure = sum(item.exposure for item in state.items)
        total += exposure
        for item in state.items:
            sums = groups.setdefault(item.group, [0, 0.0, 0.0, 0.0])
            sums[0] += 1
            sums[1] += item.exposure
            sums[2] += item.clicks
            sums[3] += item.merit_share * exposure
    return Fairness(
        queries=queries, visits=visits, unfairness=unfair / max(queries, 1), floor=floors / max(queries, 1),
        groups=[
            GroupFairness(
                group=group, items=int(items), exposure=had, clicks=clicks,
                exposure_share=had / total if total else 0.0, merit_share=due / total if total else 0.0,
            )
            for group, (items, had, clicks, due) in sorted(groups.items(), key=lambda each: -each[1][1])
        ],
        as_of=to_datetime(now),
    )  # fmt: skip


def export(store: Store) -> Iterator[bytes]:
    """Export everything as JSON lines: rules, then for each query its counts and the impressions still in its log."""
    repository = LedgerRepository(store)
    line = msgspec.json.Encoder().encode
    for version in repository.versions.values():
        yield line({"version": version.number, "since": to_datetime(version.since), "default": version.default,
                    "rules": version.rules}) + b"\n"  # fmt: skip
    for ledger in repository.all_ledgers():
        yield line({"query": ledger.key.hex(), "visits": ledger.visits, "items": exported_items(ledger)}) + b"\n"
        after = 0
        while after < ledger.seq:
            with store.read_transaction():
                page = list(islice(store.log(ledger.number, after, ledger.seq), PAGE_SIZE))
                lines = [line(exported_impression(repository, ledger, entry)) + b"\n"
                         for entry in page if entry.kind == KIND_IMPRESSION]  # fmt: skip
            yield from lines
            after = page[-1].seq if page else ledger.seq


def exported_impression(repository: LedgerRepository, ledger: Ledger, entry: LogEntry) -> dict[str, Any]:
    """Export an impression: the items shown and the feedback on them."""
    impression, candidates, _ = repository.impression(ledger, entry)
    shown = candidates.rows[decode_positions(impression.shown)].tolist()
    return {
        "query": ledger.key.hex(), "impression": entry.seq, "time": to_datetime(entry.time), "version": entry.version,
        "items": [ledger.ids[row] for row in shown], "bits": list(entry.bits or impression.initial_bits()),
    }  # fmt: skip


def exported_items(ledger: Ledger) -> list[dict[str, Any]]:
    """Export the counts of every item that is not deleted, by examination and time bucket."""
    return [
        {
            "id": ledger.ids[row], "group": ledger.groups[row],
            "counts": [
                {"examination": block.examination, "since": block.bucket, "ranks": block.F[row].tolist(),
                 "clicks": int(block.C[row])}
                for block in ledger.blocks.values()
            ],
        }
        for row in range(ledger.rows) if row not in ledger.deleted
    ]  # fmt: skip


# --- verification ----------------------------------------------------------------------------------------------------

Progress = Callable[[int], None]
"""Called with the number of each query that is done."""


def verify(store: Store, progress: Progress = lambda done: None) -> list[str]:
    """Verify that base snapshot + log = counters for every query; return the faults found.

    Applying the log to the base must reproduce every later snapshot, the feedback state of each impression must follow
    from its feedback entries, and nothing may be missing.
    """
    faults = store.check()
    repository = LedgerRepository(store)
    for number in repository.numbers():
        try:
            faults += [f"query {number}: {fault}" for fault in QueryVerification(repository, number).faults()]
        except (StoreError, *UNREADABLE) as error:
            if store.key_of(number) is not None:  # otherwise it was deleted meanwhile
                faults.append(f"query {number}: {error}")
        progress(number)
    return faults


class QueryVerification:
    """The verification of one query, page by page of its log, while entries may be added or compacted.

    Feedback changes the state of entries that were read before. An impression whose state does not follow from the log
    is therefore read again at the end, in one transaction with the rest of the log.
    """

    def __init__(self, repository: LedgerRepository, number: int) -> None:
        self.repository, self.store, self.number = repository, repository.store, number
        self.found: list[str] = []
        self.bits: dict[int, bytearray] = {}
        self.suspect: set[int] = set()

    def faults(self) -> list[str]:
        """Verify the query; return the faults found."""
        with self.store.read_transaction():
            base = self.store.base(self.number)
            stored = self.store.snapshot(self.number, base) if base else None
            if base and (stored is None or decode_snapshot(stored).seq != base):
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
                impression = decode_impression(entry.body)
                self.bits[entry.seq] = bytearray(impression.initial_bits())
                self.suspect |= {entry.seq} if entry.bits is not None else set()
            elif entry.kind == KIND_FEEDBACK:
                self.apply_feedback(entry)
            if entry.seq in snapshots and differ(self.ledger.snapshot(), snapshots[entry.seq]):
                self.found.append(f"base and log up to entry {entry.seq} do not reproduce the snapshot there")

    def apply_feedback(self, entry: LogEntry) -> None:
        """Apply a feedback entry to the state of its impression."""
        changes = decode_flips(entry.body)
        bits = self.bits.get(changes.impression)
        for rank, _, before, after in changes.changes if bits is not None else ():
            assert bits is not None
            if bits[rank] != before:
                self.found.append(
                    f"feedback {entry.seq} counts rank {rank + 1} of impression {changes.impression} twice"
                )
            bits[rank] = after
            self.suspect.add(changes.impression)

    def check_end(self) -> None:
        """Compare the stored feedback states, snapshots and items with the whole log."""
        for seq in sorted(self.suspect):
            entry = self.store.entry(self.number, seq)
            if entry is not None and (entry.bits or decode_impression(entry.body).initial_bits()) != self.bits[seq]:
                self.found.append(
                    f"the feedback state of impression {seq} does not follow from its feedback entries"
                )  # fmt: skip
        ledger, base = self.ledger, self.store.base(self.number)
        outside = [seq for seq, _ in self.store.snapshots(self.number, ledger.seq)]
        outside += [seq for seq, _ in self.store.snapshots(self.number, -1, base - 1)]
        if outside:
            self.found.append(f"the snapshot at entry {outside[0]} is outside the log")
        if any((block.F < 0).any() or (block.C < 0).any() for block in ledger.blocks.values()):
            self.found.append("a counter is negative")
        if ledger.rows > len(ledger.ids):
            self.found.append(f"the ledger has {ledger.rows} rows, but {len(ledger.ids)} items are stored")


def differ(a: Snapshot, b: Snapshot) -> bool:
    """Return whether two snapshots differ."""
    return encode(a) != encode(b)


def replay(store: Store, progress: Progress = lambda done: None) -> tuple[int, int, list[str]]:
    """Repeat every decision in the log from the base of each query, and compare the lists.

    Returns the number of queries and of lists, and the differences. The first lists after a base are not compared:
    the base contains impressions that were still pending when those lists were ranked.
    """
    repository = LedgerRepository(store)
    queries = lists = 0
    faults = []
    for number in repository.numbers():
        try:
            more, found = replay_query(repository, number)
        except StoreError:
            if store.key_of(number) is not None:
                raise
        else:  # otherwise it was deleted meanwhile
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
    begin = ledger.time + repository.longest_maturation if ledger.seq else 0
    ended = False
    while not ended:
        with store.read_transaction():
            if store.base(number) > ledger.seq:  # compaction has overtaken: begin again
                return replay_query(repository, number)
            page = list(islice(store.log(number, ledger.seq), PAGE_SIZE))
            for entry in page:
                if entry.kind == KIND_IMPRESSION and entry.time >= begin:
                    decision, _, _ = repository.repeat_decision(ledger, entry)
                    impression = decode_impression(entry.body)
                    lists += 1
                    if not np.array_equal(decision.pi, decode_positions(impression.policy_list or impression.shown)):
                        faults.append(f"the replayed list {entry.seq} differs from the stored one")
                repository.apply(ledger, entry)
            ended = len(page) < PAGE_SIZE
            if ended and differ(ledger.snapshot(), repository.ledger(number).snapshot()):
                faults.append("the replayed counters differ from the current ones")
    return lists, faults
