"""The commands of many runs: compare and tune, and reproduce, run and demo, which write a report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import SettingError
from ..simulation.setting import Setting
from .options import Data, GivenLoading, GivenSetting, RunOptions, Seeds, opened, with_option_groups
from .parts import Plugins
from .render import about_this_machine, encoded, processors, stages, status
from .serve import live_demo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..experiments.experiment import Experiment
    from ..experiments.results import Results
    from ..experiments.tuning import Tuning

__all__ = ["compare", "demo", "reproduce", "run_file", "tune"]

LIMIT = "floor (lowest possible)"


# --- comparing and tuning ---------------------------------------------------------------------------------------------


@with_option_groups
def compare(
    data: Data,
    loading: GivenLoading,
    policy: Annotated[
        list[str],
        typer.Option(metavar="POLICY", help="Such as 'MCFair(alpha=[1, 10])'; repeat; the first is the baseline."),
    ],
    setting: GivenSetting,
    plugin: Plugins = None,
    also: Annotated[
        list[str] | None,
        typer.Option(metavar="DATA", help="Further data, loaded alike, over which the tests are pooled; repeat."),
    ] = None,
    seeds: Seeds = 5,
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

    chosen, conditions = as_series(policy), Setting(**setting)
    features = any(each.needs_features for series in chosen for each in series.points)
    named = dict.fromkeys([data, *(also or [])])
    loaded = {name: opened(name, loading, features=features) for name in named}
    with stages() as report:
        results = run(
            loaded,
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
        about = {"data": list(loaded), "setting": conditions.to_dict(), "seeds": seeds}
        for name, table in (("policies", frame), ("tests", tests)):
            about[name] = table.drop("mode", "setting", strict=False).to_dicts()
        sys.stdout.write(encoded(about))
        return
    for shown in results.tables(against=against):
        shown.print()


@with_option_groups
def tune(
    data: Data,
    loading: GivenLoading,
    policy: Annotated[str, typer.Option(help="The policy whose parameter is tuned, such as 'MCFair(beta=0)'.")],
    target: Annotated[str, typer.Option(help="'unfairness <= 1.1 * floor', 'ndcg@5 >= 0.98' and the like.")],
    setting: GivenSetting,
    plugin: Plugins = None,
    parameter: Annotated[str, typer.Option(help="Which parameter.")] = "alpha",
    seeds: Annotated[int, typer.Option(help="Runs per value, seeds 0 to N-1.")] = 3,
    jobs: Annotated[int, typer.Option(help="Processes to use.")] = 1,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Find the value of a parameter that meets a target, by search on simulated runs; exit with 1 if none does."""
    from ..experiments.tuning import tune as search
    from ..policies.base import parse_policy

    chosen = parse_policy(policy)
    loaded = opened(data, loading, features=chosen.needs_features)
    with status("first runs") as update:

        def report(value: float, figures: dict[str, float]) -> None:
            update(f"{parameter} = {value:g}: unfairness {figures['unfairness']:.4g}")

        found = search(
            loaded,
            chosen,
            target,
            parameter=parameter,
            setting=Setting(**setting),
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


# --- experiments with a report ----------------------------------------------------------------------------------------


@with_option_groups
def reproduce(
    run: RunOptions,
    what: Annotated[
        list[str] | None, typer.Argument(help="table1, fig2, fig3, fig4, fig5, or all of these  [default: all]")
    ] = None,
    data: Annotated[str | None, typer.Option(help="Other data than MQ2008, fold 1.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Two seeds, five points a curve, fewer steps.")] = False,
) -> None:
    """Run the paper's experiments, and write a report with every table and figure."""
    from ..data.catalogue import PROFILES, locate
    from ..errors import DataError
    from ..experiments.experiment import shipped_experiment, shipped_experiments

    names = shipped_experiments() if not what or "all" in what else list(dict.fromkeys(what))
    experiments = [shipped_experiment(name) for name in names]
    if data is None:
        try:
            locate(experiments[0].data[0])
        except DataError as error:
            data = "mq2008-like"
            sys.stderr.write(f"mcfair: note: {error}; using built-in data of its size instead: {data}\n")
    if data is not None:
        experiments = [each.on(data, "" if data in PROFILES else each.preset) for each in experiments]
    if quick:
        experiments = [each.reduced(seeds=2, points=5, shorter=10) for each in experiments]
    run_and_report(experiments, run)


@with_option_groups
def run_file(
    file: Annotated[Path, typer.Argument(help="An experiment as a TOML file.")],
    run: RunOptions,
    plugin: Plugins = None,
) -> None:
    """Run an experiment of your own and write a report."""
    from ..experiments.experiment import read_experiment

    run_and_report([read_experiment(file)], run)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for runs and report; finished runs in it are not repeated.")] = Path(
        "mcfair-demo"
    ),
    jobs: Annotated[int | None, typer.Option(help="Processes to use  [default: one per processor]")] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Serve a simulated shop instead, and open its dashboard.")
    ] = False,
    seconds: Annotated[
        float | None, typer.Option(min=0, help="With --live: how long to serve.  [default: until Ctrl-C]")
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="With --live: print the address, and open no browser.")
    ] = False,
) -> None:
    """Run the paper's experiments on built-in data with fewer points and seeds: a table and a report in a minute.

    With --live, start a service in memory with simulated shoppers in front of it, and open its dashboard.
    """
    if live:
        live_demo(seconds, browser=not no_browser)
        return
    if seconds is not None or no_browser:
        raise SettingError("--seconds and --no-browser are options of 'mcfair demo --live'")
    from ..experiments.experiment import shipped_experiment, shipped_experiments
    from ..report.page import check_libraries

    check_libraries()
    sys.stderr.write("The first run on a machine compiles for a minute or so; later ones do not.\n")
    experiments = [
        shipped_experiment(name).on("mq2008-like", "").reduced(seeds=2, points=5, shorter=5)
        for name in shipped_experiments()
    ]
    run_and_report(experiments, RunOptions(out=out, jobs=jobs), watch=growing_tables())
    print("Unfairness: lower is fairer; the floor is the lowest possible. cNDCG: higher is better, at most 200.")


