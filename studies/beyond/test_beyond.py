"""Boards, tests and sections on small runs with known answers; entries beside each other; variations of the data."""

import ast
import dataclasses
import importlib
import itertools
import math
import shlex
from pathlib import Path

import grid
import msgspec
import numpy as np
import pytest
from assumptions import rows_of
from boards import (
    BoardBuilder,
    Lines,
    Spread,
    builders_of,
    figures_of,
    merge_boards,
    read_boards,
    scale_of,
    write_boards,
)
from grid import Grid, contestants, continuous_relevance, noisy_grades
from matched import matched_tests, table_of_tests
from sections import write_page

import mcfair as mf
from mcfair.analysis.frontiers import effectiveness_at, hypervolume
from mcfair.analysis.significance import detectable_difference
from mcfair.report import Report
from mcfair.tables import NOTHING

DATA = {name: mf.synthetic("mq2008-like", seed=seed).take(range(12)) for name, seed in (("one", 0), ("two", 1))}
SETTINGS = ({"mode": "post-processing", "steps": 1000}, {"mode": "online", "steps": 1500})


def experiment(*series, **changes):
    listed = tuple(mf.Series(policies=(text,)) for text in series)
    given = {"name": "small", "data": ("one", "two"), "settings": SETTINGS, "seeds": 2}
    return mf.Experiment(**{**given, "series": listed, **changes})


def built(given, folder, data=DATA):
    results = mf.run_experiments([given], folder, data=data)
    return [each.build() for each in builders_of(results, given)]


SMALL = experiment("TopK", "MCFair(alpha=[0, 0.3, 1000])", compare_with="MCFair")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return mf.run_experiments([SMALL], tmp_path_factory.mktemp("boards"), data=DATA)


@pytest.fixture(scope="module")
def boards(results):
    return [each.build() for each in builders_of(results, SMALL)]


# --- figures ---------------------------------------------------------------------------------------------------------


def test_a_spread_has_a_mean_only_where_all_datasets_reach_the_level():
    spread = Spread.of([[1.0, 3.0], [4.0, 4.0]])
    assert (spread.mean, spread.std, spread.each, spread.reached) == (3.0, 1.0, (2.0, 4.0), 2)
    partly = Spread.of([[1.0, 3.0], [4.0, math.nan]])  # one seed of the second dataset does not reach it
    assert (partly.mean, partly.std, partly.each, partly.reached) == (None, None, (2.0, None), 1)


def test_the_unit_is_the_floor_unless_that_is_next_to_nothing():
    assert scale_of([[10.0], [20.0]], [[30.0], [40.0]]).unit == "floor"
    assert scale_of([[10.0], [1e-9]], [[30.0], [40.0]]).unit == "perfect"


def test_figures_follow_from_the_frontiers_by_hand():
    """One dataset and seed. The limit is 1 between one and two floors; the policy begins at 1.5 with 0.95."""
    scale = scale_of([[1.0]], [[2.0]])
    policy = Lines(
        unfairness=[[np.array([1.5, 2.0])]], ndcg=[[np.array([0.95, 1.0])]], cndcg=[[np.array([180.0, 200.0])]]
    )
    limit = Lines(unfairness=[[np.array([1.0])]], ndcg=[[np.array([1.0])]], cndcg=[[np.array([1.0])]])
    figures = figures_of(policy, limit, scale)
    assert figures["hypervolume"].mean == pytest.approx(0.5 * 0.075 / 0.1)  # from 1.5 on, 0.075 above 0.9 on average
    assert figures["least_unfairness"].mean == 1.5
    assert figures["ndcg_at"]["1.25"].mean is None
    assert figures["ndcg_at"]["1.5"].mean == pytest.approx(0.95)
    assert figures["ndcg_at"]["2"].mean == pytest.approx(1.0)
    assert figures["cndcg_at"]["1.5"].mean == pytest.approx(180.0)
    assert figures["unfairness_at"]["0.98"].mean == pytest.approx(1.8)  # 3/5 of the way from 0.95 to 1
    assert figures["unfairness_at"]["0.94"].mean == 1.5


