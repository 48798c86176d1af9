"""The pictures of the first page, of marginal certainty and of the fairness floor."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import mcfair as mf
from mcfair.report.figures import BLACK, BLUE, GREEN, GREY, PURPLE, VERMILLION

DASHES = (0, (4, 3))


def panels(widths: Sequence[float], height: float = 2.9) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels side by side."""
    figure = Figure(figsize=(8.2, height), layout="constrained")
    return figure, list(figure.subplots(1, len(widths), width_ratios=widths, squeeze=False).flat)


# --- the first page --------------------------------------------------------------------------------------------------

NAMES = ["Aero", "Bolt", "Comet", "Dash", "Echo", "Flux", "Gale", "Hover", "Ion", "Jet"]
RELEVANCE = [0.80, 0.79, 0.78, 0.77, 0.76, 0.75, 0.74, 0.60, 0.40, 0.20]


def shares(policy: str) -> np.ndarray:
    """Return the share of the exposure that each item gets in 2,000 sessions, in per cent."""
    shoes = pl.DataFrame({"query": "running shoes", "item": NAMES, "relevance": RELEVANCE})
    data = mf.Dataset.from_frame(shoes, query="query", item="item", relevance="relevance")
    exposure = mf.simulate(data, policy, steps=2_000, k=5).state.E
    return 100 * exposure / exposure.sum()


def readme() -> Figure:
    """Draw the share of the exposure that each item gets, and its fair share, under TopK and under MCFair."""
    fair = 100 * np.array(RELEVANCE) / sum(RELEVANCE)
    figure = Figure(figsize=(8.2, 2.8), layout="constrained")
    titles = {"TopK": "TopK: sorted by relevance", "MCFair": "MCFair"}
    for axes, (policy, title), color in zip(
        figure.subplots(1, 2, sharey=True), titles.items(), (GREY, BLUE), strict=True
    ):
        axes.bar(NAMES, shares(policy), color=color, label="gets")
        axes.plot(NAMES, fair, color=BLACK, marker="D", markersize=5, linestyle="none", label="fair share")
        axes.set_title(title)
        axes.tick_params(axis="x", labelsize="x-small", length=0)
        axes.legend()
    figure.axes[0].set_ylabel("share of the exposure, %")
    return figure


# --- marginal certainty ----------------------------------------------------------------------------------------------


def uncertainty() -> Figure:
    """Draw estimates as views accumulate, the bound of their variance, and its slope."""
    figure, (left, right) = panels([1, 1])
    rng = np.random.default_rng(3)
    views = np.arange(1, 201)
    clicks = np.cumsum(rng.random((60, views.size)) < 0.4, axis=1)
    for each in clicks[:25] / views:
        left.plot(views, each, color=GREY, linewidth=0.5, alpha=0.6)
    left.plot(views, clicks[0] / views, color=VERMILLION, label="one of them")
    wide = 1.96 / np.sqrt(views)
    left.plot(views, 0.4 + wide, color=BLUE, linestyle=DASHES, label="95 % by the bound 1/E")
    left.plot(views, 0.4 - wide, color=BLUE, linestyle=DASHES)
    left.axhline(0.4, color=BLACK, linewidth=1)
    left.set(xscale="log", ylim=(-0.05, 1.3), xlabel="exposure E of an item", ylabel="estimate C/E")
    left.set_title("25 items of relevance 0.4")
    left.legend(loc="upper right")
    E = np.linspace(0.7, 8, 200)
    right.plot(E, 1 / E, color=BLUE)
    right.text(1.55, 0.72, "bound of the variance: 1/E", color=BLUE)
    for at, color in ((1.0, VERMILLION), (4.0, PURPLE)):
        x = np.array([at - 0.45, at + 0.75]) if at < 2 else np.array([at - 1.6, at + 2.2])
        right.plot(x, 1 / at - (x - at) / at**2, color=color, linewidth=2)
        right.plot([at], [1 / at], color=color, marker="o")
        right.text(at + 0.2, 1 / at + 0.08, f"E = {at:g}: slope MC = {1 / at**2:g}", color=color)
    right.set(xlabel="exposure E of an item", ylim=(0, 1.45), title="what one more view is worth")
    return figure


def ranks_of_a_newcomer(policy: str, joins: str, lists: int = 150, before: int = 100) -> list[int]:
    """Return the rank of an item that joins nine others after some lists, in each list; 6 where it is not shown."""
    rng = np.random.default_rng(1)
    relevance = {f"item {i}": 0.15 + 0.05 * i for i in range(9)} | {"new": 0.5}
    ranks = []
    with mf.Ranker("memory:", policy=policy, newcomer_exposure=joins) as ranker:
        for visit in range(before + lists):
            items = [name for name in relevance if name != "new" or visit >= before]
            answer = ranker.rank("q", items, k=5)
            seen = [each for each in answer.items if rng.random() < 1 / np.log2(each.rank + 1)]
            events = [
                {"impression": answer.impression, "item": each.id} for each in seen if rng.random() < relevance[each.id]
            ]
            if events:
                ranker.feedback(events)
            if visit >= before:
                ranks.append(next((each.rank for each in answer.items if each.id == "new"), 6))
    return ranks


