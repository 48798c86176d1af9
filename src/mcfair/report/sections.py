"""The section of an experiment: its figures and tables, and what can be concluded from them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from ..experiments.experiment import Experiment
from .assumptions import show_assumptions
from .claims import LEVEL, POWER, Comparison, compare_curves, significance
from .document import Block, Report, Section
from .figures import cutoffs_alt, cutoffs_figure, render
from .formatting import format_excess, format_number, format_signed
from .frontiers import show_conditions, show_frontier
from .tables import (
    comparison_table,
    cutoffs_table,
    details_table,
    deviation,
    lower_table,
    main_table,
    points_table,
    row_name,
    significance_tables,
)
from .tradeoff import Panel, closer_panels, tradeoff_alt, tradeoff_figure, tradeoff_panels
from .views import View, views

__all__ = ["add_experiment"]

TOGETHER = {"frontier": show_frontier, "conditions": show_conditions, "assumptions": show_assumptions}
"""How experiments are shown over all their datasets and settings together."""


def add_experiment(report: Report, experiment: Experiment) -> None:
    """Append the section of an experiment."""
    title = experiment.title or experiment.name
    blocks = []
    if experiment.about.strip():
        blocks.append(Block(kind="paragraph", text=" ".join(experiment.about.split())))
    if experiment.show in TOGETHER:
        blocks.extend(TOGETHER[experiment.show](report, experiment, title))
    for data in experiment.data if experiment.show not in TOGETHER else ():
        found = list(views(report.results, experiment, data))
        if not found:
            blocks.append(Block(kind="paragraph", text=f"There are no runs on {data}."))
            continue
        several = len(experiment.data) > 1
        if several:
            blocks.append(Block(kind="heading", text=data))
        name = f"{experiment.name} {data}" if several else experiment.name
        show = {"table": show_table, "cutoffs": show_cutoffs, "tradeoff": show_tradeoff}[experiment.show]
        blocks.extend(show(report, found, name, title))
    anchor = report.unique_name("experiment", experiment.name)
    report.sections.append(Section(anchor, title, tuple(blocks)))


def describe_runs(found: Sequence[View]) -> str:
    """Describe data, settings and length of some runs."""
    settings = ", ".join(f"{view.setting.mode} with {view.sessions:,} sessions" for view in found)
    return f"{found[0].data}, {settings}"


def setting_suffix(view: View, found: Sequence[View]) -> str:
    """Return the part of a file name that distinguishes settings; nothing for one setting."""
    return view.setting.mode if len(found) > 1 else ""


# --- a table of policies ---------------------------------------------------------------------------------------------


def show_table(report: Report, found: Sequence[View], name: str, title: str) -> Iterator[Block]:
    """Show a table of policies for each setting, with details and tests."""
    for view in found:
        stem = f"{name} {setting_suffix(view, found)}".strip()
        metrics = ("unfairness", f"ndcg@{view.setting.k}")
        tests = {metric: significance(view, metric) for metric in metrics}
        caption = f"{title} ({describe_runs([view])})"
        yield report.add_table(main_table(view, tests["unfairness"], stem, caption))
        more = details_table(view, f"{stem} details", f"{title}: parameters and further figures")
        summary = "Parameters, intervals and further cutoffs"
        yield Block(kind="details", text=summary, blocks=(report.add_table(more),))
        wanted = view.experiment.compare_with
        tables = significance_tables(view, tests, f"{stem} tests", f"Differences from {wanted} over queries")
        if tables:
            summary = f"Tests against {wanted}: size, interval and p-value of every difference"
            yield Block(kind="details", text=summary, blocks=tuple(map(report.add_table, tables)))
        report.findings.extend(table_findings(view, title))
        for curve in view.curves:
            if curve.series.note and (curve.label, curve.series.note) not in report.notes:
                report.notes.append((curve.label, curve.series.note))


def table_findings(view: View, title: str) -> Iterator[str]:
    """Return which policies have the lowest unfairness, and how many agree with the paper."""
    pairs = [(curve, point) for curve in view.curves for point in curve.points]
    head = title.split(":")[0]
    if len(pairs) > 1:
        best = sorted(pairs, key=lambda pair: pair[1].mean("unfairness"))[:2]
        (first, second), (lowest, next_lowest) = zip(
            *((row_name(curve, point), point.mean("unfairness")) for curve, point in best), strict=True
        )
        above = f", {format_excess(lowest / view.floor)} % above the floor" if view.floor > 0 else ""
        yield (
            f"{head} ({view.data}, {view.setting.mode}): {first} has the lowest mean unfairness, "
            f"{format_number(lowest)}{above}; {second} is next with {format_number(next_lowest)}."
        )
    compared = [
        (row_name(curve, point), off[1]) for curve, point in pairs if (off := deviation(view, curve, point)) is not None
    ]
    if compared:
        far = [f"{label} ({format_signed(off)})" for label, off in compared if abs(off) > 1]
        rest = f"; not {', '.join(far)}, for the reasons in the notes of the table" if far else ""
        yield (
            f"{head}: {len(compared) - len(far)} of {len(compared)} methods are within one of the paper's standard "
            f"deviations of its unfairness{rest}."
        )


# --- cNDCG at every cutoff -------------------------------------------------------------------------------------------


def show_cutoffs(report: Report, found: Sequence[View], name: str, title: str) -> Iterator[Block]:
    """Show cNDCG at every cutoff, as a figure and as tables."""
    wide, narrow = cutoffs_figure(found), cutoffs_figure(found, narrow=True)
    picture = render(wide, narrow, report.unique_name(name), cutoffs_alt(found, title))
    caption = f"{describe_runs(found)}. Lines are means over seeds; bands extend one standard deviation to either side."
    yield report.add_picture(picture, caption)
    for view in found:
        stem = f"{name} {setting_suffix(view, found)} values"
        table = cutoffs_table(view, stem, f"{title} ({view.data}, {view.setting.mode})")
        yield Block(kind="details", text=f"The numbers, {view.setting.mode}", blocks=(report.add_table(table),))


# --- effectiveness against unfairness --------------------------------------------------------------------------------


def show_tradeoff(report: Report, found: Sequence[View], name: str, title: str) -> Iterator[Block]:
    """Show effectiveness against unfairness, the comparison with the baseline's curve, and all points."""
    grid = tradeoff_panels(found)
    yield add_tradeoff(report, grid, name, title, f"{describe_runs(found)}. {reading_guide(grid)}")
    if closer := closer_panels(found):
        text = "The fair end of the same panels, enlarged."
        yield add_tradeoff(report, closer, f"{name} closer", title, text)
    yield from show_comparison(report, found, name, title)
    for view in found:
        stem = f"{name} {setting_suffix(view, found)} points"
        table = points_table(view, stem, f"{title} ({view.data}, {view.setting.mode})")
        summary = f"All {len(table.rows)} points, {view.setting.mode}"
        yield Block(kind="details", text=summary, blocks=(report.add_table(table),))


