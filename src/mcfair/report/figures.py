"""Figures: one colour and one marker per policy everywhere, spread over seeds, and the limits that hold for all."""

from __future__ import annotations

import dataclasses
import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import FloatArray
from .views import Curve, View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["POLICY_STYLES", "Picture", "Style", "cutoffs_figure", "has_fair_end", "spaced", "styles", "tradeoff_figure"]

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE, GREY = "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#999999"
PALETTE = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, GREY, BLACK, YELLOW)
"""The colours of Okabe and Ito, which people with any colour vision tell apart; the clearest on white first."""

MARKERS = ("o", "v", "P", "X", "h", "D", "p", "s", "^", "<", ">", "d", "*")

POLICY_STYLES = {
    "MCFair": (BLUE, "o"),
    "FairCo": (VERMILLION, "v"),
    "LP": (GREEN, "P"),
    "ILP": (PURPLE, "X"),
    "MMF": (ORANGE, "h"),
    "FairK": (SKY, "D"),
    "PLFair": (GREY, "p"),
    "TopK": (BLACK, "s"),
    "ExploreK": (YELLOW, "^"),
    "RandomK": (BLACK, "*"),
}
"""Colour and marker of each policy."""

LINES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.2, 1.2, 1.2)), (0, (8, 2)), (0, (3, 1, 1, 1, 1, 1)))
INK, LIMIT = "#222222", "#C4C4C4"

RC: Any = {
    "font.size": 10.0, "axes.titlesize": 10.5, "axes.spines.top": False, "axes.spines.right": False,
    "axes.grid": True, "grid.color": "#E4E4E4", "grid.linewidth": 0.7, "axes.axisbelow": True,
    "axes.edgecolor": "#666666", "text.color": INK, "axes.labelcolor": INK, "xtick.color": "#444444",
    "ytick.color": "#444444", "legend.frameon": False, "legend.fontsize": 9.5, "svg.hashsalt": "mcfair",
    "svg.fonttype": "path", "pdf.fonttype": 42,
}  # fmt: skip


# --- styles ----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Style:
    """How a series is drawn; the marker of a variant is hollow."""

    color: str
    marker: str
    line: Any = "-"
    hollow: bool = False

    def options(self) -> dict[str, Any]:
        """Give what matplotlib calls it."""
        edge = self.color if self.hollow else "#5F5A12" if self.color == YELLOW else "white"
        return {
            "color": self.color, "marker": self.marker, "linestyle": self.line, "linewidth": 1.6, "markersize": 6.5,
            "markerfacecolor": "white" if self.hollow else self.color, "markeredgecolor": edge,
            "markeredgewidth": 1.3 if self.hollow else 0.6,
        }  # fmt: skip


def styles(curves: Sequence[Curve]) -> dict[str, Style]:
    """Choose the style of each label: a policy's own, a shade of it for its variants, else a colour that is free."""
    bases: dict[str, list[Curve]] = {}
    for curve in curves:
        group = bases.setdefault(curve.base, [])
        if curve.label not in [each.label for each in group]:
            group.append(curve)
    chosen: dict[str, Style] = {}
    colors = [color for base, (color, _) in POLICY_STYLES.items() if base in bases]
    markers = [marker for base, (_, marker) in POLICY_STYLES.items() if base in bases]
    for base, group in bases.items():
        plain = min(group, key=lambda curve: (curve.label != base, set_apart(curve)))
        color, marker = POLICY_STYLES.get(base) or (free(PALETTE, colors), free(MARKERS, markers))
        colors.append(color)
        markers.append(marker)
        others = [curve for curve in group if curve is not plain]
        named = [curve.label for curve in others if curve.label.startswith(base)]
        for curve in group:
            if curve is plain:
                style = Style(color, marker)
            elif curve.label in named:
                i = named.index(curve.label)
                tone = shade(color, i, len(named))
                style = Style(tone, free(MARKERS, markers) if len(named) > 2 else marker, LINES[i % 5 + 1], True)
            else:
                style = Style(free(PALETTE, colors), free(MARKERS, markers), LINES[1], True)
                colors.append(style.color)
            markers.append(style.marker)
            chosen.setdefault(curve.label, style)
    return chosen


def set_apart(curve: Curve) -> int:
    """Count the parameters that all policies of a series have away from their default."""
    policies = [point.policy for point in curve.points]
    fields = dataclasses.fields(policies[0])  # type: ignore[arg-type]  # every policy is made a dataclass
    return sum(all(getattr(each, field.name) != field.default for each in policies) for field in fields)


