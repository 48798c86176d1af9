"""Draw the README's picture, docs/tradeoff.png: effectiveness against unfairness on the built-in data."""

from pathlib import Path

import matplotlib as mpl
import numpy as np

import mcfair as mf

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

# One colour and one marker per policy everywhere (Okabe and Ito).
STYLE = {
    "TopK": ("#000000", "s"),
    "RandomK": ("#999999", "x"),
    "ExploreK": ("#E69F00", "^"),
    "FairK": ("#56B4E9", "D"),
    "FairCo": ("#D55E00", "v"),
    "MCFair": ("#0072B2", "o"),
}
ALPHAS = {
    "post-processing": {
        "MCFair": (0, 0.01, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 2, 10, 1000),
        "FairCo": (0, 1e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 1, 1000),
    },
    "online": {
        "MCFair": (0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1),
        "FairCo": (0, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.1, 1, 1000),
    },
}
SEEDS = 5

# Which point of a curve is labelled, and where the label stands from it.
LABELS = {
    "post-processing": {
        "MCFair": (8, (-20, 10)), "FairCo": (6, (10, -10)), "TopK": (0, (-34, -16)), "RandomK": (0, (-66, 8)),
        "ExploreK": (0, (-66, -6)), "FairK": (0, (-4, -18)),
    },
    "online": {
        "MCFair": (4, (-36, 12)), "FairCo": (5, (0, -18)), "TopK": (0, (-40, -4)), "RandomK": (0, (-20, 10)),
        "ExploreK": (0, (-66, -4)), "FairK": (0, (-18, -34)),
    },
}  # fmt: skip


def points(data: mf.Dataset, policies: list[mf.Policy], mode: str) -> np.ndarray:
    """Mean unfairness and cNDCG@5 of each policy over seeds, shape (policies, 2)."""
    runs = [[mf.simulate(data, policy, mode, seed=seed) for seed in range(SEEDS)] for policy in policies]
    return np.array([np.mean([(run.unfairness, run.cndcg[5]) for run in same], axis=0) for same in runs])


def draw() -> Path:
    """Run the grid and write the picture."""
    data = mf.synthetic("mq2008-like", seed=0)
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for panel, mode in zip(axes, ALPHAS, strict=True):
        beta = 0.0 if mode == "post-processing" else 100.0
        curves = {
            "MCFair": [mf.MCFair(alpha=a, beta=beta) for a in ALPHAS[mode]["MCFair"]],
            "FairCo": [mf.FairCo(alpha=a) for a in ALPHAS[mode]["FairCo"]],
            **{name: [mf.parse_policy(name)] for name in ("TopK", "RandomK", "ExploreK", "FairK")},
        }
        for name, policies in curves.items():
            colour, marker = STYLE[name]
            x, y = points(data, policies, mode).T
            panel.plot(x, y, color=colour, marker=marker, linewidth=1.8, markersize=6)
            at, where = LABELS[mode][name]
            panel.annotate(name, (x[at], y[at]), xytext=where, textcoords="offset points", color=colour, weight="bold")
        panel.set(xscale="log", xlabel="unfairness (lower is fairer)", title=f"{mode}: relevance is " + (
            "given" if mode == "post-processing" else "learnt from clicks"))  # fmt: skip
        panel.grid(alpha=0.3)
        panel.set_ylim(105, 210)
        panel.margins(x=0.08)
        panel.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        panel.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        panel.xaxis.set_minor_locator(NullLocator())
    axes[0].set_ylabel("cNDCG@5 (higher is better for users)")
    target = Path(__file__).with_name("tradeoff.png")
    figure.savefig(target, dpi=110)
    return target


if __name__ == "__main__":
    print(draw())
