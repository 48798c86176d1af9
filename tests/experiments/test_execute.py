import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import ClassVar

import pytest
from grids import GRID, assert_same
from mcfair.experiments.tasks import Task

import mcfair as mf
from mcfair.experiments.compare import cost, run_experiments
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


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_policy_that_fails_leaves_the_finished_runs_of_the_others(tmp_path, jobs):
    @mf.register
    class Broken(mf.Policy):
        def score(self, q, rng):
            return q.R * float("nan")

    both = Experiment(name="both", settings=({"steps": 50},), series=(Series(policies=("TopK", "Broken")),), seeds=1)
    with pytest.raises(mf.PolicyError, match=r"Broken\(\) returned a score that is not a number"):
        run_experiments([both], tmp_path, jobs=jobs)
    alone = Experiment(name="alone", settings=({"steps": 50},), series=(Series(policies=("TopK",)),), seeds=1)
    run_experiments([alone], tmp_path, jobs=jobs)
    assert not list((tmp_path / "runs").glob(".*"))


def test_killed_at_any_moment_and_started_again(tmp_path, serial):
    """After SIGKILL the figures are the same, and no finished run is made again."""
    code = (
        "import grids\n"
        "from mcfair.experiments.compare import run_experiments\n"
        f"run_experiments([grids.GRID], {str(tmp_path)!r}, jobs=2)\n"
    )
    (tmp_path / "main.py").write_text(code)
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": path}
    kept, kills = set(), 0
    for wanted in (3, 9, 15):
        process = subprocess.Popen([sys.executable, tmp_path / "main.py"], env=environment, start_new_session=True)
        while process.poll() is None and len(list((tmp_path / "runs").glob("[!.]*"))) < wanted:
            time.sleep(0.01)
        kills += process.poll() is None
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        now = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("[!.]*")}
        assert kept <= now.items()
        kept = set(now.items())
    assert kills >= 2
    assert 3 <= len(kept) < 28
    resumed = run_experiments([GRID], tmp_path)
    assert_same(serial, resumed)
    assert kept <= {(path.name, path.stat().st_mtime_ns) for path in (tmp_path / "runs").glob("[!.]*")}


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
        return cost(Task.of("d", "content", policy, mf.Setting(steps=steps, **options), 0, ()))

    assert cost_of(Plain(), 10) == 200 * 10
    assert cost_of(mf.TopK(), 10) == 10 * cost_of(mf.TopK(), 1)
    assert cost_of(Costly(), 10) == 300 * 10
    for plain in ({"clicks": Users()}, {"estimator": Guess()}):  # the loop is interpreted, but only where it uses them
        assert cost_of(mf.TopK(), 10, mode="online", **plain) == 200 * 10
        assert cost_of(mf.TopK(), 10, **plain) == 10
