"""The page of an audit, and its tables and figures as files."""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

import polars as pl

from ..errors import DataError
from ..report.document import Block, Document
from ..report.formatting import NOTHING, format_interval, format_number
from ..report.markup import Table
from ..report.page import create_folders, render_template, write_document
from .explanations import EXPLANATIONS
from .findings import findings
from .model_sections import (
    add_over_time,
    add_policies,
    add_ranks,
    add_sensitivity,
    paragraph,
    percent,
    percents,
    section,
    without_rounding,
)
from .pictures import SHOWN_GROUPS, shares_picture
from .result import Audit

__all__ = ["write_audit"]

WORST = 10
"""Queries and items that the page names; the tables have all."""


def write_audit(audit: Audit, folder: str | Path, command: str = "") -> Path:
    """Write the page of an audit to a folder: index.html, figures/, and tables/ as Markdown, LaTeX, CSV and Parquet.

    Parameters
    ----------
    audit
        The audit.
    folder
        Created if it does not exist; files of the same names are replaced.
    command
        The command that repeats the audit, for the page.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    DataError
        If the folder cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> import mcfair as mf
    >>> log = pl.DataFrame({"query": ["q"] * 2, "item": ["a", "b"], "rank": [1, 2], "clicked": [1, 0]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_audit(mf.audit(log), folder).name
    'index.html'
    """
    target = Path(folder)
    try:
        create_folders(target)
        document = build_document(audit, command)
        html = render_template(
            "audit.html.j2",
            title="How fair is this ranking?",
            report=document,
            model=audit.model.name,
            formula=audit.model.formula,
            merit=audit.merit_label,
            resamples=audit.resamples,
            resampled=audit.resampled,
        )
        for name, table in audit.tables().items():
            table.write_csv(target / "tables" / f"{name}.csv")
            table.write_parquet(target / "tables" / f"{name}.parquet")
        return write_document(document, html, target)
    except OSError as error:
        raise DataError(f"cannot write the audit to {target}: {error.strerror or error}") from None


def build_document(audit: Audit, command: str) -> Document:
    """Build all sections."""
    document = Document()
    document.findings += findings(audit)
    add_source(document, audit)
    if audit.counts.group_names:
        add_groups(document, audit)
    add_queries(document, audit)
    if audit.over_time is not None and audit.over_time.height > 1:
        add_over_time(document, audit)
    add_ranks(document, audit)
    add_sensitivity(document, audit)
    if audit.policies:
        add_policies(document, audit)
    add_measures(document, audit)
    add_provenance(document, audit, command)
    return document


# --- sections --------------------------------------------------------------------------------------------------------


def add_source(document: Document, audit: Audit) -> None:
    """Append what was read, and what was left out and why."""
    counts = audit.counts
    rows = [
        ("log", audit.name),
        ("format", audit.format),
        ("period", " to ".join(counts.period) if counts.period else "not stated"),
        ("rows", f"{counts.rows:,}"),
        ("impressions", f"{int(counts.visits.sum()):,}"),
        ("queries", f"{counts.queries:,}"),
        ("items of queries", f"{counts.items:,}"),
        ("groups", f"{len(counts.group_names):,}" if counts.group_names else "none named"),
        ("clicks", f"{int(counts.clicks.sum()):,}"),
    ]
    read = Table(name="read", caption="Content of the log", columns=("", "value"), rows=tuple(rows), text_columns=2)
    found = {**audit.counts.excluded, **{k: v for k, v in counts.quality.items() if v is not False}}
    problems = tuple(
        (name, f"{value:,}" if isinstance(value, int) and value is not True else words(value))
        for name, value in found.items()
    )
    quality = Table(
        name="found",
        caption="What was left out, and what else was found",
        columns=("found", "number"),
        rows=problems,
        notes=(f"{sum(counts.excluded.values()):,} of {counts.rows:,} rows were left out.",),
    )
    blocks = [document.add_table(read), *(paragraph(note) for note in audit.notes), document.add_table(quality)]
    section(document, "source", "What was read", *blocks)


def words(value: object) -> str:
    """Return a finding that is no number in words."""
    return "yes" if value is True else str(value)


