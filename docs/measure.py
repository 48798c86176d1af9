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
from statistics import median
from typing import Any

import numpy as np
from quoting import results as stored

import mcfair as mf
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


def figures_of(experiment: mf.Experiment, repeats: int = 1) -> Figures:
    """Return unfairness, cNDCG and time of every method of an experiment in its first setting, and the floor.

    Everything but the time is the same in each repetition, and the time is the least: others may use the machine.
    """
    repeated = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            repeated.append(mf.run_experiments([experiment], Path(folder)))
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
            "note": series.note,
        }
    about, floor = (
        {"data": data, "steps": setting.steps, "seeds": experiment.seeds},
        spread(results.floors(data, setting)),
    )
    above = {name: each["unfairness"]["mean"] / floor["mean"] - 1 for name, each in rows.items()}
    return about | {"floor": floor, "above floor": above, "methods": rows}


def shown(found: Figures, digits: int) -> str:
    """Return mean and standard deviation as text."""
    return f"{found['mean']:.{digits}f} ({found['std']:.{digits}f})"


def table1() -> Figures:
    """Return the paper's Table 1 on MQ2008, as `mcfair reproduce table1` prints it, beside the paper's figures."""
    found = figures_of(mf.shipped_experiment("table1"))
    table = [["method", "paper", "mcfair", "why they differ"]]
    for name, each in found["methods"].items():
        if each["paper"] is not None:
            mean, std = each["paper"]
            agree = f"{each['unfairness']['mean']:.4g}" == f"{mean:.4g}"
            table.append([name, f"{mean:.4g} ({std:.3f})", shown(each["unfairness"], 3), "" if agree else each["note"]])
    return found | {"table": table}


def demo() -> Figures:
    """Return the table that `mcfair demo` prints."""
    reduced = mf.shipped_experiment("table1").on("mq2008-like", "").reduced(seeds=2, points=5, shorter=5)
    found = figures_of(reduced, repeats=8)
    table = [["method", "unfairness", "above floor", "cNDCG@1", "cNDCG@5", "s/1,000 lists"]]
    table.append(["*floor (lowest possible)*", f"*{found['floor']['mean']:.2f}*", "", "", "", ""])
    for name, each in found["methods"].items():
        cells = [f"{each['unfairness']['mean']:.2f}", f"{100 * found['above floor'][name]:.1f} %"]
        table.append([name, *cells, *(f"{each['cndcg'][k]:.2f}" for k in (1, 5)), f"{each['seconds']:.2g}"])
    return found | {"table": table}


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
    fold = mf.open_data("mq2008/fold1", preset="wsdm23")
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
    table = [["policy", "`ties`", "unfairness", "cNDCG@5"]]
    for policy, by_rule in found.items():
        for rule, each in by_rule.items():
            cells = [shown(each["unfairness"], 2), f"{each['cndcg']['mean']:.1f}"]
            table.append([f"`{policy}`", f"`{rule}`", *cells])
    return {"policies": found, "table": table}


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


def short_lists() -> mf.Dataset:
    """Return built-in data of about ten candidates per query."""
    return mf.synthetic("mq2008-like", seed=0)


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


def single_queries(data: mf.Dataset, policies: dict[str, str], steps: int, queries: int = 8) -> Figures:
    """Return the figures of runs that have one query of eight candidates each, so that nothing can be pooled."""
    alike = np.flatnonzero(data.sizes == 8)[:queries]
    found = {}
    for label, policy in policies.items():
        runs = [played(data.take([int(each)]), policy, steps=steps) for each in alike]
        found[label] = {name: float(np.mean([run[name] for run in runs])) for name in runs[0]}
    return found


