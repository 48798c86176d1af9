import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

import mcfair as mf
from mcfair.cli.app import import_plugin
from mcfair.experiments import execute
from mcfair.experiments.execute import run_experiments
from mcfair.experiments.experiment import Experiment, Series

GRID = Experiment(
    name="grid",
    settings=({"mode": "post-processing", "steps": 300}, {"mode": "online", "steps": 2000}),
    seeds=2,
    series=(
        Series(policies=("TopK", "MCFair(alpha=[0, 1, 10])", "ILP(alpha=0.1)", "LP(refresh=20)", "PLFair(epochs=2)")),
    ),
)

THEIRS = """
import mcfair as mf


@mf.kernel
def damped(q, theta, rng, out):
    for d in range(out.shape[0]):
        out[d] = q.R[d] - theta[0] * q.E[d] / max(q.visits[()], 1)


@mf.register
class Compiled(mf.Policy):
    weight: float = 0.5

    kernel = damped


@mf.register
class Plain(mf.Policy):
    weight: float = 0.5

    def score(self, q):
        return q.R - helper(self.weight) * q.E


def helper(x):
    return x / 100
"""


def figures(results):
    """All that does not depend on how fast it was."""
    queries = results.queries.sort("key", "query")
    return results.runs.sort("key"), queries, results.limits.sort("setting", "seed"), results.frontier


def assert_same(one, two, tolerance=0.0):
    for a, b in zip(figures(one), figures(two), strict=True):
        assert a.shape == b.shape
        for column in a.columns:
            if a[column].dtype.is_float():
                assert b[column].to_list() == pytest.approx(
                    a[column].to_list(), rel=tolerance, abs=tolerance, nan_ok=True
                )
            else:
                assert b[column].to_list() == a[column].to_list()


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
def test_a_policy_that_fails_loses_nothing_of_the_others(tmp_path, jobs):
    @mf.register
    class Broken(mf.Policy):
        def score(self, q):
            return q.R * float("nan")

    both = Experiment(name="both", settings=({"steps": 50},), series=(Series(policies=("TopK", "Broken")),), seeds=1)
    with pytest.raises(mf.PolicyError, match=r"Broken\(\) gave a score that is no number"):
        run_experiments([both], tmp_path, jobs=jobs)
    alone = Experiment(name="alone", settings=({"steps": 50},), series=(Series(policies=("TopK",)),), seeds=1)
    run_experiments([alone], tmp_path, jobs=jobs)
    assert not list((tmp_path / "runs").glob(".*"))


def test_killed_at_any_moment_and_started_again(tmp_path, serial):
    """SIGKILL, not a polite end; then the same figures, and no run that was finished is made again."""
    code = (
        "import sys, test_execute\n"
        "from mcfair.experiments.execute import run_experiments\n"
        "if __name__ == '__main__':\n"
        f"    run_experiments([test_execute.GRID], {str(tmp_path)!r}, jobs=2)\n"
    )
    (tmp_path / "main.py").write_text(code)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)}
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


# --- a real cluster --------------------------------------------------------------------------------------------------

pytest.importorskip("distributed", reason="needs the extra [cluster]")


@contextmanager
def cluster(tmp_path, workers):
    """A scheduler and workers, each a process of its own, over TCP."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    dask = [sys.executable, "-m", "dask"]
    address = f"tcp://127.0.0.1:{port}"
    options = ["--no-dashboard", "--no-nanny", "--nthreads", "1", "--local-directory", str(tmp_path / "dask")]
    log = (tmp_path / "dask.log").open("w")
    started = [
        subprocess.Popen(
            [*dask, "scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"], stdout=log, stderr=log
        )
    ]
    started += [
        subprocess.Popen([*dask, "worker", address, *options], stdout=log, stderr=log, cwd=tmp_path)
        for _ in range(workers)
    ]
    try:
        if workers:
            wait_for_workers(address, workers)
        yield address, started
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()
        log.close()


def wait_for_workers(address, workers):
    from distributed import Client

    with Client(address, timeout=60, set_as_default=False) as client:
        client.wait_for_workers(workers, timeout=60)


def test_a_cluster_gives_the_same_and_survives_the_death_of_a_worker(tmp_path, serial):
    file = tmp_path / "theirs.py"
    file.write_text(THEIRS)
    import_plugin(str(file))
    users = Experiment(
        name="users", settings=GRID.settings, seeds=2, series=(Series(policies=("Compiled", "Plain(weight=1)")),)
    )
    local = run_experiments([GRID, users], tmp_path / "local")
    with cluster(tmp_path, workers=2) as (address, processes):
        done = []

        def progress(stage, finished, total):
            if stage == "runs" and finished == 5:
                processes[1].kill()  # one of the two workers, in the middle of the work
                done.append(total)

        remote = run_experiments([GRID, users], tmp_path / "remote", cluster=address, progress=progress)
        assert processes[1].wait() == -signal.SIGKILL
        assert processes[2].poll() is None
    assert done == [36]
    assert_same(local, remote, tolerance=1e-9)


def test_a_scheduler_without_workers_is_refused(tmp_path):
    with cluster(tmp_path, workers=0) as (address, _), pytest.raises(mf.SettingError, match="has no workers"):
        run_experiments([GRID], tmp_path / "out", cluster=address)


def test_a_scheduler_that_does_not_answer_is_named_before_any_work(tmp_path, monkeypatch):
    assert execute.PATIENCE == 10
    monkeypatch.setattr(execute, "PATIENCE", 1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        begun = time.monotonic()
        with pytest.raises(mf.SettingError, match=rf"no Dask scheduler answers at {address} within 1 s"):
            run_experiments([GRID], tmp_path, cluster=address)
        assert time.monotonic() - begun < 5
    with pytest.raises(mf.SettingError, match="no Dask scheduler answers at nowhere"):
        run_experiments([GRID], tmp_path, cluster="nowhere")
