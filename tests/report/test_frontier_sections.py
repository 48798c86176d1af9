"""The sections on frontiers, robustness and wrong assumptions, on small runs with known answers."""

import itertools

import numpy as np
import pytest
from scipy.stats import ttest_1samp
from small_results import cells, column

import mcfair as mf
from mcfair.analysis.significance import detectable_difference, holm
from mcfair.experiments.boards import BoardBuilder
from mcfair.report import write_report
from mcfair.report.assumptions import rows_of
from mcfair.report.board_tests import matched_tests
from mcfair.report.document import Report
from mcfair.report.formatting import NOTHING

DATA = {name: mf.synthetic("mq2008-like", seed=seed).take(range(10)) for name, seed in (("one", 0), ("two", 1))}
SERIES = (
    mf.Series(policies=("TopK",)),
    mf.Series(policies=("FairCo(alpha=[0, 0.01, 1000])",)),
    mf.Series(policies=("MCFair(alpha=[0, 0.3, 1000], beta=0)",)),
)
FRONTIER = mf.Experiment(
    name="frontier",
    title="Frontiers",
    show="frontier",
    data=("one", "two"),
    settings=({"mode": "post-processing", "steps": 1000},),
    seeds=2,
    compare_with="MCFair",
    series=SERIES,
)
CONDITIONS = mf.Experiment(
    name="sessions",
    title="Robustness",
    show="conditions",
    data=("one",),
    settings=tuple({"mode": "post-processing", "steps": steps} for steps in (200, 1000)),
    seeds=2,
    series=SERIES,
)
ASSUMPTIONS = mf.Experiment(
    name="assumptions",
    title="Wrong assumptions",
    show="assumptions",
    data=("one",),
    settings=tuple(
        {"mode": "online", "steps": 400, "clicks": clicks, "examination": p}
        for clicks in ("PositionBased(severity=2)", "Cascade")
        for p in (0.5, 2.0, (1.0, 0.5, 0.3, 0.2, 0.1))
    ),
    metrics=("true_unfairness", "log_ndcg@5"),
    seeds=2,
    series=(mf.Series(policies=("MCFair",)), mf.Series(policies=("FairCo(alpha=0.01)",))),
)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    experiments = [FRONTIER, CONDITIONS, ASSUMPTIONS]
    return mf.run_experiments(experiments, tmp_path_factory.mktemp("runs"), data=DATA)


@pytest.fixture(scope="module")
def page(results, tmp_path_factory):
    return write_report(results, tmp_path_factory.mktemp("report"), title="Mine & more")


@pytest.fixture(scope="module")
def builder(results):
    return BoardBuilder(results, FRONTIER, FRONTIER.conditions[0])


def test_the_page_has_every_section_and_its_own_title(page):
    text = page.read_text(encoding="utf-8")
    assert "<title>Mine &amp; more</title>" in text
    for heading in ("Frontiers", "Robustness", "Wrong assumptions"):
        assert f">{heading}</h2>" in text
    assert "has the largest hypervolume" in text
    figures = {file.stem for file in (page.parent / "figures").glob("*.png")}
    assert {"frontier", "frontier-closer", "assumptions"} <= figures


def test_the_ranking_shows_the_figures_of_the_board(page, builder):
    rows = cells(page.parent / "tables" / "frontier-post-processing-ranking.md")
    board = builder.build()
    assert [row[0] for row in rows[1:]] == ["limit (relevance known)", *(entry.name for entry in board.entries)]
    for entry in board.entries:
        volume = column(rows, "hypervolume")[entry.name]
        assert float(volume.split()[0]) == pytest.approx(entry.hypervolume.mean, abs=0.006)
        reached = entry.ndcg_at["1.1"].reached
        assert column(rows, "NDCG@5 at 1.1")[entry.name].startswith({0: NOTHING, 1: "on 1 of 2"}.get(reached, "0."))


def test_times_are_measured_for_the_middle_of_each_curve(results, builder):
    timed = set(results.times["policy"].to_list())
    assert {repr(mf.TopK()), repr(mf.FairCo(alpha=0.01)), repr(mf.MCFair(alpha=0.3, beta=0))} == timed
    assert builder.microseconds("FairCo") > 0