def newcomer() -> Figure:
    """Draw the ranks of a new item with and without marginal certainty, and the exposure that it collects."""
    figure, (left, right) = panels([1, 1])
    policies = {
        "relevance alone": ("TopK", "zero", GREY),
        "and exploration": ("MCFair(alpha=0, beta=3)", "zero", BLUE),
        "and fairness": ("MCFair(alpha=1, beta=3)", "zero", VERMILLION),
        "… from a fair start": ("MCFair(alpha=1, beta=3)", "fair", GREEN),
    }
    p = np.append(1 / np.log2(np.arange(1, 6) + 1), 0.0)
    for shift, (label, (policy, joins, color)) in enumerate(policies.items()):
        ranks = np.array(ranks_of_a_newcomer(policy, joins))
        lists = np.arange(1, ranks.size + 1)
        left.plot(lists[:40], ranks[:40] + 0.13 * (shift - 1.5), color=color, marker="o", markersize=3, linewidth=0.6)
        right.plot(lists, np.cumsum(p[ranks - 1]), color=color, label=label)
    left.set(ylim=(6.5, 0.5), xlabel="lists since it came", ylabel="rank of the new item", title="where it is shown")
    left.set_yticks(range(1, 7), ["1", "2", "3", "4", "5", "not\nshown"])
    right.set(xlabel="lists since it came", ylabel="exposure of the new item", title="what it collects")
    right.legend()
    return figure


# --- the floor -------------------------------------------------------------------------------------------------------


def in_plane(E: np.ndarray) -> np.ndarray:
    """Return exposures of three items, whose sum is fixed, as points of the plane: shape (…, 2)."""
    axes = np.array([[-1 / np.sqrt(2), 1 / np.sqrt(2), 0], [-1 / np.sqrt(6), -1 / np.sqrt(6), 2 / np.sqrt(6)]])
    return np.asarray(E, float) @ axes.T


def floor() -> Figure:
    """Draw the exposures that lists of three items can reach, and the fairest of them, for two relevances."""
    figure, both = panels([1, 1], 3.3)
    p = 1 / np.log2(np.arange(1, 4) + 1)
    orders = [(0, 1, 2), (1, 0, 2), (2, 0, 1), (2, 1, 0), (1, 2, 0), (0, 2, 1)]  # around the hexagon
    assert sorted(orders) == sorted(permutations(range(3)))
    corners = np.array([[p[rank] for rank in ranks] for ranks in orders])
    for axes, R, title in (
        (both[0], [0.9, 0.8, 0.6], "R = 0.9, 0.8, 0.6: a mixture is fair"),
        (both[1], [0.9, 0.4, 0.3], "R = 0.9, 0.4, 0.3: none is"),
    ):
        outline = in_plane(np.vstack([corners, corners[:1]]))
        axes.fill(*outline.T, color=GREY, alpha=0.25)
        axes.plot(*outline.T, color=GREY, linewidth=1)
        axes.plot(*in_plane(corners).T, color=BLACK, marker="o", markersize=4, linestyle="none")
        for ranks, point in zip(orders, in_plane(corners), strict=True):
            axes.annotate("".join("ABC"[i] for i in np.argsort(ranks)), point * 1.22, ha="center", va="center")
        data = mf.Dataset(offsets=[0, 3], y=[0, 0, 0], R=R)
        found = mf.fairness_floor(data, visits=[1], p=p)
        wanted = np.array(R) / np.sum(R) * p.sum()
        axes.plot(*in_plane(np.array([wanted, found.E])).T, color=VERMILLION, linestyle=DASHES)
        axes.plot(
            *in_plane(wanted), color=VERMILLION, marker="*", markersize=15, linestyle="none", label="in proportion to R"
        )
        axes.plot(
            *in_plane(found.E),
            color=GREEN,
            marker="o",
            markersize=8,
            linestyle="none",
            label="fairest that lists reach",
        )
        axes.set_title(title)
        axes.set(aspect="equal", xlim=(-0.8, 0.8), ylim=(-0.62, 0.45))
        axes.set_axis_off()
    both[0].legend(loc="lower left", frameon=False)
    return figure


PICTURES = {"readme": readme, "uncertainty": uncertainty, "newcomer": newcomer, "floor": floor}
