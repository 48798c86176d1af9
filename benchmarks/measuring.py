"""How the benchmarks measure and report: interleaved rounds, the minimum and the median, tables and targets."""

import dataclasses
import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

MICRO = 1e6
STARTED = time.perf_counter()


@dataclasses.dataclass(frozen=True)
class Effort:
    """How much to measure."""

    rounds: int  # of everything that is compared
    sessions: int  # of a compiled policy
    slow_sessions: int  # of interpreted code
    visited_items: int  # candidates of all lists together, for each n
    most_sessions: int
    large_sessions: int
    few_rounds: int  # of what takes seconds
    file_mb: int


FULL = Effort(
    rounds=9,
    sessions=400_000,
    slow_sessions=200,
    visited_items=50_000_000,
    most_sessions=10**7,
    large_sessions=10**7,
    few_rounds=3,
    file_mb=100,
)
QUICK = Effort(
    rounds=2,
    sessions=50_000,
    slow_sessions=50,
    visited_items=5_000_000,
    most_sessions=10**6,
    large_sessions=10**6,
    few_rounds=1,
    file_mb=20,
)


class Spread(NamedTuple):
    """The minimum and the median of several measurements."""

    best: float
    median: float

    @classmethod
    def of(cls, values):
        return cls(min(values), statistics.median(values))

    def __truediv__(self, other):
        return Spread(self.best / other.best, self.median / other.median)

    def map(self, change):
        return Spread(change(self.best), change(self.median))


def interleave(tasks, rounds, what):
    """Run every task once per round, so that a disturbance of the machine affects all of them alike."""
    results = {key: [] for key in tasks}
    for i in range(rounds):
        show_progress(f"{what}: round {i + 1} of {rounds}")
        for key, task in tasks.items():
            results[key].append(task())
    return {key: Spread.of(values) for key, values in results.items()}


def show_progress(text):
    print(f"[{time.perf_counter() - STARTED:4.0f} s] {text}", file=sys.stderr, flush=True)


class Report:
    """Tables and targets, printed as they are measured and stored for the file."""

    def __init__(self):
        self.console = Console(width=None if sys.stdout.isatty() else 140)
        self.tables, self.targets = {}, []

    def table(self, title, rows, note=""):
        table = Table()
        for head, value in rows[0].items():
            table.add_column(head, justify="left" if isinstance(value, str) else "right")
        for row in rows:
            table.add_row(*(formatted(value) for value in row.values()))
        self.console.print(f"[bold]{title}[/bold]", table, *([note] if note else []), "", sep="\n", highlight=False)
        self.tables[title] = [{head.replace("\n", ", "): plain(row[head]) for head in row} for row in rows]

    def target(self, figure, value, limit, unit, at_least=False):
        """Compare a figure with its target, at its minimum and at its median."""
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

    def write(self, file, about):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"made_with": about, "tables": self.tables}, indent=1, ensure_ascii=False) + "\n")
        show_progress(f"written to {file}")


def formatted(value):
    if isinstance(value, Spread):
        return f"{formatted(value.best)} ({formatted(value.median)})"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def plain(value):
    return value._asdict() if isinstance(value, Spread) else value


# --- the machine -----------------------------------------------------------------------------------------------------


def machine():
    """Describe the machine that the figures come from, and the command that measured them."""
    cpu = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*:\s*(.+)", cpu.read_text()) if cpu.exists() else None
    return {
        "command": " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "measured": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cpu": model[1] if model else platform.processor(),
        "cpus": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: version(name) for name in ("mcfair", "numba", "numpy")},
        "speed-up by a second process": round(second_process(), 2),
        "load average at the start": load_average(),
    }


def load_average():
    return [round(load, 2) for load in os.getloadavg()]


def second_process():
    """Throughput of two processes relative to one: 2 on two idle cores, less if CPUs share a core or are busy."""
    spin = "import time; begun = time.perf_counter(); sum(range(10**7)); print(time.perf_counter() - begun)"

    def spins(count):
        started = [subprocess.Popen([sys.executable, "-c", spin], stdout=subprocess.PIPE) for _ in range(count)]
        return statistics.mean(float(each.communicate()[0]) for each in started)

    times = interleave({count: partial(spins, count) for count in (1, 2)}, 3, "machine, one process and two")
    return 2 * times[1].best / times[2].best
