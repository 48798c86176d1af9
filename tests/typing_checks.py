"""Calls that type checking accepts and refuses; mypy reports an ignored error that does not exist."""

from __future__ import annotations

import mcfair as mf

DATA = mf.Dataset(offsets=[0, 2], y=[0, 1])


def accepted() -> tuple[mf.Trace, mf.Dataset, mf.Fold, mf.Dataset]:
    fold = mf.load_fold("Fold1")
    trace = mf.simulate(DATA, "TopK", "online", steps=10, k=2, checkpoints=2)
    return trace, mf.load_letor("Fold1/test.txt"), fold, fold.train


def refused() -> None:
    mf.simulate(DATA, "TopK", step=10)  # type: ignore[call-arg]
    mf.simulate(DATA, "TopK", steps="many")  # type: ignore[arg-type]
    mf.simulate(DATA, mf.MCFair(alhpa=1.0))  # type: ignore[call-arg]
    mf.simulate(DATA, "TopK", clicks=mf.IPS())  # type: ignore[arg-type]
    mf.tune(DATA, "MCFair", sedes=3)  # type: ignore[call-arg]
    mf.tradeoff(DATA, ["MCFair"], seed=3)  # type: ignore[call-arg]


async def accepted_by_the_service(client: mf.Client, tasks: mf.AsyncClient, ranker: mf.Ranker) -> list[str]:
    rankings = [client.rank("q", ["a"], k=3, fallback=True), await tasks.rank("q", ["a"]), ranker.rank("q", ["a"])]
    results = [client.click("i", "a"), *await tasks.feedback([{"impression": "i", "item": "a"}])]
    deleted: list[int] = [client.delete_item("a"), await tasks.delete_item("a"), ranker.reset()]
    entries = [entry async for entry in tasks.export()] + list(client.export())
    ready: bool = client.ready() and await tasks.ready()
    return [item.id for each in rankings for item in each.items] + [str((results, deleted, entries, ready))]


async def refused_by_the_service(client: mf.Client, tasks: mf.AsyncClient, ranker: mf.Ranker) -> None:
    client.rank("q", ["a"], fallbak=True)  # type: ignore[call-arg]
    ranker.rank("q", ["a"], k="three")  # type: ignore[arg-type]
    await tasks.rank("q", ["a"], k="three")  # type: ignore[arg-type]
    await tasks.click("i")  # type: ignore[call-arg]
    tasks.policy().half_life  # type: ignore[attr-defined]  # noqa: B018
