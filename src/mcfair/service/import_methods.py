"""The method of clients and of `Ranker` that imports history."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from . import wire
from .calls import Call, Caller


class ImportMethods(Caller):
    """Importing counts from other logs, as a method. A subclass executes its call."""

    def import_history(
        self, source: str, queries: Iterable[wire.ImportedQuery | dict[str, Any]]
    ) -> list[wire.ImportResult]:
        """Import counts from a log that the service did not write; `mcfair import` does so for whole logs.

        They count as if the lists had been shown now, under the examination in force.

        Parameters
        ----------
        source
            Identifies the log, such as a checksum of its content. A query counts each part of a source once.
        queries
            The histories of up to 1,000 queries: `query`, `visits`, and for each of its items how often it was shown
            and clicked at each rank.

        Returns
        -------
        list of ImportResult
            One result per query, in order: imported, duplicate, or refused with the reason.
        """
        given = [
            msgspec.to_builtins(each) if isinstance(each, wire.ImportedQuery) else each
            for each in wire.as_list("queries", queries)
        ]
        body = wire.convert(wire.ImportRequest, {"source": source, "queries": given})
        return self._run(Call("import_history", {"body": body}, lambda response: list(response.results)))
