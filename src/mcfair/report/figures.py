"""Figures: styles of series, and panels of cNDCG at every cutoff or of trade-offs with their limits."""

from __future__ import annotations

import dataclasses
import io
import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import FloatArray
from ..errors import needs_extra
from ..experiments.experiment import Series
from ..experiments.results import FLOOR_ROW, Curve, View
from ..metrics.base import metric_label
from ..policies.base import Policy
from ..tables import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D


BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE, GREY = "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#999999"
PALETTE = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BLACK, "#882255", "#44AA99", "#999933", "#332288", YELLOW)
"""Colours of series without one of their own, in this order: those of Okabe and Ito, the best contrast on white first,
then some of Tol's; distinguishable with any colour vision, and no grey, which is the limit's."""

MARKERS = ("o", "v", "P", "X", "h", "D", "p", "s", "^", "<", ">", "d", "*")

LINES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.2, 1.2, 1.2)), (0, (8, 2)), (0, (3, 1, 1, 1, 1, 1)))

DARK_BACKGROUND, DARK_INK, VIOLET = "#14181d", "#f2f4f7", "#a48cff"
DARK_CONTRAST = 4.5
"""Smallest contrast ratio of a colour against the dark background, as WCAG defines it."""

FAINT = 2.5
"""Greys with a smaller contrast against white stay faint in dark mode."""

FLOOR, FRONTIER = "#777777", "#C4C4C4"

INK = "#222222"

NARROW_WIDTH = 4.1
"""Width of the narrow version of a figure in inches: at 400 pixels its text is about 12 pixels high."""

RC: Any = {
    "font.size": 10.0,
    "axes.titlesize": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "axes.edgecolor": "#666666",
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "svg.hashsalt": "mcfair",
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
}

METADATA: dict[str, Any] = {
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
"""No dates and versions, so that equal figures are equal bytes."""


# --- styles of series ------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Style:
    """Appearance of a series; the markers of variants are hollow."""

    color: str
    marker: str
    line: Any = "-"
    hollow: bool = False

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of matplotlib's `plot`."""
        edge = self.color if self.hollow else "#5F5A12" if self.color == YELLOW else "white"
        return {
            "color": self.color,
            "marker": self.marker,
            "linestyle": self.line,
            "linewidth": 1.6,
            "markersize": 6.5,
            "markerfacecolor": "white" if self.hollow else self.color,
            "markeredgecolor": edge,
            "markeredgewidth": 1.3 if self.hollow else 0.6,
        }


def choose_styles(curves: Sequence[Curve]) -> dict[str, Style]:
    """Choose the style of each label: the policy's own, a shade of it for variants, else what is used least."""
    groups: dict[type[Policy], dict[str, Curve]] = {}
    for curve in curves:
        groups.setdefault(curve.policy_class, {}).setdefault(curve.label, curve)
    fixed = [policy.style for policy in groups if policy.style]
    colors, markers = [color for color, _ in fixed], [marker for _, marker in fixed]
    chosen: dict[str, Style] = {}
    for policy, group in groups.items():
        name = policy.__name__
        color, marker = policy.style or (least_used(PALETTE, colors), least_used(MARKERS, markers))
        if not policy.style:
            colors.append(color)
            markers.append(marker)
        plain = plain_curve(list(group.values()), name)
        variants = [label for label, curve in group.items() if curve is not plain and label.startswith(name)]
        for label, curve in group.items():
            if curve is plain:
                style = Style(color, marker)
            elif label in variants:
                i = variants.index(label)
                shape = least_used(MARKERS, markers) if len(variants) > 2 else marker
                style = Style(shade(color, i, len(variants)), shape, LINES[i % 5 + 1], True)
            else:
                style = Style(least_used(PALETTE, colors), least_used(MARKERS, markers), LINES[1], True)
                colors.append(style.color)
            markers.append(style.marker)
            chosen.setdefault(label, style)
    return {curve.label: chosen[curve.label] for curve in curves}


def plain_curve(group: Sequence[Curve], name: str) -> Curve:
    """Return the curve of a policy that gets its own style: the one named after it, else the least specialised."""
    return min(group, key=lambda curve: (curve.label != name, changed_parameters(curve)))


def changed_parameters(curve: Curve) -> int:
    """Count the parameters that differ from their default in all policies of a series; "auto" counts as its value."""

    def changed(policy: Policy) -> set[str]:
        automatic = {name: curve.mode and table[curve.mode] for name, table in policy.auto.items()}
        return {name for name in policy.changed_parameters if getattr(policy, name) != automatic.get(name)}

    return len(set.intersection(*(changed(point.policy) for point in curve.points)))


def least_used(values: Sequence[str], taken: Sequence[str]) -> str:
    """Return the first of the least used values."""
    return min(values, key=taken.count)


def shade(color: str, i: int, count: int) -> str:
    """Return the i-th of several tones of a colour, from lighter to darker."""
    t = (i + 1) / (count + 1) if count > 1 else 0.75
    mixed = mix(color, "#FFFFFF", 0.55 - 1.1 * t) if t < 0.5 else mix(color, "#000000", 1.1 * (t - 0.5))
    return mixed.upper()


# --- dark mode -------------------------------------------------------------------------------------------------------


def darken_svg(svg: bytes) -> bytes:
    """Replace every colour of a figure drawn on white by its counterpart on the dark background."""
    recolored = re.sub(rb"#[0-9a-fA-F]{6}\b", lambda found: dark_color(found[0].decode().lower()).encode(), svg)
    fill = f'<svg fill="{dark_color(BLACK)}" '.encode()  # matplotlib does not write black, the default of SVG
    return recolored.replace(b"<svg ", fill, 1)


@cache
def dark_color(color: str) -> str:
    """Return the counterpart of a colour: greys are inverted, and all but faint ones have enough contrast."""
    r, g, b = channels(color)
    grey = max(r, g, b) - min(r, g, b) < 0.06
    shown = mix(DARK_INK, DARK_BACKGROUND, (r + g + b) / 3) if grey else color
    if grey and contrast(color, "#ffffff") < FAINT:
        return shown  # the background, grid lines, and areas that are meant to recede
    # A lighter blue would look like sky blue, which has the same hue, so blues shift towards violet.
    light = VIOLET if not grey and b == max(r, g, b) else "#ffffff"
    amount = 0.0
    while contrast(mix(shown, light, amount), DARK_BACKGROUND) < DARK_CONTRAST:
        amount += 0.05
    return mix(shown, light, amount)


def channels(color: str) -> tuple[float, float, float]:
    """Split a colour into red, green and blue, from 0 to 1."""
    r, g, b = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return r, g, b


def mix(color: str, other: str, share: float) -> str:
    """Mix two colours; `share` is the part of the second."""
    pairs = zip(channels(color), channels(other), strict=True)
    return "#" + "".join(f"{round(255 * ((1 - share) * a + share * b)):02x}" for a, b in pairs)


def contrast(a: str, b: str) -> float:
    """Compute the contrast ratio of two colours, as WCAG defines it.

    Examples
    --------
    >>> round(contrast("#000000", "#ffffff"), 6)
    21.0
    """
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(color: str) -> float:
    """Compute the relative luminance of a colour, as WCAG defines it."""
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels(color))
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


