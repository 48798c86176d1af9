"""The statement as a page, as Markdown and as plain data."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import msgspec

from ..errors import DataError
from ..report.page import Block, Document, render_template, write_document
from ..service.core.importance import Importance, Measured, PartImportance
from ..service.core.rules import Version
from ..tables import Table

__all__ = ["as_dict", "findings", "write_statement"]

TITLE = "How these lists are ranked"
INTRODUCTION = (
    "This statement names the main parameters that determine the order of the lists, and how much each of them "
    "mattered. That is what Article 27 of the EU's Digital Services Act, Regulation (EU) 2022/2065, asks for. The "
    "importance is measured on the decisions themselves: each decision of a sample was repeated without each "
    "parameter, and the lists were compared."
)

NAMES = {
    "relevance": "Relevance",
    "fairness": "Fairness",
    "group": "Fairness between providers",
    "exploration": "Exploration",
    "guard": "Guard",
}
MEANINGS = {
    "relevance": "How relevant an item is to the query, as estimated from clicks: how often users who looked at the "
    "item clicked it. Lower ranks are looked at less often, and the estimate takes that into account.",
    "fairness": "How much attention an item has had so far, compared with what its relevance earns. An item that has "
    "had less than its share is moved up, and one that has had more is moved down.",
    "group": "How much attention the provider of an item has had so far, compared with what the relevance of its "
    "items earns. The items of a provider that has had less than its share are moved up.",
    "exploration": "How little is known of an item. An item that few users have seen is moved up, so that its "
    "relevance can be learnt.",
    "guard": "A limit on the other parameters: where they would cost a list too much of the relevance that the "
    "estimates allow, items of higher relevance are moved up.",
}

LIMITS = (
    "The candidates of a list, and what was left out before, are chosen by the application that sends them. The "
    "parameters of that choice are not part of this statement.",
    "Whether users can change these parameters or choose another order, and where, is for the platform to state.",
    "This text describes measurements. It is no legal advice, and publishing it does not by itself meet any "
    "obligation.",
)


def write_statement(found: Importance, folder: Path, period: tuple[str | None, str | None]) -> Path:
    """Write the statement to a folder: index.html, statement.md and tables/; return the page."""
    document = build_document(found, period)
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
        f"Without {words(each)}, {interval(each.lists_changed)} of the lists would have been different, and "
        f"{interval(each.places_changed)} of their places would have held another item."
        for each in found.parts
    ]
    about = "" if found.exact else "about "
    return [
        *sentences,
        f"Measured on {found.sampled:,} of {about}{found.decisions:,} decisions, for {found.queries:,} "
        f"{'query' if found.queries == 1 else 'queries'}.",
        *left_out(found),
    ]


def build_document(found: Importance, period: tuple[str | None, str | None]) -> Document:
    """Build all sections."""
    document = Document()
    document.findings += findings(found)
    meanings = tuple(f"{name(each)}. {meaning(each)}" for each in found.parts)
    document.section("parameters", "The main parameters", Block(kind="list", items=meanings))
    document.section("importance", "Their relative importance", importance_table(found))
    document.section("measured", "How it was measured", *method(found, period))
    document.section("rules", "The rules in force", rules_table(found.versions))
    document.section("limits", "What this statement leaves open", Block(kind="list", items=LIMITS))
    return document


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


def left_out(found: Importance) -> list[str]:
    """Describe lists of the sample that are no decisions."""
    if not found.shadow:
        return []
    return [f"Lists of the sample in shadow mode, which the caller ranked, are left out: {found.shadow:,}."]


def method(found: Importance, period: tuple[str | None, str | None]) -> list[str]:
    """Describe the sample."""
    begin, end = (each or "" for each in period)
    asked = "all decisions that are still in the log"
    if begin or end:
        asked = "the decisions" + (f" from {begin}" if begin else "") + (f" until {end}" if end else "")
    about = "" if found.exact else "about "
    sentences = [
        f"The period is {asked}: {about}{found.decisions:,} decisions. Of these {found.sampled:,} were repeated, "
        f"evenly spread over {found.queries:,} queries and the time from {date(found.first)} to {date(found.last)}.",
        "A decision is repeated from the log with everything that was known at its time. It is compared with the list "
        "that the same rules would have chosen without one parameter, all others being equal. The intervals are those "
        "of 1,000 resamples of the queries.",
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
    return sentences + left_out(found)


def rules_table(versions: list[Version]) -> Table:
    """Return the table of the rules in force, with the settings that relevance depends on."""
    rows = []
    for each in versions:
        rules = each.rules
        half_life = "none" if rules.half_life is None else f"{rules.half_life:g} s"
        prior = f"{rules.prior_strength:g} views" + ("" if rules.prior_mean is None else f", mean {rules.prior_mean:g}")
        examination = rules.examination
        ranks = ", ".join(f"{p:g}" for p in examination) if isinstance(examination, list) else f"{examination:g}"
        rows.append((str(each.number), date(each.since), rules.policy, rules.estimator, prior, half_life, ranks))
    return Table(
        name="rules",
        caption="Rules that were in force in the period",
        columns=("version", "since", "policy", "estimator", "weight of priors", "half-life of counts", "examination"),
        rows=tuple(rows),
        text_columns=7,
        notes=(
            "Examination is the assumption on how likely users look at each rank: a severity, or a probability for "
            "each rank. A new version that differs in nothing here has a newly fitted prior of the estimator, or "
            "another setting that does not change the order.",
        ),
    )


def name(each: PartImportance) -> str:
    """Return the name of a parameter."""
    return NAMES.get(each.part, f"Term {each.part!r}")


def words(each: PartImportance) -> str:
    """Return the name of a parameter within a sentence."""
    known = name(each)[0].lower() + name(each)[1:]
    return f"the {known}" if each.part not in ("relevance", "fairness", "group", "exploration") else known


def meaning(each: PartImportance) -> str:
    """Return what a parameter means, in plain language."""
    return MEANINGS.get(each.part, "A term of the score that the operator's own policy defines.")


def interval(share: Measured) -> str:
    """Format a share in percent with its interval."""
    value, low, high = (f"{100 * x:.1f}" for x in (share.value, share.low, share.high))
    return f"{value} %" if low == high else f"{value} % ({low} to {high} %)"


def date(time: int | None) -> str:
    """Format a time in ms."""
    return "" if time is None else f"{datetime.datetime.fromtimestamp(time / 1000, datetime.UTC):%Y-%m-%d %H:%M} UTC"


def as_dict(found: Importance) -> dict[str, Any]:
    """Return the statement as plain data."""
    data: dict[str, Any] = msgspec.to_builtins(found)
    for each, version in zip(data["versions"], found.versions, strict=True):
        each["since"] = date(version.since)
    return data | {"first": date(found.first), "last": date(found.last)}
