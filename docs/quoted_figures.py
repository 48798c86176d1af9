"""The quoted figures of the pages, one function each; see `quoting`."""

from __future__ import annotations

import quoted_comparisons
import quoted_dashboard
import quoted_service
from quoting import QUOTES, pages, quoted, results, rewritten, table, table_of, written

from mcfair.report.formatting import format_number

__all__ = [
    "QUOTES",
    "pages",
    "quoted_comparisons",
    "quoted_dashboard",
    "quoted_service",
    "results",
    "rewritten",
    "written",
]


# --- the paper's table -----------------------------------------------------------------------------------------------

REASONS = {
    "ExploreK": "All scores in the first lists of every query are tied, and the paper's version of NumPy ordered ties "
    "differently.",
    "LP": 'LP samples its lists; with deterministic delivery (`delivery="balanced"`) the figure is {LP, balanced}.',
    "ILP": "Many lists are equally optimal, and the choice among them determines the figure, from {least} to {most}. "
    "The paper has the choice of its solver, mcfair the list of least squared deviation.",
    "MMF": "MMF is randomised, and the generators differ.",
    "PLFair": "PLFair is randomised, and its training has not converged: with `lr=1` the figure is {PLFair, lr = 1}.",
    "FairK": "Ties in the first list of every query, as for ExploreK.",
}
"""Why a figure differs from the paper's."""


def unfairness(method: str, digits: int = 3) -> str:
    """Return the unfairness of a method of Table 1 with its standard deviation."""
    found = results("table1")["methods"][method]["unfairness"]
    return f"{found['mean']:.{digits}f} ({found['std']:.{digits}f})"


@quoted("table1")
def table1() -> str:
    """Return Table 1 beside the paper's figures, with the reasons for differences."""
    methods = results("table1")["methods"]
    figures = {
        name: unfairness(name, 2) for name in methods
    } | {
        "least": f"{methods['ILP']['unfairness']['mean']:.1f}",
        "most": f"{methods['ILP, first optimum']['unfairness']['mean']:.1f}",
    }  # fmt: skip
    rows = []
    for name, each in methods.items():
        if each["paper"] is None:
            continue
        paper = f"{format_number(each['paper'][0])} ({each['paper'][1]:.3f})"
        cells = [paper, unfairness(name)]
        if name == "MCFair":
            cells = [f"**{cell.partition(' ')[0]}** {cell.partition(' ')[2]}" for cell in cells]
        rows.append([name, *cells, REASONS.get(name, "").format_map(figures)])
    return table(["method", "paper", "mcfair", "why they differ"], rows)


@quoted("table1-floor")
def table1_floor() -> str:
    """Return the fairness floor of Table 1 with its standard deviation."""
    floor = results("table1")["floor"]
    return f"{floor['mean']:.3f} ({floor['std']:.3f})"


@quoted("table1-above-floor")
def table1_above_floor(method: str = "MCFair") -> str:
    """Return how far a method of Table 1 is above the floor."""
    found = results("table1")
    return f"{100 * (found['methods'][method]['unfairness']['mean'] / found['floor']['mean'] - 1):.1f} %"


@quoted("table1-unfairness")
def table1_unfairness(*method: str) -> str:
    """Return the mean unfairness of a method of Table 1."""
    return f"{results('table1')['methods'][' '.join(method)]['unfairness']['mean']:.1f}"


@quoted("table1-paper")
def table1_paper(method: str) -> str:
    """Return the mean unfairness that the paper has for a method."""
    return format_number(results("table1")["methods"][method]["paper"][0])


@quoted("table1-less-spread")
def table1_less_spread(method: str) -> str:
    """Return by how much the standard deviation of a method is below that of the paper."""
    found = results("table1")["methods"][method]
    return f"{found['paper'][1] - found['unfairness']['std']:.3f}"


