"""Sections of the page of an audit on time, ranks, assumptions and other policies."""

from __future__ import annotations

from ..report.document import Block, Document, Section
from ..report.formatting import NOTHING, format_interval, format_number
from ..report.markup import Table
from .pictures import rates_picture, time_picture
from .result import Audit
from .what_if import Estimate

__all__ = [
    "add_over_time",
    "add_policies",
    "add_ranks",
    "add_sensitivity",
    "paragraph",
    "percent",
    "percents",
    "section",
]

IPS_NOTE = (
    "The click rate by IPS, also an estimate, weights every logged row by the probability of its item and rank under "
    "the policy over the logged propensity, and assumes nothing of merit and exposure. It rests on the effective "
    "sample size rather than on all rows. What a policy shows without support was never logged at its rank; above 5 % "
    "there is no estimate."
)


def section(document: Document, anchor: str, title: str, *blocks: Block) -> None:
    """Append a section."""
    document.sections.append(Section(document.unique_name(anchor), title, blocks))


def paragraph(text: str) -> Block:
    """Return a paragraph."""
    return Block(kind="paragraph", text=text)


def percent(value: float | None) -> str:
    """Format a share in percent."""
    return NOTHING if value is None else f"{format_number(100 * value, 3)} %"


def without_rounding(value: float, scale: float) -> float:
    """Return 0 for a value that is rounding error beside another one."""
    return 0.0 if abs(value) < 1e-12 * abs(scale) else value


def percents(low: float | None, high: float | None) -> str:
    """Format an interval of shares in percent."""
    return NOTHING if low is None or high is None else f"{format_interval(100 * low, 100 * high, 3)} %"


def add_over_time(document: Document, audit: Audit) -> None:
    """Append unfairness against its floor over time."""
    assert audit.over_time is not None
    unit = audit.time_unit
    rows = tuple(
        (row["from"], f"{row['impressions']:,}", *(format_number(value) for value in list(row.values())[2:]))
        for row in audit.over_time.iter_rows(named=True)
    )
    columns = (
        f"{unit} from",
        "impressions",
        "unfairness since the beginning",
        "floor since the beginning",
        f"unfairness of the {unit} alone",
        f"floor of the {unit} alone",
    )
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
    table = Table(name="over-time", caption=f"By {unit}", columns=columns, rows=rows, notes=(note,))
    picture = document.add_picture(time_picture(audit), caption)
    section(document, "time", "Is it getting better?", paragraph(text), picture, document.add_table(table))


def add_ranks(document: Document, audit: Audit) -> None:
    """Append click rates by rank beside the exposure that is assumed."""
    table = audit.ranks()
    rows = tuple(
        (
            f"{row['rank']}",
            f"{row['shown']:,}",
            f"{row['clicks']:,}",
            percent(row["ctr"]),
            percents(row["ctr_low"], row["ctr_high"]),
            format_number(row["assumed"], 3),
        )
        for row in table.head(50).iter_rows(named=True)
    )
    columns = ("rank", "shown", "clicks", "click rate", "its interval", "exposure assumed")
    shown = Table(name="ranks", caption="Ranks", columns=columns, rows=rows)
    text = (
        "Better items are usually shown higher, so click rates fall faster than attention does, and need not agree "
        "with the assumed exposure. mcfair examination separates the two where the log allows it."
    )
    blocks = [paragraph(text)]
    if table["clicks"].sum() and table.height > 1:
        blocks.append(document.add_picture(rates_picture(audit), "Click rates beside the exposure that is assumed."))
    section(document, "ranks", "What do users look at?", *blocks, document.add_table(shown))


def add_sensitivity(document: Document, audit: Audit) -> None:
    """Append the main figures under other exposure models."""
    table = audit.sensitivity
    grouped = "least_served" in table.columns
    rows = tuple(
        (
            row["exposure_model"],
            row["formula"],
            *((f"{row['least_served']} ({format_number(row['its_ratio'], 3)})",) if grouped else ()),
            format_number(row["unfairness"]),
            format_number(row["floor"]),
            format_number(row["relative_unfairness"]),
            format_number(row["ndcg"], 3),
        )
        for row in table.iter_rows(named=True)
    )
    columns = (
        "exposure model",
        "exposure of a rank",
        *(("least served group (ratio)",) if grouped else ()),
        "unfairness",
        "floor",
        "unfairness per impression²",
        "NDCG by merit",
    )
    shown = Table(
        name="sensitivity",
        caption="The same log under other assumptions",
        columns=columns,
        rows=rows,
        text_columns=3 if grouped else 2,
        row_classes={0: "base"},
        notes=("Unfairness depends on the scale of exposure: compare it with the floor of the same row.",),
    )
    if grouped:
        same = table["least_served"].n_unique() == 1
        text = (
            "The same group is served least under every model."
            if same
            else "Which group is served least depends on the model, so it should not be concluded from one of them."
        )
    else:
        text = "Conclusions that change from row to row depend on an assumption rather than on the log."
    section(document, "sensitivity", "Does it depend on the assumptions?", paragraph(text), document.add_table(shown))


def add_policies(document: Document, audit: Audit) -> None:
    """Append the estimates of other policies."""
    names = audit.counts.group_names
    behind = ("least served group (ratio)",) if names else ()
    scored = audit.counts.weight is not None
    rows = tuple(
        (
            each.label,
            *((each.least_served(names),) if names else ()),
            format_number(each.unfairness),
            format_number(each.clicks_per_impression),
            format_number(each.ndcg, 3),
            *(off_policy_columns(each, audit) if scored else ()),
        )
        for each in audit.policies
    )
    columns = ("policy", *behind, "unfairness", "clicks per impression", "NDCG by merit")
    if scored:
        columns += ("click rate by IPS", "self-normalised", "effective sample size", "without support")
    note = (
        "An estimate, not a measurement: each policy ranks the same candidates for the same visits, and users are "
        "assumed to click by merit and exposure as assumed on this page."
    )
    table = Table(
        name="policies",
        caption="What other policies would have done (estimate)",
        columns=columns,
        rows=rows,
        text_columns=2 if names else 1,
        notes=(note, IPS_NOTE) if scored else (note,),
        row_classes={0: "base"},
    )
    section(document, "policies", "What if?", document.add_table(table))


def off_policy_columns(each: Estimate, audit: Audit) -> tuple[str, ...]:
    """Return the figures by inverse propensity scoring; those of the log itself are counted."""
    if each.off_policy is None:
        rate = format_number(float(audit.values.measures["ctr"]))
        return rate, rate, f"{int(audit.counts.shown.sum()):,}", percent(0.0)
    found = each.off_policy
    rows = f"{found.effective_sample_size:,.0f}"
    return format_number(found.click_rate), format_number(found.self_normalised), rows, percent(found.unsupported)
