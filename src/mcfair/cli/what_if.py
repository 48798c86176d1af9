"""What a service would do under other policies and rules: on the log of its store, and with simulated users."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import NotFoundError, SettingError
from .options import DATA, GivenTable, with_option_groups
from .parts import Plugins
from .render import encoded, progress, stages, status
from .serve import DEFAULT_STORE, STORE, RuleOptions, parse_duration
from .stores import readable

if TYPE_CHECKING:
    from ..arrays import FloatArray
    from ..data.dataset import Dataset
    from ..service.core.rules import Rules
    from ..service.rehearsal import Outcome, Rehearsal
    from ..service.wire import ExperimentReport, MeasuredDifference, MeasuredValue, PolicyComparisons

__all__ = ["rehearse", "what_if"]

MOST_GROUPS = 10
"""Groups in a table; the JSON has all."""


# --- the log of a store ----------------------------------------------------------------------------------------------


def what_if(
    plugin: Plugins = None,
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
    part = f"{found.lists:,} lists" if found.lists == found.of else f"{found.lists:,} of about {found.of:,} lists"
    if not found.policies:
        print(f"{part}; none was ranked in shadow mode: name a policy with --policy")
        return
    fields: Fields = (
        ("lists, queries", "lists queries", "{:,}, {:,}".format),
        ("lists that differ", "differing", share),
        ("items in both lists", "overlap", share),
        ("same item at a rank", "same_rank", share),
        ("NDCG by estimate, shown", "ndcg_shown", measured),
        ("NDCG by estimate, policy", "ndcg", measured),
        ("difference", "ndcg_difference", measured),
        ("unfairness added by a list, shown", "unfairness_shown", measured),
        ("unfairness added by a list, policy", "unfairness", measured),
        ("difference", "unfairness_difference", measured),
    )
    columns = [(f"{each.policy} ({each.source})", each) for each in found.policies]
    groups = ("exposure of {}: shown, policy", "shown policy", lambda shown, policy: f"{share(shown)}, {share(policy)}")
    show(
        f"{part}: what each policy would have shown", columns, fields, groups, [each.groups for each in found.policies]
    )


def show_experiment(experiment: ExperimentReport, found: PolicyComparisons) -> None:
    """Print a table: a row for each figure, a column for each arm."""
    state = "running" if experiment.running else "ended"
    title = f"experiment {experiment.name}, {state}, since {experiment.since:%Y-%m-%d %H:%M} UTC"
    fields: Fields = (
        ("policy", "policy", str),
        ("share of sessions", "share", "{:.1%}".format),
        ("stopped", "stopped", lambda reason: reason or "-"),
        ("lists, clicks", "lists clicks", "{:,}, {:,}".format),
        ("clicks per list", "clicks_per_list", measured),
        ("difference from the control", "differences", lambda found: tested(found.get("clicks_per_list"))),
        ("NDCG by estimate", "ndcg", measured),
        ("difference from the control", "differences", lambda found: tested(found.get("ndcg"))),
        ("unfairness added by a list", "unfairness", measured),
        ("difference from the control", "differences", lambda found: tested(found.get("unfairness"))),
    )
    exposures = [found.arms.get(arm.name, []) for arm in experiment.arms]
    columns = [(arm.name, arm) for arm in experiment.arms]
    show(title, columns, fields, ("exposure of {}", "exposure", share), exposures)


# --- simulated users -------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChangedRules(RuleOptions):
    """Rules that differ from those in force, and the guard of the policy."""

    guard: Annotated[float | None, typer.Option(help="The guard of the policy: the least share of the DCG.")] = None

    def change(self, rules: Rules) -> Rules:
        """Return the rules with these changes."""
        from ..policies.base import parse_policy
        from ..service.core.rules import change_rules

        given = self.settings()
        given.pop("guard", None)
        changed = change_rules(rules, self.policy, given)
        if self.guard is None:
            return changed
        return change_rules(changed, dataclasses.replace(parse_policy(changed.policy), guard=self.guard), {})


@dataclasses.dataclass(frozen=True, kw_only=True)
class UserOptions:
    """The simulated users and their application."""

    clicks: Annotated[str, typer.Option(help="How users click, such as 'Cascade(stop=0.7)'; see mcfair clicks.")] = (
        "PositionBased"
    )
    sessions: Annotated[int, typer.Option(help="Lists to show, over all queries.")] = 2_000
    k: Annotated[int, typer.Option(help="Length of a list.")] = 10
    interval: Annotated[str, typer.Option(help="Time between sessions: 45s, 5m.")] = "60s"
    click_delay: Annotated[str, typer.Option(help="Mean time from a list to each of its clicks: 30m.")] = "0s"
    lost_clicks: Annotated[float, typer.Option(help="Share of the clicks that are never reported.")] = 0
    newcomers: Annotated[float, typer.Option(help="Share of each query's items that join after half of the time.")] = 0
    drift: Annotated[float, typer.Option(help="Share of each query's items whose relevance changes gradually.")] = 0
    priors: Annotated[bool, typer.Option(help="Whether the application sends priors.")] = True
    seed: Annotated[int, typer.Option(help="Seed of arrivals and clicks, and of relevance with --store.")] = 0

    def rehearsal(self, queries: Dataset, weights: FloatArray) -> Rehearsal:
        """Build the rehearsal on some queries, each asked in proportion to its weight."""
        from ..service.rehearsal import Rehearsal
        from ..users.base import parse_click_model

        return Rehearsal(
            data=queries,
            weights=weights,
            clicks=parse_click_model(self.clicks),
            sessions=self.sessions,
            k=self.k,
            seed=self.seed,
            interval=parse_duration("interval", self.interval),
            click_delay=parse_duration("click-delay", self.click_delay),
            lost_clicks=self.lost_clicks,
            newcomers=self.newcomers,
            drift=self.drift,
            priors=self.priors,
        )


@with_option_groups
def rehearse(
    changes: ChangedRules,
    users: UserOptions,
    table: GivenTable,
    plugin: Plugins = None,
    data: Annotated[str | None, typer.Option(help=f"{DATA} Priors are its scores, else its relevance.")] = None,
    store: Annotated[
        str | None,
        typer.Option(
            help="Take queries and rules from this store instead. Its estimates are the priors, and the true relevance "
            "is drawn from their posterior distribution."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Rehearse rules of the service on your own queries with simulated users: the present rules, and changed ones."""
    import numpy as np

    from ..data.folds import open_data
    from ..service.core.rules import Rules
    from ..service.stored_queries import read_queries

    if (data is None) == (store is None):
        raise SettingError("rehearse needs queries: name either a table with --data or a store with --store")
    with status(f"reading {data or store}"):
        if store is not None:
            queries, weights, rules = read_queries(store, users.seed)
        else:
            queries, rules = open_data(str(data), **table), Rules()
            weights = np.ones(queries.queries)
    changed = changes.change(rules)
    rehearsal, sessions = users.rehearsal(queries, weights), users.sessions
    plans = {"present rules": rules} | ({"changed rules": changed} if changed != rules else {})
    with progress(sessions * len(plans)) as advance:
        outcomes = {name: rehearsal.play(each, advance) for name, each in plans.items()}
    if json:
        sys.stdout.write(encoded({"data": queries.name, "sessions": sessions, "outcomes": outcomes}))
    else:
        truth = "" if store is None else ", relevance drawn given its clicks"
        title = f"{queries.name}{truth}, {queries.queries:,} queries, {sessions:,} sessions, {rehearsal.clicks!r}"
        show_outcomes(title, outcomes)