def test_tests_at_matched_unfairness_are_paired_over_queries(results, builder):
    """At 3 floors, recomputed from single runs: weights from the mean curves, values of queries interpolated."""
    level, metric = 3.0, "ndcg@5"
    builder.scale = type(builder.scale)(**{
        name: getattr(builder.scale, name) for name in builder.scale.__struct_fields__
    } | {"unfairness_levels": (1.0, 1.0, level, 1.0, 1.0)})  # fmt: skip
    tests = {(test.name, test.level): test for test in matched_tests(builder, "MCFair")}
    expected = []
    for i, name in enumerate(("one", "two")):
        sides = []
        for text in ("FairCo(alpha=[0, 0.01, 1000])", "MCFair(alpha=[0, 0.3, 1000], beta=0)"):
            points = []
            for policy in mf.parse_policies(text):
                traces = [mf.simulate(DATA[name], policy, steps=1000, seed=seed) for seed in (0, 1)]
                x = np.mean([trace.unfairness / builder.floors[i][s] for s, trace in enumerate(traces)])
                queries = np.mean([trace.query_values[metric] for trace in traces], axis=0)
                points.append((x, np.mean([trace.ndcg[5] for trace in traces]), queries))
            points.sort(key=lambda point: point[0])
            best = [points[0]]
            best += [point for a, point in itertools.pairwise(points) if point[1] > a[1]]
            below = [point for point in best if point[0] <= level]
            above = [point for point in best if point[0] > level]
            share = (level - below[-1][0]) / (above[0][0] - below[-1][0]) if above else 0.0
            sides.append(below[-1][2] + share * ((above[0][2] if above else below[-1][2]) - below[-1][2]))
        expected += (sides[0] - sides[1]).tolist()
    assert sorted(tests["FairCo", level].queries) == pytest.approx(sorted(expected))
    least = tests["TopK", None]
    assert least.datasets.size == 2
    assert np.all(least.datasets > 0)  # TopK is less fair
    assert least.p < 0.05
    assert least.queries.mean() == pytest.approx(least.datasets.mean(), rel=0.2)  # queries weigh alike


def test_the_table_of_tests_is_adjusted_and_states_its_power(page, results):
    rows = cells(page.parent / "tables" / "frontier-post-processing-tests.md")
    builder = BoardBuilder(results, FRONTIER, FRONTIER.conditions[0])
    tests = matched_tests(builder, "MCFair")
    done = [test for test in tests if test.queries.size > 1]
    adjusted = holm([test.p for test in done])
    assert len(rows) == 1 + len(tests)
    shown = [row for row in rows[1:] if row[4] != NOTHING]
    for row, test, p in zip(shown, done, adjusted, strict=True):
        assert row[0] == test.name
        assert row[4] == ("< 0.0001" if p < 0.0001 else f"{p:.4f}")
        if p >= 0.05 and np.ptp(test.queries) > 0:
            size = detectable_difference(test.queries, 1 - 0.05 / len(done))
            assert float(row[5]) == pytest.approx(size, rel=0.01)
            assert ttest_1samp(test.queries, 0.0).pvalue > 0.05 / len(done)


def test_conditions_stand_side_by_side(page):
    (rows,) = [cells(file) for file in (page.parent / "tables").glob("sessions.md")]
    assert rows[0][1].startswith("post-processing, 200 steps")
    assert rows[0][4].startswith("post-processing, 1,000 steps")
    assert {row[0] for row in rows[1:]} == {"TopK", "FairCo", "MCFair"}


def test_costs_of_assumptions_are_relative_to_the_fit(page, results):
    first = rows_of(Report(results), ASSUMPTIONS, ASSUMPTIONS.series[0])
    assert [row.users for row in first] == ["PositionBased(severity=2.0)", "Cascade"]
    options = {"steps": 400, "clicks": "Cascade", "metrics": ["true_unfairness"]}
    means = {
        p: np.mean([
            mf.simulate(DATA["one"], "MCFair", "online", seed=seed, examination=p, **options).figures["true_unfairness"]
            for seed in (0, 1)
        ])
        for p in (0.5, (1.0, 0.5, 0.3, 0.2, 0.1))
    }  # fmt: skip
    ratio = means[0.5] / means[1.0, 0.5, 0.3, 0.2, 0.1]
    assert first[1].ratio(0.5) == pytest.approx(ratio)
    rows = cells(page.parent / "tables" / "assumptions-mcfair.md")
    assert float(column(rows, "severity 0.5: change, %")["Cascade"]) == pytest.approx(100 * (ratio - 1), rel=0.05)
    assert "times the true unfairness of the fitted examination" in page.read_text(encoding="utf-8")
