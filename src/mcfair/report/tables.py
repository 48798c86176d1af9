"""The tables of the report: what each policy reached, the paper's figures, tests over queries, and all points."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from ..analysis.significance import confidence
from ..metrics.base import metric_label, parse_metric
from .claims import LEVEL, POWER, ComparedPoint, Comparison, QueryTest, baseline
from .formatting import (
    NOTHING,
    format_excess,
    format_interval,
    format_number,
    format_p_value,
    format_signed,
    format_spread,
)
from .markup import Table
from .views import Curve, Point, View

__all__ = [
    "comparison_table",
    "cutoffs_table",
    "details_table",
    "deviation",
    "lower_table",
    "main_table",
    "points_table",
    "seeds_note",
    "significance_tables",
]

ABOVE_FLOOR, SECONDS = "above the floor, %", "s per 1,000 lists"
PAPER_UNFAIRNESS, PAPER_SECONDS = "paper: unfairness (std)", "paper: s per 1,000 lists"
DEVIATION_PERCENT, DEVIATION_STD = "deviation, %", "deviation in the paper's std"
FLOOR_ROW = "floor (lowest possible)"


# --- words -----------------------------------------------------------------------------------------------------------


def with_spread(view: View, name: str) -> str:
    """Return the heading of a column of means, which have a spread if there are several seeds."""
    return f"{name} (std)" if view.seeds > 1 else name


def row_name(curve: Curve, point: Point) -> str:
    """Return the name of a policy's row, unique within its series."""
    if len(curve.points) == 1:
        return curve.label
    return f"{curve.label}: {point.text}" if curve.series.label else point.text


def seeds_note(view: View) -> str:
    """Describe what the numbers of a table are means of."""
    if view.seeds == 1:
        return "There is one seed, so the spread over seeds is unknown."
    return f"Means over {view.seeds} seeds, with the population standard deviation (std) in parentheses."


def floor_note(view: View) -> str:
    """Describe for how many queries perfect fairness is impossible."""
    limits = view.limits
    if limits is None:
        return ""
    if not limits.unreachable:
        return "For every query some sequence of lists shares exposure in exact proportion to relevance."
    text = (
        f"For {limits.unreachable:,} of {limits.queries:,} queries no sequence of lists can share exposure in exact "
        "proportion to relevance; the floor is what remains."
    )
    inexact = limits.gap > 1e-6 * view.floor
    return f"{text} It may lie up to {format_number(limits.gap, 2)} lower." if inexact else text