def test_a_board_is_that_of_single_runs(boards):
    """Simulate one dataset and seed by hand, with the floor and the frontier for the same visits."""
    assert [board.name for board in boards] == ["small, post-processing", "small, online"]
    for board, setting in zip(boards, SETTINGS, strict=True):
        entry = next(entry for entry in board.entries if entry.name == "MCFair")
        shares, at = [], []
        for seed in (0, 1):
            traces = [
                mf.simulate(DATA["two"], mf.MCFair(alpha=alpha), setting["mode"], steps=setting["steps"], seed=seed)
                for alpha in (0, 0.3, 1000)
            ]
            given = DATA["two"], traces[0].state.visits, traces[0].state.p
            floor, limit = mf.fairness_floor(*given).unfairness, mf.frontier(*given)
            x, y = np.array([trace.unfairness for trace in traces]) / floor, [trace.ndcg[5] for trace in traces]
            best = hypervolume(limit.unfairness / floor, limit.ndcg, 1.0, 2.0, 0.9)
            shares.append(hypervolume(x, y, 1.0, 2.0, 0.9) / best)
            at.append(effectiveness_at(x, y, 5.0))
        assert board.scale.unit == "floor"
        assert entry.hypervolume.each[1] == pytest.approx(np.mean(shares))
        assert entry.ndcg_at["5"].each[1] == pytest.approx(np.mean(at), nan_ok=True)
        assert board.limit.hypervolume.mean == pytest.approx(1.0)
        assert entry.least_unfairness.mean >= 1.0


def test_a_series_may_have_its_own_estimator_and_limits_do_not_depend_on_it(tmp_path):
    series = (
        mf.Series(policies=("MCFair(beta=0)",), label="pooled", estimator="IPS(prior_mean=0.3, prior_strength=5)"),
        mf.Series(policies=("MCFair(beta=0)",), label="plain"),
    )
    both = experiment(series=series, settings=({"mode": "online", "steps": 300},), data=("one",), seeds=1)
    (board,) = built(both, tmp_path)
    entries = {entry.name: entry for entry in board.entries}
    assert entries["pooled"].estimator == "IPS(prior_mean=0.3, prior_strength=5.0)"
    assert entries["plain"].estimator == "IPS(prior_mean=0.0, prior_strength=0.0)"
    assert entries["pooled"].points[0].unfairness != entries["plain"].points[0].unfairness
    (alone,) = built(msgspec.structs.replace(both, series=series[:1]), tmp_path)
    assert (alone.key, alone.limit, alone.entries[0]) == (board.key, board.limit, entries["pooled"])
    with pytest.raises(mf.PartError, match="unknown estimator 'IPX'"):
        experiment(series=(mf.Series(policies=("TopK",), estimator="IPX"),))


# --- the file --------------------------------------------------------------------------------------------------------


def test_the_file_has_its_schema_and_reads_back(boards, tmp_path):
    file = tmp_path / "deep" / "leaderboard.json"
    write_boards(file, boards, {"mcfair": mf.__version__})
    content = msgspec.json.decode(file.read_bytes())
    assert set(content) == {"format", "made_with", "boards"}
    first = content["boards"][0]
    assert set(first) == {
        "name", "experiment", "key", "preset", "setting", "seeds", "data", "scale", "limit", "entries"
    }  # fmt: skip
    assert first["seeds"] == [0, 1]
    assert [each["name"] for each in first["data"]] == ["one", "two"]
    entry = first["entries"][0]
    assert set(entry) == set(first["limit"]) >= {"name", "estimator", "hypervolume", "points", "commands"}
    assert set(entry["hypervolume"]) == {"mean", "std", "each"}
    assert read_boards(file) == tuple(boards)
    assert read_boards(tmp_path / "nothing.json") == ()
    for wrong in (b"[]", b'{"format": 1}', file.read_bytes().replace(b'"format": 1', b'"format": 2')):
        file.write_bytes(wrong)
        with pytest.raises(mf.TraceError, match="leaderboard"):
            read_boards(file)


def test_commands_repeat_the_runs(boards):
    """The words of a command are the options of `simulate`, and its figures those of the entry."""
    board = boards[1]
    entry = next(entry for entry in board.entries if entry.name == "MCFair")
    words = shlex.split(entry.commands[0])
    assert words[:2] == ["mcfair", "simulate"]
    options = dict(zip(words[2::2], words[3::2], strict=True))
    assert (options["--data"], options["--setting"], options["--seeds"]) == ("one", "online", "2")
    policies = [words[i + 1] for i, word in enumerate(words) if word == "--policy"]
    assert policies == [point.policy for point in entry.points]
    figures = [
        mf.simulate(
            DATA["one"],
            policies[1],
            "online",
            seed=seed,
            steps=int(options["--steps"]),
            estimator=options["--estimator"],
        ).unfairness
        for seed in range(2)
    ]
    assert entry.points[1].unfairness.each[0] == pytest.approx(np.mean(figures))


