"""Measure how fast the package is, next to what it is compared with: `python benchmarks/run.py [--quick]`."""

import argparse
import dataclasses
import json
import shutil
import subprocess
import sys
import time
from functools import partial
from operator import mul
from pathlib import Path
from unittest.mock import patch

import numpy as np
import plain_numpy
from compare import compare_checkouts
from measuring import (
    FULL,
    MICRO,
    QUICK,
    STARTED,
    Report,
    Spread,
    formatted,
    interleave,
    load_average,
    machine,
    show_progress,
)
from reading import read_letor_files

import mcfair as mf

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "tests"))
import naive  # noqa: E402  # the oracle is part of the tests

MODES = ("post-processing", "online")

# The weight of exploration is explicit: "auto" would be another policy in each setting.
EXPLORING, NOT_EXPLORING = mf.MCFair(beta=100.0), mf.MCFair(beta=0.0)


# --- sessions per second ---------------------------------------------------------------------------------------------


@mf.kernel
def score_nothing(q, theta, rng, out):
    pass


class Empty(mf.Policy):
    """Write no scores: all items are tied, and the loop still has to choose among them."""

    kernel = score_nothing


@mf.kernel
def rank_nothing(q, theta, rng, out):
    for j in range(out.shape[0]):
        out[j] = j


class FirstK(mf.Policy):
    """Show the first items: what remains is the loop, that is users, state and metrics."""

    kernel = rank_nothing
    ranks = True


def play(data, policy, mode, sessions, **options):
    """Return the microseconds per session of the package."""
    return mf.simulate(data, policy, mode, steps=sessions, **options).seconds / sessions * MICRO


def play_oracle(data, policy, mode, arrivals):
    """Return the microseconds per session of the slow oracle of the tests."""
    # Its unfairness is computed over all pairs at the end: with so few sessions that would take most of the time.
    with patch.object(naive, "unfairness", lambda E, R: 0.0):
        begun = time.perf_counter()
        naive.simulate(data, policy, arrivals, online=mode == "online")
    return (time.perf_counter() - begun) / len(arrivals) * MICRO


def play_plain(data, policy, mode, arrivals):
    """Return the microseconds per session of the plain NumPy loop."""
    return plain_numpy.play(data, policy, arrivals, online=mode == "online")[0] / len(arrivals) * MICRO


def check_plain(data, policy):
    """Verify that the plain loop and the package compute the same."""
    trace = mf.simulate(data, policy, steps=2000, record=True)
    _, ndcg = plain_numpy.play(data, policy, trace.arrivals, online=False)
    np.testing.assert_allclose(ndcg, list(trace.ndcg.values()), rtol=1e-3)  # rounding may order ties differently


def speed(report, effort):
    light = [cls() for cls in mf.registered(mf.Policy).values() if cls not in (*SOLVERS, mf.MCFair)]
    policies = [Empty(), FirstK(), *light, EXPLORING, NOT_EXPLORING]
    limits = {"mq2008-like": (0.2, 0.25), "istella-s-like": (0.6, 0.6)}
    comparison = []
    for data in (mf.synthetic("mq2008-like"), mf.synthetic("istella-s-like").take(range(300))):
        for policy in (EXPLORING, NOT_EXPLORING):
            check_plain(data, policy)
        for mode, limit in zip(MODES, limits[data.name], strict=True):
            where = f"{data.name}, {mode}"
            times = interleave(compared_runs(data, mode, policies, effort), effort.rounds, f"speed, {where}")
            report.table(
                f"Sessions per second: {where}, {data.sizes.mean():.0f} items a query",
                [policy_row(policy, times) for policy in policies],
            )
            comparison += [
                {"data": data.name, "setting": mode} | numpy_row(policy, times)
                for policy in policies
                if (policy, "oracle") in times
            ]
            for policy in (EXPLORING, NOT_EXPLORING):
                figure, faster = f"{policy.label}, {where}", times[policy, "plain"] / times[policy, 1]
                report.target(figure, times[policy, 1], limit, "µs/session")
                if data.name == "istella-s-like":
                    report.target(f"{figure}, stretch", times[policy, 1], 0.3, "µs/session")
                report.target(f"{figure}, against plain NumPy", faster, 100, "times faster", at_least=True)
    report.table("Against plain NumPy, one thread", comparison)


