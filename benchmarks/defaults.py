"""The costs of the service's default rules: the table of docs/service.md, by rehearsals of the service itself.

Run `python benchmarks/defaults.py`, which takes about ten minutes; `--quick` plays one seed.
"""

from __future__ import annotations

import argparse

import msgspec
import numpy as np

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


def rehearse(rules: Rules, profile: str, seed: int, *, lists: int, worthless: bool = False) -> Outcome:
    """Rehearse one query with exact priors, or with the relevances in random order as priors."""
    R = relevance(profile, seed)
    priors = np.random.default_rng(99 + seed).permutation(R) if worthless else R
    data = mf.Dataset(offsets=[0, CANDIDATES], y=R > 0, R=R, y_max=1, scores=priors)
    return Rehearsal(data=data, weights=np.ones(1), clicks=mf.PositionBased(), sessions=lists, seed=seed).play(rules)


def row(name: str, changes: dict[str, object], seeds: int) -> str:
    """Return a row of the table."""
    rules = msgspec.structs.replace(Rules(), **changes)
    cells: list[list[str]] = [[] for _ in range(4)]
    after, fairness = [], 0.0
    for profile in PROFILES:
        early = [rehearse(rules, profile, seed, lists=EARLY) for seed in range(seeds)]
        whole = [rehearse(rules, profile, seed, lists=LISTS) for seed in range(seeds)]
        lost = [rehearse(rules, profile, seed, lists=LISTS, worthless=True) for seed in range(min(seeds, 3))]
        cells[0].append(f"{min(each.worst_ndcg or 0.0 for each in early):.2f}")
        cells[1].append(f"{np.mean([each.ndcg for each in whole]):.2f}")
        cells[2].append(f"{np.mean([each.shown for each in whole]):.0%}")
        cells[3].append(f"{np.mean([each.ndcg for each in lost]):.2f}")
        after += [each.shown_after for each in whole]
        if profile == "uniform":
            fairness = float(np.mean([each.unfairness for each in whole]))
    worst, mean, shown, wrong = (" / ".join(each) for each in cells)
    shown = f"all, within {max(after):,}" if all(after) else shown
    return f"| {name} | {worst} | {mean} | {shown} | {fairness:,.0f} | {wrong} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed; too few for figures to quote")
    seeds = 1 if parser.parse_args().quick else 5
    print("| rules | worst of the first 200 lists | mean NDCG | candidates shown | unfairness, uniform |", end=" ")
    print("mean NDCG, worthless priors |\n|---|---|---|---|---|---|")
    for name, changes in RULES.items():
        print(row(name, changes, seeds), flush=True)


if __name__ == "__main__":
    main()