@quoted("demo-table")
def demo_table() -> str:
    """Return the table that `mcfair demo` prints."""
    found = results("demo")
    floor = found["floor"]["mean"]
    rows = [["*floor (lowest possible)*", f"*{floor:.2f}*", "", "", "", ""]]
    for name, each in found["methods"].items():
        mean = each["unfairness"]["mean"]
        effect = [f"{each['cndcg'][k]:.2f}" for k in ("1", "5")]
        rows.append([name, f"{mean:.2f}", f"{100 * (mean / floor - 1):.1f} %", *effect, seconds(each["seconds"])])
    return table(["method", "unfairness", "above floor", "cNDCG@1", "cNDCG@5", "s/1,000 lists"], rows)


def seconds(value: float) -> str:
    """Return a time with two significant digits, at most four decimals."""
    return f"{value:.4f}" if value < 0.01 else f"{value:.2g}"


@quoted("demo-value")
def demo_value(method: str, column: str) -> str:
    """Return one figure of the demo's table; columns are unfairness, above, cndcg@1 and cndcg@5."""
    found = results("demo")
    each, floor = found["methods"][method], found["floor"]["mean"]
    mean = each["unfairness"]["mean"]
    if column == "unfairness":
        return f"{mean:.2f}"
    return f"{100 * (mean / floor - 1):.1f} %" if column == "above" else f"{each['cndcg'][column[-1]]:.2f}"


@quoted("demo-floor")
def demo_floor() -> str:
    """Return the fairness floor of the demo."""
    return f"{results('demo')['floor']['mean']:.2f}"


# --- speed -----------------------------------------------------------------------------------------------------------


def session(data: str, mode: str) -> str:
    """Return the microseconds of a session of MCFair on one thread, from the minimum to the median of the rounds."""
    rows = table_of("speed", f"Sessions per second: {data}, {mode}")
    policy = "MCFair(beta=100)" if mode == "online" else "MCFair(beta=0)"
    time = next(row["1 thread, µs/session"] for row in rows if row["policy"] == policy)
    ends = dict.fromkeys(f"{time[end]:.2f}" for end in ("best", "median"))
    return " to ".join(ends)


def thousand(policy: str, data: str) -> tuple[float, float]:
    """Return the seconds of 1,000 lists in post-processing: the paper's and ours."""
    rows = table_of("speed", "Seconds per 1,000 lists")
    row = next(each for each in rows if (each["policy"], each["data"]) == (policy, data))
    return float(row["paper, s/1,000"]), float(row["post-processing, s/1,000"]["best"])


@quoted("speed")
def speed() -> str:
    """Return the speed of the package in a paragraph."""
    small, large = "mq2008-like", "istella-s-like"
    (run,) = table_of("speed", "The large run")
    ilp, ilp_large = thousand("ILP", small), thousand("ILP", large)
    lp, lp_large = thousand("LP", small), thousand("LP", large)
    return (
        f"One session of MCFair at this size takes {session(small, 'post-processing')} µs in post-processing and "
        f"{session(small, 'online')} µs online on one thread, including the ranking, the state, NDCG@1..5 and the "
        "clicks; the authors' code takes about 600 µs. Ten million online sessions at the size of Istella-S (6,600 "
        f"queries of 103 items) take {run['seconds of the trace']['best']:.0f} s on two threads and "
        f"{run['peak memory, MB']['best']:.0f} MB. A thousand lists take ILP {ilp[1]:.1g} s at this size and "
        f"{ilp_large[1]:.1g} s at that of Istella-S; the paper reports {ilp[0]:.0f} s and {ilp_large[0] / 60:.0f} "
        f"minutes. They take LP {lp[1]:.1g} s and {lp_large[1]:.1g} s; the paper reports {lp[0]:.0f} s and more than "
        f"{lp_large[0] / 86_400:.0f} days."
    )


# --- audit -----------------------------------------------------------------------------------------------------------

LOGS = {"parquet": "Parquet", "untimed": "Parquet without times", "csv": "CSV"}


@quoted("audit-cost")
def audit_cost() -> str:
    """Return time and memory of the audit of large logs, as a table."""
    rows = [
        [
            f"{each['rows']:,} rows, {LOGS[each['kind']]}",
            f"{each['wall']:.0f} s",
            f"{each['cpu']:.0f} s",
            f"{each['peak_mb'] / 1000:.1f} GB",
        ]
        for each in results("audit")["logs"]
    ]
    return table(["log", "wall-clock time", "CPU time", "peak memory"], rows)
