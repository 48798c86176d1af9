"""Small experiments whose results the tests of the report share, and readers of its files."""

import re
from dataclasses import replace
from pathlib import Path

import msgspec
import polars as pl

from mcfair.experiments.compare import run_experiments
from mcfair.experiments.experiment import Experiment, Paper, Series
from mcfair.experiments.results import Results, View
from mcfair.report import Report
from mcfair.report.sections import show_comparison

TABLE = Experiment(
    name="table1",
    title="Table 1: fairness",
    about="\nHow fair each method is.",
    compare_with="MCFair",
    metrics=("gini", "group_unfairness", "cndcg@5"),
    seeds=2,
    as_published=False,
    series=(
        Series(policies=("TopK",), paper=Paper(unfairness=(100.0, 2.0), seconds=0.5)),
        Series(policies=("FairCo(alpha=1000)",), paper=Paper(unfairness=(30.0, 0.5)), note="It has its reasons."),
        Series(policies=("MCFair(alpha=1000, beta=0)",), paper=Paper(unfairness=(26.0, 100.0))),
        Series(policies=("MCFair(alpha=1000, beta=0)",), label="MCFair again", note="The same once more."),
    ),
)
CUTOFFS = Experiment(name="fig2", show="cutoffs", seeds=2, series=TABLE.series, metrics=TABLE.metrics)
TRADEOFF = Experiment(
    name="fig3",
    title="Figure 3: trade-off",
    show="tradeoff",
    k_c=(5, 1),
    settings=({"mode": "post-processing", "steps": 2000}, {"mode": "online", "steps": 3000}),
    compare_with="MCFair",
    seeds=2,
    series=(
        Series(policies=("TopK",)),
        Series(policies=("FairCo(alpha=[0, 0.001, 0.01, 1000])",)),
        Series(policies=("MCFair(alpha=[0, 0.1, 1, 1000], beta=0)",), mode="post-processing"),
        Series(policies=("MCFair(alpha=[0, 0.1, 1, 1000])",), mode="online"),
    ),
)
ODD = Experiment(
    name="<b>odd</b> & 100 %_",
    title="$x$ <script>alert(1)</script> & co",
    about="50 % & <i>more</i>",
    show="tradeoff",
    settings=({"mode": "online", "steps": 500},),
    compare_with="_β & <b>",
    seeds=1,
    series=(
        Series(policies=("MCFair(alpha=[1, 2])",), label="_β & <b>"),
        Series(policies=("TopK",), label="100 % | $a_b$ 漢"),
    ),
)
ALONE = Experiment(name="alone", seeds=1, series=(Series(policies=("TopK",)),), settings=({"steps": 300},))
SEVERAL = Experiment(
    name="alone",
    show="cutoffs",
    seeds=1,
    data=("mq2008-like", "istella-s-like"),
    settings=({"steps": 200},),
    series=TRADEOFF.series[:1],
)


def run(experiments: list[Experiment], folder: Path, about: dict[str, str] | None = None) -> Results:
    results = run_experiments(experiments, folder, about=about, timed=False)
    times = results.runs.filter(pl.col("seed") == 0).select("data", "mode", "setting", "policy", seconds=pl.lit(0.25))
    return replace(results, times=times if about else results.times)


def only(results: Results, experiment: Experiment, **changes: object) -> Results:
    """The same results for one experiment, with some of its fields changed."""
    return replace(results, experiments=(msgspec.structs.replace(experiment, **changes),))


def view_of(results: Results, experiment: int = 0, setting: int = 0) -> View:
    chosen = results.experiments[experiment]
    return list(results.views(chosen, chosen.data[0]))[setting]


def shifted(results: Results, policy: str, by: float | pl.Expr) -> Results:
    """The same results, with a policy's effectiveness changed."""
    here = pl.when(pl.col("policy").str.starts_with(policy)).then(by).otherwise(0.0)
    return replace(results, runs=results.runs.with_columns(pl.col("cndcg@5") + here, pl.col("cndcg@1") + here))


def cells(path: Path) -> list[list[str]]:
    """Read the rows of a Markdown table, with the escapes taken out; the rule below the head is left out."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]
    return [[re.sub(r"\\(.)", r"\1", cell.strip()) for cell in row] for i, row in enumerate(rows) if i != 1]


def column(rows: list[list[str]], name: str) -> dict[str, str]:
    at = rows[0].index(name)
    return {re.sub(r" \[\w+\]$", "", row[0]): row[at] for row in rows[1:]}


def comparison(results: Results) -> tuple[str, dict[str, list[list[str]]]]:
    """Return the text and the tables, by name, that the report has on the first experiment's curves."""
    experiment = results.experiments[0]
    report = Report(results)
    found = list(results.views(experiment, experiment.data[0]))
    blocks = list(show_comparison(report, found, experiment.name, experiment.title))
    sentences = [block.text for block in blocks] + report.findings
    sentences += [text for table in report.tables for text in (table.caption, *table.lead, *table.notes)]
    return "\n".join(sentences), {table.name: [list(table.columns), *map(list, table.rows)] for table in report.tables}
