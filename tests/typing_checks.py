"""Calls that type checking accepts and refuses; mypy reports an ignored error that does not exist."""

from __future__ import annotations

import mcfair as mf

DATA = mf.Dataset(offsets=[0, 2], y=[0, 1])


def accepted() -> tuple[mf.Trace, mf.Dataset, mf.Fold, mf.Dataset]:
    fold = mf.load_fold("Fold1")
    trace = mf.simulate(DATA, "TopK", "online", steps=10, k_s=2, checkpoints=2)
    return trace, mf.load_letor("Fold1/test.txt"), fold, fold.train


def refused() -> None:
    mf.simulate(DATA, "TopK", step=10)  # type: ignore[call-arg]
    mf.simulate(DATA, "TopK", steps="many")  # type: ignore[arg-type]
    mf.simulate(DATA, mf.MCFair(alhpa=1.0))  # type: ignore[call-arg]
    mf.simulate(DATA, "TopK", clicks=mf.IPS())  # type: ignore[arg-type]
    mf.tune(DATA, "MCFair", sedes=3)  # type: ignore[call-arg]
    mf.tradeoff(DATA, ["MCFair"], seed=3)  # type: ignore[call-arg]
