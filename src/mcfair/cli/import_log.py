"""The command that imports a click log into a store."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import SettingError
from .audit import LOG, GivenReading
from .options import with_option_groups
from .render import encoded, stages
from .serve import DEFAULT_STORE, STORE, open_admin

if TYPE_CHECKING:
    from ..service.histories import Histories

__all__ = ["import_log"]


@with_option_groups
def import_log(
    log: LOG,
    reading: GivenReading,
    store: STORE = DEFAULT_STORE,
    url: Annotated[str | None, typer.Option(help="Import into the service at this address instead.")] = None,
    key: Annotated[
        str | None, typer.Option(envvar="MCFAIR_KEY", help="API key of that service, with the scope admin.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what would be imported; write nothing.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of sentences.")] = False,
) -> None:
    """Import a click log into a store, so that a service does not begin without history; repeating it adds nothing."""
    from ..service.histories import open_sources, read_source

    if url is not None and store != DEFAULT_STORE:
        raise SettingError("store and url are not allowed together: name one target")
    found = []
    with stages() as progress:
        for opened in open_sources(log, reading):
            source, histories = read_source(opened, reading)
            outcome = Imported.of(opened.name, opened.format, source, histories)
            found.append(outcome)
            if dry_run:
                continue
            with target(store, url, key) as service:
                for batch in histories.batches():
                    outcome.add(service.import_history(outcome.source, batch), [each.part for each in batch])
                    progress(opened.name, outcome.done, histories.queries)
    if json:
        sys.stdout.write(encoded({"dry_run": dry_run, "sources": found}))
        return
    for each in found:
        each.show(dry_run)


@contextlib.contextmanager
def target(store: str, url: str | None, key: str | None) -> Iterator[Any]:
    """Open the service at an address, or the store: through the server that runs on it, or directly."""
    if url is None:
        with open_admin(store) as service:
            yield service
        return
    from ..service.client import Client

    with Client(url, key) as service:
        yield service


@dataclasses.dataclass
class Imported:
    """The counts of a source, and the results of importing them."""

    name: str
    format: str
    source: str
    rows: int
    queries: int
    items: int
    impressions: int
    shown: int
    clicks: int
    excluded: dict[str, int]
    quality: dict[str, Any]
    imported: int = 0
    duplicate: int = 0
    refused: dict[str, int] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, name: str, format: str, source: str, histories: Histories) -> Imported:
        """Describe a source before anything is imported."""
        return cls(
            name=name,
            format=format,
            source=source,
            rows=histories.counts.rows,
            queries=histories.queries,
            items=histories.items,
            impressions=histories.impressions,
            shown=histories.shown_total,
            clicks=histories.clicks_total,
            excluded=histories.excluded,
            quality=histories.counts.quality,
        )

    @property
    def done(self) -> int:
        """Queries of which the first part was sent."""
        return self.imported + self.duplicate + sum(self.refused.values())

    def add(self, results: list[Any], parts: list[int]) -> None:
        """Add the results of a batch; queries are counted by their first part."""
        counted = Counter(result.status for result, part in zip(results, parts, strict=True) if part == 0)
        self.imported += counted["imported"]
        self.duplicate += counted["duplicate"]
        for result in results:
            if result.status == "refused":
                self.refused[result.detail] = self.refused.get(result.detail, 0) + 1

    def show(self, dry_run: bool) -> None:
        """Print it in sentences."""
        print(f"{self.name}: read as {self.format}, {self.rows:,} rows")
        for reason, number in self.excluded.items():
            print(f"left out: {number:,} rows ({reason})")
        what = (
            f"{self.queries:,} queries, {self.items:,} items of queries, {self.impressions:,} impressions with "
            f"{self.shown:,} items shown, {self.clicks:,} clicks"
        )
        if dry_run:
            print(f"would import {what}; queries that have counts of this source already are left as they are")
            return
        print(f"{what}: {self.imported:,} queries imported, {self.duplicate:,} had been imported before")
        for reason, number in self.refused.items():
            print(f"refused: {number:,} queries ({reason})")