def test_entries_are_merged_by_board_and_name(boards, tmp_path):
    own = experiment("FairK", "MCFair(alpha=[0, 1])")
    new = built(own, tmp_path)
    merged = merge_boards(boards, new)
    assert [board.key for board in merged] == [board.key for board in boards] == [board.key for board in new]
    assert {entry.name for entry in merged[0].entries} == {"TopK", "MCFair", "FairK"}
    replaced = next(entry for entry in merged[0].entries if entry.name == "MCFair")
    assert len(replaced.points) == 2  # the newer entry
    volumes = [entry.hypervolume.mean for entry in merged[0].entries]
    assert volumes == sorted(volumes, reverse=True)
    other = dataclasses.replace(DATA["one"], R=DATA["one"].R * 0.9, fingerprint="")
    there = built(own, tmp_path, DATA | {"one": other})
    assert {board.key for board in there}.isdisjoint(board.key for board in boards)  # other data, another board
    assert len(merge_boards(boards, there)) == 4


# --- contestants and their data --------------------------------------------------------------------------------------


def test_contestants_are_listed_once_and_can_be_compared():
    listed = contestants()
    for series in (*listed.contestants, *listed.studied):
        assert series.points
    assert listed.compare_with in {each.name for each in listed.series(slow=False)}
    assert all(len(each.points) == 1 for each in listed.studied)


