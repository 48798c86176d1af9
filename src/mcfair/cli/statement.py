"""The command that writes a statement on the main parameters of the ranking."""

from __future__ import annotations

import datetime
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import DataError, SettingError
from .parts import Plugins
from .render import encoded, stages
from .serve import DEFAULT_STORE, STORE
from .stores import readable

if TYPE_CHECKING:
    from ..service.core.importance import Importance

__all__ = ["statement"]


def statement(
    plugin: Plugins = None,
    store: STORE = DEFAULT_STORE,
    since: Annotated[
        str | None, typer.Option(help="Begin of the period, such as 2026-01-31 or 2026-01-31T12:00, in UTC.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="End of the period.")] = None,
    sample: Annotated[int, typer.Option(min=1, help="Maximum number of decisions to repeat.")] = 1_000,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the page  [default: mcfair-statement; none with --json]")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a summary.")] = False,
) -> None:
    """Write what the ranking depends on and how much each part mattered, measured on the decisions of a period."""
    from ..service.core.importance import measure_importance
    from ..service.stores import open_reader
    from .statement_page import as_dict, findings, write_statement

    begin, end = (0 if since is None else moment("since", since)), (None if until is None else moment("until", until))
    if end is not None and end <= begin:
        raise SettingError(f"until = {until!r} is not allowed: expected a time after since = {since!r}")
    with readable(store), open_reader(store) as reader, stages() as report:
        found = measure_importance(
            reader,
            since=begin,
            until=end,
            sample=sample,
            progress=lambda done, total: report("repeating decisions", done, total),
        )
    if not found.sampled:
        raise DataError(nothing_to_measure(found))
    folder = out if out is not None or json else Path("mcfair-statement")
    page = None if folder is None else write_statement(found, folder, (since, until))
    if json:
        sys.stdout.write(encoded(as_dict(found)))
        return
    for sentence in findings(found):
        print(sentence)
    print(f"\n{page}")


def moment(name: str, text: str) -> int:
    """Parse a date or a time, in UTC unless it names another zone, to ms."""
    try:
        parsed = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise SettingError(
            f"{name} = {text!r} is not allowed: expected a date or a time such as 2026-01-31 or 2026-01-31T12:00"
        ) from None
    return round((parsed if parsed.tzinfo else parsed.replace(tzinfo=datetime.UTC)).timestamp() * 1000)


def nothing_to_measure(found: Importance) -> str:
    """Describe why there is nothing to measure."""
    if found.unrepeatable:
        return f"none of {found.unrepeatable:,} sampled decisions can be repeated: name their policies with --plugin"
    return (
        "the log of the store has no decisions in this period that could be repeated; lists in shadow mode and "
        "imported counts are none, and old ones were compacted"
    )
