"""Many runs in one call: in memory, in a folder, on data in memory; and what cannot be held is refused."""

import subprocess
import sys

import pytest

import mcfair as mf
from mcfair.experiments.compare import open_experiments, tasks_of
from mcfair.experiments.experiment import Experiment, Series

SMALL = Experiment(
    name="small",
    settings=({"mode": "post-processing", "steps": 400}, {"mode": "online", "steps": 600}),
    seeds=2,
    series=(Series(policies=("TopK", "MCFair(alpha=[0, 10], beta=0)")), Series(policies=("LP",), mode="online")),
)
TINY = mf.synthetic("mq2008-like").take(range(5))


def test_in_memory_and_in_a_folder_the_results_are_the_same(tmp_path):
    stages = []
    memory = mf.compare(TINY, ["TopK", "MCFair(alpha=[0, 1])"], steps=50, seeds=2)
    for _ in range(2):
        kept = mf.compare(
            TINY, ["TopK", "MCFair(alpha=[0, 1])"], steps=50, seeds=2, folder=tmp_path,
            progress=lambda *stage: stages.append(stage),
        )  # fmt: skip
        assert kept.runs.drop("key").equals(memory.runs.drop("key"))
        assert kept.queries.drop("key").equals(memory.queries.drop("key"))
        assert kept.limits.equals(memory.limits)
    assert [stage for stage in stages if stage[0] == "runs"] == [("runs", i, 6) for i in (0, 1, 2, 3, 4, 5, 6, 6)]
    stages.clear()
    mf.compare(TINY, "TopK", steps=50, seeds=2, folder=tmp_path, fresh=True, progress=lambda *s: stages.append(s))
    assert stages[0] == ("runs", 0, 2)


def test_one_policy_or_several_by_label_and_data_by_name():
    one = mf.compare("mq2008-like", mf.TopK(), steps=20, seeds=1)
    assert one.tests().is_empty()
    assert "floor" in str(one)
    named = mf.compare({"a": TINY}, {"best": "TopK", "ours": ["MCFair", "MMF"]}, "online", steps=20, seeds=1, k=3)
    assert named.frame()["label"].to_list() == ["best", "MCFair", "MMF"]
    assert named.runs["data"].unique().to_list() == ["a"]
    assert {"ndcg@3"} == {name for name in named.runs.columns if name in ("ndcg@3", "ndcg@4")}


class Unregistered(mf.Policy):
    weight: float = 0.5

    def score(self, q, rng):
        return q.R - self.weight * q.E


class Guess(mf.Estimator):
    def estimate(self, C, E, F, p):
        return 0.5, 0.0


def test_parts_need_not_be_registered(tmp_path):
    found = mf.compare(TINY, [Unregistered(), "TopK"], "online", estimator=Guess(), steps=30, seeds=1, folder=tmp_path)
    trace = mf.simulate(TINY, Unregistered(), "online", estimator=Guess(), steps=30)
    assert found.runs["unfairness"][0] == trace.unfairness
    trace.save(tmp_path / "mine")
    loaded = mf.Trace.load(tmp_path / "mine")
    assert loaded.figures == trace.figures
    with pytest.raises(mf.PartError, match=r"unknown estimator 'Guess'.*needs @mf.register"):
        loaded.items()


def test_what_has_no_key_is_run_every_time_and_not_stored(tmp_path):
    class Local(mf.Policy):
        def score(self, q, rng):
            return q.R

    stages = []
    for _ in range(2):
        with pytest.warns(mf.MCFairWarning, match="runs with Local are not kept: it was made by a function"):
            found = mf.compare(
                TINY, [Local(), "TopK"], steps=20, seeds=1, folder=tmp_path, progress=lambda *s: stages.append(s)
            )
        assert found.runs.height == 2
    assert [stage for stage in stages if stage[0] == "runs"] == [
        ("runs", 0, 2), ("runs", 1, 2), ("runs", 2, 2), ("runs", 1, 2), ("runs", 2, 2)
    ]  # fmt: skip
    assert len(list((tmp_path / "runs").iterdir())) == 1


def test_every_run_once_whatever_the_experiments_share():
    tasks = tasks_of([SMALL, SMALL], open_experiments([SMALL]))
    assert len(tasks) == len({task.key for task in tasks}) == (3 * 2 + 1) * 2


def test_the_same_data_under_two_names_are_two_datasets(tmp_path):
    for _ in range(2):
        found = mf.compare({"a": TINY, "b": TINY}, ["TopK", "MMF"], steps=20, seeds=1, folder=tmp_path)
        assert found.runs["data"].to_list() == ["a", "b", "a", "b"]
        assert found.tests(data="a")["p"].to_list() == found.tests(data="b")["p"].to_list()
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_one_name_is_loaded_in_one_way():
    other = Experiment(name="other", series=SMALL.series, epsilon=0.3)
    with pytest.raises(mf.DataError, match="other loads mq2008-like in another way"):
        open_experiments([SMALL, other])


def test_data_in_memory_are_found_by_name_before_files_and_profiles():
    grid = Experiment(
        name="mine", data=("mine", "mq2008-like"), settings=({"steps": 20},), seeds=1, series=SMALL.series[:1]
    )
    assert open_experiments([grid], {"mine": TINY, "mq2008-like": TINY}) == {"mine": TINY, "mq2008-like": TINY}
    assert open_experiments([grid], {"mine": TINY})["mq2008-like"].queries == 83
    with pytest.raises(mf.DataError, match="no such file or folder: mine"):
        open_experiments([grid])
    results = mf.run_experiments([grid], data={"mine": TINY}, timed=False)
    assert results.of("mine", grid.conditions[0], mf.TopK())["unfairness"][0] == (
        mf.simulate(TINY, "TopK", steps=20).unfairness
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seeds": 10**9}, r"1,000,000,000 runs would need about [\d,.]+ GiB of memory, and there are"),
        ({"seeds": 0}, "seeds = 0: expected a number of seeds of at least 1"),
        ({"jobs": 0}, "jobs = 0 is not allowed: expected a number of processes of at least 1"),
    ],
)
def test_what_cannot_be_run_is_refused_before_any_work(options, message, tmp_path):
    with pytest.raises(mf.SettingError, match=message):
        mf.compare(TINY, "TopK", steps=20, folder=tmp_path / "out", **options)


def test_checkpoints_that_cannot_be_held_are_refused():
    with pytest.raises(mf.SettingError, match=r"2,000,000,000 checkpoints would need about [\d,]+"):
        mf.simulate(TINY, "TopK", steps=2_000_000_000, checkpoints=2_000_000_000)


def test_runs_that_take_long_are_announced():
    slow = Experiment(name="slow", settings=({"steps": 10**8},), seeds=100, series=(Series(policies=("TopK",)),))
    from mcfair.experiments.compare import announce

    with pytest.warns(mf.MCFairWarning, match=r"100 runs take about [\d]+ minutes on 2 processes"):
        announce(tasks_of([slow], {"mq2008-like": TINY}), {"mq2008-like": TINY}, 2)


def test_three_lines_of_python_print_a_table_with_tests(tmp_path):
    (tmp_path / "three.py").write_text(
        'import mcfair as mf\nfound = mf.compare("mq2008-like", ["MCFair", "TopK"], steps=200)\nprint(found)\n'
    )
    text = subprocess.check_output([sys.executable, "-W", "error", tmp_path / "three.py"], text=True)
    for word in ("floor (lowest possible)", "MCFair", "TopK", "Fisher", "Holm", "5 seeds"):
        assert word in text
