"""Faults of batches of runs: flipped bits, killed processes, lost clusters, disks without room, two runs in one folder.

After every fault a second run gives the same bits, and no process and no file is left behind. The suite runs a few of
each; `python tests/batch_faults.py` runs 240 flips and 20 kills.
"""

import argparse
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import mcfair as mf

GRID = mf.Experiment(
    name="grid",
    show="table",
    settings=({"mode": "post-processing", "steps": 200}, {"mode": "online", "steps": 300}),
    seeds=4,
    series=(mf.Series(policies=("TopK", "MCFair(alpha=[0, 1, 10])", "FairK")),),
)
MARK = "MCFAIR_BATCH_FAULT"
STARTS = (0.6, 4.0)
"""Seconds after which a run is hit, from its first imports to its last results."""


# --- runs ------------------------------------------------------------------------------------------------------------


def run(folder, **options):
    return mf.run_experiments([GRID], folder, **options)


def figures(results):
    """All that is the same in every run: not the times, and not the order of workers."""
    runs = results.runs.sort("key")
    return [runs, results.queries.sort("key", "query"), results.limits, results.frontier]


def assert_same(expected, results):
    for a, b in zip(figures(expected), figures(results), strict=True):
        assert a.equals(b, null_equal=True), (a, b)


def start(folder, tag, *words, **options):
    """Start a run in a session of its own, so that a signal to its group reaches what a terminal's would."""
    environment = os.environ | {MARK: tag, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    return subprocess.Popen(
        [sys.executable, __file__, "--one", str(folder), *words], env=environment, start_new_session=True, text=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **options,
    )  # fmt: skip


def processes_of(tag):
    """The processes that a run has started, itself included: they inherit its environment."""
    found, mark = [], f"{MARK}={tag}".encode()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if (
                mark in (place / "environ").read_bytes().split(b"\0")
                and "\nState:\tZ" not in (place / "status").read_text()
            ):
                found.append(int(place.name))
        except OSError:
            continue
    return sorted(found)


def workers_of(tag):
    found = []
    for process in processes_of(tag):
        try:
            if b"LokyProcess" in Path(f"/proc/{process}/cmdline").read_bytes():
                found.append(process)
        except OSError:
            continue
    return found


def wait_until(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def assert_clean(folder, tag):
    """No process, and nothing in the folder but whole runs and what was derived from them."""
    wait_until(lambda: not processes_of(tag), 10, f"processes are left: {processes_of(tag)}")
    names = {path.name for path in Path(folder).iterdir()}
    assert names <= {"runs", "times", "limits"}, names
    assert not list(Path(folder).rglob(".*"))


def assert_one_line(errors):
    """What a user reads of a fault is one line, but for what the interrupt itself prints in a script."""
    lines = [line for line in errors.splitlines() if line.strip()]
    assert len(lines) <= 1, errors


# --- flipped bits ----------------------------------------------------------------------------------------------------


def flip_bits(folder, count, seed=0):
    """Flip single bits in stored files, one after the other; count those that were noticed, and check all results."""
    expected, rng, noticed = run(folder), random.Random(seed), 0
    files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    for _ in range(count):
        path = rng.choice(files)
        content = path.read_bytes()
        flipped = bytearray(content)
        flipped[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(flipped)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", mf.MCFairWarning)
            results = run(folder)
        assert_same(expected, results)
        assert len(caught) <= 1
        noticed += len(caught)
        if path.parts[-2] == "times":  # measured again, and another number
            results, content = expected, path.read_bytes()
        path.write_bytes(content)
    return noticed


# --- kills -----------------------------------------------------------------------------------------------------------


def kill(folder, tag, target, moment, expected):
    """Start a run on two processes, kill one process at a moment, and check that a second run is as if nothing was."""
    process = start(folder, tag)
    if target == "first worker":
        wait_until(lambda: workers_of(tag) or process.poll() is not None, 60, "no workers")
    else:
        time.sleep(moment)
    workers = workers_of(tag)
    if "worker" in target:
        for worker in workers[:1]:
            os.kill(worker, signal.SIGKILL)
    elif process.poll() is None:
        os.kill(process.pid, getattr(signal, target.split()[1]))
    _, errors = process.communicate(timeout=60)
    if process.returncode not in (0, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGHUP, -signal.SIGINT):
        assert_one_line(errors)
        assert "a worker process died" in errors or "interrupted" in errors, errors
    wait_until(lambda: not processes_of(tag), 10, f"processes are left after {target}: {processes_of(tag)}")
    assert_same(expected, run(folder))
    assert_clean(folder, tag)


def fill_disk(folder, tag, size, expected):
    """Run where no file may be longer than some bytes: one line, and a second run is as if nothing was."""

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    process = start(folder, tag, preexec_fn=limit)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    assert_one_line(errors)
    assert "File too large" in errors
    assert_same(expected, run(folder))
    assert_clean(folder, tag)


def two_at_once(folder, tag, expected):
    """Two runs in one folder: both finish, and what they leave is whole."""
    both = [start(folder, tag) for _ in range(2)]
    for process in both:
        _, errors = process.communicate(timeout=120)
        assert (process.returncode, errors) == (0, "")
    assert_same(expected, run(folder))
    assert_clean(folder, tag)


def lose_cluster(folder, tag, what, expected, place):
    """Lose the scheduler, or one of two workers, of a Dask cluster in the middle of the work."""
    from dask_cluster import cluster

    with cluster(place, workers=2) as (address, processes):
        process = start(folder, tag, address)
        runs = Path(folder) / "runs"
        wait_until(lambda: len(list(runs.glob("*"))) > 3 or process.poll() is not None, 90, "no runs")
        processes[0 if what == "scheduler" else 1].kill()
        _, errors = process.communicate(timeout=120)
        assert_one_line(errors)
        if what == "worker":
            assert process.returncode == 0
        else:
            assert process.returncode == 0 or "lost its work" in errors
    assert_same(expected, run(folder))
    assert_clean(folder, tag)


TARGETS = (
    "first worker", "parent SIGKILL", "a worker", "parent SIGTERM", "parent SIGINT", "parent SIGHUP",
)  # fmt: skip


def kills(place, count, seed=0):
    rng, expected = random.Random(seed), run(place / "expected")
    for i in range(count):
        folder, tag = place / f"kill-{i}", f"{os.getpid()}-{i}"
        target, moment = TARGETS[i % len(TARGETS)], rng.uniform(*STARTS)
        kill(folder, tag, target, moment, expected)
        print(f"{target} after {moment:.2f} s: the same bits, nothing left", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--one", nargs="+")
    parser.add_argument("--flips", type=int, default=240)
    parser.add_argument("--kills", type=int, default=20)
    words = parser.parse_args()
    if words.one:
        folder, *address = words.one
        try:
            run(folder, jobs=2, cluster="".join(address))
        except mf.MCFairError as error:
            sys.exit(f"mcfair: error: {error}")
        except KeyboardInterrupt:
            sys.exit("mcfair: interrupted")
        return
    place = Path(tempfile.mkdtemp(prefix="batch-faults-"))
    noticed = flip_bits(place / "flips", words.flips)
    print(f"{words.flips} flipped bits: {noticed} noticed and made again, none believed")
    kills(place, words.kills)
    expected = run(place / "expected")
    for size in (2_000, 20_000):
        fill_disk(place / f"full-{size}", f"{os.getpid()}-full-{size}", size, expected)
    two_at_once(place / "two", f"{os.getpid()}-two", expected)
    for what in ("scheduler", "worker"):
        lose_cluster(place / what, f"{os.getpid()}-{what}", what, expected, place)
    print("a disk without room, two runs in a folder, a lost scheduler and a lost worker: the same bits, nothing left")
    shutil.rmtree(place)


if __name__ == "__main__":
    main()
