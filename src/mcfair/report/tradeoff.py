"""Trade-off figures: effectiveness against unfairness, with the limits that hold for every policy."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..arrays import FloatArray
from ..metrics.base import metric_label
from .figures import NARROW_WIDTH, matplotlib_defaults, setting_title, shorten
from .styles import Style, choose_styles
from .views import Curve, View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

__all__ = ["Panel", "closer_panels", "tradeoff_alt", "tradeoff_figure", "tradeoff_panels"]

FLOOR, FRONTIER = "#777777", "#C4C4C4"


@dataclasses.dataclass(frozen=True, eq=False)
class Panel:
    """One panel: curves of a metric against unfairness.

    Parameters
    ----------
    curves
        The curves, drawn in this order.
    metric
        Metric of the vertical axis.
    title
        Heading of the column of panels.
    floor
        Fairness floor; 0 for none.
    frontier
        Unfairness and metric of the Pareto frontier; None for none.
    front
        Label of the curve drawn on top of the others.
    x_max
        Largest unfairness shown.
    x_label
        What the horizontal axis shows.
    """

    curves: Sequence[Curve]
    metric: str = "cndcg@5"
    title: str = ""
    floor: float = 0.0
    frontier: tuple[FloatArray, FloatArray] | None = None
    front: str = ""
    x_max: float = math.inf
    x_label: str = "unfairness (lower is fairer)"


def tradeoff_panels(found: Sequence[View]) -> list[list[Panel]]:
    """Return the panels of some settings: a row for each cutoff, a column for each setting."""
    return [[tradeoff_panel(view, k) for view in found] for k in found[0].experiment.k_c]


def tradeoff_panel(view: View, k: int) -> Panel:
    """Return the panel of one setting and cutoff; the frontier is known for the whole list only."""
    limits = view.limits
    frontier = None
    if limits and limits.unfairness.size and k == view.setting.k:
        frontier = (limits.unfairness, limits.ndcg * view.best_cndcg)
    return Panel(view.curves, f"cndcg@{k}", setting_title(view), view.floor, frontier, view.experiment.compare_with)


def closer_panels(found: Sequence[View]) -> list[list[Panel]] | None:
    """Return the same panels cut to their fair end; None if too few points lie there for a figure of its own."""
    ends = [fair_end(view) for view in found]
    for view, end in zip(found, ends, strict=True):
        xs = [point.mean("unfairness") for point in view.points]
        near = [x for x in xs if x <= end]
        if len(xs) > len(near) > 2 and max(xs) > 2 * end:
            break
    else:
        return None
    grid = tradeoff_panels(found)
    return [[dataclasses.replace(p, x_max=end) for p, end in zip(row, ends, strict=True)] for row in grid]


def fair_end(view: View) -> float:
    """Return the unfairness at which the fair end ends: where the frontier peaks, and beyond the fairest policy."""
    reached = min(point.mean("unfairness") for point in view.points)
    highest = float(view.limits.unfairness[-1]) if view.limits and view.limits.unfairness.size else 0.0
    return max(1.15 * highest, 1.6 * reached)


def tradeoff_figure(panels: Sequence[Sequence[Panel]], *, narrow: bool = False) -> Figure:
    """Draw a grid of trade-off panels.

    Parameters
    ----------
    panels
        Rows of panels; those of a row share a metric.
    narrow
        Whether to stack all panels in one column, for narrow screens.

    Returns
    -------
    matplotlib.figure.Figure
        Its legend lies below the panels. `mcfair.report.figures.render` writes it to files.
    """
    from matplotlib.figure import Figure

    flat = [panel for row in panels for panel in row]
    shape = (len(flat), 1) if narrow else (len(panels), len(panels[0]))
    width, height = (NARROW_WIDTH, 3.4) if narrow else (7.2, 4.8) if shape[1] == 1 else (5.4, 3.9)
    with matplotlib_defaults():
        chosen = choose_styles([curve for panel in flat for curve in panel.curves])
        figure = Figure(figsize=(width * shape[1], height * shape[0]), layout="constrained")
        figure.get_layout_engine().set(h_pad=0.1 if narrow else 0.05)  # type: ignore[union-attr, call-arg]
        axes = figure.subplots(*shape, squeeze=False)
        for index, panel in enumerate(flat):
            i, j = divmod(index, shape[1])
            draw_panel(axes[i, j], panel, chosen)
            axes[i, j].set_title(panel.title if narrow or i == 0 else "")
            axes[i, j].set_xlabel(panel.x_label if i == shape[0] - 1 or narrow else "")
            axes[i, j].set_ylabel(f"{metric_label(panel.metric)} (higher is better)" if j == 0 else "")
        add_legend(figure, flat, chosen, narrow)
    return figure


def tradeoff_alt(panels: Sequence[Sequence[Panel]], title: str) -> str:
    """Describe the figure in words."""
    metrics = " and ".join(dict.fromkeys(metric_label(row[0].metric) for row in panels))
    settings = " and ".join(dict.fromkeys(panel.title.split(":")[0] for row in panels for panel in row))
    names = dict.fromkeys(curve.label for row in panels for panel in row for curve in panel.curves)
    part = ", the fair end" if panels[0][0].x_max < math.inf else ""
    return f"{title}{part}. {metrics} against unfairness, {settings}, of {', '.join(names)}; the table has the numbers."


def draw_panel(axes: Axes, panel: Panel, chosen: dict[str, Style]) -> None:
    """Draw the curves of one panel over its limits."""
    metrics = ("unfairness", panel.metric)
    seen = [(point.mean(metrics[0]), point.mean(metrics[1])) for curve in panel.curves for point in curve.points]
    widest = min(max(x for x, _ in seen), panel.x_max)
    if panel.floor > 0:
        axes.axvline(panel.floor, color=FLOOR, linewidth=1.2, linestyle=":", zorder=1)
    if panel.frontier:
        inside = panel.frontier[0] <= widest * 1.02
        x, y = (each[inside] for each in panel.frontier)
        axes.plot(x, y, color=FRONTIER, linewidth=5, solid_capstyle="round", zorder=1)
        seen += list(zip(x.tolist(), y.tolist(), strict=True))
    for rank, curve in enumerate(panel.curves):
        options = chosen[curve.label].options()
        x, y = (np.array([point.mean(m) for point in curve.points]) for m in metrics)
        dx, dy = (np.array([point.std(m) for point in curve.points]) for m in metrics)
        top = 3 + rank + (20 if curve.label == panel.front else 0)
        dx = np.minimum(dx, 0.9 * x)  # a bar must not reach 0 on a logarithmic axis
        axes.errorbar(x, y, dy, dx, fmt="none", ecolor=options["color"], elinewidth=0.8, alpha=0.55, zorder=top - 0.5)
        options["markersize"] = 8.5 if x.size == 1 else 5.5
        axes.plot(x, y, zorder=top, **options)
    shown = [(x, y) for x, y in seen if x <= panel.x_max]
    xs = [x for x, _ in shown] + ([panel.floor] if panel.floor > 0 else [])
    set_scale(axes, np.array(xs), np.array([y for _, y in shown]))


def set_scale(axes: Axes, xs: FloatArray, ys: FloatArray) -> None:
    """Leave room around the points; unfairness is on a logarithmic scale if it spans more than a factor of 10."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    low, high = float(ys.min()), float(ys.max())
    room = 0.06 * (high - low) or 1.0
    axes.set_ylim(low - room, high + room)
    low, high = float(xs.min()), float(xs.max())
    if low > 0 and high > 10 * low:
        ratio = (high / low) ** 0.05
        axes.set_xscale("log")
        axes.set_xlim(low / ratio, high * ratio)
        subs = (1.0, 2.0, 5.0) if high < 300 * low else (1.0, 3.0) if high < 3000 * low else (1.0,)
        axes.xaxis.set_major_locator(LogLocator(subs=subs, numticks=30))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        room = 0.05 * (high - low) or 1.0
        axes.set_xlim(low - room, high + room)
        axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.6g}"))