def free(values: Sequence[str], taken: Sequence[str]) -> str:
    """Take the value that is used least, the first of several."""
    return min(values, key=taken.count)


def shade(color: str, i: int, count: int) -> str:
    """Mix a colour with white or black: the variants of a policy go from a lighter to a darker tone of it."""
    t = (i + 1) / (count + 1) if count > 1 else 0.75
    rgb = np.array([int(color[j : j + 2], 16) for j in (1, 3, 5)]) / 255
    mixed = rgb + (1 - rgb) * (0.55 - 1.1 * t) if t < 0.5 else rgb * (1 - 1.1 * (t - 0.5))
    return "#" + "".join(f"{round(255 * x):02X}" for x in mixed)


# --- files -----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Picture:
    """A figure in the formats it is kept in, and in words for those who cannot see it."""

    name: str
    alt: str
    svg: bytes
    png: bytes
    pdf: bytes

    @classmethod
    def of(cls, figure: Figure, name: str, alt: str) -> Picture:
        """Draw a figure in every format, without dates, so that equal figures are equal bytes."""
        drawn = []
        for form, metadata in (
            ("svg", {"Date": None, "Creator": None}),
            ("png", {"Software": None}),
            ("pdf", {"CreationDate": None, "Creator": None, "Producer": None}),
        ):
            target = io.BytesIO()
            figure.savefig(target, format=form, dpi=200, metadata=metadata)
            drawn.append(target.getvalue())
        return cls(name, alt, *drawn)


@contextmanager
def drawing() -> Iterator[None]:
    """Set matplotlib up in the same way whatever the user's configuration says."""
    import matplotlib as mpl

    with mpl.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a label may be in any script
        mpl.rcdefaults()
        mpl.rcParams.update(RC)
        yield


# --- cNDCG at every cutoff -------------------------------------------------------------------------------------------


def cutoffs_figure(found: Sequence[View], name: str, title: str) -> Picture:
    """Draw cNDCG@1..k_s of each policy, a panel for each setting, with bands of one standard deviation."""
    from matplotlib.figure import Figure

    with drawing():
        lines = max(sum(len(curve.points) for curve in view.curves) for view in found)
        figure = Figure(figsize=(7.4 * len(found), max(4.4, 0.3 * lines + 1.2)), layout="constrained")
        axes = figure.subplots(1, len(found), squeeze=False)[0]
        chosen = styles([curve for view in found for curve in view.curves])
        for panel, view in zip(axes, found, strict=True):
            draw_cutoffs(panel, view, chosen)
            if len(found) > 1:
                panel.set_title(mode_title(view))
        axes[0].set_ylabel("cNDCG (higher is better for users)")
        names = ", ".join(chosen)
        alt = f"{title}. Lines show cNDCG at cutoffs 1 to {found[0].setting.k_s} of {names}; the table has the numbers."
        return Picture.of(figure, name, alt)


def draw_cutoffs(panel: Axes, view: View, chosen: dict[str, Style]) -> None:
    """Draw the lines of one setting and name them at their right ends."""
    ranks = np.arange(1, view.setting.k_s + 1)
    ends, names, drawn = [], [], []
    for curve in view.curves:
        style = chosen[curve.label]
        for point in curve.points:
            y = np.array([point.mean(f"cndcg@{k}") for k in ranks])
            s = np.array([point.std(f"cndcg@{k}") for k in ranks])
            panel.fill_between(ranks, y - s, y + s, color=style.color, alpha=0.15, linewidth=0)
            panel.plot(ranks, y, **style.options())
            ends.append(y[-1])
            names.append(curve.label if len(curve.points) == 1 else point.text)
            drawn.append(style)
    panel.margins(y=0.04)
    low, high = panel.get_ylim()
    height = panel.get_figure().get_size_inches()[1]  # type: ignore[union-attr]
    places = spaced(np.array(ends), (high - low) * 0.22 / (height - 1.0))
    step = 0.04 * max(ranks[-1] - 1, 1)
    for end, place, label, style in zip(ends, places, names, drawn, strict=True):
        panel.plot([ranks[-1] + step, ranks[-1] + 4 * step], [end, place], color=style.color, linewidth=0.8,
                   clip_on=False)  # fmt: skip
        panel.plot([ranks[-1] + 4.8 * step], [place], clip_on=False, **style.options())
        panel.annotate(
            shortened(label), (ranks[-1] + 5.6 * step, place), va="center", annotation_clip=False, parse_math=False
        )
    panel.set_ylim(min(low, *places), max(high, *places))
    panel.set_xlim(ranks[0] - 0.05 * max(ranks[-1] - 1, 1), ranks[-1] + step)
    panel.set_xticks(ranks)
    panel.grid(visible=False, axis="x")
    panel.set_xlabel("cutoff")