def letter(i: int) -> str:
    """Return the letter of a note: a to z, then aa, ab and so on."""
    return (letter(i // 26 - 1) if i >= 26 else "") + chr(ord("a") + i % 26)


# --- the paper's figures ---------------------------------------------------------------------------------------------


def deviation(view: View, curve: Curve, point: Point) -> tuple[float, float] | None:
    """Compare unfairness with the paper's: the ratio, and the difference in the paper's standard deviations."""
    paper = curve.series.paper
    if paper is None or paper.unfairness is None or not view.as_published:
        return None
    mean, std = paper.unfairness
    ours = point.mean("unfairness")
    off = (ours - mean) / std if std > 0 else math.copysign(math.inf, ours - mean) if ours != mean else 0.0
    return ours / mean if mean else math.nan, off


def has_paper(view: View) -> bool:
    """Return whether the paper reports a figure for any series."""
    return any(curve.series.paper and curve.series.paper.unfairness for curve in view.curves)


def paper_cells(view: View, curve: Curve, point: Point) -> dict[str, str]:
    """Format the paper's figures for a policy, and the deviations from them, by column."""
    paper, off = curve.series.paper, deviation(view, curve, point)
    cells = {}
    if paper and paper.unfairness:
        cells[PAPER_UNFAIRNESS] = f"{paper.unfairness[0]:g} ({paper.unfairness[1]:g})"
    if paper and paper.seconds is not None:
        cells[PAPER_SECONDS] = f"{paper.seconds:g}"
    if off:
        cells |= {DEVIATION_PERCENT: format_signed(100 * (off[0] - 1)), DEVIATION_STD: format_signed(off[1])}
    return cells


def remark(view: View, curve: Curve, point: Point) -> str:
    """Return the note of a row; a row far from the paper's figure always has one."""
    note, off = curve.series.note, deviation(view, curve, point)
    if off is None or abs(off[1]) <= 1:
        return note
    far = f"{abs(off[1]):.1f} of the paper's standard deviations {'above' if off[1] > 0 else 'below'} its mean."
    return f"{far} {note or 'No reason is recorded.'}"


# --- a row per policy ------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Rows:
    """Rows under construction: cells by column name, with notes, tooltips and classes."""

    columns: list[str]
    rows: list[tuple[str, ...]] = dataclasses.field(default_factory=list)
    tooltips: dict[tuple[int, int], str] = dataclasses.field(default_factory=dict)
    classes: dict[int, str] = dataclasses.field(default_factory=dict)
    remarks: list[str] = dataclasses.field(default_factory=list)

    def add(self, cells: dict[str, str], css: str = "") -> None:
        """Append a row; columns without a cell get a dash."""
        if css:
            self.classes[len(self.rows)] = css
        self.rows.append(tuple(cells.get(column, NOTHING) for column in self.columns))

    def mark(self, text: str) -> str:
        """Return the mark of a note, the same for equal texts; nothing for no text."""
        if not text:
            return ""
        if text not in self.remarks:
            self.remarks.append(text)
        return f" [{letter(self.remarks.index(text))}]"


def main_columns(view: View) -> list[str]:
    """Choose the columns that a reader needs first."""
    columns = ["method", with_spread(view, "unfairness")]
    columns += [PAPER_UNFAIRNESS] if has_paper(view) else []
    columns += [DEVIATION_STD] if has_paper(view) and view.as_published else []
    columns += [ABOVE_FLOOR] if view.floor > 0 else []
    columns += [metric_label(f"cndcg@{k}") for k in sorted({1, view.setting.k})]
    columns += [SECONDS] if any(point.seconds is not None for point in view.points) else []
    return columns + [label for each in view.extra_metrics if (label := metric_label(each)) not in columns]


def main_cells(view: View, curve: Curve, point: Point) -> dict[str, str]:
    """Format what a policy reached, by column."""
    cells = {metric_label(each): format_spread(point.values(each)) for each in view.extra_metrics}
    cells |= {metric_label(f"cndcg@{k}"): format_number(point.mean(f"cndcg@{k}")) for k in view.cutoffs}
    return (
        cells
        | paper_cells(view, curve, point)
        | {
            "method": row_name(curve, point),
            "policy": point.text,
            with_spread(view, "unfairness"): format_spread(point.values("unfairness")),
            ABOVE_FLOOR: format_excess(point.mean("unfairness") / view.floor) if view.floor > 0 else NOTHING,
            SECONDS: format_number(point.seconds, 3),
        }
    )


Tests = dict[Point, QueryTest]


def main_table(view: View, tests: Tests, name: str, caption: str) -> Table:
    """Build the table of policies: unfairness with significance marks, the paper's, effectiveness and time."""
    base = baseline(view)
    column = with_spread(view, "unfairness")
    found = Rows(main_columns(view))
    if view.limits is not None:
        cells = {"method": FLOOR_ROW, column: format_spread(view.limits.floor), ABOVE_FLOOR: "0"}
        if view.limits.group_floor is not None:
            among_groups = [each for each in view.extra_metrics if parse_metric(each).floor_among == "groups"]
            cells |= {metric_label(each): format_spread(view.limits.group_floor) for each in among_groups}
        found.add(cells, "limit")
    for curve in view.curves:
        for point in curve.points:
            cells = main_cells(view, curve, point)
            cells["method"] += found.mark(remark(view, curve, point))
            if tested := tests.get(point):
                cells[column] += tested.mark
                tooltip = describe_test(tested, view.experiment.compare_with)
                found.tooltips[len(found.rows), found.columns.index(column)] = tooltip
            found.add(cells, "base" if point is base else "")
    lead = [floor_note(view)] if view.limits else []
    if has_paper(view) and not view.as_published:
        lead.append("The paper's figures are for another data set or longer runs; deviations are not shown.")
    notes = [seeds_note(view)]
    if base is not None and tests:
        notes.append(
            f"† p < 0.01, ‡ p < 0.05: the unfairness of queries differs from that of {base.label} ({base.text}); "
            f"Fisher's randomisation test over queries, two-sided, adjusted by Holm's method for {len(tests)} tests. "
            "No mark means that the test did not find a difference, not that there is none: the tests below state how "
            "large a difference could have been detected."
        )
    notes += [f"[{letter(i)}] {text}" for i, text in enumerate(found.remarks)]
    return Table(
        name=name,
        caption=caption,
        columns=tuple(found.columns),
        rows=tuple(found.rows),
        lead=tuple(lead),
        notes=tuple(notes),
        tooltips=found.tooltips,
        row_classes=found.classes,
    )


def details_table(view: View, name: str, caption: str) -> Table:
    """Build the table of what the main table leaves out: parameters, intervals, other cutoffs, other deviations."""
    ndcg = f"ndcg@{view.setting.k}"
    interval = f"unfairness, {100 * LEVEL:g} % interval"
    columns = ["method", "policy"]
    columns += [interval] if view.seeds > 1 else []
    columns += [DEVIATION_PERCENT] if has_paper(view) and view.as_published else []
    columns += [*(metric_label(f"cndcg@{k}") for k in view.cutoffs), metric_label(ndcg)]
    if any(curve.series.paper and curve.series.paper.seconds is not None for curve in view.curves):
        columns.append(PAPER_SECONDS)
    found = Rows(columns)
    for curve in view.curves:
        for point in curve.points:
            bounds = confidence(point.values("unfairness"), LEVEL)
            cells = {interval: format_interval(*bounds), metric_label(ndcg): format_number(point.mean(ndcg))}
            found.add(main_cells(view, curve, point) | cells)
    notes = [seeds_note(view) + (" The interval is Student's, of the mean over seeds." if view.seeds > 1 else "")]
    return Table(
        name=name, caption=caption, columns=tuple(columns), rows=tuple(found.rows), text_columns=2, notes=tuple(notes)
    )


# --- tests over queries ----------------------------------------------------------------------------------------------


def describe_test(tested: QueryTest, name: str) -> str:
    """Describe a test in words."""
    text = (
        f"difference from {name}: {format_signed(tested.mean, 4)}, 95 % interval "
        f"{format_interval(tested.low, tested.high, 3)}, p = {format_p_value(tested.p_adjusted)} after Holm"
    )
    if tested.significant or not tested.detectable > 0:
        return text
    return f"{text}; not significant, differences below {format_number(tested.detectable, 3)} may go undetected"


def significance_tables(view: View, tests_by_metric: dict[str, Tests], name: str, caption: str) -> list[Table]:
    """Build the tables of differences from the baseline over queries, one for each metric."""
    base = baseline(view)
    tables = []
    for metric, tests in tests_by_metric.items():
        if base is None or not tests:
            continue
        rows = tuple(
            (
                row_name(curve, point),
                format_signed(one.mean, 4),
                format_interval(one.low, one.high, 3),
                format_p_value(one.p),
                format_p_value(one.p_adjusted),
                NOTHING if one.significant or not one.detectable > 0 else format_number(one.detectable, 3),
            )
            for curve in view.curves
            for point in curve.points
            if (one := tests.get(point))
        )
        columns = (
            "method",
            f"Δ {metric_label(metric)}",
            f"{100 * LEVEL:g} % interval",
            "p",
            "p after Holm",
            "detectable difference",
        )
        notes = (
            f"Δ is the mean difference from {base.label} ({base.text}) over queries, with a bootstrap interval that is "
            "not adjusted for the number of rows. The detectable difference is given where a test is not significant: "
            f"a paired t-test over the same queries would find a true difference of this size with a power of "
            f"{100 * POWER:g} % at level {1 - LEVEL:.2g}/{len(tests)}; smaller ones may well exist. A dash stands for "
            "a significant difference, or for values that agree on every query.",
        )
        title = f"{caption}: {metric_label(metric)}"
        tables.append(
            Table(name=f"{name}-{metric.split('@')[0]}", caption=title, columns=columns, rows=rows, notes=notes)
        )
    return tables


# --- figures as numbers ----------------------------------------------------------------------------------------------


def cutoffs_table(view: View, name: str, caption: str) -> Table:
    """Build the table of cNDCG at every cutoff."""
    ranks = range(1, view.setting.k + 1)
    rows = tuple(
        (row_name(curve, point), *(format_spread(point.values(f"cndcg@{k}")) for k in ranks))
        for curve in view.curves
        for point in curve.points
    )
    columns = ("method", *(with_spread(view, f"cNDCG@{k}") for k in ranks))
    return Table(name=name, caption=caption, columns=columns, rows=rows, notes=(seeds_note(view),))


def points_table(view: View, name: str, caption: str) -> Table:
    """Build the table of all points of a trade-off."""
    metrics = ["unfairness", *(f"cndcg@{k}" for k in view.experiment.k_c)]
    metrics += [each for each in view.extra_metrics if each not in metrics]
    floor = view.floor
    rows = []
    for curve in view.curves:
        for point in curve.points:
            first, *others = (format_spread(point.values(each)) for each in metrics)
            above = [format_excess(point.mean("unfairness") / floor)] if floor > 0 else []
            rows.append((curve.label, point.text, first, *above, *others))
    first, *others = (with_spread(view, metric_label(each)) for each in metrics)
    columns = ("method", "policy", first, *([ABOVE_FLOOR] if floor > 0 else []), *others)
    notes = [seeds_note(view)]
    if floor > 0:
        notes.append(f"The floor (lowest possible unfairness) is {format_number(floor)}. {floor_note(view)}")
    return Table(name=name, caption=caption, columns=columns, rows=tuple(rows), text_columns=2, notes=tuple(notes))


# --- curves against the baseline's -----------------------------------------------------------------------------------


def comparison_table(
    found: Sequence[tuple[str, Comparison]], base: str, name: str, caption: str, notes: tuple[str, ...] = ()
) -> Table:
    """Build the table of how many points lie significantly below or above the baseline's curve, by panel."""
    by_method = len({one.label for _, one in found}) > 1
    identical = any(one.count("identical") for _, one in found)
    columns = [
        *(["method"] if by_method else []),
        "panel",
        "points compared",
        f"{base} higher",
        f"{base} lower",
        "not significant",
        *(["same in every seed"] if identical else []),
        "detectable difference",
        "fairer than the curve",
        "less fair than the curve",
    ]
    rows = []
    for panel, one in found:
        counts = [one.compared, one.count("above"), one.count("below"), one.count("undecided")]
        counts += [one.count("identical")] if identical else []
        cells = (*map(str, counts), format_number(one.detectable, 3), f"{one.fairer}", f"{one.less_fair}")
        rows.append(((one.label, panel) if by_method else (panel,)) + cells)
    return Table(
        name=name, caption=caption, columns=tuple(columns), rows=tuple(rows), text_columns=1 + by_method, notes=notes
    )


def lower_table(found: Sequence[tuple[str, int, ComparedPoint]], name: str, caption: str) -> Table:
    """Build the table of the points at which the baseline's curve is significantly lower."""
    rows = tuple(
        (
            each.point.text,
            panel,
            format_number(each.point.mean("unfairness")),
            format_number(each.point.mean(f"cndcg@{k}")),
            format_number(-each.difference, 3),
            format_interval(-each.high, -each.low, 3),
        )
        for panel, k, each in found
    )
    columns = ("policy", "panel", "unfairness", "cNDCG", "curve lower by", f"{100 * LEVEL:g} % interval")
    return Table(name=name, caption=caption, columns=columns, rows=rows, text_columns=2)
