"""The commands that run experiments and write a report: reproduce, run, demo."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import SettingError, needs_extra
from .options import PluginOptions, RunOptions, with_option_groups
from .render import about_this_machine, stages
from .serve import live_demo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..experiments.experiment import Experiment
    from ..experiments.results import Results
    from ..simulation.setting import Setting

__all__ = ["demo", "leaderboard", "reproduce", "run_file"]

LIMIT = "floor (lowest possible)"

MOVED = "the comparison beyond the paper is a study of its own now: studies/beyond in the repository of mcfair"


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

    if "beyond" in (what or []):
        raise SettingError(f"{MOVED}: python studies/beyond/run.py")
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
    plugins: PluginOptions,
) -> None:
    """Run an experiment of your own and write a report."""
    from ..experiments.experiment import read_experiment

    plugins.load()
    run_and_report([read_experiment(file)], run)


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
    from ..experiments.experiment import shipped_experiment, shipped_experiments

    check_report()
    sys.stderr.write("The first run on a machine compiles for a minute or so; later ones do not.\n")
    experiments = [
        shipped_experiment(name).on("mq2008-like", "").reduced(seeds=2, points=5, shorter=5)
        for name in shipped_experiments()
    ]
    run_and_report(experiments, RunOptions(out=out, jobs=jobs), watch=growing_tables())
    print("Unfairness: lower is fairer; the floor is the lowest possible. cNDCG: higher is better, at most 200.")


def check_report() -> None:
    """Raise an error, before any work, if what draws and writes a report is not installed."""
    for library in ("jinja2", "matplotlib"):
        needs_extra(library, "report")


def run_and_report(
    experiments: list[Experiment], run: RunOptions, watch: Callable[[Results], None] | None = None
) -> Results:
    """Run experiments, write the report and print where it is; print the tables at the end if nobody watches them."""
    from ..experiments.compare import run_experiments
    from ..report import write_report
    from ..report.page import check_libraries

    check_report()
    jobs = run.processes()
    check_libraries()  # before the runs
    with stages() as report:
        results = run_experiments(
            experiments,
            run.out,
            jobs=jobs,
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
