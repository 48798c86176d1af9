"""Measure the figures that pages quote: `python docs/measure.py [NAME …]` writes docs/results/NAME.json.

The figures of the other files come from commands of their own, which the files name.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import mcfair as mf
from mcfair.analysis.limits import frontier
from mcfair.data.catalogue import locate
from mcfair.experiments.compare import run_experiments
from mcfair.experiments.experiment import Experiment, shipped_experiment
from mcfair.simulation.run import versions

RESULTS = Path(__file__).parent / "results"

Figures = dict[str, Any]


def origin(command: str) -> dict[str, str]:
    """Return how, when and with which versions figures were made."""
    return {
        "command": command,
        "measured": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": f"{platform.system()} {platform.machine()}",
        **versions(),
    }


def spread(values: Iterable[float]) -> Figures:
    """Return mean and population standard deviation over seeds."""
    found = np.array(list(values), float)
    return {"mean": float(found.mean()), "std": float(found.std())}


# --- the paper's table -----------------------------------------------------------------------------------------------


def table_of(experiment: Experiment, repeats: int = 1) -> Figures:
    """Return unfairness, cNDCG and time of every method of an experiment in its first setting, and the floor.

    Everything but the time is the same in each repetition, and the time is the least: others may use the machine.
    """
    repeated = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            repeated.append(run_experiments([experiment], Path(folder)))
    results = repeated[0]
    (data,), setting = experiment.data, experiment.conditions[0]
    rows = {}
    for series, where, policy in experiment.played():
        runs = results.of(data, where, policy)
        rows[series.name] = {
            "policy": repr(policy),
            "unfairness": spread(runs["unfairness"]),
            "cndcg": {k: float(runs[f"cndcg@{k}"].to_numpy().mean()) for k in (1, 3, 5)},
            "seconds": min(each.seconds(data, where, policy) or 0.0 for each in repeated),
            "paper": None if series.paper is None else series.paper.unfairness,
        }
    about = {"data": data, "steps": setting.steps, "seeds": experiment.seeds}
    return about | {"floor": spread(results.floors(data, setting)), "methods": rows}


def table1() -> Figures:
    """Return the paper's Table 1 on MQ2008, as `mcfair reproduce table1` prints it."""
    return table_of(shipped_experiment("table1"))


def demo() -> Figures:
    """Return the table that `mcfair demo` prints."""
    return table_of(shipped_experiment("table1").on("mq2008-like", "").reduced(seeds=2, points=5, shorter=5), repeats=8)


# --- ties ------------------------------------------------------------------------------------------------------------

TIES = {
    "TopK": ("index", "random", "least-exposed"),
    "FairK": ("index", "random", "least-exposed"),
    "MCFair(alpha=1000, beta=0)": ("index", "random", "least-exposed"),
    "ILP(alpha=1)": ("deviation", "index"),
}
"""Policies with every rule for ties that they have."""


def ties() -> Figures:
    """Return unfairness, cNDCG@5 by rule for ties, in the setting of Table 1."""
    fold = mf.load_fold(locate("mq2008/fold1"), preset="wsdm23")
    found: dict[str, dict[str, Figures]] = {}
    for text, rules in TIES.items():
        found[text] = {}
        for rule in rules:
            head, _, rest = text.partition("(")
            policy = f"{head}({rest.rstrip(')') + ', ' if rest else ''}ties={rule})"
            runs = [mf.simulate(fold, policy, "post-processing", steps=10_000, seed=seed) for seed in range(5)]
            found[text][rule] = {
                "unfairness": spread(each.unfairness for each in runs),
                "cndcg": spread(each.cndcg[5] for each in runs),
            }
    return {"policies": found}


# --- BayesFair on built-in data --------------------------------------------------------------------------------------

STEPS, SEEDS = 50_000, range(3)
ALPHAS = (0, 1, 3, 7, 15, 25, 40, 70, 130, 300, 1_000, 3_000)
CURVES: dict[str, tuple[str, Sequence[float], str]] = {
    "BayesFair": ("BayesFair(alpha={})", ALPHAS, "auto"),
    "BayesFair, IPS": ("BayesFair(alpha={})", ALPHAS, "IPS"),
    "MCFair": ("MCFair(alpha={})", (0.01, 0.03, 0.1, 0.2, 0.5, 1), "auto"),
    "MCFair(scale=mean)": ("MCFair(alpha={}, scale=mean)", (3, 10, 30, 100, 300, 1_000), "auto"),
}
"""Curves of the frontier: the policy, the values of its parameter, and the estimator."""

ENDS = (
    "BayesFair(alpha=130)", "MCFair(alpha=300, beta=10, scale=mean)",
    "BayesFair(alpha=1000)", "MCFair(alpha=1000, scale=mean)",
)  # fmt: skip
"""Policies whose last lists are compared on long lists."""


def short_lists() -> mf.Dataset:
    """Return built-in data of about ten candidates per query."""
    return mf.synthetic("mq2008-like", seed=0)


def long_lists(queries: int = 66) -> mf.Dataset:
    """Return built-in data of about a hundred candidates per query; 66 have about as many visits as `short_lists`."""
    return mf.synthetic("istella-s-like", seed=0).take(range(queries))


