"""The tables of the report: a row per policy with what it reached, what the paper says, and what is not chance."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..analysis.significance import confidence
from .claims import Above, Tested, baseline, significance
from .markup import NOTHING, Table, interval, number, percent, signed, spread
from .views import Curve, Point, View, paper_is_comparable

__all__ = ["above_table", "cutoffs_table", "deviation", "main_tables", "points_table"]

UNFAIRNESS, ABOVE, SECONDS = "unfairness (std)", "above the floor, %", "s per 1,000 lists"


def deviation(view: View, point: Point) -> tuple[float, float] | None:
    """Compare a policy's unfairness with the paper's: the ratio, and the difference in its standard deviations."""
    paper = next((c.series.paper for c in view.curves if point in c.points), None)
    if paper is None or paper.unfairness is None or not paper_is_comparable(view):
        return None
    mean, std = paper.unfairness
    ours = point.mean("unfairness")
    off = (ours - mean) / std if std > 0 else math.copysign(math.inf, ours - mean) if ours != mean else 0.0
    return ours / mean if mean else math.nan, off


def queries_sentence(view: View) -> str:
    """Say for how many queries perfect fairness is out of reach."""
    limits = view.limits
    if limits is None:
        return ""
    return (
        f"Exposure in proportion to relevance cannot be reached for {limits.unreachable:,} of {limits.queries:,} "
        "queries, whatever the lists; the floor is the least unfairness that is left."
    )


def remark(view: View, point: Point, note: str) -> str:
    """Give the note of a row; a row far from the paper has one in any case."""
    off = deviation(view, point)
    if off is None or abs(off[1]) <= 1:
        return note
    far = f"{abs(off[1]):.1f} of the paper's standard deviations {'above' if off[1] > 0 else 'below'} its mean."
    return f"{far} {note or 'No reason is recorded.'}"


def main_tables(view: View, name: str, caption: str) -> list[Table]:
    """Make the table of the policies and, if there is a baseline, that of the tests against it."""
    ndcg = f"ndcg@{view.setting.k_s}"
    tests = {metric: significance(view, metric) for metric in ("unfairness", ndcg)}
    papers = [curve.series.paper for curve in view.curves]
    has_paper = any(paper and (paper.unfairness or paper.seconds is not None) for paper in papers)
    compared = has_paper and paper_is_comparable(view)
    timed = any(point.seconds is not None for curve in view.curves for point in curve.points)
    columns = ["method", "policy", UNFAIRNESS]
    columns += ["paper: unfairness (std)"] if has_paper else []
    columns += ["deviation, %", "in the paper's std"] if compared else []
    columns += [ABOVE, "95 % interval", *(f"cNDCG@{k}" for k in view.cutoffs), f"NDCG@{view.setting.k_s}"]
    columns += [SECONDS] if timed else []
    columns += ["paper: s per 1,000 lists"] if has_paper else []

    rows: list[tuple[str, ...]] = []
    titles: dict[tuple[int, int], str] = {}
    marked: dict[int, str] = {}
    remarks: list[str] = []
    floor = 0.0

    def add(cells: dict[str, str]) -> None:
        rows.append(tuple(cells.get(column, NOTHING) for column in columns))

    if view.limits is not None:
        floor = float(view.limits.floor.mean())
        bound = f"no policy is below; exact to {view.limits.gap:.0e}"
        marked[0] = "limit"
        add({"method": "floor", "policy": bound, UNFAIRNESS: spread(view.limits.floor), ABOVE: "0.00"})
    base = baseline(view)
    for curve in view.curves:
        for point in curve.points:
            cells = cells_of(view, point, floor) | paper_cells(view, curve, point)
            if text := remark(view, point, curve.series.note):
                if text not in remarks:
                    remarks.append(text)
                cells["method"] += f" [{letters(remarks.index(text))}]"
            for metric, column in (("unfairness", UNFAIRNESS), (ndcg, ndcg.upper())):
                if tested := tests[metric].get(point):
                    cells[column] += tested.mark
                    titles[len(rows), columns.index(column)] = told(tested, view.experiment.compare_with)
            if point is base:
                marked[len(rows)] = "base"
            add(cells)

    lead = [queries_sentence(view)] if view.limits else []
    lead += [not_comparable(view)] if has_paper and not compared else []
    notes = [over_seeds(view, " The interval is Student's, of the mean.")]
    if base is not None and tests["unfairness"]:
        notes.append(
            f"† p < 0.01, ‡ p < 0.05: differs from {base.label} ({base.text}) in the unfairness or the "
            f"NDCG@{view.setting.k_s} of queries, averaged over seeds (Fisher's randomisation test, two-sided, "
            f"corrected after Holm for {len(tests['unfairness'])} comparisons)."
        )
    notes += [f"[{letters(i)}] {text}" for i, text in enumerate(remarks)]
    made = [
        Table(name=name, caption=caption, columns=tuple(columns), rows=tuple(rows), lead=tuple(lead),
              notes=tuple(notes), texts=2, titles=titles, marked=marked)
    ]  # fmt: skip
    if base is not None and tests["unfairness"]:
        made.append(tests_table(view, tests, f"{name}-tests", f"Differences from {base.label} over queries"))
    return made


def cells_of(view: View, point: Point, floor: float) -> dict[str, str]:
    """Write what a policy reached, by column."""
    ndcg = f"NDCG@{view.setting.k_s}"
    unfairness = point.values("unfairness")
    return {
        "method": point.label,
        "policy": point.text,
        UNFAIRNESS: spread(unfairness),
        ABOVE: percent(point.mean("unfairness") / floor) if floor > 0 else NOTHING,
        "95 % interval": interval(*confidence(unfairness)),
        **{f"cNDCG@{k}": number(point.mean(f"cndcg@{k}")) for k in view.cutoffs},
        ndcg: f"{point.mean(ndcg.lower()):.4f}",
        SECONDS: number(point.seconds, 3),
    }


def paper_cells(view: View, curve: Curve, point: Point) -> dict[str, str]:
    """Write what the paper says of a policy and how far this is from it, by column."""
    paper, off = curve.series.paper, deviation(view, point)
    cells = {}
    if paper and paper.unfairness:
        cells["paper: unfairness (std)"] = f"{paper.unfairness[0]:g} ({paper.unfairness[1]:g})"
    if paper and paper.seconds is not None:
        cells["paper: s per 1,000 lists"] = f"{paper.seconds:g}"
    if off:
        cells |= {"deviation, %": signed(100 * (off[0] - 1)), "in the paper's std": signed(off[1])}
    return cells


def letters(i: int) -> str:
    """Name the notes a to z, then aa, ab and so on."""
    return (letters(i // 26 - 1) if i >= 26 else "") + chr(ord("a") + i % 26)


def over_seeds(view: View, more: str = "") -> str:
    """Say what the numbers are means of."""
    count = max(point.runs.height for curve in view.curves for point in curve.points)
    if count == 1:
        return "There is one seed, so nothing is known of the spread."
    return f"Mean and population standard deviation over {count} seeds.{more}"


def not_comparable(view: View) -> str:
    """Say why the paper's figures are not compared with."""
    if "mq2008/" in view.data.lower().replace("\\", "/"):
        reason = f"for longer runs than these of {view.setting.steps:,} steps"
    else:
        reason = f"for MQ2008, and these runs are on other data ({view.data})"
    return f"The paper's figures are {reason}, so deviations are not shown."


