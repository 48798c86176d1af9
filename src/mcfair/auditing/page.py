"""The page of an audit: its result in sentences, its figures, and its tables, which are also written as files."""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ..errors import DataError
from ..report.figures import BLUE, NARROW_WIDTH, ORANGE, VERMILLION, Picture, draw, shorten
from ..report.page import Block, Document, create_folders, render_template, write_document
from ..tables import NOTHING, Table, format_interval, format_number
from .audit import Audit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..analysis.propensities import FittedExamination


WORST = 10
"""Queries and items that the page names; the tables have all."""

SHOWN_GROUPS, SHOWN_RANKS = 20, 50
"""Groups in the figure, those with the most exposure and merit, and ranks in the table; the tables have all."""

WIDE = 7.6
"""Inches of a figure."""


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
            harmless(table).write_csv(target / "tables" / f"{name}.csv")
            table.write_parquet(target / "tables" / f"{name}.parquet")
        return write_document(document, html, target)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DataError(f"cannot write the audit to {target}: {getattr(error, 'strerror', None) or error}") from None


def harmless(table: pl.DataFrame) -> pl.DataFrame:
    """Return a table whose texts no spreadsheet takes for a formula: what begins like one gets an apostrophe."""
    text, wide = pl.col(pl.String), "\uff1d\uff0b\uff0d\uff20"  # full-width = + - @
    begins = text.str.contains(rf"^[=+\-@{wide}\t\r]")
    return table.with_columns(pl.when(begins).then("'" + text).otherwise(text).name.keep())


def build_document(audit: Audit, command: str) -> Document:
    """Build all sections."""
    document = Document()
    document.findings += findings(audit)
    add_source(document, audit)
    if audit.counts.group_names:
        add_groups(document, audit)
    add_queries(document, audit)
    if audit.over_time is not None and audit.over_time.height > 1:
        add_over_time(document, audit, audit.over_time)
    add_ranks(document, audit)
    add_sensitivity(document, audit)
    if audit.policies:
        add_policies(document, audit)
    add_measures(document, audit)
    add_provenance(document, audit, command)
    return document


# --- sentences -------------------------------------------------------------------------------------------------------


def findings(audit: Audit) -> list[str]:
    """Return the result in sentences that need no knowledge of the measures; what makes it doubtful comes first."""
    return [*(f"Warning: {each}." for each in audit.warnings), distance(audit), groups(audit), dependence(audit)]


def distance(audit: Audit) -> str:
    """Compare unfairness with its floor."""
    if not np.isfinite(audit.unfairness):
        return "No item has merit (there are no clicks, for example), so unfairness cannot be judged."
    if audit.unfairness <= audit.floor * (1 + 1e-9) + 1e-12:
        return f"Exposure is as fair as it can be: unfairness {format_number(audit.unfairness)} is the lowest possible."
    times = f"{format_number(audit.unfairness / audit.floor, 3)} times" if audit.floor > 0 else "above"
    sure = f"; the distance is {format_interval(*audit.intervals.measures['distance'])} with 95 % confidence"
    return (
        f"Unfairness is {format_number(audit.unfairness)}, {times} the lowest value that any ranking could have had "
        f"with the same visits, {format_number(audit.floor)}{sure if audit.resamples else ''}."
    )


def groups(audit: Audit) -> str:
    """Name the group with the least exposure for its merit, if it is beyond chance."""
    if not audit.counts.group_names:
        return (
            "The log has no groups, so items are compared but not their providers. In a table, --column group=NAME "
            "names the column of the providers."
        )
    table = audit.groups().filter(pl.col("ratio").is_not_nan())
    if table.height < 2:
        return f"{'Only one' if table.height else 'No'} group has merit, so groups cannot be compared."
    sure = table.filter("beyond_chance")
    row = (table if sure.is_empty() else sure).sort("ratio").row(0, named=True)
    shares = f"{percent(row['exposure_share'])} of the exposure for {percent(row['merit_share'])} of the merit"
    if sure.height:
        return (
            f"The group “{row['group']}” gets the least exposure for its merit: {shares}, which is beyond chance, "
            f"also for the lowest of {table.height} groups."
        )
    known = "No group gets less exposure than it deserves beyond chance" if audit.resamples else "Chance is not judged"
    return f"{known}; the lowest is “{row['group']}” with {shares}."


