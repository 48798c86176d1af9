"""Everything derived from stored logs: query state, fairness, export, verification and replay."""

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
from .ledger import Ledger
from .records import (
    Candidates,
    FeedbackHistory,
    Snapshot,
    decode_flips,
    decode_impression,
    decode_positions,
    decode_snapshot,
    encode,
)
from .repository import LedgerRepository
from .rules import Version
from .stores import KIND_FEEDBACK, KIND_IMPRESSION, Store
from .wire import Fairness, GroupFairness, ItemState, QueryState

__all__ = ["export", "fairness", "replay", "to_datetime", "verify"]


def to_datetime(time: int) -> datetime.datetime:
    """Convert a time in ms to a datetime."""
    return datetime.datetime.fromtimestamp(time / 1000, datetime.UTC)


# --- query state and fairness ----------------------------------------------------------------------------------------


def observed_state(ledger: Ledger, version: Version, now: int) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return the rows of all items that are not deleted, their exposure and their estimated relevance.

    The exposure excludes the starting exposure of newcomers: only policies use that, and no user has seen it.
    """
    rows = np.array([row for row in range(ledger.rows) if row not in ledger.deleted], np.int64)
    if not rows.size:
        return rows, np.zeros(0), np.zeros(0)
    q = ledger.view(Candidates.of(rows, ledger.priors[rows]), version, now, 1)
    return rows, ledger.E[rows] * ledger.scale, q.R


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
        by_rank[: block.ranks] += block.F[rows].sum(axis=0) * (block.p * block.weight * ledger.scale)
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
                id=str(ledger.ids[row]), group=ledger.groups[row], exposure=float(E[i]), clicks=ledger.clicks(row),
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
        yield line({"version": version.number, "since": to_datetime(version.since), "rules": version.rules}) + b"\n"
    for number in repository.numbers():
        ledger = repository.ledger(number)
        yield line({"query": ledger.key.hex(), "visits": ledger.visits, "items": exported_items(ledger)}) + b"\n"
        for entry in store.log(number, store.base(number)):
            if entry.kind == KIND_IMPRESSION:
                impression, candidates, _ = repository.impression(ledger, entry)
                shown = candidates.rows[decode_positions(impression.shown)].tolist()
                yield line({
                    "query": ledger.key.hex(), "impression": entry.seq, "time": to_datetime(entry.time),
                    "version": entry.version, "policy": impression.policy, "items": [ledger.ids[row] for row in shown],
                    "bits": list(impression.bits(entry.bits)),
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
    stored: dict[int, bytes | None] = {}
    bits: dict[int, bytearray] = {}
    feedback: dict[int, FeedbackHistory] = {}
    for entry in store.log(number, ledger.seq):
        repository.apply(ledger, entry)
        if entry.kind == KIND_IMPRESSION:
            stored[entry.seq], bits[entry.seq] = entry.bits, decode_impression(entry.body).bits(None)
        elif entry.kind == KIND_FEEDBACK:
            changes = decode_flips(entry.body)
            for rank, _, before, after in changes.changes:
                if changes.impression in bits:
                    if bits[changes.impression][rank] != before:
                        yield f"feedback {entry.seq} counts rank {rank + 1} of impression {changes.impression} twice"
                    bits[changes.impression][rank] = after
            feedback.setdefault(changes.impression, []).extend(changes.history(entry.seq))
        if entry.seq in snapshots and differ(ledger.snapshot(), snapshots[entry.seq]):
            yield f"base and log up to entry {entry.seq} do not reproduce the snapshot there"
    if unreached := [seq for seq in snapshots if not base <= seq <= ledger.seq]:
        yield f"the snapshot at entry {unreached[0]} is outside the log"
    for seq, known in stored.items():
        if known != (encode(feedback[seq]) if seq in feedback else None):
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

    Returns the number of queries and of lists, and the differences.
    """
    repository = LedgerRepository(store)
    queries = lists = 0
    faults = []
    for number in repository.numbers():
        ledger = repository.ledger(number, from_base=True)
        for entry in store.log(number, ledger.seq):
            if entry.kind == KIND_IMPRESSION:
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
