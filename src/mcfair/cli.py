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

from .errors import MCFairError, MCFairWarning, SettingError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.table import Table

    from .data import Dataset
    from .datasets import Fold
    from .policy import Policy
    from .trace import Trace

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
    from .datasets import open_data
    from .policy import parse_policy
    from .simulate import make_setting
    from .trace import new_folder

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
    from .simulate import simulate as play

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

    from .policy import parse_policy

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

    from .policy import described_parameters
    from .policy import policies as known

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

    from .datasets import available

    table = Table("name", "what it is", "where")
    for row in available():
        table.add_row(*row)
    print_table(table)


# --- demo ------------------------------------------------------------------------------------------------------------

DEMO = {
    "post-processing": (
        "TopK",
        "RandomK",
        "ExploreK",
        "FairCo(alpha=1000)",
        "ILP",
        "LP",
        "MMF",
        "PLFair",
        "FairK",
        "MCFair(alpha=1000, beta=0)",
    ),
    "online": ("TopK", "RandomK", "ExploreK", "FairCo", "ILP", "LP", "MMF", "PLFair", "FairK", "MCFair"),
}


@app.command()
def demo(
    seeds: Annotated[int, typer.Option(help="Run seeds 0 to N-1.")] = 5,
    threads: Annotated[int, typer.Option(help="Threads; they change no bit of the result.")] = 1,
) -> None:
    """Compare ten policies in both settings on built-in data, as the paper's first experiment does."""
    from .datasets import synthetic
    from .policy import parse_policy
    from .simulate import Setting

    check_seeds(seeds)
    data = synthetic("mq2008-like", seed=0)
    sys.stderr.write(f"{data!r}\nThe first run on a machine compiles for some seconds; later ones do not.\n")
    for mode, texts in DEMO.items():
        setting = Setting(mode=mode)  # type: ignore[arg-type]  # the keys above
        traces = run_all([(data, parse_policy(text), setting) for text in texts], seeds, {"threads": threads})
        show(traces, title=f"{mode}: {setting.steps:,} sessions, {seeds} seed(s), mean (standard deviation)")
    print("Unfairness: lower is fairer. cNDCG: higher is better for users, 200 at most.")
    print("Given relevance, ILP and MCFair come closest to perfect fairness; online, MCFair does, because it explores.")


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
