"""Runs on processes, started in the ways in which users start Python."""

import os
import subprocess
import sys
import time
from pathlib import Path

import batch_faults
import pytest

import mcfair as mf
from mcfair.experiments.compare import run_experiments
from mcfair.experiments.experiment import Experiment, Series

psutil = pytest.importorskip("psutil", reason="comes with the extra [cluster]")

SCRIPT = """
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
print(repr(results), results.runs["unfairness"].to_list())
"""


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    """Output of the same script with one process."""
    folder = tmp_path_factory.mktemp("serial")
    (folder / "script.py").write_text(SCRIPT.replace("jobs=2", "jobs=1").replace("FOLDER", repr(str(folder / "out"))))
    return subprocess.check_output([sys.executable, "-W", "error", folder / "script.py"], text=True, timeout=120)


def test_a_script_without_a_main_guard(tmp_path, wanted):
    assert wanted.startswith("Results(mine: 6 runs of 3 policies, 2 seed(s)) [")
    file = tmp_path / "script.py"
    file.write_text(SCRIPT.replace("FOLDER", repr(str(tmp_path / "file"))))
    done = subprocess.run([sys.executable, "-W", "error", str(file)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, wanted, "")


def test_a_notebook(tmp_path, wanted):
    """A notebook's kernel is IPython; what is defined in its cells is run every time, and said so."""
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
    outputs = ["".join(part["text"] for part in cell["outputs"] if "text" in part) for cell in notebook.cells]
    assert wanted in outputs[1]
    assert outputs[1].count("it was defined at a prompt; put it into a file") == 2  # once for each part
    assert wanted not in outputs[3]
    assert "('runs', 2, 6)" in outputs[3]  # only the runs of TopK are found again


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return batch_faults.run(tmp_path_factory.mktemp("expected"))


@pytest.mark.parametrize("target", ["first worker", "a worker", "parent SIGKILL", "parent SIGTERM", "parent SIGINT"])
def test_after_a_kill_nothing_is_left_and_a_second_run_gives_the_same_bits(tmp_path, expected, target):
    """The first worker is killed while it starts, before it has read what it is to do."""
    batch_faults.kill(tmp_path / "out", f"test-{os.getpid()}-{target[-5:]}", target, 2.0, expected)


def test_two_runs_in_one_folder_both_finish(tmp_path, expected):
    batch_faults.two_at_once(tmp_path / "out", f"test-{os.getpid()}-two", expected)


def test_a_disk_without_room_is_one_line(tmp_path, expected):
    batch_faults.fill_disk(tmp_path / "out", f"test-{os.getpid()}-full", 20_000, expected)


def test_flipped_bits_are_not_believed(tmp_path):
    assert batch_faults.flip_bits(tmp_path / "out", 12) >= 6


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_part_that_ends_python_has_failed(jobs):
    class Leaves(mf.Policy):
        def score(self, q, rng):
            sys.exit(0)

    with pytest.raises(mf.PolicyError, match=r"Leaves\(\) failed: SystemExit: 0"):
        mf.compare("mq2008-like", [Leaves(), "TopK"], steps=20, seeds=1, jobs=jobs)


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
