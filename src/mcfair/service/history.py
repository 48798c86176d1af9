"""Everything derived from stored logs: past ledgers, repeated decisions, verification, replay, export, fairness."""

from __future__ import annotations

import datetime
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np

from ..analysis.limits import fairness_floor
from ..arrays import FloatArray, IntArray
from ..data.dataset import Dataset
from ..errors import StoreError
from ..metrics.exposure import query_unfairness
from ..policies.ordering import top_k_scratch
from .decision import Decision, decide
from .ledger import BitChanges, Candidates, Examinations, Impression, Ledger, Snapshot
from .rules import Rules, Version
from .stores import KIND_FEEDBACK, KIND_IMPRESSION, LogEntry, Store
from .wire import Fairness, GroupFairness, ItemState, QueryState

__all__ = ["LedgerRepository", "export", "fairness", "replay", "to_datetime", "verify"]

PAGE_SIZE = 256
"""Query numbers read from a store at a time."""

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
            return self.rebuild(number, before, from_base)
        except (msgspec.MsgspecError, ValueError, LookupError, zlib.error) as error:
            raise StoreError(f"query {number} cannot be read: {type(error).__name__}: {error}") from error

    def rebuild(self, number: int, before: LogEntry | None, from_base: bool) -> Ledger:
        """Rebuild a ledger from a snapshot and the log entries after it.

        Snapshots do not record which of their counts are pending, so the snapshot must be old enough that everything in
        it has matured under every version of the rules; the log after it supplies the rest.
        """
        key = self.store.key_of(number)
        if key is None:
            raise StoreError(f"query {number} does not exist")
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
            raise StoreError(f"the log of query {ledger.number} has a gap between entries {ledger.seq} and {entry.seq}")
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
        p = ledger.examinations.p(version.examination, k)
        return decide(version.policy, view, rng, version.theta, self.scratch, p)

    def all_ledgers(self) -> Iterator[Ledger]:
        """Load the ledger of every query, one at a time."""
        for number in self.numbers():
            yield self.ledger(number)

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
    for number in repository.numbers():
        ledger = repository.ledger(number)
        yield line({"query": ledger.key.hex(), "visits": ledger.visits, "items": exported_items(ledger)}) + b"\n"
        for entry in store.log(number, 0):
            if entry.kind == KIND_IMPRESSION:
                impression, candidates, _ = repository.impression(ledger, entry)
                shown = candidates.rows[decode_positions(impression.shown)].tolist()
                yield line({
                    "query": ledger.key.hex(), "impression": entry.seq, "time": to_datetime(entry.time),
                    "version": entry.version, "items": [ledger.ids[row] for row in shown],
                    "bits": list(entry.bits or impression.initial_bits()),
                }) + b"\n"  # fmt: skip


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
            faults += [f"query {number}: {fault}" for fault in query_faults(repository, number)]
        except (StoreError, msgspec.MsgspecError, ValueError, LookupError, zlib.error) as error:
            faults.append(f"query {number}: {error}")
        progress(number)
    return faults


def query_faults(repository: LedgerRepository, number: int) -> Iterator[str]:
    """Verify one query; yield the faults found."""
    store = repository.store
    snapshots = {seq: decode_snapshot(body) for seq, body in store.snapshots(number)}
    base = store.base(number)
    if base and base not in snapshots:
        yield f"the base snapshot at entry {base} is missing"
        return
    ledger = repository.ledger(number, from_base=True)
    bits: dict[int, bytearray] = {}
    stored: dict[int, bytes] = {}
    for entry in store.log(number, ledger.seq):
        repository.apply(ledger, entry)
        if entry.kind == KIND_IMPRESSION:
            impression = decode_impression(entry.body)
            bits[entry.seq] = bytearray(impression.initial_bits())
            stored[entry.seq] = entry.bits or impression.initial_bits()
        elif entry.kind == KIND_FEEDBACK:
            changes = decode_flips(entry.body)
            for rank, _, before, after in changes.changes:
                if changes.impression in bits:
                    if bits[changes.impression][rank] != before:
                        yield f"feedback {entry.seq} counts rank {rank + 1} of impression {changes.impression} twice"
                    bits[changes.impression][rank] = after
        if entry.seq in snapshots and differ(ledger.snapshot(), snapshots[entry.seq]):
            yield f"base and log up to entry {entry.seq} do not reproduce the snapshot there"
    if unreached := [seq for seq in snapshots if not base <= seq <= ledger.seq]:
        yield f"the snapshot at entry {unreached[0]} is outside the log"
    for seq, known in stored.items():
        if bits[seq] != known:
            yield f"the feedback state of impression {seq} does not follow from its feedback entries"
    if any((block.F < 0).any() or (block.C < 0).any() for block in ledger.blocks.values()):
        yield "a counter is negative"
    if ledger.rows > len(ledger.ids):
        yield f"the ledger has {ledger.rows} rows, but {len(ledger.ids)} items are stored"


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
        ledger = repository.ledger(number, from_base=True)
        begin = ledger.time + repository.longest_maturation if ledger.seq else 0
        for entry in store.log(number, ledger.seq):
            if entry.kind == KIND_IMPRESSION and entry.time >= begin:
                decision, _, _ = repository.repeat_decision(ledger, entry)
                impression = decode_impression(entry.body)
                lists += 1
                if not np.array_equal(decision.pi, decode_positions(impression.policy_list or impression.shown)):
                    faults.append(f"query {number}: the replayed list {entry.seq} differs from the stored one")
            repository.apply(ledger, entry)
        live = repository.ledger(number)
        if differ(ledger.snapshot(), live.snapshot()):
            faults.append(f"query {number}: the replayed counters differ from the current ones")
        queries += 1
        progress(number)
    return queries, lists, faults