SOLVERS = (mf.ILP, mf.LP, mf.PLFair, mf.Expohedron)
"""Policies that solve or train: a session costs too much for the runs of the others."""

# Seconds per 1,000 lists that the paper reports in post-processing, on MQ2008 and on Istella-S.
PAPER = {
    "TopK": (0.543, 0.572), "ExploreK": (0.577, 0.700), "FairCo(alpha=1000)": (0.691, 0.607), "FairK": (0.627, 0.770),
    "MCFair(alpha=1000, beta=0)": (0.631, 0.645), "MMF": (2.133, 6.876), "ILP": (17.24, 1508.9),
    "ILP(alpha=0.1)": (17.24, 1508.9), "LP": (4.036, 864_000.0), "LP(alpha=0.01)": (4.036, 864_000.0),
    "PLFair": (4.283, 4.366),
}  # fmt: skip


def lists(report, effort):
    """Measure the time of 1,000 lists in a run of 10,000, with solving and training, next to the paper's."""
    rows = []
    for column, data in enumerate((mf.synthetic("mq2008-like"), mf.synthetic("istella-s-like").take(range(300)))):
        tasks = {(text, mode): partial(play, data, text, mode, 10_000) for text in PAPER for mode in MODES}
        times = interleave(tasks, effort.few_rounds, f"lists, {data.name}")
        for text, seconds in PAPER.items():
            post, online = (times[text, mode].map(lambda t: t / MICRO * 1000) for mode in MODES)
            faster = post.map(lambda t: seconds[column] / t)  # noqa: B023
            rows.append(
                {
                    "data": data.name,
                    "policy": text,
                    "paper\ns/1,000": seconds[column],
                    "post-processing\ns/1,000": post,
                    "online\ns/1,000": online,
                    "paper /\npost-processing": faster,
                }
            )
            for name, limit in LIST_TARGETS.get((data.name, text), {}).items():
                value = {"post-processing": post, "online": online}[name]
                report.target(f"{text}, {data.name}, {name}", value, limit, "s per 1,000 lists")
    report.table(
        "Seconds per 1,000 lists, in runs of 10,000",
        rows,
        "The paper's figures are from another machine; 864,000 s stands for its 'more than 10 days'.",
    )


LIST_TARGETS = {
    ("mq2008-like", "MMF"): {"post-processing": 0.002},
    ("mq2008-like", "ILP"): {"post-processing": 0.1},
    ("mq2008-like", "ILP(alpha=0.1)"): {"post-processing": 0.1},
    ("mq2008-like", "LP"): {"post-processing": 0.1},
    ("mq2008-like", "PLFair"): {"post-processing": 0.1},
    ("istella-s-like", "ILP(alpha=0.1)"): {"post-processing": 0.05, "online": 0.3},
    ("istella-s-like", "LP"): {"post-processing": 0.5},
}


def bounds(report, effort):
    """Measure the floor and the frontier of many queries, with grades and with distinct relevance."""
    rng = np.random.default_rng(0)
    queries, n = (10_000, 100) if effort is FULL else (1_000, 100)
    visits, p = rng.integers(1, 200, queries), mf.examination(5)
    grades = mf.Dataset(offsets=np.arange(queries + 1) * n, y=rng.integers(0, 5, queries * n))
    distinct = dataclasses.replace(grades, R=rng.random(queries * n), fingerprint="")
    tasks = {
        (name, what): partial(seconds_of, what, data, visits, p)
        for name, data in (("5 grades", grades), ("all distinct", distinct))
        for what in (mf.fairness_floor, mf.frontier)
    }
    times = interleave(tasks, effort.few_rounds, "limits")
    report.table(
        f"Limits of {queries:,} queries of {n} items",
        [
            {
                "relevance": name,
                "floor, s": times[name, mf.fairness_floor],
                "frontier of 40 points, s": times[name, mf.frontier],
            }
            for name in ("5 grades", "all distinct")
        ],
    )