# --- files -----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Picture:
    """A figure in the formats of the report, with a description as alternative text.

    The page shows one of four SVG versions, wide or narrow and light or dark; PNG and PDF are wide and light.
    """

    name: str
    alt: str
    svg: bytes
    narrow_svg: bytes
    png: bytes
    pdf: bytes

    @property
    def dark_svg(self) -> bytes:
        """The wide version for dark mode."""
        return darken_svg(self.svg)

    @property
    def dark_narrow_svg(self) -> bytes:
        """The narrow version for dark mode."""
        return darken_svg(self.narrow_svg)


def draw(figure: Callable[[bool], Figure], name: str, alt: str) -> Picture:
    """Draw a figure and render it to the formats of the report; equal figures yield equal bytes.

    Parameters
    ----------
    figure
        Draws one version; its argument is whether that is the narrow one.
    name, alt
        Stem of its file names, and what it shows.
    """
    with matplotlib_defaults():
        wide, narrow = figure(False), figure(True)
        svg, narrow_svg = encode(wide, "svg"), encode(narrow, "svg")
        wide.set_layout_engine("none")  # keeps the positions found for the first format: layout takes half of the time
        return Picture(name, alt, svg, narrow_svg, png=encode(wide, "png"), pdf=encode(wide, "pdf"))


def encode(figure: Figure, form: str) -> bytes:
    """Render a figure to one format."""
    target = io.BytesIO()
    figure.savefig(target, format=form, dpi=200, metadata=METADATA[form])
    return target.getvalue()


@contextmanager
def matplotlib_defaults() -> Iterator[None]:
    """Draw with the same parameters whatever the user's matplotlib configuration is."""
    mpl = needs_extra("matplotlib", "report")
    with mpl.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a label may be in any script
        mpl.rcdefaults()
        mpl.rcParams.update(RC)
        yield


def shorten(label: str, most: int = 40) -> str:
    """Cut a label that would not fit into a figure, and write out its control characters."""
    label = printable(label)
    return label if len(label) <= most else label[: most - 1] + "…"


def setting_title(view: View) -> str:
    """Return the title of a setting's panel."""
    known = "relevance is given" if view.setting.mode == "post-processing" else "relevance is learnt from clicks"
    return f"{view.setting.mode}: {known}"


# --- panels ----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Panel:
    """One panel: curves of a metric against unfairness, or cNDCG of policies at every cutoff.

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
    cutoffs
        The last cutoff, if it is cNDCG at every cutoff that is shown; 0 for a metric against unfairness.
    """

    curves: Sequence[Curve]
    metric: str = "cndcg@5"
    title: str = ""
    floor: float = 0.0
    frontier: tuple[FloatArray, FloatArray] | None = None
    front: str = ""
    x_max: float = math.inf
    x_label: str = "unfairness (lower is fairer)"
    cutoffs: int = 0

    @property
    def y_label(self) -> str:
        """The label of the vertical axis."""
        return "cNDCG" if self.cutoffs else metric_label(self.metric)