def add_tradeoff(report: Report, grid: list[list[Panel]], name: str, title: str, caption: str) -> Block:
    """Draw both versions of a trade-off and return the block of the figure."""
    wide, narrow = tradeoff_figure(grid), tradeoff_figure(grid, narrow=True)
    return report.add_picture(render(wide, narrow, report.unique_name(name), tradeoff_alt(grid, title)), caption)


def reading_guide(grid: list[list[Panel]]) -> str:
    """Explain the elements of a trade-off figure."""
    panels = [panel for row in grid for panel in row]
    text = (
        "Up and to the left is better. Markers are means over seeds, bars extend one standard deviation to either side."
    )
    if any(panel.floor > 0 for panel in panels):
        text += " The dotted line is the fairness floor."
    if any(panel.frontier for panel in panels):
        text += (
            " The grey line bounds what a policy can reach for the same visits even if it knows relevance. It bounds "
            "NDCG averaged over the run; cNDCG weighs late sessions most, so a point can lie slightly above it."
        )
    return text


# --- curves against the baseline's -----------------------------------------------------------------------------------


def show_comparison(report: Report, found: Sequence[View], name: str, title: str) -> Iterator[Block]:
    """Compare the points of other methods with the curve in `compare_with`, with counts, intervals and power."""
    base = found[0].experiment.compare_with
    panels = [(f"{view.setting.mode}, cNDCG@{k}", view, k) for view in found for k in view.experiment.k_c]
    compared = [(panel, k, one) for panel, view, k in panels for one in compare_curves(view, k)]
    if not compared:
        return
    yield Block(kind="heading", text=f"{base} compared with the other methods")
    seeds = max(view.seeds for view in found)
    total = Comparison.merge("all", (one for _, _, one in compared))
    if seeds == 1:
        yield Block(
            kind="paragraph",
            text=(
                f"{total.compared} points of other methods lie within the range of {base}'s curve. There is one seed, "
                "so nothing can be tested: the differences in the figure may be due to chance."
            ),
        )
        return
    yield Block(
        kind="paragraph",
        text=(
            f"Each point of another method is compared with {base}'s curve at the same unfairness, seed by seed, "
            "within the range of unfairness that the curve covers. A difference in cNDCG is significant if its "
            f"{100 * LEVEL:g} % interval over the {seeds} seeds (Student's t) excludes 0. The curve is interpolated "
            "linearly between its points, which may underestimate it where they are far apart."
        ),
    )
    if not total.compared:
        yield Block(kind="paragraph", text="No point of another method lies within that range: nothing was compared.")
        return
    sums = []
    for panel, _, _ in panels:
        parts = [one for where, _, one in compared if where == panel]
        if parts:
            sums.append((panel, Comparison.merge("all", parts)))
    caption = f"{base}'s curve against all other methods"
    table = comparison_table(sums, base, f"{name} comparison", caption, notes=(comparison_note(total, base),))
    yield report.add_table(table)
    by_method = [(panel, one) for panel, _, one in compared]
    if len({one.label for _, one in by_method}) > 1:
        table = comparison_table(by_method, base, f"{name} comparison by method", f"{base}'s curve against each method")
        yield Block(kind="details", text="The same counts, method by method", blocks=(report.add_table(table),))
    lower = [(panel, k, each) for panel, k, one in compared for each in one.points if each.outcome == "below"]
    if lower:
        table = lower_table(lower, f"{name} lower", f"Points at which {base}'s curve is significantly lower")
        yield Block(kind="details", text=f"{table.caption} ({len(lower)})", blocks=(report.add_table(table),))
    largest = max(view.best_cndcg for view in found)
    report.findings.append(comparison_finding(title.split(":")[0], base, total, seeds, len(sums), largest))