def seconds_of(function, *arguments):
    begun = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - begun


def compared_runs(data, mode, policies, effort):
    """Return what is timed on the same data, by policy and implementation: 1 or 2 threads, plain NumPy, the oracle."""
    arrivals = mf.simulate(data, FirstK(), mode, steps=10 * effort.slow_sessions, record=True).arrivals
    tasks = {}
    for policy in policies:
        sessions = effort.slow_sessions if policy.kernel is None else effort.sessions
        for threads in (1, 2):
            tasks[policy, threads] = partial(play, data, policy, mode, sessions, threads=threads)
        if isinstance(policy, mf.MCFair):
            tasks[policy, "plain"] = partial(play_plain, data, policy, mode, arrivals)
        if type(policy).__name__ in naive.SCORES:
            tasks[policy, "oracle"] = partial(play_oracle, data, policy, mode, arrivals[: effort.slow_sessions])
    return tasks


def policy_row(policy, times):
    """Return the row of one policy next to the loop alone and the loop with an empty kernel."""
    row = {"policy": policy.label}
    for threads, head in ((1, "1 thread"), (2, "2 threads")):
        mine = times[policy, threads]
        row |= {
            f"{head}\nµs/session": mine,
            f"{head}\nM/s": 1 / mine.best,
            f"{head}\n/ FirstK": mine / times[FirstK(), threads],
            f"{head}\n/ Empty": mine / times[Empty(), threads],
        }
    return row


def numpy_row(policy, times):
    """Return the row of one policy next to the plain NumPy loop, if there is one, and the oracle."""
    row = {"policy": policy.label, "package\nµs/session": times[policy, 1]}
    for key, head in (("plain", "plain NumPy"), ("oracle", "oracle")):
        theirs = times.get((policy, key))
        row |= {f"{head}\nµs/session": theirs, f"{head}\n/ package": theirs and theirs / times[policy, 1]}
    return row


# --- growth ----------------------------------------------------------------------------------------------------------


def graded(n, queries):
    """Build queries of n items each, nine in ten of them irrelevant."""
    y = np.random.default_rng(n).choice(5, n * queries, p=[0.9, 0.04, 0.03, 0.02, 0.01])
    return mf.Dataset(offsets=np.arange(queries + 1) * n, y=y, y_max=4, name=f"n = {n}")