def bayesfair() -> Figures:
    """Return the figures of the page on BayesFair, and the points of its pictures."""
    short = short_lists()
    state = mf.simulate(short, "TopK", "online", steps=STEPS).state
    limit = mf.frontier(short, state.visits, state.p)
    faint = {"BayesFair": "BayesFair(alpha=1000)", "MCFair": "MCFair(alpha=100, scale=mean)"}
    return {
        "steps": STEPS,
        "seeds": len(SEEDS),
        "floor": float(limit.unfairness[0]),
        "limit": {"unfairness": limit.unfairness.tolist(), "ndcg": limit.ndcg.tolist()},
        "curves": {
            label: [played(short, policy.format(each), estimator=estimator) for each in values]
            for label, (policy, values, estimator) in CURVES.items()
        },
        "single, weak": single_queries(weaker(short), faint, 1_000),
        "pooled, weak": {
            label: played(weaker(short), each, steps=1_000 * short.queries) for label, each in faint.items()
        },
    }


# --- past one machine ------------------------------------------------------------------------------------------------

LISTS_A_DAY, PEAK, BUSY, DAYS, SHARDS = 10**9, 3, 0.6, 7, 16
"""The lists, the busiest second against the mean, the share of a core to plan for, the retention, the databases."""


def rows_of(name: str, title: str) -> list[Figures]:
    """Return the rows of the table of a benchmark whose title begins so."""
    (rows,) = (rows for head, rows in stored(name)["tables"].items() if head.startswith(title))
    return list(rows)


def scale() -> Figures:
    """Return the arithmetic for a billion lists a day, from the figures of service.json and postgres.json."""
    memory, database = rows_of("service", "Bytes")
    cases = {
        name: {each: median(round_[each] for round_ in rounds) for each in rounds[0]}
        for name, rounds in stored("postgres")["cases"].items()
    }
    peak, routed = PEAK * LISTS_A_DAY / 86_400, cases["two, routed"]
    item, log = "a query's item", LISTS_A_DAY * DAYS * database["an impression"] / 1e12
    clicks = 0.5 * peak * rows_of("service", "Feedback")[0]["CPU, µs an event"] / 1e6
    table = [
        ["quantity", "value"],
        ["lists a second, mean of the day", f"{LISTS_A_DAY / 86_400:,.0f}"],
        [f"lists a second at the peak, {PEAK} times as many (assumed)", f"{peak:,.0f}"],
        ["CPU of instances a list (measured)", f"{routed['instances, µs']:.0f} µs"],
        ["CPU of the database a list (measured)", f"{routed['database, µs']:.0f} µs"],
        [f"cores of instances, {100 * BUSY:.0f} % busy", f"{peak * routed['instances, µs'] / 1e6 / BUSY:.0f}"],
        [f"cores of databases, {100 * BUSY:.0f} % busy", f"{peak * routed['database, µs'] / 1e6 / BUSY:.0f}"],
        ["cores for feedback, a click every other list", f"{clicks:.1f}"],
        [f"log, {DAYS} days of retention", f"{log:.2f} TB"],
        ["counts of 10⁷ queries of 100 items", f"{database[item]:.0f} GB"],
        ["the same in the caches of all instances", f"{memory[item]:.0f} GB"],
        [
            f"each of {SHARDS} databases, at the peak",
            f"{peak / SHARDS:,.0f} lists/s, {1000 * log / SHARDS:.0f} GB of log",
        ],
    ]
    names = {"requests/s": "lists/s", "instances, µs": "CPU of instances, µs a list", "database, µs": "of the database"}
    measured = [["", *names.values()]]
    measured += [[name, *(f"{each[key]:,.0f}" for key in names)] for name, each in cases.items()]
    ratio = routed["requests/s"] / cases["one instance"]["requests/s"]
    return {"table": table, "instances": measured, "ratio": ratio}


# --- files -----------------------------------------------------------------------------------------------------------

MEASURES: dict[str, Callable[..., Figures]] = {
    "table1": table1,
    "demo": demo,
    "ties": ties,
    "bayesfair": bayesfair,
    "scale": scale,
}


def main() -> None:
    """Measure, and write a file for each name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MEASURES))
    for name in parser.parse_args().names or list(MEASURES):
        found = {"made_with": origin(f"python docs/measure.py {name}"), **MEASURES[name]()}
        text = json.dumps(found, indent=1, ensure_ascii=False)
        (RESULTS / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")
        print(f"docs/results/{name}.json", flush=True)


if __name__ == "__main__":
    main()