def run_and_report(
    experiments: list[Experiment], run: RunOptions, watch: Callable[[Results], None] | None = None
) -> Results:
    """Run experiments, write the report and print where it is; print the tables at the end if nobody watches them."""
    from ..experiments.compare import run_experiments
    from ..report import write_report
    from ..report.page import check_libraries

    check_libraries()  # before the runs
    with stages() as report:
        results = run_experiments(
            experiments,
            run.out,
            jobs=processors() if run.jobs is None else run.jobs,
            fresh=run.fresh,
            cluster=run.cluster,
            about=about_this_machine(),
            progress=report,
            watch=watch,
        )
        report("report", 0, 1)
        page = write_report(results, run.out)
    if watch is None:
        from ..tables import Table

        for where in tables_of(results):
            title, columns, rows = table_content(results, *where)
            Table(caption=title, columns=columns, rows=tuple(rows), row_classes={0: "limit"}).print()
    print(f"Report: {page.resolve()}")
    return results


def growing_tables() -> Callable[[Results], None]:
    """Return a function that prints the rows of tables as soon as all of their runs have finished."""
    printed: dict[str, int] = {}

    def show(results: Results) -> None:
        for experiment, data, setting in tables_of(results):
            title, columns, rows = table_content(results, experiment, data, setting)
            begun = printed.get(title, -1)
            width = 2 + max(len(LIMIT), *map(len, results.contestants(experiment, setting)))
            for row in rows[begun:] if begun >= 0 else [(title,), columns, *rows]:
                cells = [f"{row[0]:{width}}", *(f"{cell:>15}" for cell in row[1:-1])]  # times are measured afterwards
                print("".join(cells).rstrip(), flush=True)
            printed[title] = len(rows)

    return show


def tables_of(results: Results) -> Iterator[tuple[Experiment, str, Setting]]:
    """Return what there is a table of: experiment, dataset and setting."""
    for experiment in (each for each in results.experiments if each.show == "table"):
        for data in experiment.data:
            for setting in experiment.conditions:
                yield experiment, data, setting


def table_content(
    results: Results, experiment: Experiment, data: str, setting: Setting
) -> tuple[str, tuple[str, ...], list[tuple[str, ...]]]:
    """Return the title, the columns and the rows of a table, the floor first, up to the first that lacks runs."""
    import numpy as np

    from ..metrics.base import metric_label
    from ..tables import format_number, format_spread

    floors = results.floors(data, setting)
    texts = [f"cndcg@{k}" for k in (1, 3, 5) if k <= setting.k] + [repr(each) for each in setting.metrics]
    seeds = "1 seed" if experiment.seeds == 1 else f"{experiment.seeds} seeds"
    title = f"{experiment.title}: {data}, {setting.mode}, {setting.steps:,} steps, {seeds}"
    columns = ("method", "unfairness", "above floor", *map(metric_label, texts), "s/1,000 lists")
    rows: list[tuple[str, ...]] = []
    if len(floors) == experiment.seeds:
        rows.append((LIMIT, format_spread(floors), *[""] * (len(columns) - 2)))
    for label, (where, policy) in results.contestants(experiment, setting).items():
        runs, seconds = results.of(data, where, policy), results.seconds(data, where, policy)
        if not rows or runs.height < experiment.seeds:
            break
        unfair = runs["unfairness"].to_numpy()
        above = f"{100 * (unfair.mean() / np.mean(floors) - 1):.1f} %" if np.mean(floors) > 0 else ""
        figures = (format_number(float(runs[text].to_numpy().mean())) for text in texts)
        time = "" if seconds is None else format_number(seconds, 3)
        rows.append((label, format_spread(unfair), above, *figures, time))
    return title, columns, rows
