"""The picture of README.md: the attention that ten items merit and get, from the runs that README.md shows."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.figure import Figure

import mcfair as mf
from mcfair.report.styles import BLACK, BLUE, GREY

NAMES = ["Aero", "Bolt", "Comet", "Dash", "Echo", "Flux", "Gale", "Hover", "Ion", "Jet"]
RELEVANCE = [0.80, 0.79, 0.78, 0.77, 0.76, 0.75, 0.74, 0.60, 0.40, 0.20]


def shares(policy: str) -> np.ndarray:
    """Return the share of the exposure that each item gets in 2,000 sessions, in per cent."""
    shoes = pl.DataFrame({"query": "running shoes", "item": NAMES, "relevance": RELEVANCE})
    data = mf.Dataset.from_frame(shoes, query="query", item="item", relevance="relevance")
    exposure = mf.simulate(data, policy, steps=2_000, k_s=5).state.E
    return 100 * exposure / exposure.sum()


def draw() -> Figure:
    """Draw the share of the exposure that each item merits and gets, under TopK and under MCFair."""
    merited = 100 * np.array(RELEVANCE) / sum(RELEVANCE)
    figure = Figure(figsize=(8.2, 2.8), layout="constrained")
    titles = {"TopK": "TopK: sorted by relevance", "MCFair": "MCFair"}
    for axes, (policy, title), color in zip(
        figure.subplots(1, 2, sharey=True), titles.items(), (GREY, BLUE), strict=True
    ):
        axes.bar(NAMES, shares(policy), color=color, label="gets")
        axes.plot(NAMES, merited, color=BLACK, marker="D", markersize=5, linestyle="none", label="merits")
        axes.set_title(title)
        axes.tick_params(axis="x", labelsize="x-small", length=0)
        axes.legend()
    figure.axes[0].set_ylabel("share of the attention, %")
    return figure
