"""Boards and the leaderboard: figures by hand, files, and entries beside each other."""

import dataclasses
import math
import shlex

import msgspec
import numpy as np
import pytest

import mcfair as mf
from mcfair.analysis.frontiers import effectiveness_at, hypervolume
from mcfair.errors import SettingError, TraceError
from mcfair.experiments.beyond import contestants, continuous_relevance, frontier_experiments, noisy_grades
from mcfair.experiments.boards import Lines, boards_of, figures_of, scale_of
from mcfair.experiments.leaderboard import Leaderboard, Spread, merge_boards, read_leaderboard, write_leaderboard

DATA = {
    name: mf.synthetic("mq2008-like", seed=seed).take(range(12)) for name, seed in (("one", 0), ("two", 1))
}  # fmt: skip
SETTINGS = ({"mode": "post-processing", "steps": 1000}, {"mode": "online", "steps": 1500})


def experiment(*series, **changes):
    listed = tuple(mf.Series(policies=(text,)) for text in series)
    given = {"name": "small", "show": "frontier", "data": ("one", "two"), "settings": SETTINGS, "seeds": 2}
    return mf.Experiment(**{**given, "series": listed, **changes})


SMALL = experiment("TopK", "MCFair(alpha=[0, 0.3, 1000])", compare_with="MCFair")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return mf.run_experiments([SMALL], tmp_path_factory.mktemp("boards"), data=DATA)


@pytest.fixture(scope="module")
def boards(results):
    return boards_of(results)


# --- figures ---------------------------------------------------------------------------------------------------------


def test_a_spread_has_a_mean_only_where_all_datasets_reach_the_level():
    spread = Spread.of([[1.0, 3.0], [4.0, 4.0]])
    assert (spread.mean, spread.std, spread.each, spread.reached) == (3.0, 1.0, (2.0, 4.0), 2)
    partly = Spread.of([[1.0, 3.0], [4.0, math.nan]])  # one seed of the second dataset does not reach it
    assert (partly.mean, partly.std, partly.each, partly.reached) == (None, None, (2.0, None), 1)


def test_the_unit_is_the_floor_unless_that_is_next_to_nothing():
    assert scale_of([10.0, 20.0], [30.0, 40.0]).unit == "floor"
    assert scale_of([10.0, 1e-9], [30.0, 40.0]).unit == "perfect"


def test_figures_follow_from_the_frontiers_by_hand():
    """One dataset and seed. The limit is 1 between one and two floors; the policy begins at 1.5 with 0.95."""
    scale = scale_of([1.0], [2.0])
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
    (board,) = boards_of(mf.run_experiments([both], tmp_path, data=DATA))
    entries = {entry.name: entry for entry in board.entries}
    assert entries["pooled"].estimator == "IPS(prior_mean=0.3, prior_strength=5.0)"
    assert entries["plain"].estimator == "IPS(prior_mean=0.0, prior_strength=0.0)"
    assert entries["pooled"].points[0].unfairness != entries["plain"].points[0].unfairness
    (alone,) = boards_of(mf.run_experiments([experiment(**vars_of(both, series=series[:1]))], tmp_path, data=DATA))
    assert (alone.key, alone.limit, alone.entries[0]) == (board.key, board.limit, entries["pooled"])
    with pytest.raises(mf.PartError, match="unknown estimator 'IPX'"):
        experiment(series=(mf.Series(policies=("TopK",), estimator="IPX"),))


def vars_of(experiment, **changes):
    return {name: getattr(experiment, name) for name in experiment.__struct_fields__} | changes


# --- the file --------------------------------------------------------------------------------------------------------


def test_the_file_has_its_schema_and_reads_back(boards, tmp_path):
    file = tmp_path / "deep" / "leaderboard.json"
    write_leaderboard(file, boards, {"mcfair": mf.__version__})
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
    assert read_leaderboard(file) == Leaderboard(format=1, made_with={"mcfair": mf.__version__}, boards=tuple(boards))
    assert read_leaderboard(tmp_path / "nothing.json") is None
    for wrong in (b"[]", b'{"format": 1}', file.read_bytes().replace(b'"format": 1', b'"format": 2')):
        file.write_bytes(wrong)
        with pytest.raises(TraceError, match="leaderboard"):
            read_leaderboard(file)


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
    new = boards_of(mf.run_experiments([own], tmp_path, data=DATA))
    merged = merge_boards(boards, new)
    assert [board.key for board in merged] == [board.key for board in boards] == [board.key for board in new]
    assert {entry.name for entry in merged[0].entries} == {"TopK", "MCFair", "FairK"}
    replaced = next(entry for entry in merged[0].entries if entry.name == "MCFair")
    assert len(replaced.points) == 2  # the newer entry
    volumes = [entry.hypervolume.mean for entry in merged[0].entries]
    assert volumes == sorted(volumes, reverse=True)
    other = dataclasses.replace(DATA["one"], R=DATA["one"].R * 0.9, fingerprint="")
    there = boards_of(mf.run_experiments([own], tmp_path, data=DATA | {"one": other}))
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
    short, long, also = frontier_experiments(None, ["mine.txt"], quick=True)
    assert (short.data, short.preset) == (("mq2008-like",), "")
    assert (long.data, long.min_items, long.max_items) == (("istella-s-like",), 100, 105)
    assert (also.data, also.min_items) == (("mine.txt",), None)


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


def test_a_frontier_of_nothing_is_refused():
    with pytest.raises(SettingError, match="unknown series in compare_with"):
        experiment("TopK", compare_with="MCFair")