def outcome_sentence(one: Comparison, base: str) -> str:
    """State how many points were compared, with which outcomes and which power."""
    parts = [f"{base} is significantly higher at {one.count('above')}", f"significantly lower at {one.count('below')}"]
    if same := one.count("identical"):
        parts.append(f"has the same value in every seed at {same}")
    text = f"of {one.compared} points compared, {', '.join(parts)}; not significant at {one.count('undecided')}."
    if math.isfinite(one.detectable):
        text += (
            f" A true difference of {format_number(one.detectable, 3)} in cNDCG would be detected with a power of "
            f"{100 * POWER:g} % (median over points); smaller ones may have been missed."
        )
    return text


def comparison_note(total: Comparison, base: str) -> str:
    """Explain the columns of the comparison table."""
    tested = total.compared - total.count("identical")
    return (
        f"Higher and lower: {base}'s cNDCG is significantly higher or lower at the unfairness of the point. Not "
        "significant does not mean equal. The detectable difference is the median over points of the true difference "
        f"in cNDCG that the test would find with a power of {100 * POWER:g} %, given the spread over seeds. Points "
        "beyond the ends of the curve are not compared. Intervals are not adjusted for the number of comparisons: of "
        f"{tested} comparisons without any true difference about {max(round((1 - LEVEL) * tested), 1)} would come out "
        "significant by chance."
    )


def comparison_finding(head: str, base: str, total: Comparison, seeds: int, panels: int, largest: float) -> str:
    """Return the outcome of all panels in one sentence."""
    where = "1 panel" if panels == 1 else f"{panels} panels"
    text = f"{head} ({where}, {100 * LEVEL:g} % intervals over {seeds} seeds): {outcome_sentence(total, base)}"
    lower = [-each.difference for each in total.points if each.outcome == "below"]
    if lower:
        share = 100 * float(np.max(lower)) / largest
        text += f" Where {base} is lower, it is by at most {format_number(share, 2)} % of the largest possible cNDCG."
    return text
