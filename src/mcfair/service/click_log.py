"""The store of a service as a click log: the impressions in its log with the feedback on them."""

from __future__ import annotations

import polars as pl

from ..auditing.log import ClickLog
from ..auditing.readers import SOURCES
from ..errors import DataError
from .core.records import is_clicked, is_exposed
from .core.repository import LedgerRepository
from .stores import describe, open_reader


def read_store(source: str) -> ClickLog:
    """Read the impressions of a store; a server may be running. Ranks that nobody saw are left out.

    Entries that the service has compacted are no longer in the log and do not count.

    Raises
    ------
    StoreError
        If the store cannot be read.
    DataError
        If it holds no impressions.
    """
    columns: dict[str, list[object]] = {name: [] for name in ("impression", "query", "time", "item", "rank", "clicked")}
    known: dict[str, list[str | None]] = {"query": [], "item": [], "group": []}
    with open_reader(source) as reader:
        repository = LedgerRepository(reader)
        for ledger in repository.all_ledgers():
            query = ledger.key.hex()
            for seen in repository.recorded(ledger, ledger.base):
                for rank, (row, bits) in enumerate(zip(seen.rows.tolist(), seen.bits, strict=True), start=1):
                    if is_exposed(bits) and ledger.ids[row] is not None:
                        record = (seen.seq, query, seen.time, ledger.ids[row], rank, is_clicked(bits))
                        for column, value in zip(columns.values(), record, strict=True):
                            column.append(value)
            for item, row in ledger.index.items():
                for name, value in (("query", query), ("item", item), ("group", ledger.groups[row])):
                    known[name].append(value)
    rows = pl.DataFrame(columns, strict=False)
    if rows.is_empty():
        raise DataError(f"{describe(source)}: the log of the store holds no impressions")
    candidates = pl.DataFrame(known, schema=dict.fromkeys(known, pl.String))
    if not candidates["group"].count():
        candidates = candidates.drop("group")
    notes = (
        "Impressions and feedback in the log of the store; compacted entries are no longer in it. Queries are known "
        "by their hashes.",
    )
    return ClickLog(name=describe(source), format="store", rows=rows.lazy(), candidates=candidates, notes=notes)


SOURCES["store"] = read_store
