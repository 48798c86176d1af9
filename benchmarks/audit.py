"""Time and memory of the audit of large logs, and the error of fitted examination where the truth is known.

    python benchmarks/audit.py                          # 5 and 50 million rows, and three severities
    python benchmarks/audit.py --rows 1000000 --quick   # one small log, fewer impressions
    python benchmarks/audit.py --out docs/results/audit.json    # the figures of docs/how-to/audit.md

Each log is audited in a process of its own, so that its peak memory can be measured. CPU seconds are printed beside
wall-clock seconds, because a busy machine changes only the latter.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
from large_run import peak_mb
from measuring import machine

import mcfair as mf

QUERIES, ITEMS, RANKS = 20_000, 20, 10
BATCH = 500_000
WEEK, PER_WEEK = 7 * 86_400, 625_000
"""Seconds of a week, and the impressions in it: 50 million rows are eight weeks."""


def batch(rng, first, size):
    """Return impressions as rows: lists of 10 of the 20 items of a query, better items higher, 7 sellers."""
    query = rng.integers(0, QUERIES, size)
    order = np.argsort(rng.random((size, ITEMS)) - np.arange(ITEMS) * 0.03, axis=1)[:, :RANKS]
    hit = rng.random((size, RANKS)) < 0.3 / np.log2(np.arange(2, RANKS + 2))
    table = pl.DataFrame(
        {
            "impression": np.repeat(np.arange(first, first + size), RANKS),
            "query": np.repeat(query, RANKS),
            "item": (query[:, None] * ITEMS + order).ravel(),
            "rank": np.tile(np.arange(1, RANKS + 1), size),
            "clicked": hit.ravel().astype(np.int8),
            "group": ((query[:, None] + order) % 7).ravel(),
            "time": np.repeat((1_704_067_200 + WEEK * np.arange(first, first + size) // PER_WEEK) * 1000, RANKS),
        }
    )
    return table.with_columns(
        time=pl.col("time").cast(pl.Datetime("ms")),
        query=pl.format("query {}", "query"),
        item=pl.format("sku-{}", "item"),
        group=pl.format("seller {}", "group"),
    )


def write_log(folder, rows, kind):
    """Write a log of so many rows to a folder of files, or to one CSV file; `untimed` is Parquet without times."""
    rng, sizes = np.random.default_rng(0), []
    while sum(sizes) < rows // RANKS:
        sizes.append(min(BATCH, rows // RANKS - sum(sizes)))
    if kind == "csv":
        path = folder / f"log-{rows}.csv"
        with path.open("w") as file:
            for i, size in enumerate(sizes):
                file.write(batch(rng, sum(sizes[:i]), size).write_csv(include_header=i == 0))
        return path
    path = folder / f"log-{rows}"
    path.mkdir()
    for i, size in enumerate(sizes):
        table = batch(rng, sum(sizes[:i]), size)
        table.drop("time" if kind == "untimed" else []).write_parquet(path / f"{i:03d}.parquet")
    return path


def audit(path):
    """Audit a log in this process; print seconds, CPU seconds and peak memory as JSON."""
    begun = time.perf_counter()
    found = mf.audit(path)
    spent = {"rows": found.counts.rows, "wall": time.perf_counter() - begun, "cpu": time.process_time()}
    print(json.dumps(spent | {"peak_mb": peak_mb(), "unfairness": found.unfairness, "floor": found.floor}))


def measure(rows, kind):
    """Write and audit a log; print a line, and return its figures."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_log(Path(folder), rows, kind)
        done = subprocess.run([sys.executable, __file__, "--audit", path], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    print(
        f"{rows:>12,} rows, {kind}: {found['wall']:6.1f} s wall, {found['cpu']:6.1f} s CPU, {found['peak_mb']:6.0f} MB",
        flush=True,
    )
    return {"kind": kind, **found}


def examination_errors(impressions):
    """Fit examination to random lists with a known severity; print and return the largest error of each method."""
    found = []
    data = mf.synthetic("mq2008-like", seed=0)
    for severity in (0.5, 1.0, 2.0):
        trace = mf.simulate(data, "RandomK", "online", steps=impressions, examination=severity, k=5, record=True)
        with tempfile.TemporaryDirectory() as folder:
            log = trace.save(Path(folder) / "run")
            errors = {
                method: np.abs(mf.fit_examination(log, method, resamples=2).p / trace.state.p - 1).max()
                for method in ("ctr", "harvesting", "em")
            }
        shown = ", ".join(f"{method} {100 * error:.2f} %" for method, error in errors.items())
        print(f"severity {severity}: largest error at any rank: {shown}", flush=True)
        found.append({"severity": severity, **{method: float(error) for method, error in errors.items()}})
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--audit", type=Path, help="audit this log and print figures as JSON")
    parser.add_argument("--rows", type=int, nargs="*", default=[5_000_000, 50_000_000])
    parser.add_argument("--kind", nargs="*", default=["parquet", "untimed", "csv"])
    parser.add_argument("--out", type=Path, metavar="FILE", help="JSON file to write")
    parser.add_argument("--quick", action="store_true", help="100,000 impressions for examination instead of a million")
    given = parser.parse_args()
    if given.audit:
        audit(given.audit)
    else:
        about = machine()
        logs = [measure(rows, kind) for kind in given.kind for rows in given.rows]
        errors = examination_errors(100_000 if given.quick else 1_000_000)
        if given.out is not None:
            figures = {"made_with": about, "logs": logs, "examination errors": errors}
            given.out.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
