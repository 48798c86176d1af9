"""The command that finds the parameter that meets a target."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from .options import DataOptions, PluginOptions, SettingCommandOptions, with_option_groups
from .render import encoded, status

if TYPE_CHECKING:
    from ..experiments.tuning import Tuning

__all__ = ["tune"]


@with_option_groups
def tune(
    data: DataOptions,
    policy: Annotated[str, typer.Option(help="The policy whose parameter is tuned, such as 'MCFair(beta=0)'.")],
    target: Annotated[str, typer.Option(help="'unfairness <= 1.1 * floor', 'ndcg@5 >= 0.98' and the like.")],
    setting: SettingCommandOptions,
    plugins: PluginOptions,
    parameter: Annotated[str, typer.Option(help="Which parameter.")] = "alpha",
    seeds: Annotated[int, typer.Option(help="Runs per value, seeds 0 to N-1.")] = 3,
    jobs: Annotated[int, typer.Option(help="Processes to use.")] = 1,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Find the value of a parameter that meets a target, by search on simulated runs; exit with 1 if none does."""
    from ..experiments.tuning import tune as search
    from ..policies.base import parse_policy

    plugins.load()
    chosen = parse_policy(policy)
    loaded = data.open(features=chosen.needs_features)
    with status("first runs") as update:

        def report(value: float, figures: dict[str, float]) -> None:
            update(f"{parameter} = {value:g}: unfairness {figures['unfairness']:.4g}")

        found = search(
            loaded,
            chosen,
            target,
            parameter=parameter,
            setting=setting.make(),
            seeds=seeds,
            jobs=jobs,
            progress=report,
        )
    if json:
        tried = [{parameter: value, **figures} for value, figures in found.runs]
        answer = {"policy": repr(found.policy), "met": found.met, "target": target, "floor": found.floor}
        sys.stdout.write(encoded(answer | {"figures": found.figures, "runs": tried}))
    else:
        show_tuning(found, parameter)
    if not found.met:
        sys.stderr.write(f"mcfair: no value of {parameter} meets {target!r}; {found.policy.label} comes closest\n")
        raise typer.Exit(1)


def show_tuning(found: Tuning, parameter: str) -> None:
    """Print the values tried, in order, and the policy found."""
    from ..metrics.base import metric_label
    from ..tables import Table, format_number

    ranks = max(int(name.removeprefix("ndcg@")) for name in found.figures if name.startswith("ndcg@"))
    standard = ["unfairness", "ndcg@1", f"ndcg@{ranks}", f"cndcg@{ranks}"]
    texts = list(dict.fromkeys([*standard, found.metric]))
    rows: list[tuple[str, ...]] = []
    classes = {}
    for value, figures in sorted(found.runs):
        above = f"{100 * (figures[found.floor_metric] / found.floor - 1):.1f} %" if found.floor > 0 else ""
        if value == found.value:
            classes[len(rows)] = "base"
        rows.append((f"{value:g}", *(format_number(figures[text]) for text in texts), above))
    columns = (parameter, *map(metric_label, texts), "above floor")
    Table(caption=found.target, columns=columns, rows=tuple(rows), row_classes=classes).print()
    if found.met:
        print(f"{found.policy.label} meets {found.target!r} (floor {format_number(found.floor)})")