def dependence(audit: Audit) -> str:
    """State the assumptions, and whether the least served group depends on them."""
    table = audit.sensitivity
    text = f"All figures assume the exposure model {audit.model.name} and merit {audit.merit_label}"
    if "least_served" not in table.columns:
        return f"{text}; {table.height} exposure models are compared."
    if table["least_served"].n_unique() == 1:
        return f"{text}; under {table.height} exposure models the same group is served least."
    return f"{text}; which group is served least differs among {table.height} exposure models."


# --- tables ----------------------------------------------------------------------------------------------------------


def percent(value: float | None) -> str:
    """Format a share in percent."""
    return NOTHING if value is None else f"{format_number(100 * value, 3)} %"


def cell(row: dict[str, Any], form: str) -> str:
    """Format a value of a row.

    `form` is the name of its column, followed by nothing for text, a comma for whole numbers, % for shares, or a full
    stop, or a plus for a sign, and a number of digits; by ± and digits, or ±%, for the interval around it.

    Examples
    --------
    >>> row = {"share": 0.25, "share_low": 0.125, "share_high": 0.5, "clicks": 1200}
    >>> [cell(row, form) for form in ("share.3", "share%", "share±%", "clicks,")]
    ['0.250', '25.0 %', '12.5 to 50.0 %', '1,200']
    """
    name, kind, digits = re.fullmatch(r"(\w+)(,|%|\.|\+|±|)(\d*|%)", form).groups()  # type: ignore[union-attr]
    if kind == "±":
        scale = 100 if digits == "%" else 1
        text = format_interval(scale * row[f"{name}_low"], scale * row[f"{name}_high"], 3 if scale > 1 else int(digits))
        return f"{text} %" if scale > 1 and text != NOTHING else text
    value = row.get(name)
    if kind == "," and value is not None:
        return f"{value:,}"
    if kind == "%":
        return percent(value)
    if kind in (".", "+"):
        return format_number(value, int(digits), sign=kind == "+")
    return str(value) if value else NOTHING


def table_of(name: str, caption: str, frame: pl.DataFrame, columns: dict[str, str], **options: Any) -> Table:
    """Return a data frame as a table of text: for each column its title and how it is formatted, see `cell`."""
    rows = tuple(tuple(cell(row, form) for form in columns.values()) for row in frame.iter_rows(named=True))
    return Table(name=name, caption=caption, columns=tuple(columns), rows=rows, **options)


def pairs_table(name: str, caption: str, rows: list[tuple[str, str]]) -> Table:
    """Return a table of names and values."""
    return Table(name=name, caption=caption, columns=("", "value"), rows=tuple(rows), text_columns=2)


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
        ("clicks", f"{int(counts.clicks.sum()):,}" if counts.clicked else "none logged"),
    ]
    found = counts.excluded | counts.quality
    problems = [(name, f"{value:,}" if isinstance(value, int) else str(value)) for name, value in found.items()]
    note = f"{sum(counts.excluded.values()):,} of {counts.rows:,} rows were left out."
    title, columns = "What was left out, and what else was found", ("found", "number")
    quality = Table(name="found", caption=title, columns=columns, rows=tuple(problems), notes=(note,))
    read = pairs_table("read", "Content of the log", rows)
    document.section("source", "What was read", read, *audit.notes, quality)


def add_groups(document: Document, audit: Audit) -> None:
    """Append exposure against merit by group."""
    frame = audit.groups().sort("ratio", nulls_last=True)
    frame = frame.with_columns(below=pl.when("flagged").then(pl.lit("yes")))
    notes = [
        "The ratio is the share of exposure over the share of merit: 1 is what the group deserves, below 1 too little. "
        "Each interval is of one group alone: among many groups some lie beyond 1 by chance.",
        f"The selection rate is the share of candidates that were shown at ranks 1 to {audit.figures.assumed.top}; the "
        "impact ratio is that rate over the best group's.",
    ]
    if small := frame.filter(~pl.col("compared"))["group"].to_list():
        notes.append(
            f"Groups with less than 2 % of the candidates are not compared in impact ratios: {', '.join(small[:20])}."
        )
    columns = {
        "group": "group",
        "items": "items,",
        "share of exposure": "exposure_share%",
        "its interval": "exposure_share±%",
        "share of merit": "merit_share%",
        "ratio": "ratio.3",
        "interval of the ratio": "ratio±3",
        "clicks": "clicks,",
        "selection rate": "selection_rate%",
        "impact ratio": "impact_ratio.3",
        "below 0.8": "below",
    }
    table = table_of("groups", "Groups, the least served first", frame, columns, notes=tuple(notes))
    more = f"; the {SHOWN_GROUPS} largest groups" if frame.height > SHOWN_GROUPS else ""
    caption = f"Share of exposure against share of merit, the least served group at the top{more}."
    picture = document.add_picture(shares_picture(audit), f"{caption} Lines are 95 % intervals.")
    document.section("groups", "Who gets the exposure?", picture, table)


