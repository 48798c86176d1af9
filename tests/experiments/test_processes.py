"""Runs on processes, started in the ways in which users start Python."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from mcfair.experiments.processes import interrupts_blocked

import mcfair as mf
from mcfair.experiments.compare import run_experiments
from mcfair.experiments.experiment import Experiment, Series

psutil = pytest.importorskip("psutil", reason="comes with the extra [cluster]")

SCRIPT = """
import sys
import mcfair as mf
from mcfair.parts import Share

LEVEL = 0.25

@mf.kernel
def damped(q, theta, rng, out):
    for d in range(out.shape[0]):
        out[d] = q.R[d] - LEVEL * theta[0] * q.E[d]

@mf.register
class Compiled(mf.Policy):
    weight: Share = 0.5
    kernel = damped

@mf.register
class Plain(mf.Policy):
    weight: Share = 0.5

    def score(self, q, rng):
        return q.R - helper(self.weight) * q.E

def helper(x):
    return x * LEVEL

mine = mf.Experiment(
    name="mine", data=("small",), settings=({"steps": 40},), seeds=2,
    series=(mf.Series(policies=("TopK", "Compiled", "Plain")),),
)
small = mf.synthetic("mq2008-like").select(max_items=8)
results = mf.run_experiments([mine], FOLDER, jobs=2, data={"small": small})
print(results, results.runs["unfairness"].to_list())
"""


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    """Output of the same script with one process."""
    folder = tmp_path_factory.mktemp("serial") / "runs"
    code = SCRIPT.replace("jobs=2", "jobs=1").replace("FOLDER", repr(str(folder)))
    return subprocess.check_output([sys.executable, "-W", "error", "-c", code], text=True, timeout=120)


def test_a_script_without_a_main_guard(tmp_path, wanted):
    assert wanted.startswith("Results(mine: 6 runs of 3 policies, 2 seed(s)) [")
    file = tmp_path / "script.py"
    file.write_text(SCRIPT.replace("FOLDER", repr(str(tmp_path / "file"))))
    done = subprocess.run([sys.executable, "-W", "error", str(file)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, wanted, "")


def test_a_notebook(tmp_path, wanted):
    """A notebook's kernel is IPython; a helper redefined in a cell is noticed."""
    nbformat = pytest.importorskip("nbformat", reason="needs the extra [dev]")
    nbclient = pytest.importorskip("nbclient", reason="needs the extra [dev]")
    pytest.importorskip("ipykernel", reason="needs the extra [dev]")
    first, second = SCRIPT.replace("FOLDER", repr(str(tmp_path / "notebook"))).split("mine = mf.Experiment")
    redefined = first.replace("return x * LEVEL", "return x / LEVEL")
    again = "mine = mf.Experiment" + second.replace("small = mf", "stages = []\nsmall = mf").replace(
        "jobs=2", "jobs=2, progress=lambda *stage: stages.append(stage)"
    )
    cells = [first, "mine = mf.Experiment" + second, redefined, again + "print(stages[0])"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in cells])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPYTHONDIR", str(tmp_path / "profile"))
        patch.setenv("JUPYTER_PLATFORM_DIRS", "1")
        nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute(cwd=str(tmp_path))
    outputs = ["".join(part["text"] for part in cell["outputs"]) for cell in notebook.cells]
    assert outputs[1] == wanted
    same, last = outputs[3].splitlines()
    assert same.startswith("Results(mine: 6 runs")
    assert same + "\n" != wanted
    assert last == "('runs', 4, 6)"  # only the runs of Plain, whose helper has changed, are made again


LONG = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets its background jobs ignore it
import mcfair as mf
from mcfair.experiments.compare import run_experiments

@mf.register
class Slow(mf.Policy):
    def score(self, q, rng):
        import time
        time.sleep(0.001)
        return q.R

grid = mf.Experiment(name="grid", settings=({"steps": 60_000},), series=(mf.Series(policies=("Slow",)),))
small = mf.Experiment(name="small", settings=({"steps": 20},), series=(mf.Series(policies=("TopK",)),))
def progress(stage, done, total):
    print(stage, done, flush=True)