def legend_entries(panels: Sequence[Panel], chosen: dict[str, Style]) -> list[tuple[str, Line2D]]:
    """Return labels and samples of the legend: the curves, then the limits."""
    from matplotlib.lines import Line2D

    entries = []
    for label, style in chosen.items():
        longest = max(len(curve.points) for panel in panels for curve in panel.curves if curve.label == label)
        options = style.options() | ({"linestyle": "none"} if longest == 1 else {})
        entries.append((label, Line2D([], [], **options)))
    if any(panel.floor > 0 for panel in panels):
        line = Line2D([], [], color=FLOOR, linewidth=1.2, linestyle=":")
        entries.append(("floor (lowest possible)", line))
    if any(panel.frontier for panel in panels):
        entries.append(("limit if relevance is known", Line2D([], [], color=FRONTIER, linewidth=5)))
    return entries


def add_legend(figure: Figure, panels: Sequence[Panel], chosen: dict[str, Style], narrow: bool) -> None:
    """Add a legend below the panels, in as many columns as fit, and increase the height of the figure by its own."""
    entries = legend_entries(panels, chosen)
    for columns in range(6, 0, -1):
        legend = figure.legend(
            [handle for _, handle in entries],
            ["-"] * len(entries),
            loc="outside lower center",
            ncols=columns,
            handlelength=2.6,
            columnspacing=1.4,
        )
        for text, (label, _) in zip(legend.get_texts(), entries, strict=True):
            text.set_parse_math(False)  # only now: matplotlib drops labels that begin with _ from a legend
            text.set_text(shorten(label, 32 if narrow else 40))
        box = legend.get_window_extent()
        if box.width < 0.98 * figure.bbox.width or columns == 1:
            break
        legend.remove()
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + box.height / figure.dpi)
