"""The study of wrong assumptions: users against what exposure assumes of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

import mcfair as mf
from mcfair.report import MARKERS, NARROW_WIDTH, PALETTE, Block, Report, Style, shorten
from mcfair.tables import Table, format_number, format_signed, format_spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TRUE, EFFECT = "true_unfairness", "log_ndcg@5"
"""The metrics of the study."""


@dataclasses.dataclass(frozen=True, eq=False)
class Row:
    """One policy with one kind of users: values by seed under each assumed severity, and under the fitted examination.

    Attributes
    ----------
    users
        Label of the click model.
    assumed
        By severity, true unfairness and NDCG of each seed.
    fitted
        The same under the fitted examination.
    examination
        The fitted examination.
    """

    users: str
    assumed: dict[float, tuple[np.ndarray, np.ndarray]]
    fitted: tuple[np.ndarray, np.ndarray]
    examination: tuple[float, ...]

    def ratio(self, severity: float) -> float:
        """Return true unfairness under an assumed severity, relative to that under the fitted examination."""
        return float(self.assumed[severity][0].mean() / self.fitted[0].mean())


def rows_of(report: Report, experiment: mf.Experiment, series: mf.Series) -> list[Row]:
    """Collect the runs of one policy: settings with the same users that differ in what exposure assumes."""

    def values(setting: mf.Setting) -> tuple[np.ndarray, np.ndarray]:
        (policy,) = series.points
        runs = report.results.of(experiment.data[0], series.condition(setting), policy)[: experiment.seeds]
        return runs[TRUE].to_numpy(), runs[EFFECT].to_numpy()

    by_users: dict[str, list[mf.Setting]] = {}
    for setting in experiment.conditions:
        by_users.setdefault(setting.clicks.label, []).append(setting)
    found = []
    for users, settings in by_users.items():
        assumed = {each.examination: values(each) for each in settings if isinstance(each.examination, float)}
        fitted = [each for each in settings if isinstance(each.examination, tuple)]
        for each in fitted:
            assert isinstance(each.examination, tuple)
            found.append(Row(users, assumed, values(each), each.examination))
    return found


def show_assumptions(report: Report, experiment: mf.Experiment, title: str) -> Iterator[Block]:
    """Show what wrong assumptions cost each policy, as a figure and as tables, and what a fit wins back."""
    studied = {series.name: rows_of(report, experiment, series) for series in experiment.series}
    severities = [f"{each:g}" for each in next(iter(studied.values()))[0].assumed]
    alt = (
        f"{title}. True unfairness of {', '.join(studied)} under assumed severities {', '.join(severities)}, relative "
        "to the fitted examination, for each kind of users; the tables have the numbers."
    )
    caption = (
        f"{experiment.data[0]}, online, {experiment.conditions[0].steps:,} steps, means over {experiment.seeds} seeds. "
        "To the right of the line an assumption is worse than the fitted examination, to the left it is better."
    )
    yield report.draw(experiment.name, alt, caption, lambda narrow: ratio_figure(studied, narrow=narrow))
    for name, rows in studied.items():
        yield report.add_table(cost_table(name, rows, f"{experiment.name} {name}"))
    yield Block(kind="details", text="The fitted examination", blocks=(report.add_table(fit_table(studied)),))
    conclusions = [conclusion(name, rows) for name, rows in studied.items()]
    yield Block(kind="heading", text="What follows")
    yield Block(kind="list", items=tuple(conclusions))
    report.findings.append(f"{title}: {conclusions[0]}")


def cost_table(name: str, rows: Sequence[Row], stem: str) -> Table:
    """Build the table of one policy: the figures under the fitted examination, and the change under each assumption."""
    severities = list(rows[0].assumed)
    columns = ["users", "fitted: true unfairness (std)"]
    columns += [f"severity {each:g}: change, %" for each in severities]
    columns += ["fitted: NDCG@5", *(f"severity {each:g}: ΔNDCG@5" for each in severities)]
    cells = []
    for row in rows:
        unfair, effect = row.fitted
        changes = [format_signed(100 * (row.ratio(each) - 1), 2) for each in severities]
        shifts = [format_signed(float(row.assumed[each][1].mean() - effect.mean()), 2) for each in severities]
        cells.append((row.users, format_spread(unfair), *changes, format_number(float(effect.mean()), 3), *shifts))
    return Table(
        name=stem, caption=f"{name}: the cost of assuming a severity", columns=tuple(columns), rows=tuple(cells)
    )


def fit_table(studied: dict[str, list[Row]]) -> Table:
    """Build the table of the fitted examination for each kind of users."""
    rows = next(iter(studied.values()))
    ranks = len(rows[0].examination)
    cells = tuple((row.users, *(format_number(p, 3) for p in row.examination)) for row in rows)
    columns = ("users", *(f"rank {j + 1}" for j in range(ranks)))
    note = (
        "Click rates of each rank relative to rank 1, in lists of random order. They are the examination if it depends "
        "on the rank alone. For users who read from the top they are an average over random lists, which better lists "
        "do not have, and with trust bias they include the trust."
    )
    return Table(name="fitted", caption="Fitted examination", columns=columns, rows=cells, notes=(note,))


def conclusion(name: str, rows: Sequence[Row]) -> str:
    """Return in a sentence or two what the assumptions cost a policy, and where the fit helps and where it does not."""
    pairs = [(row.ratio(severity), row.users, severity) for row in rows for severity in row.assumed]
    worst, users, severity = max(pairs)
    text = (
        f"{name} has up to {format_number(worst, 2)} times the true unfairness of the fitted examination, with users "
        f"{users} and an assumed severity of {severity:g}."
    )
    beaten = [(min((row.ratio(s), s) for s in row.assumed), row.users) for row in rows]
    lost = [f"{users} (severity {s:g}: {format_number(ratio, 2)} times)" for (ratio, s), users in beaten if ratio < 0.9]
    if not lost:
        return f"{text} No assumed severity is more than 10 % better than the fit for any users."
    rest = f"a fixed severity is better for {', '.join(lost)}."
    return f"{text} The fit is no remedy where its own assumption is wrong: {rest}"


# --- the figure ------------------------------------------------------------------------------------------------------


def ratio_figure(studied: dict[str, list[Row]], *, narrow: bool = False) -> Figure:
    """Draw true unfairness relative to the fitted examination, a panel per policy and a line per kind of users.

    Parameters
    ----------
    studied
        The rows of each policy.
    narrow
        Whether to stack the panels, for narrow screens.
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    first = next(iter(studied.values()))
    styles = {s: Style(PALETTE[i], MARKERS[i]) for i, s in enumerate(first[0].assumed)}
    across = 1 if narrow else min(len(studied), 3)
    down = -(-len(studied) // across)
    height = ((0.42 if narrow else 0.34) * len(first) + 0.9) * down + (1.2 if narrow else 0.8)
    figure = Figure(figsize=(NARROW_WIDTH if narrow else 2.0 + 3.0 * across, height), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True).ravel()
    for panel, (name, rows) in zip(axes, studied.items(), strict=False):
        draw_ratios(panel, rows, styles)
        panel.set_title(name)
        panel.tick_params(labelbottom=True)  # also above a place that stays empty
    broken = "\n(" if narrow else "("
    axes[0].set_yticks(range(len(first)), [shorten(row.users, 40).replace("(", broken) for row in first])
    axes[0].invert_yaxis()
    for panel in axes[len(studied) :]:
        panel.set_visible(False)
    figure.supxlabel("true unfairness, relative to the fitted examination", fontsize="medium")
    handles = [Line2D([], [], **(style.options() | {"linestyle": "none"})) for style in styles.values()]
    labels = [f"assumed severity {severity:g}" for severity in styles]
    figure.legend(handles, labels, loc="outside upper center", ncols=1 if narrow else len(labels))
    return figure


def draw_ratios(axes: Axes, rows: Sequence[Row], styles: dict[float, Style]) -> None:
    """Draw the markers of one policy."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.axvline(1.0, color="#777777", linewidth=1.2, linestyle=":", zorder=1)
    for severity, style in styles.items():
        ratios = np.array([row.ratio(severity) for row in rows])
        axes.plot(ratios, range(len(rows)), **(style.options() | {"linestyle": "none"}))
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0), numticks=12))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.6g}"))
    axes.margins(x=0.08, y=0.1)
