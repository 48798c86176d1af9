"""The command that compares policies by simulation, with tests."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from .options import DataOptions, PluginOptions, SettingCommandOptions, check_seeds, with_option_groups
from .render import encoded, processors, stages

__all__ = ["compare"]


@with_option_groups
def compare(
    data: DataOptions,
    policy: Annotated[
        list[str],
        typer.Option(metavar="POLICY", help="Such as 'MCFair(alpha=[1, 10])'; repeat; the first is the baseline."),
    ],
    setting: SettingCommandOptions,
    plugins: PluginOptions,
    also: Annotated[
        list[str] | None,
        typer.Option(metavar="DATA", help="Further data, loaded alike, over which the tests are pooled; repeat."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Run seeds 0 to N-1.")] = 5,
    against: Annotated[str | None, typer.Option(help="Another baseline than the first policy.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the runs; finished ones are not repeated.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Make runs again that --out has.")] = False,
    jobs: Annotated[int | None, typer.Option(help="Processes to use  [default: one per processor]")] = None,
    cluster: Annotated[str, typer.Option(help="Use the workers of this Dask scheduler: tcp://HOST:8786.")] = "",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Compare policies on the same simulated users, with significance tests over queries."""
    from ..experiments.compare import as_series
    from ..experiments.compare import compare as run

    plugins.load()
    check_seeds(seeds)
    chosen, conditions = as_series(policy), setting.make()
    features = any(each.needs_features for series in chosen for each in series.points)
    named = dict.fromkeys([data.data, *(also or [])])
    opened = {name: data.open(features=features, source=name) for name in named}
    with stages() as report:
        results = run(
            opened,
            {series.name: series.points for series in chosen},
            conditions,
            seeds=seeds,
            jobs=processors() if jobs is None else jobs,
            folder=out,
            fresh=fresh,
            cluster=cluster,
            progress=report,
        )
    if json:
        tests, frame = results.tests(against=against), results.frame(against=against)
        about = {"data": list(opened), "setting": conditions.to_dict(), "seeds": seeds}
        for name, table in (("policies", frame), ("tests", tests)):
            about[name] = table.drop("mode", "setting", strict=False).to_dicts()
        sys.stdout.write(encoded(about))
        return
    for shown in results.tables(against=against):
        shown.print()