def add_queries(document: Document, audit: Audit) -> None:
    """Append unfairness against its floor, the worst queries and their items."""
    tiny = pl.col("floor").abs() < 1e-12 * pl.col("unfairness").abs()  # rounding error
    worst = audit.queries().head(WORST).with_columns(floor=pl.when(tiny).then(0.0).otherwise("floor"))
    columns = {
        "query": "query",
        "impressions": "impressions,",
        "items": "items,",
        "clicks": "clicks,",
        "unfairness": "unfairness.4",
        "floor (lowest possible)": "floor.4",
    }
    table = table_of("worst-queries", "Queries farthest from their floor", worst, columns)
    items = audit.items()
    of_item = {
        "item": "item",
        "group": "group",
        "exposure": "exposure.4",
        "in proportion to merit": "fair_exposure.4",
        "difference": "difference+4",
        "merit": "merit.4",
        "clicks": "clicks,",
    }
    details = []
    for i, query in enumerate(worst["query"].head(5).to_list(), start=1):
        chosen = items.filter(query=query).sort(pl.col("difference").abs(), descending=True).head(WORST)
        caption = f"Items of {query}, those with too little exposure first"
        table_of_items = table_of(f"items-{i}", caption, chosen.sort("difference"), of_item, text_columns=2)
        details.append(document.add_details(f"Items of {query}", table_of_items))
    document.section("queries", "Where is it least fair?", distance(audit), table, *details)


def add_over_time(document: Document, audit: Audit, frame: pl.DataFrame) -> None:
    """Append unfairness against its floor over time."""
    unit = audit.time_unit
    columns = {
        f"{unit} from": "from",
        "impressions": "impressions,",
        "unfairness since the beginning": "unfairness.4",
        "floor since the beginning": "floor.4",
        f"unfairness of the {unit} alone": "alone_unfairness.4",
        f"floor of the {unit} alone": "alone_floor.4",
    }
    note = (
        f"Since the beginning: all impressions up to the end of the {unit}, the mean over all queries in which an item "
        f"has merit. Alone: only the impressions of the {unit}, as if nothing had been before, the mean over the "
        "queries that occur in it. Merit is that of the whole log; times are in UTC."
    )
    text = (
        "Exposure adds up: an item that was shown too little can be compensated later, so the curve counts all "
        f"impressions from the beginning of the log to the end of each {unit}. It grows with the square of exposure; "
        "what matters is its distance to the floor."
    )
    caption = f"Unfairness and its floor since the beginning of the log, at the end of each {unit}."
    table = table_of("over-time", f"By {unit}", frame, columns, notes=(note,))
    picture = document.add_picture(time_picture(frame, unit), caption)
    document.section("time", "Is it getting better?", text, picture, table)


def add_ranks(document: Document, audit: Audit) -> None:
    """Append click rates by rank beside the exposure that is assumed."""
    frame = audit.ranks()
    columns = {"rank": "rank,", "shown": "shown,"}
    if audit.counts.clicked:
        columns |= {"clicks": "clicks,", "click rate": "ctr%", "its interval": "ctr±%"}
    columns["exposure assumed"] = "assumed.3"
    text = (
        "Better items are usually shown higher, so click rates fall faster than examination does, and need not agree "
        "with the assumed exposure. mcfair examination separates the two where the log allows it."
    )
    blocks: list[Block | Table] = [table_of("ranks", "Ranks", frame.head(SHOWN_RANKS), columns)]
    if frame["clicks"].sum() and frame.height > 1:
        caption = "Click rates beside the exposure that is assumed."
        blocks.insert(0, document.add_picture(rates_picture(frame, audit.model.name), caption))
    document.section("ranks", "What do users look at?", text, *blocks)