def spaced(values: FloatArray, gap: float) -> FloatArray:
    """Move values apart as little as possible, such that neighbours differ by at least a gap.

    Examples
    --------
    >>> spaced(np.array([5.0, 1.0, 1.0]), 1.0).tolist()
    [5.0, 0.5, 1.5]
    """
    order = np.argsort(values, kind="stable")
    shifted = values[order] - gap * np.arange(values.size)
    pools: list[tuple[float, int]] = []
    for value in shifted:  # the rising sequence nearest to the shifted values: pool those that fall
        mean, size = float(value), 1
        while pools and pools[-1][0] > mean:
            before, count = pools.pop()
            mean, size = (mean * size + before * count) / (size + count), size + count
        pools.append((mean, size))
    out = np.empty(values.size)
    out[order] = np.repeat([mean for mean, _ in pools], [size for _, size in pools]) + gap * np.arange(values.size)
    return out


# --- effectiveness against unfairness --------------------------------------------------------------------------------


def mode_title(view: View) -> str:
    """Say what a setting means."""
    known = "relevance is given" if view.setting.mode == "post-processing" else "relevance is learnt from clicks"
    return f"{view.setting.mode}: {known}"


def has_fair_end(found: Sequence[View]) -> bool:
    """Whether so much is going on among the fairest that it is worth a figure of its own."""
    for view in found:
        xs = [point.mean("unfairness") for curve in view.curves for point in curve.points]
        near = [x for x in xs if x <= fair_end(view)]
        if len(xs) > len(near) > 2 and max(xs) > 2 * fair_end(view):
            return True
    return False


def fair_end(view: View) -> float:
    """Give the unfairness up to which a closer look goes: where the frontier is at its highest, and the fairest."""
    reached = min(point.mean("unfairness") for curve in view.curves for point in curve.points)
    highest = float(view.limits.unfairness[-1]) if view.limits and view.limits.unfairness.size else 0.0
    return max(1.15 * highest, 1.6 * reached)


def tradeoff_figure(found: Sequence[View], name: str, title: str, *, closer: bool = False) -> Picture:
    """Draw cNDCG against unfairness, a panel for each setting and cutoff; on request the fair end of them only."""
    from matplotlib.figure import Figure

    with drawing():
        cutoffs = found[0].experiment.k_c
        shape = (len(cutoffs), len(found))
        width, height = (7.2, 4.8) if shape[1] == 1 else (5.4 * shape[1], 3.9)
        chosen = styles([curve for view in found for curve in view.curves])
        figure = Figure(figsize=(width, height * shape[0]), layout="constrained")
        axes = figure.subplots(*shape, squeeze=False)
        for i, k in enumerate(cutoffs):
            for j, view in enumerate(found):
                draw_tradeoff(axes[i, j], view, k, chosen, fair_end(view) if closer else np.inf)
                axes[i, j].set_title(mode_title(view) if i == 0 else "")
                axes[i, j].set_xlabel("unfairness (lower is fairer)" if i == len(cutoffs) - 1 else "")
            axes[i, 0].set_ylabel(f"cNDCG@{k} (higher is better for users)")
        add_key(figure, found, chosen)
        alt = (
            f"{title}{', the fair end' if closer else ''}. cNDCG at cutoff {' and '.join(map(str, cutoffs))} against "
            f"unfairness, {' and '.join(view.setting.mode for view in found)}, of {', '.join(chosen)}; the table "
            "has the numbers."
        )
        return Picture.of(figure, name, alt)


