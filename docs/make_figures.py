"""Draw the pictures of the pages and write the values that they quote: `make figures`, a minute or two.

Pictures come from runs of the package on built-in data and from docs/results/*.json, which `docs/measure.py` and the
commands named in the files write. `python docs/make_figures.py --quoted` writes the quoted values alone.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from explanation_pictures import DASHES, PICTURES, panels
from flow_picture import flow
from matplotlib.figure import Figure
from PIL import Image
from quoting import main as write_quoted
from quoting import results

import mcfair as mf
from mcfair.estimators.base import relevance_intervals
from mcfair.policies.terms import tail_mean
from mcfair.report.figures import BLACK, BLUE, GREEN, GREY, PURPLE, VERMILLION, matplotlib_defaults

FOLDER = Path(__file__).parent / "figures"
SHORT = mf.synthetic("mq2008-like", seed=0)

GRADE_COLORS = (BLUE, GREEN, VERMILLION)


def posterior() -> Figure:
    """Draw the estimates of three items by IPS and under the pooled prior, and the prior that was learnt."""
    sessions = [166, 332, 664, 1_328, 2_656, 5_312, 10_624, 21_248]
    states = [mf.simulate(SHORT, "RandomK", "online", steps=each, estimator="Mixture").state for each in sessions]
    items = [int(np.flatnonzero(SHORT.y == grade)[25]) for grade in range(3)]  # any of each grade
    figure, (left, middle, right) = panels([1, 1, 0.8])
    for axes, title in ((left, "IPS: C/E"), (middle, "Mixture: pooled prior")):
        for item, color in zip(items, GRADE_COLORS, strict=True):
            found = []
            for state in states:
                estimator = mf.IPS() if axes is left else state.fitted(mf.Mixture())
                counts = state.C[[item]], state.E[[item]], state.F[[item]], state.p
                R, variance = estimator.estimates(*counts)
                found.append((R[0], *(end[0] for end in relevance_intervals(R, variance))))
            R, low, high = np.array(found).T
            axes.plot(sessions, R, color=color, marker="o", markersize=4)
            axes.fill_between(sessions, low, high, color=color, alpha=0.15, linewidth=0)
            axes.axhline(float(SHORT.R[item]), color=color, linestyle=DASHES, linewidth=1)
        axes.set(xscale="log", ylim=(-0.03, 1.6), title=title, xlabel="sessions over all queries")
    left.set_ylabel("relevance of three items")
    true, counts = np.unique(SHORT.R, return_counts=True)
    right.bar(true - 0.02, counts / counts.sum(), 0.04, color=GREY, label="true")
    fitted, learnt = states[-1].fitted(mf.Mixture()), {}
    for mean, weight in zip(np.round(fitted.means, 2).tolist(), fitted.weights, strict=True):
        learnt[mean] = learnt.get(mean, 0.0) + weight  # two components may be the same
    right.bar(np.array([*learnt]) + 0.02, list(learnt.values()), 0.04, color=PURPLE, label="learnt")
    right.set(title="all items", xlabel="relevance", ylabel="share of the items")
    right.legend()
    return figure


def tail() -> Figure:
    """Draw the optimistic relevance U by evidence, and the optimism of a run by the true relevance of its items."""
    prior = mf.simulate(SHORT, "BayesFair", "online", steps=5_000).state.fitted(mf.Mixture())
    figure, (left, right) = panels([1, 1])
    visits = np.geomspace(10, 10_000, 200)
    for clicks, views, color in ((0, 0, BLACK), (1, 3, GREEN), (0, 3, BLUE), (12, 30, VERMILLION), (0, 30, PURPLE)):
        item = prior.posterior(clicks, float(views), np.array([views], np.int32), np.ones(1))[np.newaxis]
        label = f"{clicks} of {views} views clicked" if views else "never shown"
        left.plot(visits, [tail_mean(item, 0, 10.0 / each) for each in visits], color=color, label=label)
    left.set(xscale="log", ylim=(0, 1.05), xlabel="visits of the query", ylabel="U", title="one item")
    left.legend(loc="upper left", bbox_to_anchor=(0.42, 0.93))
    sessions = np.geomspace(1_000, 100_000, 12).astype(int)
    found = []
    for steps in sessions:
        state = mf.simulate(SHORT, "BayesFair", "online", steps=int(steps)).state
        counts = state.C, state.E, state.F, state.p
        estimator = state.fitted(mf.Mixture())
        R, posteriors = estimator.estimates(*counts)[0], estimator.posteriors(*counts)
        mass = np.minimum(10.0 / np.repeat(state.visits, SHORT.sizes), 1.0)
        U = np.array([tail_mean(posteriors, d, float(mass[d])) for d in range(SHORT.items)])
        found.append([np.maximum(U - R, 0.0)[SHORT.y == grade].mean() for grade in range(3)])
    for values, color, relevance in zip(np.array(found).T, GRADE_COLORS, np.unique(SHORT.R), strict=True):
        right.plot(sessions / SHORT.queries, values, color=color, marker="o", markersize=4, label=f"R = {relevance:g}")
    right.set(xscale="log", ylim=(0, None), xlabel="visits of a query", ylabel="mean of $U - \\hat{R}$")
    right.set_title("a run of BayesFair")
    right.legend()
    return figure


def frontiers() -> Figure:
    """Draw average NDCG@5 against unfairness of BayesFair, MCFair and the limit when relevance is known."""
    found = results("bayesfair")
    figure, (axes,) = panels([1], 3.4)
    for (label, points), color in zip(found["curves"].items(), (PURPLE, GREY, BLUE, GREEN), strict=True):
        unfair, ndcg = ([each[name] for each in points] for name in ("unfairness", "ndcg"))
        axes.plot(unfair, ndcg, color=color, marker="o", markersize=4, label=label)
    limit, floor = found["limit"], found["floor"]
    axes.plot(limit["unfairness"], limit["ndcg"], color=BLACK, linestyle=DASHES, label="limit, relevance known")
    axes.set(xlim=(0.95 * floor, 2.5 * floor), ylim=(0.9, 1.0), xlabel="unfairness (lower is fairer)")
    axes.set_ylabel("average NDCG@5")
    axes.legend(loc="lower right")
    return figure


FIGURES: dict[str, Callable[[], Figure]] = {
    "posterior": posterior,
    "tail": tail,
    "frontier": frontiers,
    **PICTURES,
}


def main() -> None:
    """Write all pictures and quoted values."""
    if "--quoted" not in sys.argv[1:]:
        draw_pictures()
    write_quoted()


def draw_pictures() -> None:
    """Write all pictures, with few colours: the files are small."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "flow.svg").write_text(flow(), encoding="utf-8")
    for name, draw in FIGURES.items():
        drawn = io.BytesIO()
        with matplotlib_defaults():
            draw().savefig(drawn, dpi=110)
        target = FOLDER / f"{name}.png"
        Image.open(drawn).convert("RGB").quantize(64, dither=Image.Dither.NONE).save(target, optimize=True)
        print(f"{target}: {target.stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    main()