def add_sensitivity(document: Document, audit: Audit) -> None:
    """Append the main figures under other exposure models."""
    frame = audit.sensitivity
    grouped = "least_served" in frame.columns
    columns = {"exposure model": "exposure_model", "exposure of a rank": "formula"}
    if grouped:
        columns |= {"least served group": "least_served", "its ratio": "its_ratio.3"}
    columns |= {
        "unfairness": "unfairness.4",
        "floor": "floor.4",
        "unfairness per impression²": "relative_unfairness.4",
        "NDCG by merit": "ndcg.3",
    }
    table = table_of(
        "sensitivity",
        "The same log under other assumptions",
        frame,
        columns,
        text_columns=3 if grouped else 2,
        row_classes={0: "base"},
        notes=(
            "Conclusions that change from row to row depend on an assumption rather than on the log.",
            "Unfairness depends on the scale of exposure: compare it with the floor of the same row.",
        ),
    )
    document.section("sensitivity", "Does it depend on the assumptions?", dependence(audit), table)


IPS_NOTE = (
    "The click rate by IPS, also an estimate, weights every logged row by the probability of its item and rank under "
    "the policy over the logged propensity, and assumes nothing of merit and exposure. It rests on the effective "
    "sample size rather than on all rows. What a policy shows without support was never logged at its rank; above 5 % "
    "there is no estimate."
)


def add_policies(document: Document, audit: Audit) -> None:
    """Append the estimates of other policies."""
    from .what_if import OffPolicyEstimate

    names, counts = audit.counts.group_names, audit.counts
    scored = bool(counts.weights) and counts.clicked
    rate = float(audit.values.measures.get("ctr", np.nan))
    logged = OffPolicyEstimate(rate, rate, int(counts.shown.sum()), 0.0)
    rows = [
        {"label": each.label, "group": each.least_served(), "n": each.clicks_per_impression, "ndcg": each.ndcg}
        | {"unfairness": each.unfairness, **(each.off_policy or logged)._asdict()}
        for each in audit.policies
    ]
    columns = {"policy": "label"} | ({"least served group (ratio)": "group"} if names else {})
    columns |= {"unfairness": "unfairness.4", "clicks per impression": "n.4", "NDCG by merit": "ndcg.3"}
    if scored:
        columns |= {"click rate by IPS": "click_rate.4", "self-normalised": "self_normalised.4"}
        columns |= {"effective sample size": "effective_sample_size.1", "without support": "unsupported%"}
    note = (
        "An estimate, not a measurement: each policy ranks the same candidates for the same visits, and users are "
        "assumed to click by merit and exposure as assumed on this page."
    )
    table = table_of(
        "policies",
        "What other policies would have done (estimate)",
        pl.DataFrame(rows, strict=False, infer_schema_length=None),
        columns,
        text_columns=2 if names else 1,
        notes=(note, IPS_NOTE) if scored else (note,),
        row_classes={0: "base"},
    )
    document.section("policies", "What if?", table)


def add_measures(document: Document, audit: Audit) -> None:
    """Append every measure with its interval."""
    k = audit.figures.assumed.k
    words = pl.DataFrame([(key, *each) for key, each in EXPLANATIONS.items()], schema=WORDS, orient="row")
    frame = audit.measures().join(words, on="measure", maintain_order="left")
    frame = frame.rename({"low": "value_low", "high": "value_high"})
    columns = {"measure": "label", "meaning": "text", "value": "value.4", "95 % interval": "value±4", "best": "best"}
    notes = (f"NDCG counts ranks 1 to {k}.",) if k else ()
    table = table_of("measures", "All measures", frame, columns, text_columns=2, notes=notes)
    document.section("measures", "All measures", table)


def add_provenance(document: Document, audit: Audit, command: str) -> None:
    """Append how to repeat the audit."""
    from importlib.metadata import version

    rows = [("command", command or "mcfair.audit(…)"), ("mcfair", version("mcfair")), ("Polars", pl.__version__)]
    rows.append(("Python", platform.python_version()))
    for each in audit.files[:20]:
        if each.is_file():
            with each.open("rb") as stream:
                rows.append((f"SHA-256 of {each.name}", hashlib.file_digest(stream, "sha256").hexdigest()))
    document.section("how", "How to reproduce this page", pairs_table("how", "How to repeat it", rows))


# --- figures ---------------------------------------------------------------------------------------------------------


def panel_picture(name: str, alt: str, height: float, fill: Callable[[Axes, bool], None]) -> Picture:
    """Draw a figure of one panel in its wide and its narrow version."""

    def version(narrow: bool) -> Figure:
        from matplotlib.figure import Figure as Canvas

        figure = Canvas(figsize=(NARROW_WIDTH if narrow else WIDE, height), layout="constrained")
        fill(figure.subplots(), narrow)
        return figure

    return draw(version, name, alt)


