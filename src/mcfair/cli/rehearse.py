"""The command that rehearses rules of the service."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import SettingError
from .options import DATA, PluginOptions, TableOptions, with_option_groups
from .render import encoded, progress, status
from .serve import RuleOptions, parse_duration

if TYPE_CHECKING:
    from ..arrays import FloatArray
    from ..data.dataset import Dataset
    from ..service.core.rules import Rules
    from ..service.rehearsal import Outcome, Rehearsal

__all__ = ["rehearse"]

MOST_GROUPS = 10
"""Groups in the table; the JSON has all."""


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
    table: TableOptions,
    plugins: PluginOptions,
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

    plugins.load()
    if (data is None) == (store is None):
        raise SettingError("rehearse needs queries: name either a table with --data or a store with --store")
    with status(f"reading {data or store}"):
        if store is not None:
            queries, weights, rules = read_queries(store, users.seed)
        else:
            queries, rules = open_data(str(data), **table.values), Rules()
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
        show(
            outcomes, f"{queries.name}{truth}, {queries.queries:,} queries, {sessions:,} sessions, {rehearsal.clicks!r}"
        )


def show(outcomes: dict[str, Outcome], title: str) -> None:
    """Print a table: a row for each figure, a column for each set of rules."""
    from ..tables import Table

    rows = tuple((label, *cells) for label, cells in figures(list(outcomes.values())).items())
    Table(caption=title, columns=("", *outcomes), rows=rows).print()


def figures(found: list[Outcome]) -> dict[str, list[str]]:
    """Return the rows of the table by label: the rules that differ, the figures, and the exposure of each group."""
    from ..policies.base import parse_policy

    rows = {"policy": [parse_policy(each.rules.policy).label for each in found]}
    for name in found[0].rules.__struct_fields__:
        values = [getattr(each.rules, name) for each in found]
        if name != "policy" and values[0] != values[-1]:
            rows[name.replace("_", " ")] = [str(value) for value in values]
    rows["NDCG"] = [number(each.ndcg) for each in found]
    rows["NDCG of the worst list"] = [
        f"{number(each.worst_ndcg)} (list {each.worst_list:,})" if each.worst_list else "-" for each in found
    ]
    rows["unfairness"] = [number(each.unfairness) for each in found]
    rows["floor (lowest possible)"] = [number(each.floor) for each in found]
    rows["items shown"] = [
        f"all, after list {each.shown_after:,}" if each.shown_after else f"{each.shown:.1%}" for each in found
    ]
    rows["clicks"] = [f"{each.clicks:,}" for each in found]
    by_group = [{group.group: group for group in each.groups} for each in found]
    for name in list(by_group[0])[:MOST_GROUPS]:
        shares = [groups.get(name) for groups in by_group]
        rows[f"exposure of {name} (merit)"] = [
            f"{each.exposure_share:.1%} ({each.merit_share:.1%})" if each else "-" for each in shares
        ]
    return rows


def number(value: float | None) -> str:
    """Return a figure with four significant digits."""
    return "-" if value is None else f"{value:.4g}"
