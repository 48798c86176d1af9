from typing import ClassVar

import pytest
from grids import GRID, assert_same

import mcfair as mf
from mcfair.experiments.compare import cost, run_experiments
from mcfair.experiments.execute import Task
from mcfair.experiments.experiment import Experiment, Series


@pytest.fixture(scope="module")
def serial(tmp_path_factory):
    return run_experiments([GRID], tmp_path_factory.mktemp("serial"))


def test_processes_give_the_same_bits(tmp_path, serial):
    stages = []
    both = run_experiments([GRID], tmp_path, jobs=2, progress=lambda *stage: stages.append(stage))
    assert_same(serial, both)
    assert stages[0] == ("runs", 0, 28)
    assert ("runs", 28, 28) in stages


def test_finished_work_is_not_repeated(tmp_path):
    first = Experiment(name="first", settings=({"steps": 50},), seeds=2, series=(Series(policies=("TopK", "FairK")),))
    run_experiments([first], tmp_path)
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*")}
    stages = []
    run_experiments([first], tmp_path, progress=lambda *stage: stages.append(stage))
    assert stages[0] == ("runs", 4, 4)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*")} == written
    more = Experiment(name="more", settings=({"steps": 50},), seeds=3, series=first.series)
    stages.clear()
    run_experiments([more], tmp_path, progress=lambda *stage: stages.append(stage))
    assert stages[0] == ("runs", 4, 6)


class Broken(mf.Policy):
    def score(self, q, rng):
        return q.R * float("nan")


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_policy_that_fails_leaves_the_finished_runs_of_the_others(tmp_path, jobs):
    series = (Series(policies=("TopK", Broken())),)
    both = Experiment(name="both", settings=({"steps": 50},), series=series, seeds=1)
    with pytest.raises(mf.PolicyError, match=r"Broken\(\) returned a score that is not a number"):
        run_experiments([both], tmp_path, jobs=jobs)
    alone = Experiment(name="alone", settings=({"steps": 50},), series=(Series(policies=("TopK",)),), seeds=1)
    run_experiments([alone], tmp_path, jobs=jobs)
    assert not list((tmp_path / "runs").glob(".*"))


def test_long_tasks_are_started_first():
    class Plain(mf.Policy):
        def score(self, q, rng):
            return q.R

    class Costly(mf.TopK):
        cost: ClassVar[float] = 300.0

    class Users(mf.ClickModel):
        def clicks(self, pi, truth, p, rng):
            return truth[pi] > 0.5

    class Guess(mf.Estimator):
        def estimate(self, C, E, F, p):
            return 0.5, 0.0

    def cost_of(policy, steps, **options):
        return cost(Task("d", policy, mf.Setting(steps=steps, **options), 0))

    assert cost_of(Plain(), 10) == 200 * 10
    assert cost_of(mf.TopK(), 10) == 10 * cost_of(mf.TopK(), 1)
    assert cost_of(Costly(), 10) == 300 * 10
    for plain in ({"clicks": Users()}, {"estimator": Guess()}):  # the loop is interpreted, but only where it uses them
        assert cost_of(mf.TopK(), 10, mode="online", **plain) == 200 * 10
        assert cost_of(mf.TopK(), 10, **plain) == 10
