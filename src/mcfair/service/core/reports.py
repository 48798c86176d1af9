"""Reports on stored logs: the state of a query, the number of queries, export."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import msgspec
import numpy as np

from ...arrays import FloatArray, IntArray
from ...errors import NotFoundError
from ...estimators.base import relevance_intervals
from ...metrics.exposure import query_unfairness
from ...metrics.reachable import balance
from ..stores import KIND_IMPRESSION, LogEntry, Store
from ..wire import ItemState, QueryState
from .ids import IdSigner
from .ledger import Ledger
from .records import Candidates, decode_positions
from .repository import PAGE_SIZE, LedgerRepository
from .rules import Version

NO_QUERY = "there is no such query"


def to_datetime(time: int) -> datetime.datetime:
    """Convert a time in ms to a datetime."""
    return datetime.datetime.fromtimestamp(time / 1000, datetime.UTC)


# --- query state -----------------------------------------------------------------------------------------------------


def observed_state(ledger: Ledger, version: Version, now: int) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
    """Return the rows of all items that are not deleted, their exposure, estimated relevance and its uncertainty.

    The exposure excludes the starting exposure of newcomers: only policies use that, and no user has seen it.
    """
    live = np.ones(ledger.rows, bool)
    live[list(ledger.deleted)] = False
    rows = np.flatnonzero(live)
    if not rows.size:
        return rows, np.zeros(0), np.zeros(0), np.zeros(0)
    q = ledger.view(Candidates.of(rows, ledger.priors[rows]), version, now, 1)
    return rows, ledger.counts.E[rows] * ledger.counts.scale, q.R, q.uncertainty


def least_unfairness(ledger: Ledger, rows: IntArray, E: FloatArray, R: FloatArray) -> float:
    """Compute the fairness floor of a query: the least unfairness that the same visits could have reached, knowing R.

    The exposure available at each rank is fixed and its assignment to items is free. The floor is exact for lists that
    were shown in full, under an examination that does not increase with rank. For partly shown lists only the sums by
    rank are available and other lists could have done better; the result then never exceeds the actual unfairness.
    """
    if rows.size < 2 or not E.any():
        return 0.0
    counts, n = ledger.counts, rows.size
    by_rank = np.zeros(max(counts.ranks, n))
    for block in counts.blocks.values():
        by_rank[: block.ranks] += block.F[rows].sum(axis=0) * (block.p * block.weight * counts.scale)
    # `fairness_floor` does the same for a Dataset, whose validation takes a hundred times as long as this.
    falling, w, pools, fairest = (
        np.sort(R)[::-1].copy(),
        np.sort(by_rank)[::-1][:n].copy(),
        np.empty((n, 3)),
        np.empty(n),
    )
    if falling[0] * falling[0] == 0.0:
        return 0.0  # no item is relevant: every exposure is as fair
    balance(0.0, 0.0, falling, w, pools, fairest)
    return float(min(query_unfairness(fairest, falling), query_unfairness(E, R)))


def find_number(store: Store, query: str | None, query_id: str | None) -> int:
    """Return the number of an existing query, given by its text or its id; raise NotFoundError if there is none."""
    key = b""
    if query is not None:
        key = IdSigner(store.secret).query(query)
    elif query_id is not None:
        with suppress(ValueError):
            key = bytes.fromhex(query_id)
    number = store.find_query(key)
    if number is None:
        raise NotFoundError(NO_QUERY)
    return number


def find_query(store: Store, query: str | None = None, query_id: str | None = None) -> tuple[Ledger, Version]:
    """Load a query, given by its text or its id; return it with the rules in force.

    Raises
    ------
    NotFoundError
        If there is no such query.
    """
    repository = LedgerRepository(store)
    ledger = repository.reported_ledger(find_number(store, query, query_id))
    if ledger is None:  # it has just been deleted
        raise NotFoundError(NO_QUERY)
    return ledger, repository.in_force


def query_state(ledger: Ledger, version: Version, now: int, after: int = 0, most: int | None = None) -> QueryState:
    """Summarise the observations of a query over all its items, and return a page of these from a row on."""
    rows, E, R, uncertainty = observed_state(ledger, version, now)
    due, had = float(R.sum()), float(E.sum())
    first = int(np.searchsorted(rows, after))
    end = rows.size if most is None else min(rows.size, first + most)
    page = slice(first, end)
    interval = np.stack(relevance_intervals(R[page], uncertainty[page]), axis=1)
    clicks = ledger.counts.C[rows[page]] * ledger.counts.scale
    shares = E[page] / had if had else np.zeros(end - first), R[page] / due if due else np.zeros(end - first)
    columns = (E[page], clicks, R[page], interval, *shares)
    return QueryState(
        query_id=ledger.key.hex(),
        visits=ledger.visits,
        unfairness=float(query_unfairness(E, R)) if rows.size else 0.0,
        floor=least_unfairness(ledger, rows, E, R),
        items=[
            ItemState(
                id=str(ledger.ids[row]),
                group=ledger.groups[row],
                exposure=exposure,
                clicks=clicked,
                relevance=relevance,
                interval=ends,
                exposure_share=exposure_share,
                merit_share=merit_share,
            )
            for row, exposure, clicked, relevance, ends, exposure_share, merit_share in zip(
                rows[page].tolist(), *(each.tolist() for each in columns), strict=True
            )
        ],
        next=int(rows[end]) if end < rows.size else None,
    )


def count_queries(store: Store) -> int:
    """Count the queries, page by page."""
    queries = last = 0
    while numbers := store.numbers(last, 10_000):
        queries, last = queries + len(numbers), numbers[-1]
    return queries


def export(store: Store) -> Iterator[bytes]:
    """Export everything as JSON lines: rules, then for each query its counts and the impressions still in its log."""
    repository = LedgerRepository(store)
    line = msgspec.json.Encoder().encode
    for version in repository.versions.values():
        yield line({"version": version.number, "since": to_datetime(version.since), "rules": version.rules}) + b"\n"
    for ledger in repository.all_ledgers():
        yield line({"query": ledger.key.hex(), "visits": ledger.visits, "items": exported_items(ledger)}) + b"\n"
        after = store.base(ledger.number)
        while after < ledger.seq:
            with store.read_transaction():
                if store.key_of(ledger.number) is None:
                    break  # deleted meanwhile
                page = list(islice(store.log(ledger.number, after, ledger.seq), PAGE_SIZE))
                lines = [
                    line(exported_impression(repository, ledger, entry)) + b"\n"
                    for entry in page
                    if entry.kind == KIND_IMPRESSION
                ]
            yield from lines
            after = page[-1].seq if page else ledger.seq


def exported_impression(repository: LedgerRepository, ledger: Ledger, entry: LogEntry) -> dict[str, Any]:
    """Export an impression: the items shown and the feedback on them."""
    impression, candidates = repository.impression(ledger, entry)
    shown = candidates.rows_at(decode_positions(impression.shown)).tolist()
    return {
        "query": ledger.key.hex(),
        "impression": entry.seq,
        "time": to_datetime(entry.time),
        "version": entry.version,
        "policy": impression.policy,
        "items": [ledger.ids[row] for row in shown],
        "bits": list(impression.bits(entry.bits)),
    }


def exported_items(ledger: Ledger) -> list[dict[str, Any]]:
    """Export the counts of every item that is not deleted, by examination and time bucket."""
    return [
        {
            "id": ledger.ids[row],
            "group": ledger.groups[row],
            "counts": [
                {
                    "examination": block.examination,
                    "since": block.bucket,
                    "ranks": block.F[row].tolist(),
                    "clicks": int(block.C[row]),
                }
                for block in ledger.counts.blocks.values()
            ],
        }
        for row in range(ledger.rows)
        if row not in ledger.deleted
    ]
