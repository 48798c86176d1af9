"""The command that writes a statement on the main parameters of the ranking: a page, the same as Markdown, and data."""

from __future__ import annotations

import datetime
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import DataError, SettingError
from ..tables import NOTHING, Table
from .parts import Plugins
from .render import encoded, stages
from .serve import DEFAULT_STORE, STORE
from .stores import readable

if TYPE_CHECKING:
    from ..service.core.importance import Importance, Measured, PartImportance
    from ..service.core.rules import Version


def statement(
    plugin: Plugins = None,
    store: STORE = DEFAULT_STORE,
    since: Annotated[str | None, typer.Option(help="Begin of the period: 2026-01-31 or 2026-01-31T12:00.")] = None,
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

    begin, end = moment("since", since), moment("until", until)
    if end is not None and end <= (begin or 0):
        raise SettingError(f"until = {until!r} is not allowed: expected a time after since = {since!r}")
    with readable(store), open_reader(store) as reader, stages() as report:
        repeated = partial(report, "repeating decisions")
        found = measure_importance(reader, since=begin or 0, until=end, sample=sample, progress=repeated)
    if not found.sampled:
        raise DataError(
            "the log of the store has no decisions in this period that could be repeated: lists in shadow mode and "
            "imported counts are none, old ones were compacted, and the policies of "
            f"{found.unrepeatable:,} are not installed here (name them with --plugin)"
        )
    folder = out if out is not None or json else Path("mcfair-statement")
    page = None if folder is None else write_statement(found, folder, since, until)
    if json:
        sys.stdout.write(encoded(as_dict(found)))
    else:
        print(*findings(found), "", page, sep="\n")


def moment(name: str, text: str | None) -> int | None:
    """Parse a date or a time, in UTC unless it names another zone, to ms."""
    if text is None:
        return None
    try:
        parsed = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise SettingError(
            f"{name} = {text!r} is not allowed: expected a date or a time such as 2026-01-31 or 2026-01-31T12:00"
        ) from None
    return round((parsed if parsed.tzinfo else parsed.replace(tzinfo=datetime.UTC)).timestamp() * 1000)


# --- the page --------------------------------------------------------------------------------------------------------

TITLE = "How these lists are ranked"
INTRODUCTION = (
    "This statement names the main parameters that determine the order of the lists, and how much each of them "
    "mattered. That is what Article 27 of the EU's Digital Services Act, Regulation (EU) 2022/2065, asks for. The "
    "importance is measured on the decisions themselves: each decision of a sample was repeated without each "
    "parameter, and the lists were compared."
)

MEANINGS = {
    "relevance": "How relevant an item is to the query, as estimated from clicks: how often users who looked at the "
    "item clicked it. Lower ranks are looked at less often, and the estimate takes that into account.",
    "fairness": "How much exposure an item has had so far, that is how much it was looked at, compared with what its "
    "relevance earns. An item that has had less than its share is moved up, and one that has had more is moved down.",
    "fairness between providers": "How much exposure the provider of an item has had so far, compared with what the "
    "relevance of its items earns. The items of a provider that has had less than its share are moved up.",
    "exploration": "How little is known of an item. An item that few users have seen is moved up, so that its "
    "relevance can be learnt.",
    "guard": "A limit on the other parameters: where they would cost a list too much of the relevance that the "
    "estimates allow, items of higher relevance are moved up.",
}
"""The meaning of the parts of our policies, in plain language."""

RULES = ("policy", "estimator", "prior_strength", "prior_mean", "half_life", "examination")
"""The rules that the order depends on."""

LIMITS = (
    "The candidates of a list, and what was left out before, are chosen by the application that sends them. The "
    "parameters of that choice are not part of this statement.",
    "Whether users can change these parameters or choose another order, and where, is for the platform to state.",
    "This text describes measurements. It is no legal advice, and publishing it does not by itself meet any "
    "obligation.",
)


def write_statement(found: Importance, folder: Path, since: str | None, until: str | None) -> Path:
    """Write the statement to a folder: index.html, statement.md and tables/; return the page."""
    from ..report.page import Block, Document, render_template, write_document

    document = Document(findings=findings(found))
    own = "A term of the score that the operator's own policy defines."
    meanings = tuple(f"{part}. {MEANINGS.get(part.lower(), own)}" for part in map(name, found.parts))
    document.section("parameters", "The main parameters", Block(kind="list", items=meanings))
    document.section("importance", "Their relative importance", importance_table(found))
    document.section("measured", "How it was measured", *method(found, since, until))
    document.section("rules", "The rules in force", rules_table(found.versions))
    document.section("limits", "What this statement leaves open", Block(kind="list", items=LIMITS))
    try:
        (folder / "tables").mkdir(parents=True, exist_ok=True)
        text = document.as_markdown(TITLE, INTRODUCTION)
        (folder / "statement.md").write_text(text, encoding="utf-8", newline="\n")
        html = render_template("statement.html.j2", title=TITLE, report=document, introduction=INTRODUCTION)
        return write_document(document, html, folder)
    except OSError as error:
        raise DataError(f"cannot write the statement to {folder}: {error.strerror or error}") from None


def findings(found: Importance) -> list[str]:
    """Return the result in sentences, the most important parameter first."""
    sentences = [
        f"{name(each)}: without it, {interval(each.lists_changed)} of the lists would have been different, and "
        f"{interval(each.places_changed)} of their places would have held another item."
        for each in found.parts
    ]
    queries = "1 query" if found.queries == 1 else f"{found.queries:,} queries"
    sentences.append(f"Measured on {found.sampled:,} of {decisions(found)}, for {queries}.")
    if found.shadow:
        sentences.append(
            f"Lists of the sample in shadow mode, which the caller ranked, are left out: {found.shadow:,}."
        )
    return sentences


def importance_table(found: Importance) -> Table:
    """Return the table of parameters."""
    return Table(
        name="importance",
        caption="What each parameter changed, with 95 % intervals",
        columns=("parameter", "relative importance", "lists changed", "places changed", "items replaced"),
        rows=tuple(
            (
                name(each),
                *map(interval, (each.relative, each.lists_changed, each.places_changed, each.items_replaced)),
            )
            for each in found.parts
        ),
        notes=(
            "Lists changed: the share of lists that would have been different without the parameter. Places changed: "
            "the mean share of the places of a list that would have held another item. Items replaced: the mean share "
            "of the items of a list that would not have been in it. Relative importance: the share of the parameter "
            "in the sum of the places changed by all. Relevance also enters fairness, exploration and the guard; "
            "its own figures count only what it adds by itself.",
        ),
    )


def method(found: Importance, since: str | None, until: str | None) -> list[str]:
    """Describe the sample."""
    period = " ".join(f"{word} {time}" for word, time in (("from", since), ("until", until)) if time)
    sentences = [
        f"Period: {period or 'all that is still in the log'}, with {decisions(found)}. Of these {found.sampled:,} were "
        f"repeated, evenly spread over the queries and the time from {date(found.first)} to {date(found.last)}.",
        "A decision is repeated from the log with everything that was known at its time, without one parameter and all "
        "others being equal. The intervals are those of 1,000 resamples of the queries.",
        "Decisions by policy: " + ", ".join(f"{policy} {count:,}" for policy, count in found.policies.items()) + ".",
    ]
    if found.whole:
        sentences.append(
            f"{found.whole:,} decisions were made by a policy that has no parameters to tell apart; they count as "
            "changed by none."
        )
    if found.unrepeatable:
        sentences.append(
            f"{found.unrepeatable:,} decisions of the sample could not be repeated, because their policy is not "
            "installed here, and are left out."
        )
    return sentences


def rules_table(versions: list[Version]) -> Table:
    """Return the table of the rules in force."""
    return Table(
        name="rules",
        caption="Rules that were in force in the period",
        columns=("version", "since", *(rule.replace("_", " ") for rule in RULES)),
        rows=tuple(
            (str(each.number), date(each.since), *(str(getattr(each.rules, rule) or NOTHING) for rule in RULES))
            for each in versions
        ),
        text_columns=2 + len(RULES),
        notes=(
            "Prior strength is the weight of priors in views, and half life the time in seconds in which counts lose "
            "half their weight. Examination is the assumption on how likely users are to look at each rank: a "
            "severity, or a probability for each rank. A new version that differs in nothing here has a newly fitted "
            "prior of the estimator, or another setting that does not change the order.",
        ),
    )


def name(each: PartImportance) -> str:
    """Return the name of a part."""
    return "Fairness between providers" if each.part == "group" else each.part.capitalize()


def decisions(found: Importance) -> str:
    """Return how many decisions the period has."""
    return f"{'' if found.exact else 'about '}{found.decisions:,} decisions"


def interval(share: Measured) -> str:
    """Format a share in percent with its interval."""
    value, low, high = (f"{100 * x:.1f}" for x in (share.value, share.low, share.high))
    return f"{value} %" if low == high else f"{value} % ({low} to {high} %)"


def date(time: int | None) -> str:
    """Format a time in ms."""
    return "" if time is None else f"{datetime.datetime.fromtimestamp(time / 1000, datetime.UTC):%Y-%m-%d %H:%M} UTC"


def as_dict(found: Importance) -> dict[str, Any]:
    """Return the statement as plain data."""
    import msgspec

    data: dict[str, Any] = msgspec.to_builtins(found)
    for each in data["versions"]:
        each["since"] = date(each["since"])
    return data | {"first": date(found.first), "last": date(found.last)}
