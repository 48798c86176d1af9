"""How often the guard of an experiment stops an arm that is exactly at its margins: the rate of false stops.

    python benchmarks/guard.py                                  # 2,000 runs of each case, a few minutes
    python benchmarks/guard.py --out docs/results/guard.json    # the figures of docs/how-to/compare-policies.md

Totals of the control and of one arm are drawn, and after every step the guard looks at them with the test of the
package. Sessions have one to five lists, and the lists of a session have its taste and its rate of clicks in common.
The arm adds as much more unfairness as its margin allows, and loses as many clicks: it is never to be stopped. Nothing
is timed, so the figures do not depend on how busy the machine is.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from measuring import machine, show_progress

from mcfair.service.core.arm_reports import guard_p_values
from mcfair.service.core.experiments import BUCKETS
from mcfair.service.wire import ArmGuard

LOOKS, SESSIONS = 100, 60
"""Looks of the guard in a run, and the sessions of both arms together between two looks."""

TASTE, RATES = 0.2, 0.5
"""Standard deviation of the unfairness that the lists of a session add, and how far its rate of clicks may be from the
mean, relative to that."""

CASES = {
    "default": {"level": 0.05, "clicks": 0.5, "share": 0.5},
    "few clicks": {"level": 0.05, "clicks": 0.05, "share": 0.5},
    "small arm": {"level": 0.05, "clicks": 0.5, "share": 0.1},
    "high level": {"level": 0.2, "clicks": 0.5, "share": 0.5},
}
"""The level of the guard, the clicks per list of the control, and the share of the sessions in the arm."""


def add_sessions(rng, totals, count, unfairness, clicks):
    """Add the lists, clicks, NDCG and unfairness of some sessions to the totals of an arm, shape (buckets, 4)."""
    bucket, lists = rng.integers(BUCKETS, size=count), rng.integers(1, 6, count)
    rate = clicks * (1 + rng.uniform(-RATES, RATES, count))
    taste = rng.normal(0.0, TASTE, count)
    values = (lists, rng.poisson(rate * lists), lists, lists * (unfairness + taste))
    np.add.at(totals, bucket, np.stack(values, axis=1))


def is_stopped(rng, level, clicks, share):
    """Simulate one experiment; return whether the guard stops the arm at any look."""
    guard, totals = ArmGuard(level=level), np.zeros((2, BUCKETS, 4))
    at_margins = ((0.0, clicks), (guard.unfairness, (1 - guard.clicks) * clicks))
    counts = (round(SESSIONS * (1 - share)), round(SESSIONS * share))
    for _ in range(LOOKS):
        for arm, count, (unfairness, rate) in zip(totals, counts, at_margins, strict=True):
            add_sessions(rng, arm, count, unfairness, rate)
        if min(guard_p_values(guard, totals)[1].values()) <= level:
            return True
    return False


def main():
    """Simulate all cases; print the rates and write them to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2_000, help="of each case")
    parser.add_argument("--out", type=Path, metavar="FILE", help="JSON file to write")
    options = parser.parse_args()
    about, found = machine(), {}
    for name, case in CASES.items():
        show_progress(f"{name}: {options.runs:,} runs")
        rng = np.random.default_rng(0)
        stopped = sum(is_stopped(rng, **case) for _ in range(options.runs))
        found[name] = case | {"stopped": stopped}
        print(f"{name}: {stopped} of {options.runs:,} runs, {100 * stopped / options.runs:.1f} %", flush=True)
    if options.out is not None:
        figures = {"made_with": about, "runs": options.runs, "looks": LOOKS, "cases": found}
        options.out.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