def told(tested: Tested, name: str) -> str:
    """Put a test into words."""
    return (
        f"differs from {name} by {signed(tested.mean, 4)}, p = {p_value(tested.p)}, "
        f"after Holm {p_value(tested.corrected)}"
    )


def p_value(p: float) -> str:
    """Write a p-value."""
    return "< 0.0001" if p < 0.0001 else f"{p:.4f}"


def tests_table(view: View, tests: dict[str, dict[Point, Tested]], name: str, caption: str) -> Table:
    """Make the table of differences from the baseline and how likely chance makes them."""
    columns = ["method", "policy"]
    for metric in tests:
        columns += [f"Δ {metric.replace('ndcg', 'NDCG')}", "95 % interval", "p", "p after Holm"]
    rows = []
    for curve in view.curves:
        for point in curve.points:
            if all(point in found for found in tests.values()):
                row = [curve.label, point.text]
                for found in tests.values():
                    one = found[point]
                    row += [
                        signed_number(one.mean),
                        interval(one.low, one.high, 3),
                        p_value(one.p),
                        p_value(one.corrected),
                    ]
                rows.append(tuple(row))
    note = (
        "Means over queries; the interval is a bootstrap's over queries. Holm's correction is for all rows of a column."
    )
    return Table(name=name, caption=caption, columns=tuple(columns), rows=tuple(rows), notes=(note,), texts=2)


def signed_number(value: float) -> str:
    """Write a number with its sign to four significant digits."""
    return ("+" if value >= 0 else "") + number(value, 4)


def cutoffs_table(view: View, name: str, caption: str) -> Table:
    """Make the table of cNDCG at every cutoff."""
    ranks = range(1, view.setting.k_s + 1)
    rows = tuple(
        (curve.label, point.text, *(spread(point.values(f"cndcg@{k}"), 5) for k in ranks))
        for curve in view.curves
        for point in curve.points
    )
    columns = ("method", "policy", *(f"cNDCG@{k} (std)" for k in ranks))
    notes = (over_seeds(view),)
    return Table(name=name, caption=caption, columns=columns, rows=rows, texts=2, notes=notes)


def points_table(view: View, name: str, caption: str) -> Table:
    """Make the table of all points of a trade-off."""
    floor = float(view.limits.floor.mean()) if view.limits else 0.0
    rows = tuple(
        (
            curve.label, point.text, spread(point.values("unfairness")),
            percent(point.mean("unfairness") / floor) if floor > 0 else NOTHING,
            *(spread(point.values(f"cndcg@{k}")) for k in view.experiment.k_c),
        )
        for curve in view.curves
        for point in curve.points
    )  # fmt: skip
    columns = ("method", "policy", "unfairness (std)", "above the floor, %",
               *(f"cNDCG@{k} (std)" for k in view.experiment.k_c))  # fmt: skip
    notes = [over_seeds(view)]
    if floor > 0:
        notes.append(f"The floor is {number(floor)}. {queries_sentence(view)}")
    return Table(name=name, caption=caption, columns=columns, rows=rows, texts=2, notes=tuple(notes))


def above_table(found: Sequence[tuple[View, int, Above]], name: str, caption: str) -> Table:
    """Make the table of the points that lie above the curve they are compared with."""
    rows = tuple(
        (
            view.setting.mode, each.point.label, each.point.text, number(each.point.mean("unfairness")), f"cNDCG@{k}",
            number(each.point.mean(f"cndcg@{k}")), number(each.by, 3), interval(each.low, each.high, 3),
        )
        for view, k, each in found
    )  # fmt: skip
    columns = ("setting", "method", "policy", "unfairness", "measure", "value", "above by", "95 % interval")
    return Table(name=name, caption=caption, columns=columns, rows=rows, texts=3)