def cutoff_panels(found: Sequence[View]) -> list[list[Panel]]:
    """Return the panels of cNDCG at every cutoff, one for each setting, in which every policy is a curve of its own."""
    row = []
    for view in found:
        curves = [
            Curve(Series(policies=(point.policy,), label=point.name), [point], view.setting.mode)
            for point in view.points
        ]
        row.append(Panel(curves, title=setting_title(view), x_label="cutoff k of cNDCG@k", cutoffs=view.k))
    return [row]


def tradeoff_panels(found: Sequence[View]) -> list[list[Panel]]:
    """Return the panels of some settings: a row for each cutoff, a column for each setting."""
    return [[tradeoff_panel(view, f"cndcg@{k}") for view in found] for k in found[0].cutoffs]


def tradeoff_panel(view: View, metric: str) -> Panel:
    """Return the panel of one setting and metric; the frontier is known for the cNDCG of the whole list only."""
    frontier = None
    if view.frontier and metric == f"cndcg@{view.k}":
        unfairness, ndcg = view.frontier
        frontier = (unfairness, ndcg * view.best_cndcg)
    return Panel(view.curves, metric, setting_title(view), view.floor, frontier, view.experiment.compare_with)


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
    highest = float(view.frontier[0][-1]) if view.frontier else 0.0
    return max(1.15 * highest, 1.6 * reached)


def tradeoff_figure(panels: Sequence[Sequence[Panel]], *, narrow: bool = False) -> Figure:
    """Draw a grid of panels.

    Parameters
    ----------
    panels
        Rows of panels; those of a row share a metric.
    narrow
        Whether to stack all panels in one column, for narrow screens.

    Returns
    -------
    matplotlib.figure.Figure
        Its legend lies below the panels. `mcfair.report.figures.draw` renders such figures for pages.
    """
    flat = [panel for row in panels for panel in row]
    shape = (len(flat), 1) if narrow else (len(panels), len(panels[0]))
    width, height = (NARROW_WIDTH, 3.4) if narrow else (7.2, 4.8) if shape[1] == 1 else (5.4, 3.9)
    with matplotlib_defaults():
        from matplotlib.figure import Figure

        chosen = choose_styles([curve for panel in flat for curve in panel.curves])
        figure = Figure(figsize=(width * shape[1], height * shape[0]), layout="constrained")
        figure.get_layout_engine().set(h_pad=0.1 if narrow else 0.05)  # type: ignore[union-attr, call-arg]
        axes = figure.subplots(*shape, squeeze=False)
        for index, panel in enumerate(flat):
            i, j = divmod(index, shape[1])
            (draw_cutoffs if panel.cutoffs else draw_panel)(axes[i, j], panel, chosen)
            axes[i, j].set_title(panel.title if narrow or i == 0 else "")
            axes[i, j].set_xlabel(panel.x_label if i == shape[0] - 1 or narrow else "")
            axes[i, j].set_ylabel(f"{panel.y_label} (higher is better)" if j == 0 else "")
        add_legend(figure, flat, chosen, narrow)
    return figure


def tradeoff_alt(panels: Sequence[Sequence[Panel]], title: str) -> str:
    """Describe the figure in words."""
    metrics = " and ".join(dict.fromkeys(row[0].y_label for row in panels))
    settings = " and ".join(dict.fromkeys(panel.title.split(":")[0] for row in panels for panel in row))
    names = dict.fromkeys(curve.label for row in panels for panel in row for curve in panel.curves)
    part = ", the fair end" if panels[0][0].x_max < math.inf else ""
    over = f"at cutoffs 1 to {panels[0][0].cutoffs}" if panels[0][0].cutoffs else "against unfairness"
    return f"{title}{part}. {metrics} {over}, {settings}, of {', '.join(names)}; the table has the numbers."


def draw_cutoffs(axes: Axes, panel: Panel, chosen: dict[str, Style]) -> None:
    """Draw cNDCG at every cutoff, with bands of one standard deviation."""
    ranks = np.arange(1, panel.cutoffs + 1)
    for curve in panel.curves:
        for point in curve.points:
            y, s = (np.array([of(f"cndcg@{k}") for k in ranks]) for of in (point.mean, point.std))
            axes.fill_between(ranks, y - s, y + s, color=chosen[curve.label].color, alpha=0.15, linewidth=0)
            axes.plot(ranks, y, **chosen[curve.label].options())
    axes.set_xticks(ranks)
    axes.grid(visible=False, axis="x")


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
        options = style.options() | ({"linestyle": "none"} if longest == 1 and not panels[0].cutoffs else {})
        entries.append((label, Line2D([], [], **options)))
    if any(panel.floor > 0 for panel in panels):
        entries.append((FLOOR_ROW, Line2D([], [], color=FLOOR, linewidth=1.2, linestyle=":")))
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