def add_groups(document: Document, audit: Audit) -> None:
    """Append exposure against merit by group."""
    table = audit.groups().sort("ratio", nulls_last=True)
    rows = tuple(
        (
            row["group"],
            f"{row['items']:,}",
            percent(row["exposure_share"]),
            percents(row["exposure_share_low"], row["exposure_share_high"]),
            percent(row["merit_share"]),
            format_number(row["ratio"], 3),
            format_interval(row["ratio_low"], row["ratio_high"], 3),
            f"{row['clicks']:,}",
            percent(row["selection_rate"]),
            format_number(row["impact_ratio"], 3) + (" (below 0.8)" if row["flagged"] else ""),
        )
        for row in table.iter_rows(named=True)
    )
    small = table.filter(~pl.col("compared"))["group"].to_list()
    top = audit.figures.assumed.top
    notes = [
        "The ratio is the share of exposure over the share of merit: 1 is what the group deserves, below 1 too little.",
        f"The selection rate is the share of candidates that were shown at the first {top} ranks; the impact ratio is "
        "that rate over the best group's.",
    ]
    if small:
        notes.append(
            f"Groups with less than 2 % of the candidates are not compared in impact ratios: {', '.join(small[:20])}."
        )
    columns = (
        *("group", "items", "share of exposure", "its interval", "share of merit", "ratio", "interval of the ratio"),
        *("clicks", "selection rate", "impact ratio"),
    )
    shown = Table(
        name="groups", caption="Groups, the least served first", columns=columns, rows=rows, notes=tuple(notes)
    )
    caption = "Share of exposure against share of merit, the least served group at the top"
    more = f"; the {SHOWN_GROUPS} largest groups" if len(rows) > SHOWN_GROUPS else ""
    picture = document.add_picture(shares_picture(audit), f"{caption}{more}. Lines are 95 % intervals.")
    section(document, "groups", "Who gets the attention?", picture, document.add_table(shown))


def add_queries(document: Document, audit: Audit) -> None:
    """Append unfairness against its floor, the worst queries and their items."""
    values = audit.values.measures
    text = (
        f"Unfairness is {format_number(audit.unfairness)}; no ranking could have gone below "
        f"{format_number(audit.floor)} with the same visits. The distance is "
        f"{format_number(float(values['distance']))} "
        f"({format_interval(*audit.intervals.measures['distance'])})."
    )
    worst = audit.queries().head(WORST)
    rows = tuple(
        (
            row["query"],
            f"{row['impressions']:,}",
            f"{row['items']:,}",
            f"{row['clicks']:,}",
            format_number(row["unfairness"]),
            format_number(without_rounding(row["floor"], row["unfairness"])),
        )
        for row in worst.iter_rows(named=True)
    )
    columns = ("query", "impressions", "items", "clicks", "unfairness", "floor (lowest possible)")
    table = Table(name="worst-queries", caption="Queries farthest from their floor", columns=columns, rows=rows)
    items = audit.items()
    details = [
        Block(kind="details", text=f"Items of {query}", blocks=(document.add_table(item_table(items, query, i)),))
        for i, query in enumerate(worst["query"].head(5).to_list(), start=1)
    ]
    section(document, "queries", "Where is it least fair?", paragraph(text), document.add_table(table), *details)


def item_table(items: pl.DataFrame, query: str, number: int) -> Table:
    """Return the items of a query that differ most from their fair exposure."""
    chosen = items.filter(query=query).with_columns(size=pl.col("difference").abs()).sort("size", descending=True)
    rows = tuple(
        (
            row["item"],
            row.get("group", NOTHING),
            format_number(row["exposure"]),
            format_number(row["fair_exposure"]),
            format_number(row["difference"], sign=True),
            format_number(row["merit"]),
            f"{row['clicks']:,}",
        )
        for row in chosen.head(WORST).sort("difference").iter_rows(named=True)
    )
    columns = ("item", "group", "exposure", "in proportion to merit", "difference", "merit", "clicks")
    caption = f"Items of {query}, those with too little exposure first"
    return Table(name=f"items-{number}", caption=caption, columns=columns, rows=rows, text_columns=2)


def add_measures(document: Document, audit: Audit) -> None:
    """Append every measure with its interval."""
    rows = []
    for row in audit.measures().iter_rows(named=True):
        label, best, text = EXPLANATIONS[row["measure"]]
        ends = format_interval(row["low"], row["high"])
        rows.append((label, text, format_number(row["value"]), ends, best or NOTHING))
    table = Table(
        name="measures",
        caption="All measures",
        columns=("measure", "meaning", "value", "95 % interval", "best"),
        rows=tuple(rows),
        text_columns=2,
    )
    section(document, "measures", "All measures", document.add_table(table))


def add_provenance(document: Document, audit: Audit, command: str) -> None:
    """Append how to repeat the audit."""
    from importlib.metadata import version

    rows = [("command", command or "mcfair.audit(…)"), ("mcfair", version("mcfair")), ("Polars", pl.__version__)]
    rows.append(("Python", platform.python_version()))
    rows += [(f"SHA-256 of {each.name}", checksum(each)) for each in audit.files[:20] if each.is_file()]
    table = Table(name="how", caption="How to repeat it", columns=("", "value"), rows=tuple(rows), text_columns=2)
    section(document, "how", "How to reproduce this page", document.add_table(table))


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
