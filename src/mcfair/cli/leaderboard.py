"""The comparison beyond the paper: its page, and a leaderboard that other policies can be put on."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import PluginOptions, RunOptions, with_option_groups
from .render import about_this_machine, print_table, stages

if TYPE_CHECKING:
    from ..data.dataset import Dataset
    from ..experiments.experiment import Experiment, Series
    from ..experiments.leaderboard import Board
    from ..experiments.results import Results

__all__ = ["leaderboard", "reproduce_beyond"]

TITLE = "Fair ranking beyond the paper"

ALSO = "Further data with long lists, such as a file of MSLR-WEB; repeat for several."


def leaderboard_file(out: Path) -> Path:
    """Return where the leaderboard of a folder of results is."""
    return out / "beyond" / "leaderboard.json"


def reproduce_beyond(run: RunOptions, also: Sequence[str], quick: bool) -> None:
    """Run the comparison beyond the paper; write its page and the leaderboard, and print the boards."""
    from ..experiments.beyond import beyond
    from ..experiments.boards import boards_of
    from ..experiments.leaderboard import merge_boards, read_leaderboard, write_leaderboard
    from ..report import write_report

    stored = read_leaderboard(leaderboard_file(run.out))
    wanted = beyond(also, quick=quick)
    results = run_announced(wanted.experiments, wanted.data, run)
    with stages() as report:
        report("report", 0, 1)
        boards = boards_of(results)
        merged = merge_boards(stored.boards if stored else (), boards)  # entries of other policies are kept
        write_leaderboard(leaderboard_file(run.out), merged, about_this_machine())
        page = write_report(results, run.out / "beyond", title=TITLE)
    for board in boards:
        show_board(board)
    print(f"Leaderboard: {leaderboard_file(run.out).resolve()}")
    print(f"Report: {page.resolve()}")


@with_option_groups
def leaderboard(
    policy: Annotated[
        list[str],
        typer.Option(
            metavar="POLICY", help="Such as 'Mine(alpha=[0, 1, 10])': a point for each value; repeat for more."
        ),
    ],
    run: RunOptions,
    plugins: PluginOptions,
    estimator: Annotated[
        str, typer.Option(help="How relevance is estimated online  [default: as the policy prefers]")
    ] = "",
    label: Annotated[str, typer.Option(help="Name on the leaderboard  [default: that of the policy]")] = "",
    also: Annotated[list[str] | None, typer.Option(metavar="DATA", help=ALSO)] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Put it beside the figures of reproduce beyond --quick.")
    ] = False,
) -> None:
    """Run policies on the boards of `reproduce beyond` and put them beside the others; what is stored is reused."""
    from ..experiments.beyond import frontier_experiments
    from ..experiments.boards import boards_of
    from ..experiments.compare import open_experiments
    from ..experiments.leaderboard import merge_boards, read_leaderboard, write_leaderboard

    plugins.load()
    series = series_of(policy, estimator, label)
    file = leaderboard_file(run.out)
    stored = read_leaderboard(file)
    known = stored.boards if stored else ()
    own = frontier_experiments(series, also or [], quick=quick)
    boards = boards_of(run_announced(own, open_experiments(own), run))
    keys = {board.key for board in known}
    if missing := {board.experiment for board in boards if board.key not in keys}:
        others = [each for each in frontier_experiments(None, also or [], quick=quick) if each.name in missing]
        sys.stderr.write("mcfair: note: the other policies are not on this leaderboard yet and are run once\n")
        known = tuple(merge_boards(known, boards_of(run_announced(others, open_experiments(others), run))))
    merged = merge_boards(known, boards)
    write_leaderboard(file, merged, about_this_machine())
    by_key = {board.key: board for board in merged}
    for board in boards:
        show_board(by_key[board.key], {each.name for each in series})
    print(f"Leaderboard: {file.resolve()}")


def series_of(policies: Sequence[str], estimator: str, label: str) -> tuple[Series, ...]:
    """Return a curve for each class of policy, or one for all under a label."""
    from ..experiments.experiment import Series
    from ..policies.base import parse_policies

    by_name: dict[str, list[str]] = {}
    for text in policies:
        for each in parse_policies(text):
            by_name.setdefault(label or type(each).__name__, []).append(repr(each))
    return tuple(Series(policies=tuple(texts), label=name, estimator=estimator) for name, texts in by_name.items())


def run_announced(experiments: Sequence[Experiment], data: dict[str, Dataset], run: RunOptions) -> Results:
    """Run experiments with a note on how long it may take, and with progress."""
    from ..experiments.compare import run_experiments

    jobs = run.processes()
    with stages() as report:
        return run_experiments(
            experiments,
            run.out,
            data=data,
            jobs=jobs,
            cluster=run.cluster,
            about=about_this_machine(),
            progress=report,
        )


def show_board(board: Board, own: set[str] | None = None) -> None:
    """Print a board, the best hypervolume first; the rows of some policies are emphasised."""
    from rich.table import Table

    from ..report.formatting import format_number
    from ..report.frontiers import format_over_data, unit_name

    names = [each.name for each in board.data]
    over = ", ".join(names) if len(names) < 3 else f"{len(names)} datasets"
    title = f"{board.name}: {over}, {board.setting['steps']:,} steps, {len(board.seeds)} seeds"
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("policy")
    levels = board.scale.unfairness_levels[1:5]
    heads = ("hypervolume", "least unfairness", *(f"NDCG at {level:g}" for level in levels), "µs/session")
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for entry in (board.limit, *board.entries):
        cells = [format_over_data(entry.hypervolume), format_over_data(entry.least_unfairness)]
        cells += [format_over_data(entry.ndcg_at[f"{level:g}"]) for level in levels]
        style = "dim" if entry is board.limit else "bold" if entry.name in (own or ()) else None
        name = "limit (relevance known)" if entry is board.limit else entry.name
        table.add_row(name, *cells, format_number(entry.microseconds, 3), style=style)
    print_table(table)
    print(f"Unfairness is in {unit_name(board.scale)}; NDCG is the average at a level of it, a dash if not reached.")
