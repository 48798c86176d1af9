"""What a service would do under other policies and rules: on the log of its store, and with simulated users."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import NotFoundError, SettingError, needs_extra
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
    from ..service.wire import ExperimentReport, PolicyComparisons


MOST_GROUPS = 10
"""Groups in a table; the JSON has all."""


# --- the log of a store ----------------------------------------------------------------------------------------------


def what_if(
    plugin: Plugins = None,
    store: STORE = DEFAULT_STORE,
    policy: Annotated[list[str] | None, typer.Option(help="Policy to replay, such as 'TopK'; repeat.")] = None,
    since: Annotated[str | None, typer.Option(help="Compare lists of this last while only: 12h, 7d.")] = None,
    lists: Annotated[int, typer.Option(min=1, help="Lists to compare at most, spread evenly over the log.")] = 1_000,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Show what policies would have shown in place of a service's lists, and the arms of its experiment."""
    from ..service.core.arm_reports import experiment_report
    from ..service.core.comparison import canonical_policies, compare
    from ..service.stores import open_reader

    if not json:
        needs_extra("jinja2", "service")  # for what the tables share with the dashboard
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
    show_comparison(found, experiment)


def show_comparison(found: PolicyComparisons, experiment: ExperimentReport | None) -> None:
    """Print a table for each policy, and one of the arms of the experiment: what the dashboard shows."""
    from ..service.web.dashboard.compare import compare_view, share
    from ..tables import Table

    view = compare_view(found, experiment)
    if not found.policies:
        print(f"{view.sample}; none was ranked in shadow mode: name a policy with --policy")
    for each, card in zip(found.policies, view.policies, strict=True):
        differences = (
            f"lists that differ: {share(each.differing)}",
            f"items in both lists: {share(each.overlap)}",
            f"same item at a rank: {share(each.same_rank)}",
        )
        Table(
            caption=f"{view.sample}: what {each.policy} would have shown ({each.source})",
            columns=("", "shown", "policy", "difference"),
            rows=tuple(card.rows),
            notes=differences,
        ).print()
    if experiment is not None:
        notes = (view.experiment, *(f"{arm} was stopped: {reason}" for arm, reason in view.stopped))
        rows = tuple(map(tuple, view.arm_rows))
        Table(caption=view.title, columns=("", *view.arms), rows=rows, notes=notes).print()


# --- simulated users -------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChangedRules(RuleOptions):
    """Rules that differ from those in force, and the guard of the policy."""

    guard: Annotated[float | None, typer.Option(help="The guard of the policy: the least share of the DCG.")] = None

    def change(self, rules: Rules) -> Rules:
        """Return the rules with these changes."""
        from ..policies.base import parse_policy
        from ..service.core.rules import change_rules

        changed = change_rules(rules, self.policy, self.settings())
        if self.guard is None:
            return changed
        return change_rules(changed, dataclasses.replace(parse_policy(changed.policy), guard=self.guard), {})


@dataclasses.dataclass(frozen=True, kw_only=True)
class UserOptions:
    """The simulated users and their application."""

    clicks: Annotated[str, typer.Option(help="How users click; see mcfair clicks.")] = "PositionBased"
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

        settings = dataclasses.asdict(self)
        settings["clicks"] = parse_click_model(self.clicks)
        for name in ("interval", "click_delay"):
            settings[name] = parse_duration(name.replace("_", "-"), settings[name])
        return Rehearsal(data=queries, weights=weights, **settings)


@with_option_groups
def rehearse(
    changes: ChangedRules,
    users: UserOptions,
    table: GivenTable,
    plugin: Plugins = None,
    data: Annotated[str | None, typer.Option(help=f"{DATA} Priors are its scores, else its relevance.")] = None,
    store: Annotated[
        str | None, typer.Option(help="Take queries, rules and priors from this store, and draw the relevance.")
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
    from ..tables import Table

    rules = [each.rules for each in outcomes.values()]
    differing = [name for name in rules[0].__struct_fields__ if getattr(rules[0], name) != getattr(rules[-1], name)]
    groups = [each.group for each in next(iter(outcomes.values())).groups[:MOST_GROUPS]]
    columns = [column(each, differing, groups) for each in outcomes.values()]
    rows = tuple((label, *(each[label] for each in columns)) for label in columns[0])
    Table(caption=title, columns=("", *outcomes), rows=rows).print()


def column(outcome: Outcome, differing: Sequence[str], groups: Sequence[str]) -> dict[str, str]:
    """Return the rules that differ, the figures and the exposure of some groups as text, by their labels."""
    from ..policies.base import parse_policy
    from ..tables import NOTHING, format_number

    rules = {name.replace("_", " "): str(getattr(outcome.rules, name)) for name in ("policy", *differing)}
    rules["policy"] = parse_policy(outcome.rules.policy).label
    worst, after = outcome.worst_list, outcome.shown_after
    figures = {
        "NDCG": format_number(outcome.ndcg),
        "NDCG of the worst list": f"{format_number(outcome.worst_ndcg)} (list {worst:,})" if worst else NOTHING,
        "unfairness": format_number(outcome.unfairness),
        "floor (lowest possible)": format_number(outcome.floor),
        "items shown": f"all, after list {after:,}" if after else f"{outcome.shown:.1%}",
        "clicks": f"{outcome.clicks:,}",
    }
    exposures = {
        f"exposure of {each.group} (merit)": f"{each.exposure_share:.1%} ({each.merit_share:.1%})"
        for each in outcome.groups
        if each.group in groups
    }
    return rules | figures | exposures
