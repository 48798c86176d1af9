"""The costs of the service's default rules, by rehearsals of the service itself: tables that the documentation quotes.

Run `python benchmarks/defaults.py costs` for the rules one by one, and `python benchmarks/defaults.py policies` for
MCFair beside BayesFair with late and lost clicks, newcomers and drift. Each takes about ten minutes on two cores.
`python benchmarks/defaults.py no-priors` takes seconds: the default rules where no priors are sent, and the same prior
for all. `--quick` plays one seed, and `--out docs/results/defaults.json` replaces the figures of a run in the file that
pages quote.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path

import msgspec
import numpy as np
from measuring import machine

import mcfair as mf
from mcfair.service.core.rules import Rules
from mcfair.service.rehearsal import Outcome, Rehearsal

CANDIDATES, LISTS, EARLY = 200, 2_000, 200
PROFILES = ("uniform", "few relevant", "graded")

PAPER = {"policy": "MCFair", "prior_strength": 1.0, "prior_certainty": 1.0}
RULES: dict[str, dict[str, object]] = {
    "default": {},
    "`guard=0`": {"policy": "MCFair(beta=3)"},
    "`guard=0.9`": {"policy": "MCFair(beta=3, guard=0.9)"},
    "`guard=0.97`": {"policy": "MCFair(beta=3, guard=0.97)"},
    "`alpha=0`": {"policy": "MCFair(alpha=0, beta=3, guard=0.93)"},
    "`beta=0`": {"policy": "MCFair(beta=0, guard=0.93)"},
    "prior strength 10": {"prior_strength": 10.0},
    "prior strength 30": {"prior_strength": 30.0},
    "prior certainty 100": {"prior_certainty": 100.0},
    "the paper: `MCFair`, prior strength 1": PAPER,
    "`TopK`": {"policy": "TopK"},
}

COMPARED: dict[str, dict[str, object]] = {
    "MCFair": {},
    "BayesFair": {"policy": "BayesFair(alpha=15, beta=0.1, guard=0.93)"},
}
"""The default, and a BayesFair that shows every candidate as well."""

LATE = {"click_delay": 1_800.0, "lost_clicks": 0.2}
CONDITIONS: dict[str, dict[str, float]] = {
    "nothing": {},
    "clicks 30 min late, 20 % lost": LATE,
    "10 % newcomers": {"newcomers": 0.1},
    "20 % drift": {"drift": 0.2},
}
ALL = {**LATE, "newcomers": 0.1, "drift": 0.2}
PRIORS = ("exact", "worthless", "none")


def relevance(profile: str, seed: int) -> np.ndarray:
    """Draw the relevance of the candidates."""
    rng = np.random.default_rng(seed)
    if profile == "uniform":
        return rng.random(CANDIDATES)
    if profile == "few relevant":
        R = np.zeros(CANDIDATES)
        R[rng.permutation(CANDIDATES)[: CANDIDATES // 20]] = 1.0
        return R
    return rng.choice([0.0, 0.1, 0.4, 1.0], CANDIDATES, p=[0.4, 0.3, 0.2, 0.1])


def one_query(profile: str, seed: int) -> mf.Dataset:
    """Return the candidates of one query."""
    R = relevance(profile, seed)
    return mf.Dataset(offsets=[0, CANDIDATES], y=R > 0, R=R, y_max=1)


def rehearse(
    changes: dict[str, object], data: mf.Dataset, seed: int, lists: int, priors: str = "exact", **settings: float
) -> Outcome:
    """Rehearse changed rules; worthless priors are the relevances of a query in random order."""
    sent, rng = data.R.copy(), np.random.default_rng(99 + seed)
    if priors == "worthless":
        for first, last in zip(data.offsets[:-1], data.offsets[1:], strict=True):
            sent[first:last] = rng.permutation(sent[first:last])
    known = mf.Dataset(offsets=data.offsets, y=data.y, R=data.R, y_max=data.y_max, scores=sent)
    users = {"weights": np.ones(data.queries), "clicks": mf.PositionBased(), "seed": seed, "priors": priors != "none"}
    return Rehearsal(data=known, sessions=lists, **users, **settings).play(msgspec.structs.replace(Rules(), **changes))


Rows = list[list[str]]


def shown(row: list[str]) -> list[str]:
    """Print a row of a table as Markdown, and return it."""
    print(f"| {' | '.join(row)} |", flush=True)
    return row


def joined(cells: Iterable[float], form: str) -> str:
    """Return the figures of the three profiles in one cell."""
    return " / ".join(format(each, form) for each in cells)


# --- the rules one by one --------------------------------------------------------------------------------------------


def cost_row(name: str, seeds: int) -> list[str]:
    """Return a row of the table of costs."""
    changes, cells = RULES[name], [[] for _ in range(4)]
    after, fairness = [], 0.0
    for profile in PROFILES:
        queries = [one_query(profile, seed) for seed in range(seeds)]
        early = [rehearse(changes, data, seed, EARLY) for seed, data in enumerate(queries)]
        whole = [rehearse(changes, data, seed, LISTS) for seed, data in enumerate(queries)]
        lost = [rehearse(changes, data, seed, LISTS, "worthless") for seed, data in enumerate(queries[:3])]
        cells[0].append(min(each.worst_ndcg or 0.0 for each in early))
        cells[1].append(mean(each.ndcg for each in whole))
        cells[2].append(mean(each.shown for each in whole))
        cells[3].append(mean(each.ndcg for each in lost))
        after += [each.shown_after for each in whole]
        if profile == "uniform":
            fairness = mean(each.unfairness for each in whole)
    worst, ndcg, wrong = (joined(cells[i], ".2f") for i in (0, 1, 3))
    reached = f"all, within {max(after):,}" if all(after) else joined(cells[2], ".0%")
    return [name, worst, ndcg, reached, f"{fairness:,.0f}", wrong]


def mean(values: Iterable[float | None]) -> float:
    """Return the mean of figures that every rehearsal has."""
    return float(np.mean([each for each in values if each is not None]))


COST_HEAD = [
    *("rules", "worst of the first 200 lists", "mean NDCG", "candidates shown", "unfairness, uniform"),
    "mean NDCG, worthless priors",
]


def print_costs(seeds: int) -> Rows:
    """Print and return the table of costs."""
    table = [shown(COST_HEAD)]
    shown(["---"] * len(COST_HEAD))
    with ProcessPoolExecutor() as pool:
        return table + [shown(each) for each in pool.map(cost_row, RULES, [seeds] * len(RULES))]


# --- policies --------------------------------------------------------------------------------------------------------


def long_list(rules: str, condition: str, priors: str, profile: str, seed: int) -> Outcome:
    """Rehearse one query of 200 candidates."""
    return rehearse(COMPARED[rules], one_query(profile, seed), seed, LISTS, priors, **CONDITIONS[condition])


def short_lists(rules: str, condition: str, priors: str, profile: str, seed: int) -> Outcome:
    """Rehearse forty queries of about ten candidates; their relevance has three grades."""
    data = mf.synthetic("mq2008-like", seed=seed).take(range(40))
    disturbed = {} if condition == "nothing" else ALL
    return rehearse(COMPARED[rules], data, seed, 3 * LISTS, priors, k=5, **disturbed)


POLICY_HEAD = [
    *("disturbed by", "rules", "NDCG", "worst list", "unfairness", "shown"),
    *("NDCG, worthless priors", "unfairness", "NDCG, no priors", "unfairness"),
]


def print_policies(
    play: Callable[..., Outcome], conditions: Iterable[str], profiles: Iterable[str], seeds: int
) -> Rows:
    """Print and return a table of policies under some conditions."""
    table = [shown(POLICY_HEAD)]
    shown(["---"] * len(POLICY_HEAD))
    keys = list(product(conditions, COMPARED, PRIORS, profiles, range(seeds)))
    columns = zip(*((rules, condition, *rest) for condition, rules, *rest in keys), strict=True)
    with ProcessPoolExecutor() as pool:
        found = dict(zip(keys, pool.map(play, *columns), strict=True))
    for condition, rules in product(conditions, COMPARED):
        cells = []
        for priors in PRIORS:
            runs = [[found[condition, rules, priors, each, seed] for seed in range(seeds)] for each in profiles]
            cells.append(joined((mean(run.ndcg for run in each) for each in runs), ".3f"))
            if priors == "exact":
                cells.append(joined((min(run.worst_ndcg or 0.0 for run in each) for each in runs), ".2f"))
            cells.append(joined((mean(run.unfairness for run in each) for each in runs), ",.0f"))
            if priors == "exact":
                cells.append(joined((mean(run.shown for run in each) for each in runs), ".0%"))
        table.append(shown([condition, rules, *cells]))
    return table


# --- without priors --------------------------------------------------------------------------------------------------

SHOES = np.array([0.80, 0.79, 0.78, 0.77, 0.76, 0.75, 0.74, 0.60, 0.40, 0.20])
"""The relevance of the ten shoes of the tutorial."""


def shares(prior: float | None, seed: int) -> list[float]:
    """Return the share of the exposure of each shoe in 400 lists of five, in ascending order."""
    n = SHOES.size
    known = {} if prior is None else {"scores": np.full(n, prior)}
    names = {"providers": np.arange(n), "provider_names": [str(i) for i in range(n)]}
    data = mf.Dataset(offsets=[0, n], y=SHOES > 0, R=SHOES, y_max=1, **known, **names)
    users = {"weights": np.ones(1), "clicks": mf.PositionBased(), "seed": seed, "priors": prior is not None}
    return sorted(
        group.exposure_share for group in Rehearsal(data=data, sessions=400, k=5, **users).play(Rules()).groups
    )


def print_no_priors(seeds: int) -> dict[str, Rows]:
    """Print and return when all of 200 candidates were shown, and the shares of the shoes."""
    after = [
        [
            profile,
            *(str(rehearse({}, one_query(profile, seed), seed, LISTS, "none").shown_after) for seed in range(seeds)),
        ]
        for profile in PROFILES
    ]
    found = [
        ["none" if prior is None else f"{prior:g}", *(f"{share:.4f}" for share in shares(prior, seed))]
        for prior in (None, 0.5)
        for seed in range(seeds)
    ]
    return {"no priors: all shown after": [shown(row) for row in after], "shoes": [shown(row) for row in found]}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", choices=["costs", "policies", "no-priors"])
    parser.add_argument("--quick", action="store_true", help="one seed; too few for figures to quote")
    parser.add_argument("--out", type=Path, metavar="FILE", help="JSON file in which to replace the tables")
    options = parser.parse_args()
    if options.table == "costs":
        tables = {"costs": print_costs(1 if options.quick else 5)}
    elif options.table == "no-priors":
        tables = print_no_priors(1 if options.quick else 5)
    else:
        seeds = 1 if options.quick else 2
        tables = {
            "short lists": print_policies(short_lists, ["nothing", "all at once"], [""], seeds),
            "long lists": print_policies(long_list, CONDITIONS, PROFILES, seeds),
        }
    if options.out is not None:
        made_with = machine()
        old = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else {}
        new = {name: {"made_with": made_with, "table": table} for name, table in tables.items()}
        found = {"made_with": made_with, "tables": old.get("tables", {}) | new}
        options.out.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
