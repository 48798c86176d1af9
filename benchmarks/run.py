"""Measure how fast the package is, side by side with what it is compared with: `python benchmarks/run.py [--quick]`."""

import argparse
import dataclasses
import datetime
import hashlib
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from importlib.metadata import version
from operator import mul
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import plain_numpy
from rich.console import Console
from rich.table import Table

import mcfair as mf
from mcfair.data.catalogue import locate

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "tests"))
import naive  # noqa: E402  # the oracle lives with the tests

MODES = ("post-processing", "online")
MICRO = 1e6


@dataclasses.dataclass(frozen=True)
class Effort:
    """How much to measure."""

    rounds: int  # how often everything that is compared gets its turn
    sessions: int  # of a compiled policy
    slow_sessions: int  # of anything that is interpreted
    visited_items: int  # items that all lists together are chosen from, for each n
    most_sessions: int
    large_sessions: int
    few_rounds: int  # for what takes seconds
    file_mb: int


FULL = Effort(
    rounds=9, sessions=400_000, slow_sessions=200, visited_items=50_000_000, most_sessions=10**7,
    large_sessions=10**7, few_rounds=3, file_mb=100,
)  # fmt: skip
QUICK = Effort(
    rounds=2, sessions=50_000, slow_sessions=50, visited_items=5_000_000, most_sessions=10**6,
    large_sessions=10**6, few_rounds=1, file_mb=20,
)  # fmt: skip


class Spread(NamedTuple):
    """The least and the median of several measurements."""

    best: float
    median: float

    @classmethod
    def of(cls, values):
        return cls(min(values), statistics.median(values))

    def __truediv__(self, other):
        return Spread(self.best / other.best, self.median / other.median)

    def map(self, change):
        return Spread(change(self.best), change(self.median))


def take_turns(tasks, rounds, what):
    """Call every task once in each round, so that whatever slows the machine slows all of them."""
    results = {key: [] for key in tasks}
    for i in range(rounds):
        say(f"{what}: round {i + 1} of {rounds}")
        for key, task in tasks.items():
            results[key].append(task())
    return {key: Spread.of(values) for key, values in results.items()}


def say(text):
    print(f"[{time.perf_counter() - BEGUN:4.0f} s] {text}", file=sys.stderr, flush=True)


BEGUN = time.perf_counter()


class Report:
    """Tables and targets, printed as they come and kept for the file."""

    def __init__(self):
        self.console = Console(width=None if sys.stdout.isatty() else 140)
        self.tables, self.targets = {}, []

    def table(self, title, rows, note=""):
        table = Table()
        for head, value in rows[0].items():
            table.add_column(head, justify="left" if isinstance(value, str) else "right")
        for row in rows:
            table.add_row(*(shown(value) for value in row.values()))
        self.console.print(f"[bold]{title}[/bold]", table, *([note] if note else []), "", sep="\n", highlight=False)
        self.tables[title] = [{head.replace("\n", ", "): plain(row[head]) for head in row} for row in rows]

    def target(self, figure, value, limit, unit, at_least=False):
        """Hold a figure against its target, at its best and at its median."""
        better = (lambda x: x >= limit) if at_least else (lambda x: x <= limit)
        verdicts = value.map(lambda x: "met" if better(x) else "not met")
        self.targets.append(
            {
                "figure": figure,
                "target": f"{'≥' if at_least else '≤'} {limit:g} {unit}",
                "best": value.best,
                "at best": verdicts.best,
                "median": value.median,
                "at the median": verdicts.median,
            }
        )


def shown(value):
    if isinstance(value, Spread):
        return f"{shown(value.best)} ({shown(value.median)})"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def plain(value):
    return value._asdict() if isinstance(value, Spread) else value


# --- sessions per second ---------------------------------------------------------------------------------------------


@mf.kernel
def score_nothing(q, theta, rng, out):
    pass


class Empty(mf.Policy):
    """Scores nothing: all items are tied, and the loop still has to choose among them."""

    kernel = score_nothing


@mf.kernel
def rank_nothing(q, theta, rng, out):
    for j in range(out.shape[0]):
        out[j] = j


class FirstK(mf.Policy):
    """Shows the first items: what is left is the loop alone, that is users, state and metrics."""

    kernel = rank_nothing
    ranks = True


def play(data, policy, mode, sessions, **options):
    """Microseconds per session in the package."""
    return mf.simulate(data, policy, mode, steps=sessions, **options).seconds / sessions * MICRO


