"""The report of experiments: a section for each with its figures and tables, and what can be concluded from them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..analysis.significance import confidence
from ..errors import TraceError
from ..experiments.experiment import Experiment, differences
from ..experiments.results import FLOOR_ROW, LEVEL, POWER, Point, Results, View, paired_rows
from ..metrics.base import Metric, metric_label, parse_metric
from ..parts import Part, summary
from ..tables import (
    NOTHING,
    Table,
    format_excess,
    format_interval,
    format_number,
    format_p_value,
    format_signed,
    format_spread,
)
from .comparison import ComparedPoint, Outcome, compare_curves, count, median_detectable, within
from .figures import Panel, closer_panels, cutoff_panels, tradeoff_alt, tradeoff_figure, tradeoff_panels
from .page import Block, Document, create_folders, paragraph, render_template, write_document

ABOVE_FLOOR, SECONDS = "above the floor, %", "s per 1,000 lists"
PAPER_UNFAIRNESS, PAPER_SECONDS = "paper: unfairness (std)", "paper: s per 1,000 lists"
DEVIATION_PERCENT, DEVIATION_STD = "deviation, %", "deviation in the paper's std"
INTERVAL = f"unfairness, {100 * LEVEL:g} % interval"
SERIES = "series"
"""The column of the series of a policy, with the heading of that of its name."""

Test = dict[str, Any]
"""A row of the tests against the baseline."""


@dataclasses.dataclass
class Report(Document):
    """The page of some experiments under construction; `write_report` adds all of them.

    Parameters
    ----------
    results
        The runs.
    """

    results: Results

    def add_section(self, experiment: Experiment, blocks: Iterable[Block]) -> None:
        """Append a section with the title of an experiment, what it is about, and some blocks."""
        about = " ".join(experiment.about.split())
        title = experiment.title or experiment.name
        self.section(f"experiment {experiment.name}", title, *([about] if about else []), *blocks)

    def write(self, folder: str | Path, *, title: str = "") -> Path:
        """Append how the runs were made, and write the page, its figures and its tables; return the page.

        Parameters
        ----------
        folder
            Created if it does not exist; files of the same names are replaced.
        title
            Heading of the page; by default it follows from the experiments.

        Raises
        ------
        TraceError
            If the folder cannot be written.
        """
        paper = any(each.preset or any(series.paper for series in each.series) for each in self.results.experiments)
        if paper:
            self.section("differences", "Differences from the paper", template="differences")
        add_provenance(self)
        title = title or ("Fair ranking: the experiments of MCFair" if paper else "Fair ranking: experiments")
        values = {"title": title, "report": self, "differences": differences(), **introduction(self.results)}
        with writable(folder) as target:
            return write_document(self, render_template("page.html.j2", **values), target)


@contextmanager
def writable(folder: str | Path) -> Iterator[Path]:
    """Create the folders of a report; what cannot be written there is one error."""
    try:
        create_folders(Path(folder))
        yield Path(folder)
    except OSError as error:
        raise TraceError(f"cannot write the report to {folder}: {error.strerror or error}") from None


def write_report(results: Results, folder: str | Path, *, title: str = "") -> Path:
    """Write the report of experiments to a folder: index.html, figures/ and tables/; equal results yield equal bytes.

    Parameters
    ----------
    results
        Results of the experiments.
    folder
        Created if it does not exist; files of the same names are replaced.
    title
        Heading of the page; by default it follows from the experiments.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    TraceError
        If the folder cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> import mcfair as mf
    >>> toy = mf.Dataset(offsets=[0, 3], y=[2, 1, 0])
    >>> mine = mf.Experiment(
    ...     name="mine",
    ...     data=("toy",),
    ...     settings=({"steps": 20, "k": 2},),
    ...     k_c=(2,),
    ...     seeds=2,
    ...     series=(mf.Series(policies=("TopK", "MCFair")),),
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     results = mf.run_experiments([mine], folder, data={"toy": toy})
    ...     write_report(results, Path(folder) / "report").name
    'index.html'
    """
    with writable(folder):  # before the work
        report = Report(results)
        for experiment in results.experiments:
            report.add_section(experiment, experiment_blocks(report, experiment))
        return report.write(folder, title=title)


def experiment_blocks(report: Report, experiment: Experiment) -> Iterator[Block]:
    """Yield what is shown of an experiment, dataset by dataset."""
    show = {"table": show_table, "cutoffs": show_cutoffs, "tradeoff": show_tradeoff}[experiment.show]
    several = len(experiment.data) > 1
    for data in experiment.data:
        found = list(report.results.views(experiment, data))
        if not found:
            yield paragraph(f"There are no runs on {data}.")
            continue
        if several:
            yield Block(kind="heading", text=data)
        name = f"{experiment.name} {data}" if several else experiment.name
        yield from show(report, found, name, experiment.title or experiment.name)


def stem(name: str, view: View, found: Sequence[View], kind: str = "") -> str:
    """Return the stem of a table's file names, with the mode if there are several settings."""
    return " ".join(filter(None, (name, view.setting.mode if len(found) > 1 else "", kind)))


def describe_runs(found: Sequence[View]) -> str:
    """Describe data, settings and length of some runs."""
    settings = ", ".join(f"{view.setting.mode} with {view.sessions:,} sessions" for view in found)
    return f"{found[0].data}, {settings}"


# --- a table of policies ---------------------------------------------------------------------------------------------


def show_table(report: Report, found: Sequence[View], name: str, title: str) -> Iterator[Block]:
    """Show a table of policies for each setting, with details and tests."""
    for view in found:
        metrics = ("unfairness", f"ndcg@{view.k}")
        tests = {metric: against_baseline(view, metric) for metric in metrics}
        caption = f"{title} ({describe_runs([view])})"
        yield report.add_table(main_table(view, tests["unfairness"], stem(name, view, found), caption))
        more = details_table(view, stem(name, view, found, "details"), f"{title}: parameters and further figures")
        yield report.add_details("Parameters, intervals and further cutoffs", more)
        place = stem(name, view, found, "tests")
        tables = [significance_table(view, rows, metric, place) for metric, rows in tests.items() if rows]
        if tables:
            head = f"Tests against {view.find(None).name}: size, interval and p-value of every difference"
            yield report.add_details(head, *tables)
        report.findings.extend(table_findings(view, title))
        for curve in view.curves:
            if curve.series.note and (curve.label, curve.series.note) not in report.notes:
                report.notes.append((curve.label, curve.series.note))


def table_findings(view: View, title: str) -> Iterator[str]:
    """Return which policies have the lowest unfairness, and how many agree with the paper."""
    points, head = view.points, title.split(":")[0]
    if len(points) > 1:
        best = sorted((point.mean("unfairness"), i, point.name) for i, point in enumerate(points))
        (lowest, _, first), (next_lowest, _, second) = best[:2]
        above = f", {format_excess(lowest / view.floor)} % above the floor" if view.floor > 0 else ""
        yield (
            f"{head} ({view.data}, {view.setting.mode}): {first} has the lowest mean unfairness, "
            f"{format_number(lowest)}{above}; {second} is next with {format_number(next_lowest)}."
        )
    offs = [(point.name, off[1]) for point in points if (off := deviation(view, point)) is not None]
    if offs:
        far = [f"{label} ({format_signed(off)})" for label, off in offs if abs(off) > 1]
        rest = f"; not {', '.join(far)}, for the reasons in the notes of the table" if far else ""
        yield (
            f"{head}: {len(offs) - len(far)} of {len(offs)} methods are within one of the paper's standard "
            f"deviations of its unfairness{rest}."
        )


# --- cNDCG at every cutoff -------------------------------------------------------------------------------------------


def show_cutoffs(report: Report, found: Sequence[View], name: str, title: str) -> Iterator[Block]:
    """Show cNDCG at every cutoff, as a figure and as tables."""
    caption = f"{describe_runs(found)}. Lines are means over seeds; bands extend one standard deviation to either side."
    yield add_figure(report, cutoff_panels(found), name, title, caption)
    for view in found:
        table = cutoffs_table(view, stem(name, view, found, "values"), f"{title} ({view.data}, {view.setting.mode})")
        yield report.add_details(f"The numbers, {view.setting.mode}", table)


# --- effectiveness against unfairness --------------------------------------------------------------------------------


def show_tradeoff(report: Report, found: Sequence[View], name: str, title: str) -> Iterator[Block]:
    """Show effectiveness against unfairness, the comparison with the baseline's curve, and all points."""
    grid = tradeoff_panels(found)
    yield add_figure(report, grid, name, title, f"{describe_runs(found)}. {reading_guide(grid)}")
    if closer := closer_panels(found):
        text = "The fair end of the same panels, enlarged."
        yield add_figure(report, closer, f"{name} closer", title, text)
    yield from show_comparison(report, found, name, title)
    for view in found:
        table = points_table(view, stem(name, view, found, "points"), f"{title} ({view.data}, {view.setting.mode})")
        yield report.add_details(f"All {len(table.rows)} points, {view.setting.mode}", table)


def add_figure(report: Report, grid: list[list[Panel]], name: str, title: str, caption: str) -> Block:
    """Draw both versions of some panels and return the block of the figure."""
    return report.draw(name, tradeoff_alt(grid, title), caption, lambda narrow: tradeoff_figure(grid, narrow=narrow))


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
    panels = {f"{view.setting.mode}, cNDCG@{k}": compare_curves(view, k) for view in found for k in view.cutoffs}
    panels = {panel: points for panel, points in panels.items() if points}
    total = [each for points in panels.values() for each in points]
    if not total:
        return
    yield Block(kind="heading", text=f"{base} compared with the other methods")
    seeds = max(view.seeds for view in found)
    if seeds == 1:
        yield paragraph(
            f"{within(total)} points of other methods lie within the range of {base}'s curve. There is one seed, "
            "so nothing can be tested: the differences in the figure may be due to chance."
        )
        return
    yield paragraph(
        f"Each point of another method is compared with {base}'s curve at the same unfairness, seed by seed, "
        "within the range of unfairness that the curve covers. A difference in cNDCG is significant if its "
        f"{100 * LEVEL:g} % interval over the {seeds} seeds (Student's t) excludes 0. The curve is interpolated "
        "linearly between its points, which may underestimate it where they are far apart."
    )
    if not within(total):
        yield paragraph("No point of another method lies within that range: nothing was compared.")
        return
    rows: dict[tuple[str, ...], list[ComparedPoint]] = {(panel,): points for panel, points in panels.items()}
    caption = f"{base}'s curve against all other methods"
    table = comparison_table(rows, base, f"{name} comparison", caption, notes=(comparison_note(total, base),))
    yield report.add_table(table)
    by_method: dict[tuple[str, ...], list[ComparedPoint]] = {}
    for panel, points in panels.items():
        for each in points:
            by_method.setdefault((each.point.series.name, panel), []).append(each)
    if len({method for method, _ in by_method}) > 1:
        table = comparison_table(by_method, base, f"{name} comparison by method", f"{base}'s curve against each method")
        yield report.add_details("The same counts, method by method", table)
    lower = [(panel, each) for panel, points in panels.items() for each in points if each.outcome == "below"]
    if lower:
        table = lower_table(lower, f"{name} lower", f"Points at which {base}'s curve is significantly lower")
        yield report.add_details(f"{table.caption} ({len(lower)})", table)
    where = "1 panel" if len(panels) == 1 else f"{len(panels)} panels"
    text = f"{title.split(':')[0]} ({where}, {100 * LEVEL:g} % intervals over {seeds} seeds): "
    text += outcome_sentence(total, base)
    if lower:
        share = 100 * max(-each.difference for _, each in lower) / max(view.best_cndcg for view in found)
        text += f" Where {base} is lower, it is by at most {format_number(share, 2)} % of the largest possible cNDCG."
    report.findings.append(text)


def outcome_sentence(points: Sequence[ComparedPoint], base: str) -> str:
    """State how many points were compared, with which outcomes and which power."""
    parts = [f"{base} is significantly higher at {count(points, 'above')}"]
    parts.append(f"significantly lower at {count(points, 'below')}")
    if same := count(points, "identical"):
        parts.append(f"has the same value in every seed at {same}")
    text = f"of {within(points)} points compared, {', '.join(parts)}; not significant at {count(points, 'undecided')}."
    if math.isfinite(detectable := median_detectable(points)):
        text += (
            f" A true difference of {format_number(detectable, 3)} in cNDCG would be detected with a power of "
            f"{100 * POWER:g} % (median over points); smaller ones may have been missed."
        )
    return text


def comparison_note(points: Sequence[ComparedPoint], base: str) -> str:
    """Explain the columns of the comparison table."""
    tested = within(points) - count(points, "identical")
    return (
        f"Higher and lower: {base}'s cNDCG is significantly higher or lower at the unfairness of the point. Not "
        "significant does not mean equal. The detectable difference is the median over points of the true difference "
        f"in cNDCG that the test would find with a power of {100 * POWER:g} %, given the spread over seeds. Points "
        "beyond the ends of the curve are not compared. Intervals are not adjusted for the number of comparisons: of "
        f"{tested} comparisons without any true difference about {max(round((1 - LEVEL) * tested), 1)} would come out "
        "significant by chance."
    )


# --- how the runs were made ------------------------------------------------------------------------------------------


def add_provenance(report: Report) -> None:
    """Append the section on how the runs were made."""
    results = report.results
    tables = []
    if results.about:
        about = tuple((key, " ".join(str(value).split())) for key, value in results.about.items())
        tables = [
            Table(name="about", caption="Machine and versions", columns=("item", "value"), rows=about, text_columns=2)
        ]
    rows = tuple(
        (
            each.name,
            ", ".join(each.data),
            each.preset or "none",
            ", ".join(f"{setting.mode}: {setting.steps:,}" for setting in each.conditions),
            f"{each.seeds}",
            f"{sum(1 for _ in each.played()) * each.seeds * len(each.data):,}",
        )
        for each in results.experiments
    )
    runs = Table(
        name="runs",
        caption="Runs of each experiment",
        columns=("experiment", "data", "preset", "steps", "seeds", "runs"),
        rows=rows,
        text_columns=4,
        notes=(f"Experiments share runs: {results.runs.height:,} distinct runs were made.",),
    )
    report.section("how", "How the experiments were run", *tables, runs, settings_table(results))


def settings_table(results: Results) -> Table:
    """Build the table of the conditions of each experiment: users, estimates and what was measured."""
    rows = []
    for each in results.experiments:
        for setting in each.conditions:
            p = setting.examination
            examined = ", ".join(f"{one:g}" for one in p) if isinstance(p, tuple) else f"severity {p:g}"
            online = setting.mode == "online"
            estimators = [used.estimator_for(policy).label for _, used, policy in each.played() if used == setting]
            learnt = ", ".join(dict.fromkeys(estimators))
            parts = (setting.clicks.label, learnt) if online else (NOTHING, NOTHING)
            named = ", ".join(metric.label for metric in setting.metrics) or "none"
            rows.append((f"{each.name}, {setting.mode}", *parts, named, examined, f"{setting.k}"))
    columns = ("setting", "click model", "estimator", "further metrics", "examination", "ranks")
    note = (
        "The click model is how users click, the estimator how relevance is estimated from their clicks; where "
        "relevance is given, neither is used. Examination is what exposure assumes of users."
    )
    return Table(
        name="settings",
        caption="Settings of each experiment",
        columns=columns,
        rows=tuple(rows),
        text_columns=5,
        notes=(note,),
    )


def introduction(results: Results) -> dict[str, Any]:
    """Collect what the introduction says: the size of the runs, and the methods, settings and parts in use."""
    settings = [setting for each in results.experiments for setting in each.conditions]
    played = [(setting, policy) for each in results.experiments for _, setting, policy in each.played()]
    online = [(setting.clicks, setting.estimator_for(policy)) for setting, policy in played if setting.mode == "online"]
    others: list[Part] = [part for pair in online for part in pair]
    others += [part for each in settings for part in each.metrics]
    gammas = sorted({setting.gamma for setting in settings})
    methods = sorted({type(policy) for _, policy in played}, key=lambda each: each.__name__)
    return {
        "experiments": len(results.experiments),
        "data": list(dict.fromkeys(name for each in results.experiments for name in each.data)),
        "policies": len({text.split("(")[0] for text in results.runs["policy"].to_list()}),
        "runs": results.runs.height,
        "sessions": int(results.runs["sessions"].sum()) if results.runs.height else 0,
        "seeds": sorted({each.seeds for each in results.experiments}),
        "modes": {setting.mode for setting in settings},
        "gammas": [(f"{gamma:g}", None if gamma == 1 else f"{1 / (1 - gamma):,.6g}") for gamma in gammas],
        "methods": [(each.__name__, summary(each)) for each in methods],
        "others": list(dict.fromkeys((part.label, summary(type(part)), direction(part)) for part in others)),
    }


def direction(part: Part) -> str:
    """Return which values of a metric are better; nothing for other parts."""
    if not isinstance(part, Metric):
        return ""
    return "Higher is better." if part.higher_is_better else "Lower is better."


# --- words -----------------------------------------------------------------------------------------------------------


def with_spread(view: View, name: str) -> str:
    """Return the heading of a column of means, which have a spread if there are several seeds."""
    return f"{name} (std)" if view.seeds > 1 else name


def seeds_note(view: View) -> str:
    """Describe what the numbers of a table are means of."""
    if view.seeds == 1:
        return "There is one seed, so the spread over seeds is unknown."
    return f"Means over {view.seeds} seeds, with the population standard deviation (std) in parentheses."


def floor_note(view: View) -> str:
    """Describe for how many queries perfect fairness is impossible."""
    unreachable, queries = view.limits.select("unreachable", "queries").sort("unreachable").rows()[-1]
    if not unreachable:
        return "For every query some sequence of lists shares exposure in exact proportion to relevance."
    text = (
        f"For {unreachable:,} of {queries:,} queries no sequence of lists can share exposure in exact proportion to "
        "relevance; the floor is what remains."
    )
    gap = float(view.limits["gap"].to_numpy().max())
    return f"{text} It may lie up to {format_number(gap, 2)} lower." if gap > 1e-6 * view.floor else text


# --- the paper's figures ---------------------------------------------------------------------------------------------


def deviation(view: View, point: Point) -> tuple[float, float] | None:
    """Compare unfairness with the paper's: the ratio, and the difference in the paper's standard deviations."""
    paper = point.series.paper
    if paper is None or paper.unfairness is None or not view.experiment.as_published:
        return None
    mean, std = paper.unfairness
    ours = point.mean("unfairness")
    off = (ours - mean) / std if std > 0 else math.copysign(math.inf, ours - mean) if ours != mean else 0.0
    return ours / mean if mean else math.nan, off


def has_paper(view: View) -> bool:
    """Return whether the paper reports a figure for any series."""
    return any(curve.series.paper and curve.series.paper.unfairness for curve in view.curves)


def remark(view: View, point: Point) -> str:
    """Return the note of a row; a row far from the paper's figure always has one."""
    note, off = point.series.note, deviation(view, point)
    if off is None or abs(off[1]) <= 1:
        return note
    far = f"{abs(off[1]):.1f} of the paper's standard deviations {'above' if off[1] > 0 else 'below'} its mean."
    return f"{far} {note or 'No reason is recorded.'}"


# --- a row per policy ------------------------------------------------------------------------------------------------


def main_columns(view: View) -> list[str]:
    """Choose the columns that a reader needs first."""
    columns = ["method", with_spread(view, "unfairness")]
    columns += [PAPER_UNFAIRNESS] if has_paper(view) else []
    columns += [DEVIATION_STD] if has_paper(view) and view.experiment.as_published else []
    columns += [ABOVE_FLOOR] if view.floor > 0 else []
    columns += [metric_label(f"cndcg@{k}") for k in sorted({1, view.k})]
    columns += [SECONDS] if any(point.seconds is not None for point in view.points) else []
    return columns + [label for each in view.extra_metrics if (label := metric_label(each)) not in columns]


def policy_cells(view: View, point: Point) -> dict[str, str]:
    """Format what a policy reached and what the paper has of it, by column; columns without a cell show a dash."""
    paper, off = point.series.paper, deviation(view, point)
    cutoffs = [f"cndcg@{k}" for k in sorted({*range(1, view.k + 1), *view.cutoffs})]
    spreads = {metric_label(each): format_spread(point.values(each)) for each in ("unfairness", *cutoffs)}
    extra = {metric_label(each): format_spread(point.values(each)) for each in view.extra_metrics}
    ndcg = f"ndcg@{view.k}"
    cells = {with_spread(view, label): text for label, text in (spreads | extra).items()}
    cells |= {metric_label(ndcg): format_number(point.mean(ndcg))} | extra
    cells |= {metric_label(each): format_number(point.mean(each)) for each in cutoffs}
    cells |= {"method": point.name, SERIES: point.series.name, "policy": point.policy.label}
    cells[SECONDS] = format_number(point.seconds, 3)
    cells[INTERVAL] = format_interval(*confidence(point.values("unfairness"), LEVEL))
    if view.floor > 0:
        cells[ABOVE_FLOOR] = format_excess(point.mean("unfairness") / view.floor)
    if paper and paper.unfairness:
        cells[PAPER_UNFAIRNESS] = f"{paper.unfairness[0]:g} ({paper.unfairness[1]:g})"
    if paper and paper.seconds is not None:
        cells[PAPER_SECONDS] = f"{paper.seconds:g}"
    if off:
        cells |= {DEVIATION_PERCENT: format_signed(100 * (off[0] - 1)), DEVIATION_STD: format_signed(off[1])}
    return cells


def floor_cells(view: View) -> dict[str, str]:
    """Format the floors, by column."""
    cells = {"method": FLOOR_ROW, ABOVE_FLOOR: "0"}
    cells[with_spread(view, "unfairness")] = format_spread(view.limits["floor"].to_numpy())
    if not view.limits["group_floor"].has_nulls():
        floors = format_spread(view.limits["group_floor"].to_numpy())
        among_groups = [each for each in view.extra_metrics if parse_metric(each).floor_among == "groups"]
        cells |= dict.fromkeys(map(metric_label, among_groups), floors)
    return cells


def in_columns(columns: Sequence[str], cells: dict[str, str]) -> tuple[str, ...]:
    """Return cells in the order of the columns; a dash where there is none."""
    return tuple(cells.get(column, NOTHING) for column in columns)


def policy_table(view: View, columns: Sequence[str], **about: Any) -> Table:
    """Build a table with a row for each policy."""
    rows = tuple(in_columns(columns, policy_cells(view, point)) for point in view.points)
    heads = tuple("method" if column == SERIES else column for column in columns)
    return Table(columns=heads, rows=rows, **about)


def overview_table(view: View) -> Table:
    """Build the table that a terminal shows: the floor and every policy, without tests and the paper's figures."""
    seeds = "1 seed" if view.seeds == 1 else f"{view.seeds} seeds"
    where = f"{view.data}, {view.setting.mode}, {view.setting.steps:,} steps, {seeds}"
    caption = f"{view.experiment.title or view.experiment.name}: {where}"
    shown = (*(f"cndcg@{k}" for k in (1, 3, 5) if k <= view.k), *view.extra_metrics)
    columns = (
        "method",
        with_spread(view, "unfairness"),
        ABOVE_FLOOR,
        *dict.fromkeys(map(metric_label, shown)),
        SECONDS,
    )
    table = policy_table(view, columns, caption=caption, row_classes={0: "limit"})
    return dataclasses.replace(table, rows=(in_columns(columns, floor_cells(view)), *table.rows))


def main_table(view: View, tests: dict[str, Test], name: str, caption: str) -> Table:
    """Build the table of policies: unfairness with significance marks, the paper's, effectiveness and time."""
    base, columns, column = view.baseline, main_columns(view), with_spread(view, "unfairness")
    rows: list[tuple[str, ...]] = []
    tooltips, classes, remarks = {}, {}, list[str]()
    if not view.limits.is_empty():
        classes[0] = "limit"
        rows.append(in_columns(columns, floor_cells(view)))
    for point in view.points:
        cells = policy_cells(view, point)
        if text := remark(view, point):
            remarks += [] if text in remarks else [text]
            cells["method"] += f" [{remarks.index(text) + 1}]"
        if tested := tests.get(point.name):
            cells[column] += "†" if tested["p_adjusted"] < 0.01 else "‡" if tested["p_adjusted"] < 1 - LEVEL else ""
            tooltips[len(rows), columns.index(column)] = describe_test(tested)
        if point is base:
            classes[len(rows)] = "base"
        rows.append(in_columns(columns, cells))
    lead = [] if view.limits.is_empty() else [floor_note(view)]
    if has_paper(view) and not view.experiment.as_published:
        lead.append("The paper's figures are for another data set or longer runs; deviations are not shown.")
    notes = [seeds_note(view)]
    if base is not None and tests:
        notes.append(
            f"† p < 0.01, ‡ p < 0.05: the unfairness of queries differs from that of {base.name} "
            f"({base.policy.label}); Fisher's randomisation test over queries, two-sided, adjusted by Holm's method "
            f"for {len(tests)} tests. No mark means that the test did not find a difference, not that there is none: "
            "the tests below state how large a difference could have been detected."
        )
    notes += [f"[{i}] {text}" for i, text in enumerate(remarks, start=1)]
    return Table(
        name=name,
        caption=caption,
        columns=tuple(columns),
        rows=tuple(rows),
        lead=tuple(lead),
        notes=tuple(notes),
        tooltips=tooltips,
        row_classes=classes,
    )


def details_table(view: View, name: str, caption: str) -> Table:
    """Build the table of what the main table leaves out: parameters, intervals, other cutoffs, other deviations."""
    columns = ["method", "policy"]
    columns += [INTERVAL] if view.seeds > 1 else []
    columns += [DEVIATION_PERCENT] if has_paper(view) and view.experiment.as_published else []
    cutoffs = sorted({k for k in (1, 3, 5) if k <= view.k} | {view.k})
    columns += [metric_label(each) for each in (*(f"cndcg@{k}" for k in cutoffs), f"ndcg@{view.k}")]
    if any(curve.series.paper and curve.series.paper.seconds is not None for curve in view.curves):
        columns.append(PAPER_SECONDS)
    note = seeds_note(view) + (" The interval is Student's, of the mean over seeds." if view.seeds > 1 else "")
    return policy_table(view, columns, name=name, caption=caption, text_columns=2, notes=(note,))


# --- tests over queries ----------------------------------------------------------------------------------------------


def against_baseline(view: View, metric: str) -> dict[str, Test]:
    """Test every other policy against the baseline on a metric of each query, by name of the policy."""
    base = view.baseline
    return {} if base is None else {test["label"]: test for test in paired_rows([view], [metric], base.name)}


def is_decided(test: Test) -> bool:
    """Return whether a test finds a difference, or there is none to find: the values agree on every query."""
    return test["verdict"] in ("higher", "lower") or not test["detectable"] > 0


def describe_test(test: Test) -> str:
    """Describe a test in words."""
    text = (
        f"difference from {test['against']}: {format_signed(test['difference'], 4)}, 95 % interval "
        f"{format_interval(test['low'], test['high'], 3)}, p = {format_p_value(test['p_adjusted'])} after Holm"
    )
    if is_decided(test):
        return text
    return f"{text}; not significant, differences below {format_number(test['detectable'], 3)} may go undetected"


def significance_table(view: View, tests: dict[str, Test], metric: str, name: str) -> Table:
    """Build the table of differences from the baseline over queries in a metric."""
    base = view.find(None)
    rows = tuple(
        (
            label,
            format_signed(test["difference"], 4),
            format_interval(test["low"], test["high"], 3),
            format_p_value(test["p"]),
            format_p_value(test["p_adjusted"]),
            NOTHING if is_decided(test) else format_number(test["detectable"], 3),
        )
        for label, test in tests.items()
    )
    delta, interval = f"Δ {metric_label(metric)}", f"{100 * LEVEL:g} % interval"
    note = (
        f"Δ is the mean difference from {base.name} ({base.policy.label}) over queries, with a bootstrap interval that "
        "is not adjusted for the number of rows. The detectable difference is given where a test is not significant: "
        f"a paired t-test over the same queries would find a true difference of this size with a power of "
        f"{100 * POWER:g} % at level {1 - LEVEL:.2g}/{len(tests)}; smaller ones may well exist. A dash stands for "
        "a significant difference, or for values that agree on every query."
    )
    return Table(
        name=f"{name}-{metric.split('@')[0]}",
        caption=f"Differences from {base.name} over queries: {metric_label(metric)}",
        columns=("method", delta, interval, "p", "p after Holm", "detectable difference"),
        rows=rows,
        notes=(note,),
    )


# --- figures as numbers ----------------------------------------------------------------------------------------------


def cutoffs_table(view: View, name: str, caption: str) -> Table:
    """Build the table of cNDCG at every cutoff."""
    columns = ["method", *(with_spread(view, f"cNDCG@{k}") for k in range(1, view.k + 1))]
    return policy_table(view, columns, name=name, caption=caption, notes=(seeds_note(view),))


def points_table(view: View, name: str, caption: str) -> Table:
    """Build the table of all points of a trade-off."""
    labels = map(metric_label, ("unfairness", *(f"cndcg@{k}" for k in view.cutoffs), *view.extra_metrics))
    columns = [SERIES, "policy", *dict.fromkeys(with_spread(view, label) for label in labels)]
    notes = [seeds_note(view)]
    if view.floor > 0:
        columns.insert(3, ABOVE_FLOOR)
        notes.append(f"The floor (lowest possible unfairness) is {format_number(view.floor)}. {floor_note(view)}")
    return policy_table(view, columns, name=name, caption=caption, text_columns=2, notes=tuple(notes))


# --- curves against the baseline's -----------------------------------------------------------------------------------


def comparison_table(
    found: dict[tuple[str, ...], list[ComparedPoint]], base: str, name: str, caption: str, notes: tuple[str, ...] = ()
) -> Table:
    """Build the table of how many points lie significantly below or above the baseline's curve, by method and panel."""
    outcomes: dict[str, Outcome] = {f"{base} higher": "above", f"{base} lower": "below", "not significant": "undecided"}
    if any(count(points, "identical") for points in found.values()):
        outcomes["same in every seed"] = "identical"
    ends: dict[str, Outcome] = {"fairer than the curve": "fairer", "less fair than the curve": "less fair"}
    rows = tuple(
        (
            *names,
            f"{within(points)}",
            *(f"{count(points, outcome)}" for outcome in outcomes.values()),
            format_number(median_detectable(points), 3),
            *(f"{count(points, outcome)}" for outcome in ends.values()),
        )
        for names, points in found.items()
    )
    text_columns = len(next(iter(found)))
    columns = ("method", "panel")[-text_columns:]
    return Table(
        name=name,
        caption=caption,
        columns=(*columns, "points compared", *outcomes, "detectable difference", *ends),
        rows=rows,
        text_columns=text_columns,
        notes=notes,
    )


def lower_table(found: Sequence[tuple[str, ComparedPoint]], name: str, caption: str) -> Table:
    """Build the table of the points at which the baseline's curve is significantly lower."""
    rows = tuple(
        (
            each.point.policy.label,
            panel,
            format_number(each.point.mean("unfairness")),
            format_number(each.point.mean(f"cndcg@{each.k}")),
            format_number(-each.difference, 3),
            format_interval(-each.high, -each.low, 3),
        )
        for panel, each in found
    )
    columns = ("policy", "panel", "unfairness", "cNDCG", "curve lower by", f"{100 * LEVEL:g} % interval")
    return Table(name=name, caption=caption, columns=columns, rows=rows, text_columns=2)
