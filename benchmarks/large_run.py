"""The large run, in a separate process so that its peak memory can be measured: prints one JSON object."""

import json
import re
import resource
import sys
import time
from pathlib import Path

import mcfair as mf


def peak_mb():
    """Return the peak memory of this process in MB."""
    status = Path("/proc/self/status")
    if status.exists():  # on Linux ru_maxrss survives exec and may belong to the parent process
        return int(re.search(r"VmHWM:\s+(\d+) kB", status.read_text())[1]) * 1024 / 1e6
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


if __name__ == "__main__":
    sessions = int(sys.argv[1])
    data = mf.synthetic("istella-s-like")
    begun = time.perf_counter()
    trace = mf.simulate(data, mf.MCFair(), "online", steps=sessions, threads=2)
    wall = time.perf_counter() - begun
    print(json.dumps({"seconds": trace.seconds, "wall": wall, "peak_mb": peak_mb()}))