def play_oracle(data, policy, mode, arrivals):
    """Microseconds per session in the slow oracle of the tests."""
    # Its unfairness goes over all pairs once at the end: with so few sessions that would be most of the time.
    with patch.object(naive, "unfairness", lambda E, R: 0.0):
        begun = time.perf_counter()
        naive.simulate(data, policy, arrivals, online=mode == "online")
    return (time.perf_counter() - begun) / len(arrivals) * MICRO


def play_plain(data, policy, mode, arrivals):
    """Microseconds per session in the plain NumPy loop."""
    return plain_numpy.play(data, policy, arrivals, online=mode == "online")[0] / len(arrivals) * MICRO


def check_plain(data, policy):
    """Make sure that the plain loop and the package play the same game."""
    trace = mf.simulate(data, policy, steps=2000, record=True)
    _, ndcg = plain_numpy.play(data, policy, trace.arrivals, online=False)
    np.testing.assert_allclose(ndcg, trace.ndcg_at[-1], rtol=1e-3)  # rounding may order equal scores otherwise


def speed(report, effort):
    light = [cls() for cls in mf.policies().values() if cls not in SOLVERS]
    policies = [Empty(), FirstK(), *light, mf.MCFair(beta=0)]
    limits = {"mq2008-like": (0.2, 0.3), "istella-s-like": (0.8, 0.8)}
    comparison = []
    for data in (mf.synthetic("mq2008-like"), mf.synthetic("istella-s-like").take(range(300))):
        for policy in (mf.MCFair(), mf.MCFair(beta=0)):
            check_plain(data, policy)
        for mode, limit in zip(MODES, limits[data.name], strict=True):
            where = f"{data.name}, {mode}"
            times = take_turns(contest(data, mode, policies, effort), effort.rounds, f"speed, {where}")
            report.table(
                f"Sessions per second: {where}, {data.sizes.mean():.0f} items a query",
                [side_by_side(policy, times) for policy in policies],
            )
            comparison += [
                {"data": data.name, "setting": mode} | beside_numpy(policy, times)
                for policy in policies
                if (policy, "oracle") in times
            ]
            for policy in (mf.MCFair(), mf.MCFair(beta=0)):
                figure, faster = f"{policy.label}, {where}", times[policy, "plain"] / times[policy, 1]
                report.target(figure, times[policy, 1], limit, "µs/session")
                if data.name == "istella-s-like":
                    report.target(f"{figure}, stretch", times[policy, 1], 0.3, "µs/session")
                report.target(f"{figure}, against plain NumPy", faster, 100, "times faster", at_least=True)
    report.table("Against plain NumPy, one thread", comparison)


SOLVERS = (mf.ILP, mf.LP, mf.PLFair)
"""Policies that solve or train: a session costs too much for the runs of the others."""

# Seconds per 1,000 lists that the paper reports in post-processing, on MQ2008 and on Istella-S.
PAPER = {
    "TopK": (0.543, 0.572), "ExploreK": (0.577, 0.700), "FairCo(alpha=1000)": (0.691, 0.607), "FairK": (0.627, 0.770),
    "MCFair(alpha=1000, beta=0)": (0.631, 0.645), "MMF": (2.133, 6.876), "ILP": (17.24, 1508.9),
    "ILP(alpha=0.1)": (17.24, 1508.9), "LP": (4.036, 864_000.0), "LP(alpha=0.01)": (4.036, 864_000.0),
    "PLFair": (4.283, 4.366),
}  # fmt: skip


