"""Figures of an audit: shares of groups, click rates by rank, and fitted examination."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..arrays import IntArray
from ..report.figures import NARROW_WIDTH, Picture, matplotlib_defaults, render, shorten
from ..report.styles import BLUE, ORANGE, VERMILLION

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..analysis.propensities import FittedExamination
    from .result import Audit

__all__ = ["SHOWN_GROUPS", "draw", "examination_picture", "shares_picture"]

SHOWN_GROUPS = 20
"""Groups in the figure, those with the most exposure and merit; the table has all."""

WIDE = 7.6


def draw(name: str, alt: str, height: float, fill: Callable[[Axes, bool], None]) -> Picture:
    """Draw a figure of one panel in its wide and its narrow version."""
    from matplotlib.figure import Figure as Canvas

    def version(narrow: bool) -> Figure:
        with matplotlib_defaults():
            figure = Canvas(figsize=(NARROW_WIDTH if narrow else WIDE, height), layout="constrained")
            fill(figure.subplots(), narrow)
            return figure

    return render(version(False), version(True), name, alt)


def shares_picture(audit: Audit) -> Picture:
    """Draw the share of exposure against the share of merit of each group, with intervals."""
    table = audit.groups()
    largest = table.with_columns(size=table["exposure_share"] + table["merit_share"]).sort("size", descending=True)
    chosen = largest.head(SHOWN_GROUPS).sort("ratio", nulls_last=True)[::-1]
    names = chosen["group"].to_list()

    def fill(panel: Axes, narrow: bool) -> None:
        y = np.arange(len(names))
        exposure, merit = 100 * chosen["exposure_share"].to_numpy(), 100 * chosen["merit_share"].to_numpy()
        panel.hlines(y, exposure, merit, color="#BBBBBB", linewidth=2.5, zorder=1)
        for values, column, colour, marker, label, shift in (
            (merit, "merit_share", ORANGE, "D", "share of merit", -0.13),
            (exposure, "exposure_share", BLUE, "o", "share of exposure", 0.13),
        ):
            low, high = 100 * chosen[f"{column}_low"].to_numpy(), 100 * chosen[f"{column}_high"].to_numpy()
            panel.hlines(y + shift, low, high, color=colour, linewidth=1.2, alpha=0.7, zorder=2)
            panel.plot(values, y, marker, color=colour, markersize=7, markeredgecolor="white", label=label, zorder=3)
        panel.set_yticks(y, [shorten(each, 16 if narrow else 30) for each in names], parse_math=False)
        panel.set_ylim(-0.6, len(names) - 0.4)
        panel.set_xlim(left=0)
        panel.grid(visible=False, axis="y")
        panel.set_xlabel("share in percent")
        panel.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=2)

    alt = "Share of exposure against share of merit of each group: " + "; ".join(
        f"{row['group']} {100 * row['exposure_share']:.1f} % of exposure, {100 * row['merit_share']:.1f} % of merit"
        for row in chosen[::-1].head(10).iter_rows(named=True)
    )
    return draw("shares", alt, 1.5 + 0.34 * len(names), fill)


def rates_picture(audit: Audit) -> Picture:
    """Draw click rates by rank, relative to rank 1, beside the exposure that the audit assumes."""
    table = audit.ranks()
    rank, rate = table["rank"].to_numpy(), table["ctr"].to_numpy()
    first = rate[0] if rate[0] > 0 else np.nan

    def fill(panel: Axes, narrow: bool) -> None:
        low, high = table["ctr_low"].to_numpy() / first, table["ctr_high"].to_numpy() / first
        panel.fill_between(rank, low, high, color=BLUE, alpha=0.15, linewidth=0)
        panel.plot(rank, rate / first, "o-", color=BLUE, label="click rate over that of rank 1")
        panel.plot(
            rank, table["assumed"].to_numpy(), "s--", color=VERMILLION, label=f"exposure assumed: {audit.model.name}"
        )
        finish(panel, rank)

    alt = "Click rate and assumed exposure of each rank; the numbers are in the table."
    return draw("rates", alt, 3.6, fill)


def time_picture(audit: Audit) -> Picture:
    """Draw unfairness and its floor since the beginning of the log, at the end of each period."""
    table = audit.over_time
    assert table is not None
    labels = table["from"].to_list()

    def fill(panel: Axes, narrow: bool) -> None:
        x = np.arange(len(labels))
        panel.plot(x, table["unfairness"].to_numpy(), "o-", color=BLUE, label="unfairness")
        panel.plot(x, table["floor"].to_numpy(), "s--", color=VERMILLION, label="floor (lowest possible)")
        step = -(-len(labels) // (3 if narrow else 7))
        panel.set_xticks(x[::step], labels[::step], parse_math=False)
        panel.set_ylim(bottom=0)
        panel.set_xlabel(f"{audit.time_unit} beginning")
        panel.set_ylabel("since the beginning of the log")
        panel.legend(loc="upper left")

    alt = f"Unfairness and its floor at the end of each {audit.time_unit}; the numbers are in the table."
    return draw("over-time", alt, 3.6, fill)


def finish(panel: Axes, rank: IntArray) -> None:
    """Label the axes of a figure by rank."""
    panel.set_xlabel("rank")
    panel.set_ylabel("relative to rank 1")
    panel.set_ylim(bottom=0)
    if rank.size <= 15:
        panel.set_xticks(rank)
    panel.legend(loc="upper right")


def examination_picture(found: FittedExamination) -> Picture:
    """Draw fitted examination probabilities with their intervals."""
    rank = np.arange(1, found.p.size + 1)

    def fill(panel: Axes, narrow: bool) -> None:
        panel.fill_between(rank, found.low, found.high, color=BLUE, alpha=0.18, linewidth=0, label="95 % interval")
        panel.plot(rank, found.p, "o", color=BLUE, label=f"fitted ({found.method})")
        panel.plot(rank, found.falling, "-", color=BLUE, linewidth=1.2, label="never rising")
        panel.plot(rank, 1 / np.log2(rank + 1), "--", color=VERMILLION, label="log2")
        finish(panel, rank)

    alt = "Fitted examination of each rank: " + ", ".join(f"rank {j} {p:.3f}" for j, p in enumerate(found.p, start=1))
    return draw("examination", alt, 3.6, fill)