def growth_in_items(report, effort):
    sizes = (10, 30, 100, 300, 1000, 3000, 10_000)
    tasks = {}
    for n in sizes:
        # Each query is visited as often as it has items, 100 times at least, so that the states are comparable.
        visits = max(n, 100)
        data = graded(n, queries=max(1, min(1000, effort.visited_items // (n * visits))))
        for mode in MODES:
            tasks[n, mode] = partial(play, data, EXPLORING, mode, data.queries * visits, checkpoints=1)
    times = interleave(tasks, effort.rounds, "growth with items")
    rows = []
    for n in sizes:
        row = {"items n": n}
        for mode in MODES:
            mine = times[n, mode]
            row |= {f"{mode}\nµs/session": mine, f"{mode}\nns/item": mine.map(partial(mul, 1000 / n))}
        rows.append(row)
    slopes = {mode: log_slope({n: times[n, mode] for n in sizes if n >= 100}) for mode in MODES}
    report.table("Growth with the items of a query: MCFair, one thread", rows, slope_note("n from 100 on", slopes))


def growth_in_sessions(report, effort):
    data = mf.synthetic("mq2008-like")
    counts = [10**i for i in range(4, 8) if 10**i <= effort.most_sessions]
    tasks = {(count, mode): partial(play, data, EXPLORING, mode, count) for count in counts for mode in MODES}
    times = interleave(tasks, effort.few_rounds, "growth with sessions")
    rows = [{"sessions": c} | {f"{mode}\nµs/session": times[c, mode] for mode in MODES} for c in counts]
    slopes = {mode: log_slope({c: times[c, mode].map(partial(mul, c)) for c in counts}) for mode in MODES}
    report.table("Growth with sessions: MCFair, mq2008-like, one thread", rows, slope_note("sessions", slopes))


def slope_note(what, slopes):
    """Describe how time grows, for the note of a table."""
    shares = ", ".join(f"{mode} {formatted(slope)}" for mode, slope in slopes.items())
    return f"Exponent of the growth with {what} (1 is linear): {shares}."


def log_slope(times):
    """Return the slope of the line through the points (log x, log time): 1 if time is proportional to x."""
    return Spread(*np.polyfit(np.log(list(times)), np.log(list(times.values())), 1)[0].tolist())


# --- in fresh processes ----------------------------------------------------------------------------------------------


def large_run(report, effort):
    def run(sessions):
        command = [sys.executable, str(HERE / "large_run.py"), str(sessions)]
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)

    run(1000)  # compile, and fill the cache
    runs = []
    for i in range(effort.few_rounds):
        show_progress(f"large run: {i + 1} of {effort.few_rounds}")
        runs.append(run(effort.large_sessions))
    seconds, wall, peak = (Spread.of([run[key] for run in runs]) for key in ("seconds", "wall", "peak_mb"))
    title = f"The large run: {effort.large_sessions:,} online sessions of MCFair, istella-s-like, two threads"
    report.table(title, [{"seconds of the trace": seconds, "seconds of the call": wall, "peak memory, MB": peak}])
    if effort.large_sessions == FULL.large_sessions:
        report.target("large run, seconds of the trace", seconds, 10, "s")
        report.target("large run, seconds of the call", wall, 10, "s")
        report.target("large run, peak memory", peak, 500, "MB")


def start_up(report, effort):
    script = shutil.which("mcfair", path=str(Path(sys.executable).parent))
    mcfair = [script] if script else [sys.executable, "-m", "mcfair.cli.app"]
    simulate = "simulate --data mq2008-like --policy MCFair --steps 1000"
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "import mcfair": [sys.executable, "-c", "import mcfair"],
        "mcfair --help": [*mcfair, "--help"],
        f"mcfair {simulate}": [*mcfair, *simulate.split()],
    }

    def start(command):
        begun = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - begun

    start(commands[f"mcfair {simulate}"])  # fill the caches of files and of compiled code
    tasks = {name: partial(start, command) for name, command in commands.items()}
    times = interleave(tasks, 2 * effort.few_rounds, "start-up")
    bare = times["python -c pass"]
    report.table(
        "Start-up, in fresh processes with compiled code in its cache",
        [{"command": name, "seconds": times[name], "/ bare Python": times[name] / bare} for name in commands],
    )
    report.target("mcfair --help", times["mcfair --help"], 0.5, "s")


# --- all of it ----------------------------------------------------------------------------------------------------


PARTS = (speed, lists, bounds, growth_in_items, growth_in_sessions, large_run, start_up, read_letor_files)
SECTIONS = {each.__name__: each for each in PARTS}


def main():
    parser = argparse.ArgumentParser(description="Measure how fast mcfair is; what is compared is measured in one run.")
    parser.add_argument("--quick", action="store_true", help="measure less, in about half a minute")
    parser.add_argument(
        "--against", type=Path, metavar="PATH", help="only compare with another checkout of mcfair, or its src folder"
    )
    parser.add_argument("--only", choices=SECTIONS, action="append", help="measure only this section; repeatable")
    parser.add_argument("--out", type=Path, help="JSON file to write  [default: benchmarks/results/latest.json]")
    options = parser.parse_args()
    effort, report, about = QUICK if options.quick else FULL, Report(), machine()
    report.console.print(*(f"{name}: {value}" for name, value in about.items()), "", sep="\n", highlight=False)
    if options.against is not None:
        compare_checkouts(report, options.against, effort)
    else:
        for name in options.only or SECTIONS:
            SECTIONS[name](report, effort)
        if report.targets:
            report.table("Targets, on one thread", report.targets)
    about |= {
        "load average at the end": load_average(),
        "quick": options.quick,
        "seconds": round(time.perf_counter() - STARTED),
    }
    name = "latest.json" if options.against is None else "against.json"
    report.write(options.out or HERE / "results" / name, about)


if __name__ == "__main__":
    main()