run_experiments([small, grid], FOLDER, jobs=2, progress=progress)
"""


def workers_of(process):
    """The worker processes; the trackers of resources end by themselves after the process that started them."""
    return [each for each in psutil.Process(process.pid).children(recursive=True) if "--process-name" in each.cmdline()]


def start_long(tmp_path, wanted=1):
    code = LONG.replace("FOLDER", repr(str(tmp_path / "out")))
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 100
    while len(workers_of(process)) < 2 or not all(each.cpu_times().user > 0.5 for each in workers_of(process)):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return process


@pytest.mark.parametrize("early", [True, False])
def test_an_interrupt_ends_the_workers_quickly_and_in_silence(tmp_path, early):
    process = start_long(tmp_path)
    if not early:
        time.sleep(3)
    workers = workers_of(process)
    begun = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: every process of the group receives it
    _, errors = process.communicate(timeout=20)
    assert time.monotonic() - begun < 5
    assert process.returncode != 0
    assert errors.count("KeyboardInterrupt") == 1
    assert errors.count("Traceback") == 1
    assert not psutil.wait_procs(workers, timeout=5)[1]


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="has no masks of signals")
def test_an_interrupt_that_another_thread_accepts_waits_until_the_workers_are_started():
    """An interrupted start leaves a worker behind that waits for its orders, and the process waits for the worker."""
    done, steps = threading.Event(), []
    threading.Thread(target=done.wait, daemon=True).start()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def start_workers():
        with interrupts_blocked():
            os.kill(os.getpid(), signal.SIGINT)
            done.wait(0.1)  # the thread accepts the signal
            steps.append("started")

    try:
        with pytest.raises(KeyboardInterrupt):
            start_workers()
        assert steps == ["started"]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
        done.set()


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="has no masks of signals")
def test_workers_start_with_interrupts_blocked():
    """A worker that an interrupt ends before it has read its orders leaves the process waiting until they are read."""
    code = """
import signal, subprocess, sys
from multiprocessing import resource_tracker
from mcfair.experiments.processes import interrupts_blocked

with interrupts_blocked():
    resource_tracker.getfd()  # as the start of a worker does
    words = "import signal; print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))"
    print(subprocess.check_output([sys.executable, "-c", words], text=True))
"""
    assert subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60).split() == ["True"]


def test_a_worker_that_dies_is_named_and_the_others_end(tmp_path):
    process = start_long(tmp_path)
    workers = workers_of(process)
    workers[0].kill()
    _, errors = process.communicate(timeout=30)
    assert "SettingError: a worker process died" in errors
    assert "start again, with fewer --jobs" in errors
    assert "leaked" not in errors
    assert not psutil.wait_procs(workers, timeout=5)[1]


def test_datasets_are_sent_once_to_each_worker_and_no_worker_is_left_behind(tmp_path):
    """Each time a dataset is rebuilt in a worker, it leaves a file."""

    class Counted(mf.Dataset):
        def __setstate__(self, state):
            (tmp_path / f"{os.getpid()}-{time.monotonic_ns()}").touch()
            self.__dict__.update(state)

    import dataclasses

    source = mf.synthetic("mq2008-like").select(max_items=8)
    data = Counted(**{field.name: getattr(source, field.name) for field in dataclasses.fields(source)})
    grid = Experiment(
        name="grid", data=("mine",), settings=({"steps": 20},), series=(Series(policies=("TopK", "FairK")),), seeds=6
    )
    run_experiments([grid], tmp_path / "out", jobs=2, data={"mine": data})
    arrivals = [path.name.partition("-")[0] for path in tmp_path.glob("*-*")]
    assert 1 <= len(arrivals) <= 2
    assert len(set(arrivals)) == len(arrivals)
    assert str(os.getpid()) not in arrivals
    assert len(list(Path(tmp_path / "out" / "runs").glob("[!.]*"))) == 12
    left = [each for each in psutil.Process().children(recursive=True) if "--process-name" in each.cmdline()]
    assert left == []


def test_a_number_of_processes_that_is_not_allowed(tmp_path):
    grid = Experiment(name="grid", settings=({"steps": 20},), series=(Series(policies=("TopK",)),))
    with pytest.raises(mf.SettingError, match="jobs = 0 is not allowed: expected a number of processes of at least 1"):
        run_experiments([grid], tmp_path / "none", jobs=0)
