import dataclasses
import os

import numpy as np
import pytest
from real_data import FOLDS, needs_mq2008

import mcfair as mf
from mcfair.experiments import results as module
from mcfair.experiments.execute import run_experiments
from mcfair.experiments.experiment import Experiment, Series
from mcfair.experiments.results import Archive, Task, open_experiments, tasks_of

SMALL = Experiment(
    name="small",
    settings=({"mode": "post-processing", "steps": 400}, {"mode": "online", "steps": 600}),
    seeds=2,
    series=(Series(policies=("TopK", "MCFair(alpha=[0, 10], beta=0)")), Series(policies=("LP",), mode="online")),
)


@pytest.fixture(scope="module")
def data():
    return open_experiments([SMALL])


@pytest.fixture
def task(data):
    return tasks_of([SMALL], data)[0]


def test_every_run_once_whatever_the_experiments_share(data):
    tasks = tasks_of([SMALL, SMALL], data)
    assert len(tasks) == len({task.key for task in tasks}) == (3 * 2 + 1) * 2


def key(name="d", opened=None, policy="MCFair", seed=0, preset="", **changes):
    opened = mf.synthetic("mq2008-like") if opened is None else opened
    return Task.of(name, opened, mf.parse_policy(policy), mf.Setting(steps=10, **changes), seed, preset).key


def test_a_key_holds_all_that_a_run_depends_on_and_nothing_else():
    other = mf.synthetic("mq2008-like", seed=1)
    keys = [
        key(), key(policy="MCFair(alpha=2)"), key(seed=1), key(mode="online"), key(k_s=3), key(opened=other),
        key(prior_strength=1.0), key(preset="paper"),
    ]  # fmt: skip
    assert len(set(keys)) == len(keys)
    assert key() == key(name="another name for it") == key(policy="MCFair(beta=100, alpha=1)")


def test_a_change_of_our_sources_is_noticed(monkeypatch):
    before = key()
    monkeypatch.setattr(module, "source_hash", lambda: "other sources")
    assert key() != before


def test_what_no_run_depends_on_is_not_among_the_sources():
    package = module.PACKAGE
    for name in module.NOT_IN_A_RUN:
        assert (package / name).exists(), name
    for name in ("loop.py", "policies", "policy.py", "random.py", "simulate.py", "state.py", "users.py", "metrics.py"):
        assert name not in module.NOT_IN_A_RUN


def test_a_change_in_the_file_of_a_users_policy_is_noticed(tmp_path):
    from mcfair.cli.app import import_plugin

    keys = []
    for line in ("return q.R", "return q.R * 1.5", "return q.R"):
        file = tmp_path / "theirs.py"
        file.write_text(
            f"import mcfair as mf\n\n@mf.register\nclass Theirs(mf.Policy):\n    def score(self, q):\n        {line}\n"
        )
        import_plugin(str(file))
        keys.append(key(policy="Theirs"))
    assert keys[0] != keys[1]
    assert keys[0] == keys[2]


def test_a_run_is_kept_once_and_whole(tmp_path, data, task):
    archive = Archive(tmp_path / "runs")
    assert archive.missing([task]) == [task]
    trace = task.run(data[task.data])
    archive.save(task, trace)
    archive.save(task, trace)  # another process was faster
    assert archive.missing([task]) == []
    assert archive.load(task.key).unfairness == trace.unfairness


def test_half_written_runs_are_neither_read_nor_left(tmp_path, task):
    archive = Archive(tmp_path / "runs")
    draft = archive.folder / f".{task.key}-abc"
    draft.mkdir()
    (draft / "run.json").write_text("{")
    assert task.key not in archive
    assert task.key not in Archive(tmp_path / "runs")
    assert draft.exists()  # another process may be writing it at this moment
    os.utime(draft, (0, 0))
    assert task.key not in Archive(tmp_path / "runs")
    assert not draft.exists()


def test_a_folder_that_cannot_be_written_to_is_refused_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(mf.TraceError, match=r"cannot write to .*file"):
        Archive(tmp_path / "file" / "runs")


def test_tables_hold_what_the_runs_gave(tmp_path, data):
    results = run_experiments([SMALL], tmp_path)
    assert results.runs.height == 14
    for setting, policy in {(setting, policy) for _, setting, policy in SMALL.played()}:
        rows = results.of("mq2008-like", setting, policy)
        assert rows["seed"].to_list() == [0, 1]
        for row in rows.iter_rows(named=True):
            trace = mf.simulate(data["mq2008-like"], policy, setting, seed=row["seed"])
            assert row["unfairness"] == trace.unfairness
            assert row["sessions"] == trace.sessions
            assert [row[f"cndcg@{k}"] for k in range(1, 6)] == list(trace.cndcg.values())
            mine = results.queries.filter(key=row["key"])
            assert np.array_equal(mine["unfairness"], trace.query_unfairness)
            assert np.array_equal(mine["visits"], trace.state.visits)
    assert set(results.times["policy"]) == {repr(policy) for _, _, policy in SMALL.played()}
    assert results.times["seconds"].min() > 0


def test_no_run_is_below_the_floor_or_past_the_frontier(tmp_path):
    results = run_experiments([SMALL], tmp_path)
    assert results.limits.height == 4
    assert results.limits["gap"].max() < 1e-6
    floors = results.runs.join(results.limits, on=["data", "setting", "seed"])
    assert (floors["unfairness"] >= floors["floor"] - 1e-9).all()
    assert results.frontier.height == 4 * 40
    assert results.frontier.filter(point=39)["ndcg"].to_list() == pytest.approx([1.0] * 4)


def test_one_name_is_loaded_in_one_way():
    other = Experiment(name="other", series=SMALL.series, epsilon=0.3)
    with pytest.raises(mf.DataError, match="other loads mq2008-like in another way"):
        open_experiments([SMALL, other])


@needs_mq2008
def test_a_fold_is_known_by_all_its_parts():
    fold = mf.load_letor(FOLDS / "Fold1", preset="paper")
    changed = dataclasses.replace(fold, epsilon=0.2)
    assert key(opened=fold, preset="paper") != key(opened=changed, preset="paper")
    assert key(opened=fold) != key(opened=fold.test)
