"""The command line: parse, call the library, render. Data goes to stdout, progress and notes to stderr."""

from __future__ import annotations

import importlib.util
import io
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import MCFairError, MCFairWarning, SettingError
from ..service.commands import add_commands

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.table import Table

    from ..analysis.tuning import Tuning
    from ..data.dataset import Dataset
    from ..data.folds import Fold
    from ..experiments.experiment import Experiment
    from ..experiments.results import Results
    from ..policies.base import Policy
    from ..simulation.trace import Trace

__all__ = ["main"]

app = typer.Typer(
    help="Fair ranking while relevance is still being learnt: simulate, compare and explain ranking policies.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # the pretty help takes a quarter of a second to import
)


@app.callback()
def root(
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback when something fails.")] = False,
) -> None:
    """Take the options of every command."""


# --- simulate --------------------------------------------------------------------------------------------------------


@app.command()
def simulate(
    data: Annotated[str, typer.Option(help="A LETOR fold folder or file, a built-in profile or a catalogue name.")],
    policy: Annotated[list[str], typer.Option(help="A policy such as 'MCFair(alpha=10)'; repeat to compare.")],
    setting: Annotated[str, typer.Option(help="post-processing (relevance is given) or online.")] = "post-processing",
    steps: Annotated[int | None, typer.Option(help="Steps  [default: 10,000 post-processing, 100,000 online]")] = None,
    seeds: Annotated[int, typer.Option(help="Run seeds 0 to N-1.")] = 1,
    preset: Annotated[str | None, typer.Option(help="paper or wsdm23: load and play as published or released.")] = None,
    split: Annotated[str, typer.Option(help="Which part of a fold: train, validation or test.")] = "test",
    min_items: Annotated[int | None, typer.Option(help="Leave out queries with fewer items.")] = None,
    max_items: Annotated[int | None, typer.Option(help="Leave out queries with more items.")] = None,
    k_s: Annotated[int, typer.Option(help="Ranks that users look at.")] = 5,
    severity: Annotated[float, typer.Option(help="Strength of position bias.")] = 1.0,
    gamma: Annotated[float, typer.Option(help="Discount of cNDCG.")] = 0.995,
    epsilon: Annotated[float, typer.Option(help="Relevance of an item of grade 0.")] = 0.1,
    prior_mean: Annotated[float, typer.Option(help="Prior mean of the estimated relevance.")] = 0.0,
    prior_strength: Annotated[float, typer.Option(help="Prior strength, in exposures; 0 is the paper.")] = 0.0,
    checkpoints: Annotated[str, typer.Option(help="How many, or after which sessions: 100,1000.")] = "20",
    threads: Annotated[int, typer.Option(help="Threads; they change no bit of the result.")] = 1,
    out: Annotated[Path | None, typer.Option(help="New folder for the runs and a summary.json.")] = None,
    record: Annotated[bool, typer.Option("--record", help="With --out: keep every list and click.")] = False,
    plugin: Annotated[list[str] | None, typer.Option(help="A .py file or module with policies of your own.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Play policies against simulated users and measure unfairness and effectiveness."""
    from ..data.sources import open_data
    from ..policies.base import parse_policy
    from ..simulation.run import make_setting
    from ..simulation.trace import new_folder

    for each in plugin or []:
        import_plugin(each)
    chosen = [parse_policy(text) for text in policy]
    check_seeds(seeds)
    if record and out is None:
        raise SettingError("--record keeps lists and clicks on disk: say where with --out FOLDER")
    changes: dict[str, Any] = {
        "k_s": k_s, "severity": severity, "gamma": gamma, "prior_mean": prior_mean, "prior_strength": prior_strength,
    }  # fmt: skip
    if steps is not None:
        changes["steps"] = steps
    conditions = make_setting(setting, preset, changes)
    options = {"preset": preset, "checkpoints": read_checkpoints(checkpoints), "threads": threads, "record": record}
    with nullcontext() if out is None else new_folder(out) as folder:
        with status(f"reading {data}"):
            loaded = open_data(
                data, split=split, features=any(each.needs_features for each in chosen), epsilon=epsilon,
                preset=preset, min_items=min_items, max_items=max_items,
            )  # fmt: skip
        traces = run_all([(loaded, each, conditions) for each in chosen], seeds, options)
        summary = described(traces)
        if folder is not None:
            save_all(traces, folder, summary)
    if json:
        sys.stdout.write(encoded(summary))
    else:
        show(traces, title=f"{loaded.name}, {conditions.mode}, {traces[0].sessions:,} sessions, {seeds} seed(s)")


def run_all(
    tasks: list[tuple[Dataset | Fold, Policy, Any]], seeds: int, options: dict[str, Any]
) -> list[Trace]:  # fmt: skip
    """Run every task with every seed, showing how far it is."""
    from ..simulation.run import simulate as play

    with progress(sum(setting.sessions for _, _, setting in tasks) * seeds) as advance:
        return [
            play(data, policy, setting, seed=seed, progress=advance, **options)
            for data, policy, setting in tasks
            for seed in range(seeds)
        ]


def check_seeds(seeds: int) -> None:
    """Refuse to run no seed at all."""
    if seeds < 1:
        raise SettingError(f"seeds = {seeds} is not allowed: expected how many seeds to run, at least 1")


def read_checkpoints(text: str) -> int | list[int]:
    """Read a number of checkpoints, or the sessions after which they are."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise SettingError(f"checkpoints = {text!r}: expected a number, or sessions such as 100,1000") from None
    return numbers if "," in text else numbers[0]


def import_plugin(name: str) -> None:
    """Import a user's file or module, which registers its policies."""
    path = Path(name)
    try:
        if path.suffix != ".py":
            importlib.import_module(name)
            return
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
    except MCFairError:
        raise
    except Exception as error:
        raise SettingError(f"cannot import {name}: {type(error).__name__}: {error}") from error


def described(traces: list[Trace]) -> dict[str, Any]:
    """Give runs and their means over seeds as plain data; std is the population's."""
    import numpy as np

    def spread(values: list[float]) -> dict[str, float]:
        return {"mean": float(np.mean(values)), "std": float(np.std(values))}

    runs, summary = [], []
    for trace in traces:
        about = trace.provenance
        runs.append({
            "policy": about["policy"], "setting": about["setting"]["mode"], "steps": about["setting"]["steps"],
            "sessions": trace.sessions, "seed": about["seed"], "threads": about["threads"],
            "queries": int(trace.query_judged.sum()), "unfairness": trace.unfairness,
            "cndcg": {str(k): value for k, value in trace.cndcg.items()},
            "ndcg": {str(k): value for k, value in trace.ndcg.items()}, "seconds": trace.seconds,
        })  # fmt: skip
    for policy in dict.fromkeys(run["policy"] for run in runs):
        same = [run for run in runs if run["policy"] == policy]
        summary.append({
            "policy": policy, "unfairness": spread([run["unfairness"] for run in same]),
            "cndcg": {k: spread([run["cndcg"][k] for run in same]) for k in same[0]["cndcg"]},
        })  # fmt: skip
    return {"runs": runs, "summary": summary}


def encoded(value: Any) -> str:
    """Write plain data as indented JSON."""
    import msgspec

    return msgspec.json.format(msgspec.json.encode(value)).decode() + "\n"


def save_all(traces: list[Trace], folder: Path, summary: dict[str, Any]) -> None:
    """Write every run and the summary into a folder."""
    for number, trace in enumerate(traces, start=1):
        name = trace.provenance["policy"].split("(")[0]
        trace.save(folder / f"{number:03d}-{name}-seed{trace.provenance['seed']}")
    (folder / "summary.json").write_text(encoded(summary))


def show(traces: list[Trace], title: str) -> None:
    """Print a table: a row for each policy, its means over seeds with the standard deviation in brackets."""
    import numpy as np
    from rich.table import Table

    from ..policies.base import parse_policy

    ranks = traces[0].cndcg_at.shape[1]
    cutoffs = sorted({1, (ranks + 1) // 2, ranks})
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("policy", overflow="fold")
    for name in ("unfairness", *(f"cNDCG@{k}" for k in cutoffs), f"NDCG@{ranks}", "µs/session"):
        table.add_column(name, justify="right", no_wrap=True)
    for policy in dict.fromkeys(trace.provenance["policy"] for trace in traces):
        same = [trace for trace in traces if trace.provenance["policy"] == policy]
        unfair = [trace.unfairness for trace in same]
        table.add_row(
            parse_policy(policy).label,
            f"{np.mean(unfair):.2f} ({np.std(unfair):.2f})",
            *(f"{np.mean([trace.cndcg[k] for trace in same]):.2f}" for k in cutoffs),
            f"{np.mean([trace.ndcg[ranks] for trace in same]):.4f}",
            f"{np.median([trace.seconds / trace.sessions for trace in same]) * 1e6:.2f}",
        )
    print_table(table)


def print_table(table: Table) -> None:
    """Print a table as wide as the terminal, and wide enough in a file."""
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else 140).print(table)


@contextmanager
def progress(total: int) -> Iterator[Callable[[int], None] | None]:
    """Show a bar on stderr while sessions are played; nothing where nobody watches."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("compiling or loading compiled code", total=total)
        yield lambda played: bar.update(task, advance=played, description="sessions")


@contextmanager
def status(text: str) -> Iterator[None]:
    """Say on stderr what is going on while it lasts; nothing where nobody watches."""
    from rich.console import Console

    console = Console(stderr=True)
    with console.status(text) if console.is_terminal else nullcontext():
        yield


# --- what there is ---------------------------------------------------------------------------------------------------


@app.command("policies")
def list_policies(
    plugin: Annotated[list[str] | None, typer.Option(help="A .py file or module with policies of your own.")] = None,
) -> None:
    """List the policies and their parameters."""
    import inspect

    from rich.table import Table

    from ..policies.base import described_parameters
    from ..policies.base import policies as known

    for each in plugin or []:
        import_plugin(each)
    table = Table("policy", "parameters and defaults", "what it does")
    for name, cls in known().items():
        summary = (inspect.getdoc(cls) or "").split("\n\n")[0].replace("\n", " ")
        table.add_row(name, "\n".join(described_parameters(cls)), summary)
    print_table(table)


@app.command("datasets")
def list_datasets() -> None:
    """List the data that --data knows by name, and where it was found."""
    from rich.table import Table

    from ..data.catalogue import available

    table = Table("name", "what it is", "where")
    for row in available():
        table.add_row(*row)
    print_table(table)


# --- experiments -----------------------------------------------------------------------------------------------------

OUT = Annotated[Path, typer.Option(help="Folder for runs and report; finished runs in it are not repeated.")]
JOBS = Annotated[int | None, typer.Option(help="Processes to use  [default: one per processor]")]
CLUSTER = Annotated[str, typer.Option(help="Use the workers of this Dask scheduler instead: tcp://HOST:8786.")]
PLUGIN = Annotated[list[str] | None, typer.Option(help="A .py file or module with policies of your own.")]

RESULTS = Path("mcfair-results")


@app.command()
def reproduce(
    what: Annotated[
        list[str] | None, typer.Argument(help="table1, fig2, fig3, fig4, fig5 or all  [default: all]")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Other data than MQ2008, fold 1, and the preset wsdm23 for it.")
    ] = None,
    out: OUT = RESULTS,
    quick: Annotated[
        bool, typer.Option("--quick", help="Two seeds, five points a curve, a tenth of the steps.")
    ] = False,
    jobs: JOBS = None,
    cluster: CLUSTER = "",
) -> None:
    """Run the paper's experiments and write a report: every table and figure beside the paper's figures."""
    from ..data.catalogue import locate
    from ..data.profiles import PROFILES
    from ..errors import DataError
    from ..experiments.experiment import shipped_experiment, shipped_experiments

    names = shipped_experiments() if not what or "all" in what else list(dict.fromkeys(what))
    experiments = [shipped_experiment(name) for name in names]
    if data is None:
        try:
            locate(experiments[0].data[0])
        except DataError as error:
            data = "mq2008-like"
            sys.stderr.write(f"mcfair: note: {error}; on to built-in data of its size, {data}\n")
    if data is not None:
        experiments = [each.on(data, "" if data in PROFILES else each.preset) for each in experiments]
    if quick:
        experiments = [each.reduced(seeds=2, points=5, shorter=10) for each in experiments]
    run_and_report(experiments, out, jobs, cluster)


@app.command("run")
def run_file(
    file: Annotated[Path, typer.Argument(help="An experiment as a TOML file.")],
    out: OUT = RESULTS,
    jobs: JOBS = None,
    cluster: CLUSTER = "",
    plugin: PLUGIN = None,
) -> None:
    """Run an experiment of your own and write a report of it."""
    from ..experiments.experiment import read_experiment

    for each in plugin or []:
        import_plugin(each)
    run_and_report([read_experiment(file)], out, jobs, cluster)


def run_and_report(experiments: list[Experiment], out: Path, jobs: int | None, cluster: str) -> Results:
    """Run experiments, write the report and say where it is."""
    from ..experiments.execute import run_experiments
    from ..report import write_report

    jobs = processors() if jobs is None else jobs
    if jobs < 1:
        raise SettingError(f"jobs = {jobs} is not allowed: expected how many processes to use, at least 1")
    with stages() as say:
        results = run_experiments(
            experiments, out, jobs=jobs, cluster=cluster, about=about_this_machine(), progress=say
        )  # fmt: skip
        say("report", 0, 1)
        page = write_report(results, out)
    show_results(results)
    print(f"Report: {page.resolve()}")
    return results


def show_results(results: Results) -> None:
    """Print the tables of the experiments, the floor first."""
    import numpy as np
    from rich.table import Table

    for experiment in (each for each in results.experiments if each.show == "table"):
        for data in experiment.data:
            for setting in experiment.conditions:
                floors = results.floors(data, setting)
                cutoffs = [k for k in (1, 3, 5) if k <= setting.k_s]
                title = (
                    f"{experiment.title}: {data}, {setting.mode}, {setting.sessions:,} sessions, {len(floors)} seed(s)"
                )
                table = Table(title=title, title_justify="left", title_style="bold")
                table.add_column("method")
                for head in ("unfairness (std)", "above floor", *(f"cNDCG@{k}" for k in cutoffs), "s/1,000 lists"):
                    table.add_column(head, justify="right", no_wrap=True)
                table.add_row("no policy can be below", f"{np.mean(floors):.2f} ({np.std(floors):.2f})", style="dim")
                for series, where, policy in experiment.played():
                    if where == setting:
                        runs, seconds = results.of(data, setting, policy), results.seconds(data, setting, policy)
                        unfair = runs["unfairness"].to_numpy()
                        table.add_row(
                            series.name if len(series.points) == 1 else policy.label,
                            f"{unfair.mean():.2f} ({unfair.std():.2f})",
                            f"{100 * (unfair.mean() / np.mean(floors) - 1):.1f} %",
                            *(f"{runs[f'cndcg@{k}'].to_numpy().mean():.2f}" for k in cutoffs),
                            "" if seconds is None else f"{seconds:.4f}",
                        )
                print_table(table)


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def about_this_machine() -> dict[str, str]:
    """Describe what the runs were made with."""
    import platform

    from ..simulation.run import versions

    return {
        "command": " ".join(["mcfair", *sys.argv[1:]]),
        "machine": f"{platform.system()} {platform.machine()}, {processors()} processors",
        **versions(),
    }


@contextmanager
def stages() -> Iterator[Callable[[str, int, int], None]]:
    """Show on stderr what is going on and how long it may take; nothing where nobody watches."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda stage, done, total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        tasks: dict[str, Any] = {}

        def say(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done)

        yield say


# --- tune ------------------------------------------------------------------------------------------------------------


@app.command()
def tune(
    data: Annotated[str, typer.Option(help="A LETOR fold folder or file, a built-in profile or a catalogue name.")],
    policy: Annotated[str, typer.Option(help="The policy whose parameter is sought, such as 'MCFair(beta=0)'.")],
    target: Annotated[str, typer.Option(help="'unfairness <= 1.1 * floor', 'ndcg@5 >= 0.98' and the like.")],
    parameter: Annotated[str, typer.Option(help="Which parameter.")] = "alpha",
    setting: Annotated[str, typer.Option(help="post-processing (relevance is given) or online.")] = "post-processing",
    steps: Annotated[int | None, typer.Option(help="Steps  [default: 10,000 post-processing, 100,000 online]")] = None,
    seeds: Annotated[int, typer.Option(help="Runs per value, seeds 0 to N-1.")] = 3,
    preset: Annotated[str | None, typer.Option(help="paper or wsdm23: load and play as published or released.")] = None,
    plugin: PLUGIN = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Find the value of a parameter that meets a target, by search on simulated runs; exit with 1 if none does."""
    from rich.console import Console

    from ..analysis.tuning import tune as search
    from ..data.sources import open_data
    from ..policies.base import parse_policy

    for each in plugin or []:
        import_plugin(each)
    chosen = parse_policy(policy)
    with status(f"reading {data}"):
        loaded = open_data(data, features=chosen.needs_features, preset=preset)
    console = Console(stderr=True)
    with console.status("first runs") if console.is_terminal else nullcontext() as spinner:

        def tell(value: float, figures: dict[str, float]) -> None:
            if spinner is not None:
                spinner.update(f"{parameter} = {value:g}: unfairness {figures['unfairness']:.4g}")

        found = search(
            loaded, chosen, target, parameter=parameter, setting=setting, seeds=seeds, preset=preset, progress=tell,
            **({} if steps is None else {"steps": steps}),
        )  # fmt: skip
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
    from rich.table import Table

    ranks = max(int(name.removeprefix("ndcg@")) for name in found.figures if name.startswith("ndcg@"))
    table = Table(parameter)
    for head in ("unfairness", "above floor", "NDCG@1", f"NDCG@{ranks}", f"cNDCG@{ranks}"):
        table.add_column(head, justify="right")
    for value, figures in sorted(found.runs):
        table.add_row(
            f"{value:g}", f"{figures['unfairness']:.2f}", f"{100 * (figures['unfairness'] / found.floor - 1):.1f} %",
            f"{figures['ndcg@1']:.4f}", f"{figures[f'ndcg@{ranks}']:.4f}", f"{figures[f'cndcg@{ranks}']:.2f}",
            style="bold" if value == found.value else "",
        )  # fmt: skip
    print_table(table)
    if found.met:
        print(f"{found.policy.label} meets {found.target!r} (floor {found.floor:.2f})")


# --- demo ------------------------------------------------------------------------------------------------------------


@app.command()
def demo(
    out: OUT = Path("mcfair-demo"),
    jobs: JOBS = None,
) -> None:
    """Run the paper's experiments on built-in data, with fewer points and seeds: a table and a report in a minute."""
    from ..experiments.experiment import shipped_experiment, shipped_experiments

    sys.stderr.write("The first run on a machine compiles for a minute or so; later ones do not.\n")
    experiments = [
        shipped_experiment(name).on("mq2008-like", "").reduced(seeds=2, points=5, shorter=5)
        for name in shipped_experiments()
    ]
    run_and_report(experiments, out, jobs, "")
    print("Unfairness: lower is fairer, and no policy can be below the floor. cNDCG: higher is better, 200 at most.")


# --- the service -----------------------------------------------------------------------------------------------------

add_commands(app, import_plugin, status)


# --- entry point -----------------------------------------------------------------------------------------------------


def main() -> None:
    """Run the command line: one line for an error, a traceback only with --debug."""
    debug = "--debug" in sys.argv
    if debug:
        # accepted after the command as well as before it
        sys.argv = [sys.argv[0], "--debug", *(word for word in sys.argv[1:] if word != "--debug")]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Greek letters gets question marks, not an error
    warnings.simplefilter("once", MCFairWarning)
    warnings.showwarning = note
    try:
        code = app(standalone_mode=False)
        if code == 130:  # what the parser of the command line makes of Ctrl-C
            raise KeyboardInterrupt
    except (KeyboardInterrupt, typer.Abort):
        sys.stderr.write("mcfair: interrupted\n")
        raise SystemExit(130) from None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the flush at exit would fail again
        raise SystemExit(1) from None
    except Exception as error:
        usage = getattr(error, "format_message", None)  # what the parser of the command line raises has one
        if debug or not (usage or isinstance(error, MCFairError)):
            raise
        message = usage() if usage else str(error)
        sys.stderr.write(f"mcfair: error: {' '.join(message.split())}\n")
        raise SystemExit(1) from None
    raise SystemExit(code if isinstance(code, int) else 0)


def note(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """Print a warning as one line."""
    sys.stderr.write(f"mcfair: note: {message}\n")
