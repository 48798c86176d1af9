"""Run the whole comparison, and write its page and its leaderboard.

python studies/beyond/run.py --quick     # a first impression in a few minutes
python studies/beyond/run.py             # everything: an hour or two; the same command resumes
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import os
import platform
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import grid
import msgspec
from boards import Board, BoardBuilder, builders_of, merge_boards, read_boards, write_boards
from matched import table_of_tests
from sections import Times, format_over_data, write_page

import mcfair as mf
from mcfair.tables import Table, format_number

FILE = "leaderboard.json"


class Played(NamedTuple):
    """What was run, with its boards."""

    results: mf.Results
    times: Times
    builders: list[BoardBuilder]
    boards: list[Board]


def options(description: str) -> argparse.ArgumentParser:
    """Return the options that both commands have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("beyond-results"), help="folder; finished runs are reused")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one a processor)")
    parser.add_argument("--cluster", default="", help="use the workers of this Dask scheduler: tcp://HOST:8786")
    parser.add_argument("--quick", action="store_true", help="two folds, and few points, seeds and sessions")
    parser.add_argument("--also", action="append", default=[], metavar="DATA", help="further data with long lists")
    return parser


def run(wanted: grid.Grid, asked: argparse.Namespace) -> Played:
    """Run what is not stored in the folder, with its progress on stderr, and build the boards."""
    results = mf.run_experiments(
        wanted.experiments,
        asked.out,
        data=wanted.data,
        jobs=asked.jobs,
        cluster=asked.cluster,
        about=made_with(),
        progress=progress() if sys.stderr.isatty() else None,
    )
    builders = [builder for each in wanted.frontiers for builder in builders_of(results, each)]
    times = times_of(builders, wanted.data, asked.out)
    boards = [each.build(times[each.experiment.name, each.setting.mode]) for each in builders]
    return Played(results, times, builders, boards)


def progress() -> Callable[[str, int, int], None]:
    """Return a function that shows the stage and how far it is, on one line."""
    return lambda stage, done, total: print(f"\r{stage}: {done:,} of {total:,}\033[K", end="", file=sys.stderr)


def made_with() -> dict[str, str]:
    """Return the command, the machine and the versions."""
    versions = {name: version(name) for name in ("mcfair", "numpy", "numba")}
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors"
    command = " ".join(["python", *sys.argv])
    return {"command": command, "machine": machine, "python": platform.python_version(), **versions}


def times_of(builders: Sequence[BoardBuilder], data: dict[str, mf.Dataset], folder: Path) -> Times:
    """Measure the microseconds per session of the middle policy of each curve, one run at a time; stored ones stay."""
    file = folder / "times-of-curves.json"
    known: dict[str, float] = msgspec.json.decode(file.read_bytes()) if file.exists() else {}
    found: Times = {}
    for builder in builders:
        experiment, first = builder.experiment, builder.experiment.data[0]
        times = found.setdefault((experiment.name, builder.setting.mode), {})
        for name in builder.curves:
            points = builder.points(name)
            policy, where = points[len(points) // 2]
            key = builder.results.of(first, where, policy)["key"][0]  # covers data, policy, setting and code
            if key not in known:
                traces = [mf.simulate(data[first], policy, where, seed=0) for _ in range(3)]
                known[key] = min(1e6 * trace.seconds / trace.sessions for trace in traces)
            times[name] = known[key]
    file.write_bytes(msgspec.json.encode(known))
    return found


def show_board(board: Board, own: Sequence[str] = ()) -> None:
    """Print a board, the best hypervolume first; the rows of some policies are emphasised."""
    names = [each.name for each in board.data]
    over = ", ".join(names) if len(names) < 3 else f"{len(names)} datasets"
    levels = board.scale.unfairness_levels[1:5]
    entries = (board.limit, *board.entries)
    Table(
        caption=f"{board.name}: {over}, {board.setting['steps']:,} steps, {len(board.seeds)} seeds",
        columns=(
            *("policy", "hypervolume", "least unfairness"),
            *(f"NDCG at {level:g}" for level in levels),
            "µs/session",
        ),
        rows=tuple(
            (
                "limit (relevance known)" if entry is board.limit else entry.name,
                format_over_data(entry.hypervolume),
                format_over_data(entry.least_unfairness),
                *(format_over_data(entry.ndcg_at[f"{level:g}"]) for level in levels),
                format_number(entry.microseconds, 3),
            )
            for entry in entries
        ),
        notes=(f"Unfairness is in {board.scale.unit_name}; NDCG is the average at a level of it.",),
        row_classes={0: "limit"} | {i: "base" for i, entry in enumerate(entries) if entry.name in own},
    ).print()


def show(builders: Sequence[BoardBuilder], boards: Sequence[Board], base: str, own: Sequence[str] = ()) -> None:
    """Print boards, and below each the tests against a baseline: of some policies, or of all."""
    tests = [table_of_tests(builder, base, own) for builder in builders]
    for i, (board, table) in enumerate(zip(boards, tests, strict=True), start=1):
        show_board(board, own)
        if table:
            (table if i == len(boards) else dataclasses.replace(table, notes=())).print()  # they are explained once


def load_plugin(file: Path) -> None:
    """Import a file that defines policies."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise mf.PartError(f"cannot load {file}: expected a Python file that defines policies")
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)


def main(words: Sequence[str] | None = None) -> None:
    """Run the command."""
    asked = options(__doc__ or "").parse_args(words)
    stored = read_boards(asked.out / FILE)
    wanted = grid.whole(asked.also, quick=asked.quick)
    played = run(wanted, asked)
    write_boards(asked.out / FILE, merge_boards(stored, played.boards), made_with())  # other policies' entries are kept
    page = write_page(played.results, wanted, played.times, asked.out)
    show(played.builders, played.boards, grid.contestants().compare_with)
    print(f"Leaderboard: {(asked.out / FILE).resolve()}\nReport: {page.resolve()}")


def checked(command: Callable[[], None]) -> None:
    """Run a command; an error is one line."""
    try:
        command()
    except mf.MCFairError as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    checked(main)