def played(data: mf.Dataset, policy: str, seeds: Iterable[int] = SEEDS, **options: Any) -> Figures:
    """Return unfairness, average NDCG@5 and cNDCG@5 as means over seeds."""
    chosen = {"setting": "online", "steps": STEPS} | options
    runs = [mf.simulate(data, policy, seed=seed, **chosen) for seed in seeds]
    return {
        "unfairness": float(np.mean([each.unfairness for each in runs])),
        "ndcg": float(np.mean([each.ndcg[5] for each in runs])),
        "cndcg": float(np.mean([each.cndcg[5] for each in runs])),
    }


def weaker(data: mf.Dataset, share: float = 0.05) -> mf.Dataset:
    """Return the same data with a fraction of its relevance, as where few views are clicked."""
    return mf.Dataset(offsets=data.offsets, y=data.y, R=share * data.R, y_max=data.y_max)


def single_queries(data: mf.Dataset, policies: Iterable[str], steps: int, queries: int = 8) -> Figures:
    """Return the figures of runs that have one query of eight candidates each, so that nothing can be pooled."""
    alike = np.flatnonzero(data.sizes == 8)[:queries]
    found = {}
    for policy in policies:
        runs = [played(data.take([int(each)]), policy, steps=steps) for each in alike]
        found[policy] = {name: float(np.mean([run[name] for run in runs])) for name in runs[0]}
    return found


def bayesfair() -> Figures:
    """Return the figures of the page on BayesFair, and the points of its pictures."""
    short, long = short_lists(), long_lists()
    state = mf.simulate(short, "TopK", "online", steps=STEPS).state
    limit = frontier(short, state.visits, state.p)
    faint = ("BayesFair(alpha=1000)", "MCFair(alpha=100, scale=mean)")
    return {
        "steps": STEPS,
        "seeds": len(SEEDS),
        "floor": float(limit.unfairness[0]),
        "limit": {"unfairness": limit.unfairness.tolist(), "ndcg": limit.ndcg.tolist()},
        "curves": {
            label: [played(short, policy.format(each), estimator=estimator) for each in values]
            for label, (policy, values, estimator) in CURVES.items()
        },
        "prices": {
            label: [played(data, f"BayesFair(alpha={each})") for each in ALPHAS]
            for label, data in (("10 candidates", short), ("100 candidates", long))
        },
        "alphas": ALPHAS,
        "single": single_queries(short, ("BayesFair", "MCFair"), 300),
        "single, weak": single_queries(weaker(short), faint, 1_000),
        "pooled, weak": {each: played(weaker(short), each, steps=1_000 * short.queries) for each in faint},
        "ends": {each: played(long, each, steps=100_000) for each in ENDS},
    }


# --- past the paper --------------------------------------------------------------------------------------------------

LOSSES = (0.01, 0.02, 0.05, 0.1)
LONG_POLICIES = (
    *(f"MCFair(alpha={alpha}, beta=100, scale=mean)" for alpha in (100, 300, 1000)),
    "MCFair(alpha=200, beta=10, scale=mean)",
    *(f"BayesFair(alpha={alpha}, early={early})" for early in (0, 20, 100) for alpha in (200, 700)),
)


def long_tables(mslr: Path) -> dict[str, mf.Dataset]:
    """Return the data with about a hundred candidates per query."""
    return {"MSLR-WEB, 43 queries": mf.load_letor(mslr), "built-in Istella-S, 43 queries": long_lists(43)}


def past_the_paper(mslr: Path) -> Figures:
    """Return what BudgetFair gives up, and the policies on long lists; `mslr` is a LETOR file of MSLR-WEB."""
    folds = {f"MQ2008, fold {i}": mf.load_fold(locate(f"mq2008/fold{i}"), preset="wsdm23") for i in (1, 2, 3)}
    data = folds | long_tables(mslr)
    budgets: dict[str, dict[str, list[float]]] = {}
    for mode, seeds in (("post-processing", (0,)), ("online", (0, 1))):
        budgets[mode] = {}
        for name, each in data.items():
            runs = [
                played(each, f"BudgetFair(loss={loss})", seeds, setting=mode, steps=100_000) for loss in (0, *LOSSES)
            ]
            budgets[mode][name] = [run["ndcg"] for run in runs]
            print(mode, name, budgets[mode][name], flush=True)
    return {
        "losses": LOSSES,
        "budgets": budgets,
        "long": {
            name: {policy: played(each, policy, (0, 1), steps=100_000) for policy in LONG_POLICIES}
            for name, each in long_tables(mslr).items()
        },
    }


# --- files -----------------------------------------------------------------------------------------------------------

MEASURES: dict[str, Callable[..., Figures]] = {
    "table1": table1,
    "demo": demo,
    "ties": ties,
    "bayesfair": bayesfair,
    "past_the_paper": past_the_paper,
}


def main() -> None:
    """Measure, and write a file for each name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MEASURES))
    parser.add_argument("--mslr", type=Path, metavar="FILE", help="a file of MSLR-WEB, for past_the_paper")
    options = parser.parse_args()
    for name in options.names or [each for each in MEASURES if each != "past_the_paper" or options.mslr]:
        given, command = (), f"python docs/measure.py {name}"
        if name == "past_the_paper":
            if options.mslr is None:
                parser.error("past_the_paper needs --mslr FILE")
            given, command = (options.mslr,), f"{command} --mslr {options.mslr.name}"
        found = {"made_with": origin(command), **MEASURES[name](*given)}
        text = json.dumps(found, indent=1, ensure_ascii=False)
        (RESULTS / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")
        print(f"docs/results/{name}.json", flush=True)


if __name__ == "__main__":
    main()