def lists(report, effort):
    """Time of 1,000 lists in a run of 10,000 with solving and training, beside the paper's."""
    rows = []
    for column, data in enumerate((mf.synthetic("mq2008-like"), mf.synthetic("istella-s-like").take(range(300)))):
        tasks = {(text, mode): partial(play, data, text, mode, 10_000) for text in PAPER for mode in MODES}
        times = take_turns(tasks, effort.few_rounds, f"lists, {data.name}")
        for text, seconds in PAPER.items():
            given, online = (times[text, mode].map(lambda t: t / MICRO * 1000) for mode in MODES)
            faster = given.map(lambda t: seconds[column] / t)  # noqa: B023
            rows.append(
                {
                    "data": data.name,
                    "policy": text,
                    "paper\ns/1,000": seconds[column],
                    "given\ns/1,000": given,
                    "online\ns/1,000": online,
                    "paper / given": faster,
                }
            )
            for name, limit in LIST_TARGETS.get((data.name, text), {}).items():
                value = {"post-processing": given, "online": online}[name]
                report.target(f"{text}, {data.name}, {name}", value, limit, "s per 1,000 lists")
    report.table(
        "Seconds per 1,000 lists, in runs of 10,000",
        rows,
        "The paper's figures come from another machine, and 864,000 s stands for its 'more than 10 days'.",
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
    """Seconds for the floor and the frontier of many queries, graded and with relevance all distinct."""
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
    times = take_turns(tasks, effort.few_rounds, "limits")
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


def contest(data, mode, policies, effort):
    """All that is timed on the same data, by policy and by who plays it: 1 or 2 threads, plain NumPy, the oracle."""
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


def side_by_side(policy, times):
    """Row of one policy beside the loop alone and the loop with an empty kernel."""
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


def beside_numpy(policy, times):
    """Row of one policy beside the plain NumPy loop, where there is one, and the oracle."""
    row = {"policy": policy.label, "package\nµs/session": times[policy, 1]}
    for key, head in (("plain", "plain NumPy"), ("oracle", "oracle")):
        theirs = times.get((policy, key))
        row |= {f"{head}\nµs/session": theirs, f"{head}\n/ package": theirs and theirs / times[policy, 1]}
    return row


# --- growth ----------------------------------------------------------------------------------------------------------


def graded(n, queries):
    """Make queries of n items each, nine in ten of them irrelevant."""
    y = np.random.default_rng(n).choice(5, n * queries, p=[0.9, 0.04, 0.03, 0.02, 0.01])
    return mf.Dataset(offsets=np.arange(queries + 1) * n, y=y, y_max=4, name=f"n = {n}")


def growth_in_items(report, effort):
    sizes = (10, 30, 100, 300, 1000, 3000, 10_000)
    tasks = {}
    for n in sizes:
        # Each query is visited as often as it has items, 100 times at least, so that every n is met in a like state.
        visits = max(n, 100)
        data = graded(n, queries=max(1, min(1000, effort.visited_items // (n * visits))))
        for mode in MODES:
            tasks[n, mode] = partial(play, data, mf.MCFair(), mode, data.queries * visits, checkpoints=1)
    times = take_turns(tasks, effort.rounds, "growth with items")
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
    tasks = {(count, mode): partial(play, data, mf.MCFair(), mode, count) for count in counts for mode in MODES}
    times = take_turns(tasks, effort.few_rounds, "growth with sessions")
    rows = [{"sessions": c} | {f"{mode}\nµs/session": times[c, mode] for mode in MODES} for c in counts]
    slopes = {mode: log_slope({c: times[c, mode].map(partial(mul, c)) for c in counts}) for mode in MODES}
    report.table("Growth with sessions: MCFair, mq2008-like, one thread", rows, slope_note("sessions", slopes))


def slope_note(what, slopes):
    """Say how time grows, in words for below a table."""
    shares = ", ".join(f"{mode} {shown(slope)}" for mode, slope in slopes.items())
    return f"Time grows as a power of {what}, 1 being linear: {shares}."


def log_slope(times):
    """Slope of the line through the points (log x, log time): 1 where time is proportional to x."""
    return Spread(*np.polyfit(np.log(list(times)), np.log(list(times.values())), 1)[0].tolist())


# --- in fresh processes ----------------------------------------------------------------------------------------------


def large_run(report, effort):
    def run(sessions):
        command = [sys.executable, str(HERE / "large_run.py"), str(sessions)]
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)

    run(1000)  # so that the code is compiled
    runs = []
    for i in range(effort.few_rounds):
        say(f"large run: {i + 1} of {effort.few_rounds}")
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

    start(commands[f"mcfair {simulate}"])  # fills the caches: of files, and of compiled code
    tasks = {name: partial(start, command) for name, command in commands.items()}
    times = take_turns(tasks, 2 * effort.few_rounds, "start-up")
    bare = times["python -c pass"]
    report.table(
        "Start-up, in fresh processes with compiled code in its cache",
        [{"command": name, "seconds": times[name], "/ bare Python": times[name] / bare} for name in commands],
    )
    report.target("mcfair --help", times["mcfair --help"], 0.5, "s")


# --- reading ---------------------------------------------------------------------------------------------------------


def write_letor(path, mb):
    """Write a file of about so many MB: queries of 100 rows with 46 features of 6 decimals, as in MQ2008."""
    rng = np.random.default_rng(0)
    rows = [
        f"{grade} qid:%d {' '.join(f'{i}:{x:.6f}' for i, x in enumerate(features, 1))} #docid = GX%03d-00-0000000\n"
        for grade, features in zip(rng.integers(0, 3, 100), rng.random((100, 46)), strict=True)
    ]
    with path.open("w") as file:
        query = 0
        while file.tell() < mb * 1e6:
            file.writelines(row % (query, i) for i, row in enumerate(rows))
            query += 1


def read(paths):
    for path in paths:
        mf.load_letor(path)


def digest(paths):
    for path in paths:
        with path.open("rb") as file:
            hashlib.file_digest(file, "sha256")


def rate(task, paths):
    """Seconds per MB."""
    begun = time.perf_counter()
    task(paths)
    return (time.perf_counter() - begun) / (sum(path.stat().st_size for path in paths) / 1e6)


def reading(report, effort):
    with tempfile.TemporaryDirectory() as folder:
        say(f"reading: writing a file of {effort.file_mb} MB")
        made = Path(folder) / "made.txt"
        write_letor(made, effort.file_mb)
        files = {"made for this, 46 features": [made]}
        try:
            files["MQ2008/Fold1: train, vali, test"] = sorted(locate("mq2008/fold1").glob("*.txt"))
        except mf.DataError:
            report.console.print("MQ2008 is not under MCFAIR_DATA: reading it is left out.\n", highlight=False)
        tasks = {(name, task): partial(rate, task, paths) for name, paths in files.items() for task in (read, digest)}
        times = take_turns(tasks, effort.few_rounds + 1, "reading")
        report.table(
            "Reading LETOR files, labels only",
            [
                {
                    "file": name,
                    "MB": sum(path.stat().st_size for path in paths) / 1e6,
                    "MB/s": times[name, read].map(lambda t: 1 / t),
                    "MB/s\nSHA-256 alone": times[name, digest].map(lambda t: 1 / t),
                    "/ SHA-256": times[name, read] / times[name, digest],
                }
                for name, paths in files.items()
            ],
            "Every file is hashed while it is read, so the time of SHA-256 alone is the floor.",
        )


# --- all of it -------------------------------------------------------------------------------------------------------


def machine():
    """Describe where the figures come from."""
    cpu = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*:\s*(.+)", cpu.read_text()) if cpu.exists() else None
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cpu": model[1] if model else platform.processor(),
        "cpus": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: version(name) for name in ("mcfair", "numba", "numpy")},
        "gain of a second process": round(second_process(), 2),
        "load average at the start": [round(load, 2) for load in os.getloadavg()],
    }


def second_process():
    """How much more two processes get done than one: 2 on two idle cores, less where CPUs share one or are busy."""
    spin = "import time; begun = time.perf_counter(); sum(range(10**7)); print(time.perf_counter() - begun)"

    def spins(count):
        started = [subprocess.Popen([sys.executable, "-c", spin], stdout=subprocess.PIPE) for _ in range(count)]
        return statistics.mean(float(each.communicate()[0]) for each in started)

    times = take_turns({count: partial(spins, count) for count in (1, 2)}, 3, "machine, one process and two")
    return 2 * times[1].best / times[2].best


def main():
    parser = argparse.ArgumentParser(description="Measure how fast mcfair is; ratios are measured side by side.")
    parser.add_argument("--quick", action="store_true", help="less of everything, in half a minute")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "latest.json", help="JSON file to write")
    options = parser.parse_args()
    effort, report, about = QUICK if options.quick else FULL, Report(), machine()
    report.console.print(*(f"{name}: {value}" for name, value in about.items()), "", sep="\n", highlight=False)
    for section in (speed, lists, bounds, growth_in_items, growth_in_sessions, large_run, start_up, reading):
        section(report, effort)
    report.table("Targets, on one thread", report.targets)
    about |= {
        "load average at the end": [round(load, 2) for load in os.getloadavg()],
        "quick": options.quick,
        "seconds": round(time.perf_counter() - BEGUN),
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"machine": about, "tables": report.tables}, indent=1, ensure_ascii=False) + "\n")
    say(f"written to {options.out}")


if __name__ == "__main__":
    main()