def draw_tradeoff(panel: Axes, view: View, k: int, chosen: dict[str, Style], end: float) -> None:
    """Draw the curves of one setting at one cutoff over the limits."""
    metrics = ("unfairness", f"cndcg@{k}")
    seen = [(point.mean(metrics[0]), point.mean(metrics[1])) for curve in view.curves for point in curve.points]
    widest = min(max(x for x, _ in seen), end)
    limits = view.limits
    floor = float(limits.floor.mean()) if limits else 0.0
    if limits and floor > 0:
        panel.axvline(floor, color="#777777", linewidth=1.2, linestyle=":", zorder=1)
    if limits and limits.unfairness.size and k == view.setting.k_s:
        inside = limits.unfairness <= widest * 1.02
        x, y = limits.unfairness[inside], limits.ndcg[inside] * view.best_cndcg
        panel.plot(x, y, color=LIMIT, linewidth=5, solid_capstyle="round", zorder=1)
        seen += list(zip(x.tolist(), y.tolist(), strict=True))
    for rank, curve in enumerate(view.curves):
        options = chosen[curve.label].options()
        x, y = (np.array([point.mean(m) for point in curve.points]) for m in metrics)
        dx, dy = (np.array([point.std(m) for point in curve.points]) for m in metrics)
        top = 3 + rank + (20 if curve.label == view.experiment.compare_with else 0)
        panel.errorbar(
            x,
            y,
            dy,
            np.minimum(dx, 0.9 * x),
            fmt="none",
            ecolor=options["color"],
            elinewidth=0.8,
            alpha=0.55,
            zorder=top - 0.5,
        )
        options["markersize"] = 8.5 if x.size == 1 else 5.5
        panel.plot(x, y, zorder=top, **options)
    shown = [(x, y) for x, y in seen if x <= end]
    set_scale(panel, np.array([x for x, _ in shown] + ([floor] if floor > 0 else [])), np.array([y for _, y in shown]))


def set_scale(panel: Axes, xs: FloatArray, ys: FloatArray) -> None:
    """Leave room around the points; unfairness is on a logarithmic scale if it spans more than a factor of 10."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    low, high = float(ys.min()), float(ys.max())
    room = 0.06 * (high - low) or 1.0
    panel.set_ylim(low - room, high + room)
    low, high = float(xs.min()), float(xs.max())
    if low > 0 and high > 10 * low:
        ratio = (high / low) ** 0.05
        panel.set_xscale("log")
        panel.set_xlim(low / ratio, high * ratio)
        subs = (1.0, 2.0, 5.0) if high < 300 * low else (1.0, 3.0) if high < 3000 * low else (1.0,)
        panel.xaxis.set_major_locator(LogLocator(subs=subs, numticks=30))
        panel.xaxis.set_minor_locator(NullLocator())
    else:
        room = 0.05 * (high - low) or 1.0
        panel.set_xlim(low - room, high + room)
        panel.xaxis.set_major_locator(MaxNLocator(6))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.6g}"))


def add_key(figure: Figure, found: Sequence[View], chosen: dict[str, Style]) -> None:
    """Name the curves below the panels, in as many columns as fit, and make the figure higher by that."""
    from matplotlib.lines import Line2D

    handles = []
    for label, style in chosen.items():
        longest = max(len(curve.points) for view in found for curve in view.curves if curve.label == label)
        options = style.options() | ({"linestyle": "none"} if longest == 1 else {})
        handles.append((label, Line2D([], [], **options)))
    if any(view.limits and view.limits.floor.mean() > 0 for view in found):
        handles.append(("least unfairness possible", Line2D([], [], color="#777777", linewidth=1.2, linestyle=":")))
    if any(view.limits and view.limits.unfairness.size and view.setting.k_s in view.experiment.k_c for view in found):
        handles.append(("limit if relevance is known", Line2D([], [], color=LIMIT, linewidth=5)))
    for columns in range(6, 0, -1):
        legend = figure.legend(
            [handle for _, handle in handles], ["-"] * len(handles), loc="outside lower center", ncols=columns,
            handlelength=2.6, columnspacing=1.4,
        )  # fmt: skip
        for text, (label, _) in zip(legend.get_texts(), handles, strict=True):
            text.set_parse_math(False)  # only now: a label that begins with _ would be left out
            text.set_text(shortened(label))
        box = legend.get_window_extent()
        if box.width < 0.98 * figure.bbox.width or columns == 1:
            break
        legend.remove()
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + box.height / figure.dpi)


def shortened(label: str, most: int = 40) -> str:
    """Cut what would not fit into a figure."""
    return label if len(label) <= most else label[: most - 1] + "…"
