"""Figures: how they are drawn and rendered, and cNDCG at every cutoff."""

from __future__ import annotations

import dataclasses
import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import FloatArray
from .styles import Style, choose_styles, darken_svg
from .views import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "NARROW_WIDTH",
    "Picture",
    "cutoffs_alt",
    "cutoffs_figure",
    "matplotlib_defaults",
    "render",
    "setting_title",
    "shorten",
    "spread_out",
]

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


def render(wide: Figure, narrow: Figure, name: str, alt: str) -> Picture:
    """Render the two versions of a figure to the formats of the report; equal figures yield equal bytes."""
    with matplotlib_defaults():
        svg, narrow_svg = encode(wide, "svg"), encode(narrow, "svg")
        wide.set_layout_engine("none")  # keeps the positions found for the first format: layout takes half of the time
        return Picture(
            name=name, alt=alt, svg=svg, narrow_svg=narrow_svg, png=encode(wide, "png"), pdf=encode(wide, "pdf")
        )


def encode(figure: Figure, form: str) -> bytes:
    """Render a figure to one format."""
    target = io.BytesIO()
    figure.savefig(target, format=form, dpi=200, metadata=METADATA[form])
    return target.getvalue()


@contextmanager
def matplotlib_defaults() -> Iterator[None]:
    """Draw with the same parameters whatever the user's matplotlib configuration is."""
    import matplotlib as mpl

    with mpl.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a label may be in any script
        mpl.rcdefaults()
        mpl.rcParams.update(RC)
        yield


def shorten(label: str, most: int = 40) -> str:
    """Cut a label that would not fit into a figure."""
    return label if len(label) <= most else label[: most - 1] + "…"


def setting_title(view: View) -> str:
    """Return the title of a setting's panel."""
    known = "relevance is given" if view.setting.mode == "post-processing" else "relevance is learnt from clicks"
    return f"{view.setting.mode}: {known}"


# --- cNDCG at every cutoff -------------------------------------------------------------------------------------------


def cutoffs_figure(found: Sequence[View], *, narrow: bool = False) -> Figure:
    """Draw cNDCG@1..k of each policy, a panel for each setting, with bands of one standard deviation.

    Parameters
    ----------
    found
        The settings.
    narrow
        Whether to stack the panels for narrow screens instead of placing them side by side.

    Returns
    -------
    matplotlib.figure.Figure
    """
    from matplotlib.figure import Figure

    with matplotlib_defaults():
        lines = max(len(view.points) for view in found)
        height = max(4.4, 0.3 * lines + 1.2)
        shape = (len(found), 1) if narrow else (1, len(found))
        figure = Figure(figsize=((NARROW_WIDTH if narrow else 7.4) * shape[1], height * shape[0]), layout="constrained")
        axes = figure.subplots(*shape, squeeze=False).ravel()
        chosen = choose_styles([curve for view in found for curve in view.curves])
        for panel, view in zip(axes, found, strict=True):
            draw_cutoffs(panel, view, chosen, height)
            if len(found) > 1:
                panel.set_title(setting_title(view))
            if narrow or panel is axes[0]:
                panel.set_ylabel("cNDCG (higher is better)")
        return figure


def cutoffs_alt(found: Sequence[View], title: str) -> str:
    """Describe the figure in words."""
    names = dict.fromkeys(curve.label for view in found for curve in view.curves)
    return (
        f"{title}. Lines show cNDCG at cutoffs 1 to {found[0].setting.k} of {', '.join(names)}; the numbers are in "
        "the table."
    )


def draw_cutoffs(panel: Axes, view: View, chosen: dict[str, Style], height: float) -> None:
    """Draw the lines of one setting in a panel of some height in inches, with labels at their right ends."""
    ranks = np.arange(1, view.setting.k + 1)
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
    places = spread_out(np.array(ends), (high - low) * 0.22 / (height - 1.0))
    step = 0.04 * max(ranks[-1] - 1, 1)
    for end, place, label, style in zip(ends, places, names, drawn, strict=True):
        leader = [ranks[-1] + step, ranks[-1] + 4 * step]
        panel.plot(leader, [end, place], color=style.color, linewidth=0.8, clip_on=False)
        panel.plot([ranks[-1] + 4.8 * step], [place], clip_on=False, **style.options())
        panel.annotate(
            shorten(label, 24), (ranks[-1] + 5.6 * step, place), va="center", annotation_clip=False, parse_math=False
        )
    panel.set_ylim(min(low, *places), max(high, *places))
    panel.set_xlim(ranks[0] - 0.05 * max(ranks[-1] - 1, 1), ranks[-1] + step)
    panel.set_xticks(ranks)
    panel.grid(visible=False, axis="x")
    panel.set_xlabel("cutoff k of cNDCG@k")


def spread_out(values: FloatArray, gap: float) -> FloatArray:
    """Move values apart as little as possible, such that neighbours differ by at least a gap.

    Examples
    --------
    >>> spread_out(np.array([5.0, 1.0, 1.0]), 1.0).tolist()
    [5.0, 0.5, 1.5]
    """
    order = np.argsort(values, kind="stable")
    shifted = values[order] - gap * np.arange(values.size)
    pools: list[tuple[float, int]] = []
    for value in shifted:  # isotonic regression by pooling adjacent violators
        mean, size = float(value), 1
        while pools and pools[-1][0] > mean:
            before, count = pools.pop()
            mean, size = (mean * size + before * count) / (size + count), size + count
        pools.append((mean, size))
    out = np.empty(values.size)
    out[order] = np.repeat([mean for mean, _ in pools], [size for _, size in pools]) + gap * np.arange(values.size)
    return out