def shares_picture(audit: Audit) -> Picture:
    """Draw the share of exposure against the share of merit of each group, with intervals."""
    largest = audit.groups().sort(pl.col("exposure_share") + pl.col("merit_share"), descending=True).head(SHOWN_GROUPS)
    chosen = largest.sort("ratio", nulls_last=True)[::-1]
    names = chosen["group"].to_list()

    def fill(panel: Axes, narrow: bool) -> None:
        y = np.arange(len(names))
        exposure, merit = 100 * chosen["exposure_share"].to_numpy(), 100 * chosen["merit_share"].to_numpy()
        panel.hlines(y, exposure, merit, color="#BBBBBB", linewidth=2.5, zorder=1)
        for values, column, colour, marker, label, shift in (
            (merit, "merit_share", ORANGE, "D", "share of merit", -0.13),
            (exposure, "exposure_share", BLUE, "o", "share of exposure", 0.13),
        ):
            low, high = 100 * chosen[f"{column}_low"].to_numpy(), 100 * chosen[f"{column}_high"].to_numpy()
            panel.hlines(y + shift, low, high, color=colour, linewidth=1.2, alpha=0.7, zorder=2)
            panel.plot(values, y, marker, color=colour, markersize=7, markeredgecolor="white", label=label, zorder=3)
        panel.set_yticks(y, [shorten(each, 16 if narrow else 30) for each in names], parse_math=False)
        panel.set_ylim(-0.6, len(names) - 0.4)
        panel.set_xlim(left=0)
        panel.grid(visible=False, axis="y")
        panel.set_xlabel("share in percent")
        panel.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=2)

    alt = "Share of exposure against share of merit of each group: " + "; ".join(
        f"{row['group']} {100 * row['exposure_share']:.1f} % of exposure, {100 * row['merit_share']:.1f} % of merit"
        for row in chosen[::-1].head(10).iter_rows(named=True)
    )
    return panel_picture("shares", alt, 1.5 + 0.34 * len(names), fill)


Lines = dict[str, tuple[Any, str, str]]
"""Figures of a line by its label, with its form and its colour."""


