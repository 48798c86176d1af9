"""The speed of reading LETOR files, next to that of hashing them."""

import hashlib
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
from measuring import interleave, show_progress

import mcfair as mf
from mcfair.data.catalogue import locate


def write_letor(path, mb):
    """Write a file of about so many MB: queries of 100 rows with 46 features of 6 decimals, as in MQ2008."""
    rng = np.random.default_rng(0)
    rows = [
        f"{grade} qid:%d {' '.join(f'{i}:{x:.6f}' for i, x in enumerate(features, 1))} #docid = GX%03d-00-0000000\n"
        for grade, features in zip(rng.integers(0, 3, 100), rng.random((100, 46)), strict=True)
    ]
    with path.open("w") as file:
        query = 0
        while file.tell() < mb * 1e6:
            file.writelines(row % (query, i) for i, row in enumerate(rows))
            query += 1


def read(paths):
    for path in paths:
        mf.load_letor(path)


def digest(paths):
    for path in paths:
        with path.open("rb") as file:
            hashlib.file_digest(file, "sha256")


def rate(task, paths):
    """Return the seconds per MB."""
    begun = time.perf_counter()
    task(paths)
    return (time.perf_counter() - begun) / (sum(path.stat().st_size for path in paths) / 1e6)


def read_letor_files(report, effort):
    with tempfile.TemporaryDirectory() as folder:
        show_progress(f"reading: writing a file of {effort.file_mb} MB")
        generated = Path(folder) / "generated.txt"
        write_letor(generated, effort.file_mb)
        files = {"generated, 46 features": [generated]}
        try:
            files["MQ2008/Fold1: train, vali, test"] = sorted(locate("mq2008/fold1").glob("*.txt"))
        except mf.DataError:
            report.console.print("MQ2008 was not found under MCFAIR_DATA and is left out.\n", highlight=False)
        tasks = {(name, task): partial(rate, task, paths) for name, paths in files.items() for task in (read, digest)}
        times = interleave(tasks, effort.few_rounds + 1, "reading")
        report.table(
            "Reading LETOR files, labels only",
            [
                {
                    "file": name,
                    "MB": sum(path.stat().st_size for path in paths) / 1e6,
                    "MB/s": times[name, read].map(lambda t: 1 / t),
                    "MB/s\nSHA-256 alone": times[name, digest].map(lambda t: 1 / t),
                    "/ SHA-256": times[name, read] / times[name, digest],
                }
                for name, paths in files.items()
            ],
            "Every file is hashed while it is read, so the time of SHA-256 alone is a lower bound.",
        )