def test_without_mq2008_built_in_data_take_its_place(monkeypatch, tmp_path):
    monkeypatch.setenv("MCFAIR_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    grid.short_lists.cache_clear()
    short, long, also = grid.frontiers(None, ["marketplace"], quick=True).frontiers
    assert (short.data, short.preset) == (("mq2008-like",), "")
    assert (long.data, long.min_items, long.max_items) == (("istella-s-like",), 100, 105)
    assert (also.data, also.min_items) == (("marketplace",), None)


def test_variations_of_the_data():
    data = DATA["one"]
    moved, noisy = continuous_relevance(data), noisy_grades(data)
    assert np.abs(moved.R - data.R).max() <= 0.15
    assert np.unique(moved.R[data.R < 1]).size > 20
    assert np.array_equal(noisy.R, data.R)
    off = noisy.scores != data.R
    assert 0.1 < off.mean() < 0.3
    grades = np.unique(data.R)
    steps = np.searchsorted(grades, noisy.scores[off]) - np.searchsorted(grades, data.R[off])
    assert set(np.abs(steps)) == {1}
    assert len({each.fingerprint for each in (data, moved, noisy)}) == 3


# --- tests and sections ----------------------------------------------------------------------------------------------

SHORT = {name: each.take(range(10)) for name, each in DATA.items()}
SERIES = (
    mf.Series(policies=("TopK",)),
    mf.Series(policies=("FairCo(alpha=[0, 0.01, 1000])",)),
    mf.Series(policies=("MCFair(alpha=[0, 0.3, 1000], beta=0)",)),
)
FRONTIER = experiment(
    name="frontier",
    title="Frontiers",
    show="tradeoff",
    settings=({"steps": 1000},),
    compare_with="MCFair",
    series=SERIES,
)
CONDITIONS = experiment(
    name="sessions",
    title="Robustness",
    show="tradeoff",
    data=("one",),
    settings=({"steps": 200}, {"steps": 1000}),
    series=SERIES,
)
ASSUMPTIONS = experiment(
    name="assumptions",
    title="Wrong assumptions",
    show="tradeoff",
    data=("one",),
    settings=tuple(
        {"mode": "online", "steps": 400, "clicks": clicks, "examination": p}
        for clicks in ("PositionBased(severity=2)", "Cascade")
        for p in (0.5, 2.0, (1.0, 0.5, 0.3, 0.2, 0.1))
    ),
    metrics=("true_unfairness", "log_ndcg@5"),
    series=(mf.Series(policies=("MCFair",)), mf.Series(policies=("FairCo(alpha=0.01)",))),
)


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    experiments = [FRONTIER, CONDITIONS, ASSUMPTIONS]
    return mf.run_experiments(experiments, tmp_path_factory.mktemp("shown"), data=SHORT)


@pytest.fixture
def builder(shown):
    return BoardBuilder(shown, FRONTIER, FRONTIER.conditions[0])


def test_the_page_has_every_section_and_figure(shown, tmp_path):
    wanted = Grid([FRONTIER], [CONDITIONS], [ASSUMPTIONS], SHORT)
    page = write_page(shown, wanted, {("frontier", "post-processing"): {"FairCo": 0.123}}, tmp_path)
    text = page.read_text(encoding="utf-8")
    for words in (
        "<h1>Fair ranking beyond the paper</h1>",
        ">Frontiers</h2>",
        ">Robustness</h2>",
        ">Wrong assumptions</h2>",
        "has the largest hypervolume",
        "times the true unfairness of the fitted examination",
    ):
        assert words in text
    assert {"frontier", "frontier-closer", "assumptions"} <= {
        file.stem for file in (tmp_path / "figures").glob("*.png")
    }
    ranking, conditions = (
        (tmp_path / "tables" / f"{name}.md").read_text(encoding="utf-8")
        for name in ("frontier-post-processing-ranking", "sessions")
    )
    board = builders_of(shown, FRONTIER)[0].build()
    rows = [line.split(" | ") for line in ranking.splitlines() if line.startswith("|")]
    assert [row[0] for row in rows[3:]] == [f"| {entry.name}" for entry in board.entries]
    assert [row[-1] for row in rows[3:] if "FairCo" in row[0]] == ["0.123 |"]
    assert "post-processing, 200 steps: hypervolume" in conditions


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
                traces = [mf.simulate(SHORT[name], policy, steps=1000, seed=seed) for seed in (0, 1)]
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
    assert least.queries.mean() == pytest.approx(least.datasets.mean(), rel=0.2)  # queries weigh alike


def test_the_table_of_tests_is_adjusted_and_states_its_power(builder):
    tests, table = matched_tests(builder, "MCFair"), table_of_tests(builder, "MCFair")
    done = [test for test in tests if test.queries.size > 1]
    p_values = [mf.fisher(test.queries, 0.0 * test.queries, resamples=20_000) for test in done]
    adjusted = mf.holm(p_values)
    assert len(table.rows) == len(tests)
    rows = [row for row in table.rows if row[4] != NOTHING]
    for row, test, p in zip(rows, done, adjusted, strict=True):
        assert row[0] == test.name
        assert row[4] == ("< 0.0001" if p < 0.0001 else f"{p:.4f}")
        if p >= 0.05 and np.ptp(test.queries) > 0:
            assert float(row[5]) == pytest.approx(detectable_difference(test.queries, 1 - 0.05 / len(done)), rel=0.01)
    alone = table_of_tests(builder, "MCFair", ["TopK"])
    assert {row[0] for row in alone.rows} == {"TopK"}
    assert table_of_tests(builder, "BayesFair") is None


def test_costs_of_assumptions_are_relative_to_the_fit(shown):
    first = rows_of(Report(shown), ASSUMPTIONS, ASSUMPTIONS.series[0])
    assert [row.users for row in first] == ["PositionBased(severity=2.0)", "Cascade"]
    metric = "true_unfairness"
    options = {"steps": 400, "clicks": "Cascade", "metrics": [metric]}
    means = [
        np.mean([
            mf.simulate(SHORT["one"], "MCFair", "online", seed=seed, examination=p, **options).figures[metric]
            for seed in (0, 1)
        ])
        for p in (0.5, (1.0, 0.5, 0.3, 0.2, 0.1))
    ]  # fmt: skip
    assert first[1].ratio(0.5) == pytest.approx(means[0] / means[1])


# --- a policy of the study's own -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mq2008-like", "istella-s-like"])
def test_budgetfair_is_bayesfair_at_the_price_of_the_loss(name):
    """On lists of ten and of a hundred items, whose prices are far apart."""
    from budgetfair import BudgetFair, price_of  # registers a policy, which the other tests are not to find

    data = mf.synthetic(name, seed=1).take(range(30))
    price = price_of(0.02, data, mf.examination(5, 1.0))
    mine, same = (
        mf.simulate(data, each, steps=300 * 30) for each in (BudgetFair(loss=0.02), mf.BayesFair(alpha=price))
    )
    assert 1 - mine.ndcg[5] == pytest.approx(0.02, abs=0.004)
    assert (mine.unfairness, mine.ndcg) == (same.unfairness, same.ndcg)
    assert price_of(0.0, data, mf.examination(5, 1.0)) == 0.0


# --- the package as others see it ------------------------------------------------------------------------------------

PUBLIC = {"mcfair", "mcfair.analysis.frontiers", "mcfair.analysis.significance", "mcfair.report", "mcfair.tables"}


def test_the_study_uses_public_modules_only():
    used = set()
    for file in Path(grid.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [each.name for each in node.names] if isinstance(node, ast.Import) else []
            used |= {name for name in names if name.split(".")[0] == "mcfair"}
    assert used == PUBLIC
    for name in PUBLIC - {"mcfair"}:
        assert importlib.import_module(name).__all__
