"""A real Dask cluster on this machine: a scheduler and workers, each a process of its own, over TCP."""

import socket
import subprocess
import sys
from contextlib import contextmanager


@contextmanager
def cluster(tmp_path, workers, environments=()):
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
