"""The command that replays policies on the log of a store, and shows the results of an experiment."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import NotFoundError
from .options import PluginOptions, with_option_groups
from .render import encoded, stages
from .serve import DEFAULT_STORE, STORE, parse_duration
from .stores import readable

if TYPE_CHECKING:
    from ..service.wire import ExperimentReport, MeasuredDifference, MeasuredValue, PolicyComparisons

__all__ = ["what_if"]

MOST_GROUPS = 10
"""Groups in a table; the JSON has more."""


@with_option_groups
def what_if(
    plugins: PluginOptions,
    store: STORE = DEFAULT_STORE,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="Policy to replay, such as 'TopK' or 'MCFair(alpha=2)'; repeat for several."),
    ] = None,
    since: Annotated[str | None, typer.Option(help="Compare lists of this last while only: 12h, 7d.")] = None,
    lists: Annotated[int, typer.Option(min=1, help="Lists to compare at most, spread evenly over the log.")] = 1_000,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Show what policies would have shown in place of a service's lists, and the arms of its experiment."""
    from ..service.core.arm_reports import experiment_report
    from ..service.core.comparison import canonical_policies, compare
    from ..service.stores import open_reader

    plugins.load()
    texts = canonical_policies(policy or [])
    age = None if since is None else parse_duration("since", since)
    now = time.time_ns() // 1_000_000
    with readable(store), open_reader(store) as reader:
        with stages() as progress:
            found = compare(reader, now, texts, max_age=age, lists=lists, progress=progress)
        try:
            experiment = experiment_report(reader, now)
        except NotFoundError:
            experiment = None
    if json:
        sys.stdout.write(encoded({"comparison": found.to_dict(), "experiment": experiment and experiment.to_dict()}))
        return
    show_policies(found)
    if experiment is not None:
        show_experiment(experiment, found)


def show_policies(found: PolicyComparisons) -> None:
    """Print a table: a row for each figure, a column for each policy."""
    from ..tables import Table

    part = f"{found.lists:,} lists" if found.lists == found.of else f"{found.lists:,} of about {found.of:,} lists"
    if not found.policies:
        print(f"{part}; none was ranked in shadow mode: name a policy with --policy")
        return
    rows = [("lists, queries", *(f"{each.lists:,}, {each.queries:,}" for each in found.policies))]
    for label, name in (
        ("lists that differ", "differing"),
        ("items in both lists", "overlap"),
        ("same item at a rank", "same_rank"),
    ):
        rows.append((label, *(share(getattr(each, name)) for each in found.policies)))
    for label, name in (("NDCG by estimate", "ndcg"), ("unfairness added by a list", "unfairness")):
        rows.append((f"{label}, shown", *(number(getattr(each, f"{name}_shown")) for each in found.policies)))
        rows.append((f"{label}, policy", *(number(getattr(each, name)) for each in found.policies)))
        rows.append(("difference", *(number(getattr(each, f"{name}_difference")) for each in found.policies)))
    names = list(dict.fromkeys(group.group for each in found.policies for group in each.groups))
    for group in names[:MOST_GROUPS] if names != [None] else []:
        cells = [{part.group: part for part in each.groups}.get(group) for each in found.policies]
        shares = ("-" if cell is None else f"{share(cell.shown)}, {share(cell.policy)}" for cell in cells)
        rows.append((f"exposure of {group or 'items without a group'}: shown, policy", *shares))
    heads = ("", *(f"{each.policy} ({each.source})" for each in found.policies))
    Table(caption=f"{part}: what each policy would have shown", columns=heads, rows=tuple(rows)).print()


def show_experiment(experiment: ExperimentReport, found: PolicyComparisons) -> None:
    """Print a table: a row for each figure, a column for each arm."""
    from ..tables import Table

    state = "running" if experiment.running else "ended"
    title = f"experiment {experiment.name}, {state}, since {experiment.since:%Y-%m-%d %H:%M} UTC"
    rows = [
        ("policy", *(arm.policy for arm in experiment.arms)),
        ("share of sessions", *(f"{arm.share:.1%}" for arm in experiment.arms)),
        ("stopped", *(arm.stopped or "-" for arm in experiment.arms)),
        ("lists, clicks", *(f"{arm.lists:,}, {arm.clicks:,}" for arm in experiment.arms)),
    ]
    for label, name in (
        ("clicks per list", "clicks_per_list"),
        ("NDCG by estimate", "ndcg"),
        ("unfairness added by a list", "unfairness"),
    ):
        rows.append((label, *(number(getattr(arm, name)) for arm in experiment.arms)))
        rows.append(("difference from the control", *(tested(arm.differences.get(name)) for arm in experiment.arms)))
    names = list(dict.fromkeys(group.group for each in found.arms.values() for group in each))
    for group in names[:MOST_GROUPS] if names != [None] else []:
        shares = [{part.group: part.exposure for part in found.arms.get(arm.name, [])} for arm in experiment.arms]
        label = f"exposure of {group or 'items without a group'}"
        rows.append((label, *(share(each[group]) if group in each else "-" for each in shares)))
    Table(caption=title, columns=("", *(arm.name for arm in experiment.arms)), rows=tuple(rows)).print()


def share(value: MeasuredValue) -> str:
    """Return a share in per cent, with its interval."""
    ends = "" if value.interval is None else f" ({100 * value.interval[0]:.3g} to {100 * value.interval[1]:.3g})"
    return "-" if value.value is None else f"{100 * value.value:.3g} %{ends}"


def number(value: MeasuredValue | MeasuredDifference) -> str:
    """Return a figure, with its interval."""
    ends = "" if value.interval is None else f" ({value.interval[0]:.4g} to {value.interval[1]:.4g})"
    return "-" if value.value is None else f"{value.value:.4g}{ends}"


def tested(difference: MeasuredDifference | None) -> str:
    """Return a difference with its interval and p-value."""
    if difference is None:
        return "-"
    return number(difference) + ("" if difference.p is None else f", p = {difference.p:.2g}")