def lines_picture(
    name: str, alt: str, lines: Lines, x: str, y: str, *, labels: list[str] | None = None, band: Any = None
) -> Picture:
    """Draw lines over ranks or labels; `band` has the ends of an interval and its label, None if it has none."""

    def fill(panel: Axes, narrow: bool) -> None:
        place = np.arange(1, len(next(iter(lines.values()))[0]) + 1)
        if band is not None:
            low, high, label = band
            panel.fill_between(place, low, high, color=BLUE, alpha=0.17, linewidth=0, label=label)
        for title, (values, form, colour) in lines.items():
            panel.plot(place, values, form, color=colour, label=title)
        if labels is not None:
            step = -(-len(labels) // (3 if narrow else 7))
            panel.set_xticks(place[::step], labels[::step], parse_math=False)
        elif place.size <= 15:
            panel.set_xticks(place)
        panel.set_ylim(bottom=0)
        panel.set_xlabel(x)
        panel.set_ylabel(y)
        panel.legend(loc="upper right" if labels is None else "upper left")

    return panel_picture(name, alt, 3.6, fill)


def time_picture(frame: pl.DataFrame, unit: str) -> Picture:
    """Draw unfairness and its floor since the beginning of the log, at the end of each period."""
    lines: Lines = {
        "unfairness": (frame["unfairness"].to_numpy(), "o-", BLUE),
        "floor (lowest possible)": (frame["floor"].to_numpy(), "s--", VERMILLION),
    }
    alt, y = (
        f"Unfairness and its floor at the end of each {unit}; the numbers are in the table.",
        "since the beginning of the log",
    )
    return lines_picture("over-time", alt, lines, f"{unit} beginning", y, labels=frame["from"].to_list())


def rates_picture(frame: pl.DataFrame, model: str) -> Picture:
    """Draw click rates by rank, relative to rank 1, beside the exposure that the audit assumes."""
    first = frame["ctr"][0] if frame["ctr"][0] > 0 else np.nan
    p, low, high = ((frame[name] / first).to_numpy() for name in ("ctr", "ctr_low", "ctr_high"))
    lines: Lines = {
        "click rate over that of rank 1": (p, "o-", BLUE),
        f"exposure assumed: {model}": (frame["assumed"].to_numpy(), "s--", VERMILLION),
    }
    alt = "Click rate and assumed exposure of each rank; the numbers are in the table."
    return lines_picture("rates", alt, lines, "rank", "relative to rank 1", band=(low, high, None))


def examination_picture(found: FittedExamination) -> Picture:
    """Draw fitted examination probabilities with their intervals."""
    lines: Lines = {
        f"fitted ({found.method})": (found.p, "o", BLUE),
        "never rising": (found.falling, "-", BLUE),
        "log2": (1 / np.log2(np.arange(2, found.p.size + 2)), "--", VERMILLION),
    }
    alt = "Fitted examination of each rank: " + ", ".join(f"rank {j} {p:.3f}" for j, p in enumerate(found.p, start=1))
    band = (found.low, found.high, "95 % interval")
    return lines_picture("examination", alt, lines, "rank", "relative to rank 1", band=band)


# --- measures in words -----------------------------------------------------------------------------------------------

WORDS = ["measure", "label", "best", "text"]

EXPLANATIONS = {
    "unfairness": ("Unfairness (Eq. 8)", "0", "Mean squared disparity of exposure per merit over pairs of items."),
    "floor": ("Fairness floor", "", "The lowest unfairness possible with the same visits and places."),
    "distance": ("Distance to the floor", "0", "Unfairness less its floor: what other lists could have avoided."),
    "relative_unfairness": ("Unfairness per impression²", "0", "Unfairness that does not grow with the log."),
    "group_unfairness": ("Unfairness among groups", "0", "Eq. 8 on the sums of exposure and merit of each group."),
    "iaa": ("Inequity of amortised attention", "0", "Sum over items of |exposure received less exposure due|."),
    "iaa_per_session": ("Inequity per impression", "0", "The same divided by the impressions: 0 to 2."),
    "ee_d": ("EE-D", "", "Squared length of expected exposure: how unequal it is."),
    "ee_r": ("EE-R", "", "Twice its product with the ideal exposure: how well it follows merit."),
    "ee_l": ("EE-L", "0", "Squared distance of expected exposure from the ideal one."),
    "gini": ("Gini coefficient of exposure", "", "0 if all items of a query have the same exposure."),
    "gini_corrected": ("Gini, corrected", "", "0 if equal, 1 if as unequal as lists of this length can be."),
    "jain": ("Jain's index of exposure", "", "1 if all items of a query have the same exposure."),
    "jain_corrected": ("Jain, corrected", "", "1 if equal, 0 if as unequal as lists of this length can be."),
    "entropy": ("Entropy of exposure, bits", "", "Highest if all items of a query have the same exposure."),
    "entropy_corrected": ("Entropy, corrected", "", "1 if equal, 0 if as unequal as lists of this length can be."),
    "ctr": ("Click rate", "", "Clicks per shown item."),
    "clicks_per_impression": ("Clicks per impression", "", "Clicks per list."),
    "clicks_per_exposure": ("Clicks per exposure", "", "Click rate corrected for the ranks at which items stood."),
    "ips_ctr": ("IPS-weighted click rate", "", "Click rate of a uniformly random policy, by the logged propensities."),
    "ndcg": ("NDCG by merit", "1", "Exposure-weighted merit of the lists over that of ideal lists."),
    "demographic_parity": ("Demographic parity", "1", "Least over greatest exposure per candidate among groups."),
    "disparate_treatment": ("Disparate treatment", "1", "Least over greatest exposure per merit among groups."),
    "disparate_impact": ("Disparate impact", "1", "Least over greatest number of clicks per merit among groups."),
    "impact_ratio": ("Impact ratio", "1", "Lowest selection rate of a group over that of the best group."),
    "awrf_log2_population": ("AWRF, log2, population", "1", "Exposure of groups against their share of candidates."),
    "awrf_log2_merit": ("AWRF, log2, merit", "1", "Exposure of groups against their share of merit."),
    "awrf_log2_given": ("AWRF, log2, given target", "1", "Exposure of groups against the given shares."),
    "awrf_geometric_population": ("AWRF, geometric, population", "1", "The same with exposure halved at each rank."),
    "awrf_geometric_merit": ("AWRF, geometric, merit", "1", "The same with exposure halved at each rank."),
    "awrf_geometric_given": ("AWRF, geometric, given target", "1", "The same with exposure halved at each rank."),
}
"""Label, the value that is fair or best ("" if none is), and a sentence, of each measure."""