def show_outcomes(title: str, outcomes: Mapping[str, Outcome]) -> None:
    """Print a table: a row for each rule that differs and each figure, a column for each set of rules."""
    from ..policies.base import parse_policy

    rules = [each.rules for each in outcomes.values()]
    differing = [name for name in rules[0].__struct_fields__ if getattr(rules[0], name) != getattr(rules[-1], name)]
    fields: Fields = (
        ("policy", "rules.policy", lambda text: parse_policy(text).label),
        *((name.replace("_", " "), f"rules.{name}", str) for name in differing if name != "policy"),
        ("NDCG", "ndcg", number),
        ("NDCG of the worst list", "worst_ndcg worst_list", lambda x, i: f"{number(x)} (list {i:,})" if i else "-"),
        ("unfairness", "unfairness", number),
        ("floor (lowest possible)", "floor", number),
        ("items shown", "shown shown_after", lambda part, i: f"all, after list {i:,}" if i else f"{part:.1%}"),
        ("clicks", "clicks", "{:,}".format),
    )
    exposures = ("exposure of {} (merit)", "exposure_share merit_share", "{:.1%} ({:.1%})".format)
    show(title, list(outcomes.items()), fields, exposures, [each.groups for each in outcomes.values()])


# --- tables ----------------------------------------------------------------------------------------------------------

Field = tuple[str, str, Callable[..., str]]
"""A row of a table: its label, the attributes that it shows, and how they are written."""
Fields = Iterable[Field]


def show(
    title: str, columns: Sequence[tuple[str, Any]], fields: Fields, of_group: Field, groups: Sequence[Iterable[Any]]
) -> None:
    """Print a table: a column for each alternative, a row for each field, and one for each group of items."""
    from ..tables import Table

    rows = [(label, *(written(each, names, form) for _, each in columns)) for label, names, form in fields]
    label, names, form = of_group
    by_group = [{each.group: each for each in found} for found in groups]
    known = list(dict.fromkeys(group for found in by_group for group in found))
    for group in known[:MOST_GROUPS] if known != [None] else []:
        cells = (written(found[group], names, form) if group in found else "-" for found in by_group)
        rows.append((label.format(group or "items without a group"), *cells))
    Table(caption=title, columns=("", *(name for name, _ in columns)), rows=tuple(rows)).print()


def written(each: Any, names: str, form: Callable[..., str]) -> str:
    """Return some attributes as text."""
    return form(*(attrgetter(name)(each) for name in names.split()))


def number(value: float | None) -> str:
    """Return a figure with four significant digits."""
    return "-" if value is None else f"{value:.4g}"


def share(value: MeasuredValue) -> str:
    """Return a share in per cent, with its interval."""
    ends = "" if value.interval is None else f" ({100 * value.interval[0]:.3g} to {100 * value.interval[1]:.3g})"
    return "-" if value.value is None else f"{100 * value.value:.3g} %{ends}"


def measured(value: MeasuredValue | MeasuredDifference) -> str:
    """Return a figure, with its interval."""
    ends = "" if value.interval is None else f" ({value.interval[0]:.4g} to {value.interval[1]:.4g})"
    return "-" if value.value is None else f"{value.value:.4g}{ends}"


def tested(difference: MeasuredDifference | None) -> str:
    """Return a difference with its interval and p-value."""
    if difference is None:
        return "-"
    return measured(difference) + ("" if difference.p is None else f", p = {difference.p:.2g}")
