"""The page that compares policies: those of shadow mode, a replayed one, and the arms of an experiment."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec
from markupsafe import Markup

from ...wire import (
    MAX_POLICY,
    CompareRequest,
    ExperimentReport,
    MeasuredDifference,
    MeasuredValue,
    PolicyComparison,
    PolicyComparisons,
)
from .charts import Pair, dumbbell_chart
from .formatting import NOTHING, format_count, format_figure, format_share, format_time, plural
from .reads import policy_label

SAMPLED = 100
"""Lists that are compared for the page: it is to be there at once."""

DRAWN_GROUPS = 12

WITHOUT_GROUP = "items without a group"


class CompareOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The query string of the page: a policy to replay."""

    policy: Annotated[str, msgspec.Meta(max_length=MAX_POLICY)] = ""

    def request(self) -> CompareRequest:
        """Return what is to be compared."""
        text = self.policy.strip()
        return CompareRequest(policies=[text] if text else [], lists=SAMPLED)


class PolicyCard(NamedTuple):
    """A policy beside what was shown."""

    title: str
    about: str
    rows: list[tuple[str, ...]]
    chart: Markup | None


class CompareView(NamedTuple):
    """The content of the page."""

    title: str
    sample: str
    policies: list[PolicyCard]
    experiment: str
    """State of the experiment in words; empty if there is none."""
    arms: list[str]
    arm_rows: list[list[str]]
    """Figures by arm, one row each; the first cell of a row is its name."""
    stopped: list[tuple[str, str]]
    """Stopped arms, and why."""
    as_of: str


def compare_view(found: PolicyComparisons, report: ExperimentReport | None) -> CompareView:
    """Build the content of the page."""
    total = format_count(found.of)
    sample = (
        plural(found.lists, "list")
        if found.lists == found.of
        else f"{format_count(found.lists)} of about {total} lists"
    )
    return CompareView(
        title="Compare policies" if report is None else experiment_title(report),
        sample=sample,
        policies=[policy_card(each) for each in found.policies],
        experiment="" if report is None else experiment_in_words(report),
        arms=[] if report is None else [arm.name for arm in report.arms],
        arm_rows=[] if report is None else arm_rows(report) + group_rows(found, report),
        stopped=[] if report is None else [(arm.name, arm.stopped) for arm in report.arms if arm.stopped],
        as_of=format_time(found.as_of),
    )


# --- policies --------------------------------------------------------------------------------------------------------


def policy_card(each: PolicyComparison) -> PolicyCard:
    """Describe what a policy would have shown."""
    label = policy_label(each.policy)
    where = "recorded in shadow mode" if each.source == "shadow" else "computed from the log"
    groups = [
        Pair(group.group or WITHOUT_GROUP, group.shown.value or 0.0, group.policy.value or 0.0)
        for group in each.groups[:DRAWN_GROUPS]
    ]
    differing = format_share(each.differing.value or 0.0)
    return PolicyCard(
        title=f"{label} would have shown another list in {differing} of the cases",
        about=f"{plural(each.lists, 'list')} of {plural(each.queries, 'query')}, {where}. Both lists have "
        f"{format_share(each.overlap.value or 0.0)} of their items in common, and the same item at "
        f"{format_share(each.same_rank.value or 0.0)} of the ranks.",
        rows=[
            ("NDCG by estimate", *map(figure, (each.ndcg_shown, each.ndcg, each.ndcg_difference))),
            (
                "unfairness added by a list",
                *map(figure, (each.unfairness_shown, each.unfairness, each.unfairness_difference)),
            ),
            *(
                (
                    f"exposure of {group.group or WITHOUT_GROUP}",
                    *map(share, (group.shown, group.policy, group.difference)),
                )
                for group in each.groups[:DRAWN_GROUPS]
            ),
        ],
        chart=None
        if len(groups) < 2
        else dumbbell_chart(groups, f"Exposure by group as shown and with {label}", (f"with {label}", "shown")),
    )


def figure(value: MeasuredValue | MeasuredDifference) -> str:
    """Format a value with its interval."""
    ends = "" if value.interval is None else f" ({' to '.join(map(format_figure, value.interval))})"
    return format_figure(value.value) + ends


def share(value: MeasuredValue) -> str:
    """Format a share with its interval."""
    if value.value is None:
        return NOTHING
    ends = "" if value.interval is None else f" ({' to '.join(f'{100 * end:.1f}' for end in value.interval)})"
    return f"{100 * value.value:.1f} %{ends}"


# --- the experiment --------------------------------------------------------------------------------------------------


def experiment_title(report: ExperimentReport) -> str:
    """Return what the experiment amounts to."""
    stopped = [arm.name for arm in report.arms if arm.stopped]
    if stopped:
        return f"Experiment {report.name}: {' and '.join(stopped)} {'was' if len(stopped) == 1 else 'were'} stopped"
    return f"Experiment {report.name} {'is running' if report.running else 'has ended'}"


def experiment_in_words(report: ExperimentReport) -> str:
    """Describe the extent of the experiment."""
    lists = sum(arm.lists for arm in report.arms)
    state = "Running" if report.running else "Ended; it ran"
    return f"{state} since {format_time(report.since)}, with {plural(lists, 'list')}."


def arm_rows(report: ExperimentReport) -> list[list[str]]:
    """Return the figures of the arms, one row for each figure."""
    rows = [
        ["policy", *(policy_label(arm.policy) for arm in report.arms)],
        ["share of sessions", *(format_share(arm.share) for arm in report.arms)],
        ["lists", *(format_count(arm.lists) for arm in report.arms)],
        ["clicks", *(format_count(arm.clicks) for arm in report.arms)],
    ]
    for label, name in (
        ("clicks per list", "clicks_per_list"),
        ("NDCG by estimate", "ndcg"),
        ("unfairness added by a list", "unfairness"),
    ):
        rows.append([label, *(figure(getattr(arm, name)) for arm in report.arms)])
        found = [arm.differences.get(name) for arm in report.arms]
        rows.append(["difference from control", *(NOTHING if each is None else tested(each) for each in found)])
    return rows


def tested(difference: MeasuredDifference) -> str:
    """Format a difference with its interval and p-value."""
    return figure(difference) + ("" if difference.p is None else f", p = {difference.p:.2g}")


def group_rows(found: PolicyComparisons, report: ExperimentReport) -> list[list[str]]:
    """Return the shares of groups in the exposure of each arm, one row for each group."""
    shares = [{group.group: group.exposure for group in found.arms.get(arm.name, [])} for arm in report.arms]
    names = list(dict.fromkeys(name for each in shares for name in each))[:DRAWN_GROUPS]
    return [
        [f"exposure of {name or WITHOUT_GROUP}", *(share(each[name]) if name in each else NOTHING for each in shares)]
        for name in names
    ]
