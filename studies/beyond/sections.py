"""The page of the study: frontiers over several datasets, robustness, and wrong assumptions about users."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from assumptions import show_assumptions
from boards import Board, BoardBuilder, BoardEntry, Spread, Values, builders_of
from grid import Grid
from matched import table_of_tests

import mcfair as mf
from mcfair.report import Block, Curve, Panel, Point, Report, tradeoff_alt, tradeoff_figure
from mcfair.tables import NOISE, NOTHING, Table, format_number

TITLE = "Fair ranking beyond the paper"

Times = dict[tuple[str, str], dict[str, float]]
"""Microseconds per session of each contestant, by experiment and mode."""

LIMIT_ROW = "limit (relevance known)"

CONDITION_LEVELS = {"floor": "5", "perfect": "0.5"}
"""Level of unfairness at which NDCG is shown in tables of conditions, where few policies reach low levels."""


def format_over_data(value: Spread, digits: int = 3) -> str:
    """Format a figure over datasets: mean and std; on how many it was reached if not on all; a dash if on none.

    Examples
    --------
    >>> format_over_data(Spread.of([[1.25], [1.35]])), format_over_data(Spread.of([[1.25], [float("nan")]]))
    ('1.30 (0.050)', 'on 1 of 2')
    """
    if value.mean is None or value.std is None:
        return f"on {value.reached} of {len(value.each)}" if value.reached else NOTHING
    mean = format_number(value.mean, digits)
    std = value.std if value.std > NOISE * abs(value.mean) else 0.0
    return mean if len(value.each) == 1 else f"{mean} ({format_number(std, 2)})"


# --- the figure ------------------------------------------------------------------------------------------------------


def mean_over_seeds(values: Values) -> np.ndarray:
    """Return the means over seeds of values by dataset and seed, (datasets, points)."""
    return np.array([np.mean(each, axis=0) for each in values])


def curve_of(builder: BoardBuilder, name: str) -> Curve:
    """Return a contestant as a curve whose points have a row for each dataset, means over seeds."""
    lines, k = builder.lines(name), builder.setting.k
    x, y = mean_over_seeds(lines.unfairness), mean_over_seeds(lines.ndcg)
    policies, rows = [policy for policy, _ in builder.points(name)], range(x.shape[0])
    series = mf.Series(policies=tuple(policies), label=name)
    points = [
        Point(series, policy, pl.DataFrame({"seed": rows, "unfairness": x[:, i], f"ndcg@{k}": y[:, i]}))
        for i, policy in enumerate(policies)
    ]
    return Curve(series, points, builder.setting.mode)


def panel_of(builder: BoardBuilder) -> Panel:
    """Return the panel of one setting, with the limit for known relevance where policies are."""
    curves = [curve_of(builder, name) for name in builder.curves]
    lowest = min(point.mean("unfairness") for curve in curves for point in curve.points)
    x, y = (mean_over_seeds(each).mean(axis=0) for each in (builder.limits.unfairness, builder.limits.ndcg))
    near = x >= min(0.5 * lowest, 1.0)  # on a logarithmic axis a limit of 0 has no place
    known = "relevance is given" if builder.setting.mode == "post-processing" else "relevance is learnt from clicks"
    return Panel(
        curves,
        f"ndcg@{builder.setting.k}",
        f"{builder.setting.mode}: {known}",
        floor=1.0 if builder.scale.unit == "floor" else 0.0,
        frontier=(x[near], y[near]),
        front=builder.experiment.compare_with,
        x_label=f"unfairness, in {builder.scale.unit_name} (lower is fairer)",
    )


def show_figure(
    report: Report, experiment: mf.Experiment, builders: Sequence[BoardBuilder], title: str
) -> Iterator[Block]:
    """Show all frontiers, and their fair ends enlarged."""
    panels = [panel_of(builder) for builder in builders]
    over = f"means over {len(experiment.data)} datasets" if len(experiment.data) > 1 else experiment.data[0]
    spread = "; bars extend one standard deviation over datasets to either side" if len(experiment.data) > 1 else ""
    caption = (
        f"{over[0].upper()}{over[1:]} and {experiment.seeds} seeds{spread}. Up and to the left is better. The grey "
        "line is the limit for policies that know relevance."
    )
    yield add_figure(report, panels, experiment.name, title, caption)
    closer = [
        dataclasses.replace(panel, x_max=(2.0 if builder.scale.unit == "floor" else 1.0) * builder.scale.high)
        for panel, builder in zip(panels, builders, strict=True)
    ]
    if all(any(p.mean("unfairness") <= panel.x_max for c in panel.curves for p in c.points) for panel in closer):
        yield add_figure(
            report, closer, f"{experiment.name} closer", title, "The fair end of the same panels, enlarged."
        )


def add_figure(report: Report, panels: list[Panel], name: str, title: str, caption: str) -> Block:
    """Draw a figure and return its block."""
    alt = tradeoff_alt([panels], title)
    return report.draw(name, alt, caption, lambda narrow: tradeoff_figure([panels], narrow=narrow))


# --- tables ----------------------------------------------------------------------------------------------------------


def board_table(
    board: Board, name: str, columns: dict[str, Callable[[BoardEntry], str]], caption: str, *notes: str
) -> Table:
    """Build a table with a row for the limit and one for each entry, the best hypervolume first."""
    rows = tuple(
        (LIMIT_ROW if entry is board.limit else entry.name, *(cell(entry) for cell in columns.values()))
        for entry in (board.limit, *board.entries)
    )
    return Table(
        name=name, caption=caption, columns=("policy", *columns), rows=rows, notes=notes, row_classes={0: "limit"}
    )


def level_columns(levels: Sequence[float], table: str) -> dict[str, Callable[[BoardEntry], str]]:
    """Return a column for each level of a table of an entry."""

    def column(level: float) -> Callable[[BoardEntry], str]:
        return lambda entry: format_over_data(getattr(entry, table)[f"{level:g}"])

    return {f"at {level:g}": column(level) for level in levels}


def ranking_table(board: Board, stem: str, caption: str) -> Table:
    """Build the main table of a board."""
    scale, k = board.scale, board.setting["k"]
    columns: dict[str, Callable[[BoardEntry], str]] = {
        "hypervolume": lambda entry: format_over_data(entry.hypervolume),
        "least unfairness": lambda entry: format_over_data(entry.least_unfairness),
        **{f"NDCG@{k} {text}": cell for text, cell in level_columns(scale.unfairness_levels[1:5], "ndcg_at").items()},
        "µs per session": lambda entry: format_number(entry.microseconds, 3),
    }
    several = len(board.data) > 1
    notes = (
        f"Unfairness is in {scale.unit_name}. The hypervolume is the area below the frontier and above an average "
        f"NDCG@{k} of {scale.least:g}, for unfairness from {scale.low:g} to {scale.high:g}, relative to the limit's.",
        f"NDCG@{k} at a level is that of the policy's frontier at this unfairness, interpolated between its points; a "
        "dash where it is never so fair" + (", and otherwise on how many datasets it is." if several else "."),
        f"Means over {len(board.seeds)} seeds"
        + (f", then over {len(board.data)} datasets with their population standard deviation in parentheses" * several)
        + ". Times were measured one run at a time, for the middle policy of each curve, on the first dataset.",
    )
    return board_table(board, f"{stem} ranking", columns, caption, *notes)


def detail_tables(board: Board, stem: str) -> Iterator[Table]:
    """Build the tables of cNDCG and unfairness at matched levels, and of the hypervolume on each dataset."""
    scale, k = board.scale, board.setting["k"]
    yield board_table(
        board,
        f"{stem} cndcg",
        level_columns(scale.unfairness_levels, "cndcg_at"),
        f"cNDCG@{k} at matched unfairness",
        "cNDCG weighs the last sessions most. The limit is that of average NDCG, at most 1, and is no cNDCG.",
    )
    yield board_table(
        board,
        f"{stem} unfairness",
        level_columns(scale.ndcg_levels, "unfairness_at"),
        f"Unfairness at matched average NDCG@{k}",
        f"In {scale.unit_name}; a dash where a policy never has this NDCG.",
    )
    if len(board.data) > 1:

        def column(i: int) -> Callable[[BoardEntry], str]:
            return lambda entry: format_number(entry.hypervolume.each[i], 3)

        columns = {each.name: column(i) for i, each in enumerate(board.data)}
        yield board_table(board, f"{stem} datasets", columns, "Hypervolume on each dataset")


def points_table(board: Board, stem: str) -> Table:
    """Build the table of all points."""
    rows = tuple(
        (
            entry.name,
            point.policy,
            *map(format_over_data, (point.unfairness, point.relative_unfairness)),
            *(format_over_data(each, 4) for each in (point.ndcg, point.cndcg)),
        )
        for entry in board.entries
        for point in entry.points
    )
    k = board.setting["k"]
    columns = ("policy", "with", "unfairness", f"in {board.scale.unit_name}", f"NDCG@{k}", f"cNDCG@{k}")
    return Table(name=f"{stem} points", caption="All points", columns=columns, rows=rows, text_columns=2)


# --- sections --------------------------------------------------------------------------------------------------------


def show_frontier(report: Report, experiment: mf.Experiment, title: str, times: Times) -> Iterator[Block]:
    """Show the frontiers of an experiment over all its datasets, a board for each setting."""
    builders = builders_of(report.results, experiment)
    yield from show_figure(report, experiment, builders, title)
    for builder in builders:
        mode = builder.setting.mode
        board = builder.build(times.get((experiment.name, mode)))
        stem = f"{experiment.name} {mode}"
        yield Block(kind="heading", text=f"{mode[0].upper()}{mode[1:]}, {builder.setting.steps:,} steps")
        yield report.add_table(ranking_table(board, stem, "Ranking by hypervolume"))
        tables = tuple(map(report.add_table, detail_tables(board, stem)))
        yield Block(kind="details", text="Matched levels and single datasets", blocks=tables)
        if table := table_of_tests(builder, experiment.compare_with, stem=f"{stem} tests"):
            summary = f"Tests against {experiment.compare_with}, over queries and over datasets"
            yield Block(kind="details", text=summary, blocks=(report.add_table(table),))
        table = points_table(board, stem)
        yield Block(kind="details", text=f"All {len(table.rows)} points", blocks=(report.add_table(table),))
        report.findings.append(finding(board, f"{title}, {mode}", experiment.compare_with))


def finding(board: Board, head: str, base: str) -> str:
    """Return the result of a board in a sentence."""
    best = board.entries[0]
    volume = format_over_data(best.hypervolume)
    if not best.hypervolume.mean:
        fairest = min(board.entries, key=lambda entry: entry.least_unfairness.mean or np.inf)
        return (
            f"{head}: no policy reaches the range of the hypervolume; the fairest is {fairest.name} with an unfairness "
            f"of {format_over_data(fairest.least_unfairness)} {board.scale.unit_name}."
        )
    text = f"{head}: {best.name} has the largest hypervolume, {volume}"
    others = [entry for entry in board.entries if entry.name == base and entry is not best]
    return text + "".join(f"; {entry.name} has {format_over_data(entry.hypervolume)}" for entry in others) + "."


def show_conditions(report: Report, experiment: mf.Experiment, title: str) -> Iterator[Block]:
    """Show hypervolume and least unfairness of every contestant in each setting."""
    boards = [builder.build() for builder in builders_of(report.results, experiment)]
    names = list(dict.fromkeys(entry.name for board in boards for entry in board.entries))
    columns, cells = ["policy"], {name: [name] for name in names}
    for board in boards:
        where = f"{board.setting['mode']}, {board.setting['steps']:,} steps"
        columns += [f"{where}: hypervolume", "least unfairness", f"NDCG at {CONDITION_LEVELS[board.scale.unit]}"]
        entries = {entry.name: entry for entry in board.entries}
        for name, row in cells.items():
            entry = entries.get(name)
            level = CONDITION_LEVELS[board.scale.unit]
            figures = (entry.hypervolume, entry.least_unfairness, entry.ndcg_at[level]) if entry else ()
            row += list(map(format_over_data, figures)) or [NOTHING] * 3
    units = ", ".join(dict.fromkeys(board.scale.unit_name for board in boards))
    note = (
        f"Hypervolumes are relative to the limit for known relevance; unfairness is in {units}. NDCG is the average at "
        "a level of unfairness; a dash where a policy is never so fair. Means over "
        f"{experiment.seeds} seeds on {', '.join(experiment.data)}; curves have fewer points than above."
    )
    rows = tuple(tuple(row) for row in cells.values())
    yield report.add_table(
        Table(
            name=experiment.name,
            caption="Every policy in every condition",
            columns=tuple(columns),
            rows=rows,
            notes=(note,),
        )
    )


def write_page(results: mf.Results, grid: Grid, times: Times, folder: Path) -> Path:
    """Write the page of the study to a folder: index.html, figures/ and tables/."""
    report = Report(results)
    shown = [
        *((each, show_frontier(report, each, each.title, times)) for each in grid.frontiers),
        *((each, show_conditions(report, each, each.title)) for each in grid.conditions),
        *((each, show_assumptions(report, each, each.title)) for each in grid.assumptions),
    ]
    for experiment, blocks in shown:
        report.add_section(experiment, blocks)
    return report.write(folder, title=TITLE)
