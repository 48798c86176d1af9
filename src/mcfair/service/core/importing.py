"""Importing: counts from a log that the service did not write, each part of it at most once."""

from __future__ import annotations

import hashlib

import numpy as np

from ...errors import RequestError
from ..stores import KIND_IMPORT, LogEntry
from ..wire import ImportedQuery, ImportResult, ImportResults, check_imports
from .engine_state import EngineState
from .ledger import Ledger
from .records import Candidates, ImportedCounts, encode

MOST = 2**30
"""Most impressions of one item after an import. Counts have 32 bits, so that as many again can be ranked."""


class ImportOperations(EngineState):
    """The operation of importing counts."""

    def import_history(self, source: str, queries: list[ImportedQuery]) -> ImportResults:
        """Add counts to queries, which are created if needed; return one result per query, in order.

        A query that has counts of this part of the source is left as it is.
        """
        check_imports(queries)
        for each in queries:  # a query that cannot be read is reported before anything is written
            self.ledger_of(self.ids.query(each.query))
        return ImportResults([self.import_query(source, each) for each in queries])

    def import_query(self, source: str, given: ImportedQuery) -> ImportResult:
        """Append the counts of one query to its log."""
        part = hashlib.blake2b(f"{source}:{given.part}".encode(), digest_size=16).digest()
        key = self.ids.query(given.query)
        ledger = self.ledger_of(key) or self.repository.empty(0, key)
        if part in ledger.imports:
            return ImportResult("duplicate")
        now = max(self.now(), ledger.time)
        newcomers = [(item.id, item.group) for item in given.items if item.id not in ledger.index]
        try:
            self.check_import(ledger, given, len(newcomers), now)
        except RequestError as error:
            return ImportResult("refused", str(error))
        if not ledger.number:
            ledger.number = self.store.add_query(key)
            self.touched.add(ledger.number)
        reused = self.add_imported_items(ledger, given, newcomers)
        rows = np.array([ledger.index[item.id] for item in given.items], np.int64)
        cells = [
            (i, rank - 1, shown, clicks) for i, item in enumerate(given.items) for rank, shown, clicks in item.counts
        ]
        counted = ImportedCounts.of(part, given.visits, rows, reused, np.array(cells, np.int64).T)
        seq, version = ledger.seq + 1, self.version
        entry = LogEntry(seq, now, KIND_IMPORT, version.number, None, encode(counted), None)
        self.store.append(ledger.number, entry, ledger.revision)
        ledger.admit(Candidates.of(rows, np.full(rows.size, np.nan)), reused, 0.0, version, now)
        ledger.record_import(seq, now, counted, version)
        self.cache_ledger(ledger)
        self.take_snapshot(ledger)
        return ImportResult("imported")

    def check_import(self, ledger: Ledger, given: ImportedQuery, newcomers: int, now: int) -> None:
        """Raise RequestError if a query would have too many items, or counts that are too large."""
        if (live := len(ledger.index)) + newcomers > self.max_items:
            raise RequestError(
                f"the query has {live:,} items, and {newcomers:,} more are too many: at most {self.max_items:,} are "
                "allowed"
            )
        ranks = max(rank for item in given.items for rank, _, _ in item.counts)
        ledger.check_size(newcomers, ranks, self.version, now, self.max_ledger)
        block = ledger.counts.blocks.get((self.version.examination, self.version.bucket(now)))
        for item in given.items:
            row = ledger.index.get(item.id)
            counted = 0 if block is None or row is None else int(max(block.F[row].max(), block.C[row]))
            if counted + sum(shown for _, shown, _ in item.counts) > MOST:
                raise RequestError(f"an item would have more than {MOST:,} impressions")

    def add_imported_items(
        self, ledger: Ledger, given: ImportedQuery, newcomers: list[tuple[str, str | None]]
    ) -> list[int]:
        """Write new items and changed groups; return the rows that another item had before."""
        admitted = ledger.rows
        for item in given.items:
            row = ledger.index.get(item.id)
            if row is not None and item.group is not None and ledger.groups[row] != item.group:
                ledger.name_row(row, item.id, item.group)
                self.store.set_group(ledger.number, row, item.group)
                ledger.evict_candidates()  # a cached set would keep the old groups
        if not newcomers:
            return []
        taken = ledger.add_items(newcomers)
        self.store.add_items(ledger.number, [(row, *each) for row, each in zip(taken, newcomers, strict=True)])
        added = {item for item, _ in newcomers}
        for deletion in self.deletions.values():
            if deletion.item in added:
                self.store.exempt(deletion.number, ledger.number)  # it is a new item, not the deleted one
        return [row for row in taken if row < admitted]
