"""Runs on a real Dask cluster: a scheduler and workers, each a process of its own."""

import os
import shutil
import signal
import socket
import threading
import time

import batch_faults
import pytest
from dask_cluster import cluster
from grids import GRID, assert_same

import mcfair as mf
from mcfair.cli.parts import import_plugin
from mcfair.experiments import execute as module
from mcfair.experiments.compare import run_experiments
from mcfair.experiments.experiment import Experiment, Series
from mcfair.experiments.keys import PACKAGE

FITTED = Experiment(
    name="fitted",
    show="cutoffs",
    settings=tuple({"mode": "online", "steps": 1000, "estimator": each} for each in ("Mixture", "Beta")),
    seeds=1,
    series=(Series(policies=("BayesFair", "MCFair")),),
)
"""Priors that are fitted to all queries during the run: no solver is involved, so every bit is the same."""

THEIRS = """
import theirs_arithmetic
import mcfair as mf
from mcfair.parts import NonNegative


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
    weight: NonNegative = 0.5

    def score(self, q, rng):
        return q.R - theirs_arithmetic.scaled(self.weight) * q.E
"""


@pytest.fixture(scope="module", autouse=True)
def distributed():
    """Skip without the library, which takes seconds to import: only the process that runs these tests does."""
    pytest.importorskip("distributed", reason="needs the extra [cluster]")


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory):
    """A cluster of two workers; the last test that uses it kills one of them."""
    with cluster(tmp_path_factory.mktemp("cluster"), workers=2) as started:
        yield started


def test_priors_that_are_fitted_during_a_run_have_the_same_bits_on_a_cluster(tmp_path, two_workers):
    local = run_experiments([FITTED], tmp_path / "local")  # first: the workers find what it has compiled
    remote = run_experiments([FITTED], tmp_path / "remote", cluster=two_workers[0])
    assert remote.runs.height == 4
    assert_same(local, remote)


def test_a_cluster_gives_the_same_and_survives_the_death_of_a_worker(tmp_path, monkeypatch, two_workers):
    plugins = tmp_path / "plugins"  # workers have neither the plugin nor the module that it imports
    plugins.mkdir()
    (plugins / "theirs.py").write_text(THEIRS)
    (plugins / "theirs_arithmetic.py").write_text("def scaled(x):\n    return x / 100\n")
    monkeypatch.syspath_prepend(str(plugins))
    import_plugin(str(plugins / "theirs.py"))
    series = (Series(policies=("Compiled", "Plain(weight=1)")),)
    users = Experiment(
        name="users", max_items=GRID.max_items, settings=GRID.settings[1:], seeds=2, series=series
    )  # each mode compiles again
    local = run_experiments([GRID, users], tmp_path / "local")
    address, processes = two_workers
    done = []

    def progress(stage, finished, total):
        if stage == "runs" and finished == 5:
            processes[1].kill()  # one of the two workers, in the middle of the work
            done.append(total)

    remote = run_experiments([GRID, users], tmp_path / "remote", cluster=address, progress=progress)
    assert processes[1].wait() == -signal.SIGKILL
    assert processes[2].poll() is None
    assert done == [32]
    assert_same(local, remote, tolerance=1e-9)


def test_a_worker_of_other_sources_that_joins_later_refuses_to_work(tmp_path, monkeypatch):
    """The check at the start cannot see it; nothing that it computes is stored."""
    shutil.copytree(PACKAGE, tmp_path / "changed" / "mcfair")
    with (tmp_path / "changed" / "mcfair" / "state.py").open("a") as file:
        file.write("# changed\n")
    environment = [os.environ | {"PYTHONPATH": str(tmp_path / "changed")}]
    monkeypatch.setattr(module, "check_workers", lambda client, address: None)
    with cluster(tmp_path, 1, environment) as (address, _):
        with pytest.raises(mf.SettingError, match=r"the worker on .* has another version of mcfair") as refused:
            run_experiments([FITTED], tmp_path / "out", cluster=address)
        assert "\n" not in str(refused.value)
    assert not (tmp_path / "out" / "runs").exists()


def test_a_lost_scheduler_is_one_line_and_a_second_run_gives_the_same_bits(tmp_path):
    expected = batch_faults.run(tmp_path / "expected")
    batch_faults.lose_cluster(tmp_path / "out", f"test-{os.getpid()}-lost", "scheduler", expected, tmp_path)


def test_a_scheduler_without_workers_is_refused(tmp_path):
    with cluster(tmp_path, workers=0) as (address, _), pytest.raises(mf.SettingError, match="has no workers"):
        run_experiments([GRID], tmp_path / "out", cluster=address)


def test_workers_with_another_version_or_without_any_are_refused(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "changed" / "mcfair")
    with (tmp_path / "changed" / "mcfair" / "state.py").open("a") as file:
        file.write("# changed\n")
    (tmp_path / "broken" / "mcfair").mkdir(parents=True)
    (tmp_path / "broken" / "mcfair" / "__init__.py").write_text("raise ImportError('not installed')\n")
    environments = [os.environ | {"PYTHONPATH": str(path)} for path in (PACKAGE.parent, tmp_path / "changed")]
    environments.append(os.environ | {"PYTHONPATH": str(tmp_path / "broken")})
    with cluster(tmp_path, 3, environments) as (address, _):
        with pytest.raises(
            mf.SettingError, match=r"2 of 3 workers \(tcp:.*, tcp:.*\) have no mcfair, or another version"
        ):
            run_experiments([GRID], tmp_path / "out", cluster=address)
        assert not (tmp_path / "out").exists()


def test_a_scheduler_that_does_not_answer_is_named_before_any_work(tmp_path, monkeypatch):
    assert module.TIMEOUT == 10
    monkeypatch.setattr(module, "TIMEOUT", 1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        begun = time.monotonic()
        with pytest.raises(mf.SettingError, match=rf"no Dask scheduler answers at {address} within 1 s"):
            run_experiments([GRID], tmp_path, cluster=address)
        assert time.monotonic() - begun < 5
    other = socket.create_server(("127.0.0.1", 0))  # no scheduler: its first bytes are no length of a message

    def answer():
        with other.accept()[0] as connection:
            connection.sendall(b"SSH-2.0-OpenSSH_9.6" * 9)

    thread = threading.Thread(target=answer)
    thread.start()
    with other, pytest.raises(mf.SettingError, match="no Dask scheduler answers at tcp://127"):
        run_experiments([GRID], tmp_path, cluster=f"tcp://127.0.0.1:{other.getsockname()[1]}")
    thread.join()
    with pytest.raises(mf.SettingError, match="no Dask scheduler answers at nowhere"):
        run_experiments([GRID], tmp_path, cluster="nowhere")
