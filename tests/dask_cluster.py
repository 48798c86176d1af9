"""A real Dask cluster on this machine: a scheduler and workers, each a process of its own, over TCP."""

import json
import subprocess
import sys
import time
from contextlib import contextmanager


@contextmanager
def cluster(tmp_path, workers, environments=()):
    """A scheduler and workers, each a process of its own, over TCP."""
    dask, file = [sys.executable, "-m", "dask"], tmp_path / "scheduler.json"
    file.unlink(missing_ok=True)
    log = (tmp_path / "dask.log").open("w")
    # The scheduler chooses its port: one that was free a moment ago may be another's now.
    where = ["--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(file), "--no-dashboard"]
    started = [subprocess.Popen([*dask, "scheduler", *where], stdout=log, stderr=log)]
    deadline = time.monotonic() + 60
    while not file.exists() or not file.read_text().endswith("}"):
        assert time.monotonic() < deadline, "no scheduler"
        time.sleep(0.05)
    address = json.loads(file.read_text())["address"]
    options = ["--no-dashboard", "--no-nanny", "--nthreads", "1", "--local-directory", str(tmp_path / "dask")]
    started += [
        subprocess.Popen([*dask, "worker", address, *options], stdout=log, stderr=log, cwd=tmp_path, env=environment)
        for environment in environments or [None] * workers
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
