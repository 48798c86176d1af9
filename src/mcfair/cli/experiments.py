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
    from ..experiments.experiment import Experiment
    from ..experiments.results import Results


MOVED = "the comparison beyond the paper is a study of its own now: studies/beyond in the repository of mcfair"


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
    from ..tables import format_number

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
        found.table().print()
        if found.met:
            print(f"{found.policy.label} meets {found.target!r} (floor {format_number(found.floor)})")
    if not found.met:
        sys.stderr.write(f"mcfair: no value of {parameter} meets {target!r}; {found.policy.label} comes closest\n")
        raise typer.Exit(1)


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
    from ..experiments.experiment import SHIPPED, shipped_experiment

    if "beyond" in (what or []):
        raise SettingError(f"{MOVED}: python studies/beyond/run.py")
    names = list(SHIPPED) if not what or "all" in what else list(dict.fromkeys(what))
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
    results = run_all(experiments, run)
    show_tables(results)
    report_on(results, run.out)


@with_option_groups
def run_file(
    file: Annotated[Path, typer.Argument(help="An experiment as a TOML file.")],
    run: RunOptions,
    plugin: Plugins = None,
) -> None:
    """Run an experiment of your own and write a report."""
    from ..experiments.experiment import read_experiment

    results = run_all([read_experiment(file)], run)
    show_tables(results)
    report_on(results, run.out)


def leaderboard() -> None:
    """Say where the leaderboard is."""
    raise SettingError(f"{MOVED}: python studies/beyond/leaderboard.py")


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
    from ..experiments.experiment import SHIPPED, shipped_experiment
    from ..report.page import check_libraries

    check_libraries()
    sys.stderr.write("The first run on a machine compiles for a minute or so; later ones do not.\n")
    experiments = [
        shipped_experiment(name).on("mq2008-like", "").reduced(seeds=2, points=5, shorter=5) for name in SHIPPED
    ]
    options = RunOptions(out=out, jobs=jobs)
    show_growing_table(experiments[0], options)
    print(
        "Unfairness: lower is fairer; the floor is the lowest possible. cNDCG: higher is better, at most 200.",
        flush=True,
    )
    report_on(run_all(experiments, options), out)  # those of the table are finished


def run_all(experiments: list[Experiment], run: RunOptions) -> Results:
    """Run experiments, and show how far they are."""
    from ..experiments.compare import run_experiments
    from ..report.page import check_libraries

    check_libraries()  # before the runs
    with stages() as report:
        return run_experiments(
            experiments,
            run.out,
            jobs=processors() if run.jobs is None else run.jobs,
            fresh=run.fresh,
            cluster=run.cluster,
            about=about_this_machine(),
            progress=report,
        )


def show_growing_table(experiment: Experiment, run: RunOptions) -> None:
    """Run the experiment of a table, and print its first rows while the others are still to be run."""
    from msgspec.structs import replace

    from ..report.sections import overview_table

    width, printed = 4 + max(len(each.name) for each in experiment.series), 0
    for end in (1, 4, len(experiment.series)):
        results = run_all([replace(experiment, series=experiment.series[:end], compare_with="")], run)
        table = overview_table(next(iter(results.views(results.experiments[0], experiment.data[0]))))
        if not printed:
            print(table.caption)
        for name, *cells in [*([table.columns] if not printed else []), *table.rows[printed:]]:
            print(f"{name:{width}}" + "".join(f"{cell:>20}" for cell in cells), flush=True)
        printed = len(table.rows)


def show_tables(results: Results) -> None:
    """Print the tables of policies."""
    from ..report.sections import overview_table

    for experiment in results.experiments:
        if experiment.show == "table":
            for data in experiment.data:
                for view in results.views(experiment, data):
                    overview_table(view).print()


def report_on(results: Results, folder: Path) -> None:
    """Write the report, and print where it is."""
    from ..report import write_report

    with status("writing the report"):
        page = write_report(results, folder)
    print(f"Report: {page.resolve()}")
