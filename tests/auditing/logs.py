"""Logs for the tests: random ones with lists of several lengths, and those of a simulation whose truth is known."""

import numpy as np
import polars as pl
from naive_audit import NaiveLog

import mcfair as mf


def random_sessions(seed, *, queries=4, gaps=False):
    """Sessions of a few queries with lists of one to four of up to five items, perhaps with empty ranks."""
    rng = np.random.default_rng(seed)
    sessions = []
    for _ in range(40):
        q = int(rng.integers(queries))
        items = rng.permutation(3 + q % 3)[: rng.integers(1, 5)]
        ranks = np.sort(rng.choice(6, items.size, replace=False)) + 1 if gaps else np.arange(1, items.size + 1)
        hits = rng.random(items.size) < 0.4
        sessions.append((f"q{q}", [(int(j), f"q{q}-i{d}", int(c)) for j, d, c in zip(ranks, items, hits, strict=True)]))
    return sessions


def random_log(seed, p, *, gaps=False):
    """A random log for the oracle, and the same as a flat table."""
    rng = np.random.default_rng(1000 + seed)
    sessions = random_sessions(seed, gaps=gaps)
    items = sorted({d for _, shown in sessions for _, d, _ in shown})
    groups = {d: "abc"[int(rng.integers(3))] for d in items}
    merit = {(d.split("-")[0], d): float(rng.choice([0.0, 0.25, 0.5, 1.0])) for d in items}
    merit |= {(d.split("-")[0], d): 0.5 for d in items if d.endswith("i0")}  # every query and group has some
    return NaiveLog(sessions, groups, merit, list(p)), flat(sessions, groups, merit)


def flat(sessions, groups=None, merit=None):
    rows = [
        {"impression": t, "query": q, "item": d, "rank": j, "clicked": c}
        | ({"group": groups[d]} if groups else {})
        | ({"relevance": merit[q, d]} if merit else {})
        for t, (q, shown) in enumerate(sessions)
        for j, d, c in shown
    ]
    return pl.DataFrame(rows)


def recorded_run(steps=3000, policy="RandomK", mode="online", queries=6, **options):
    """A run with its lists, in which every item was shown."""
    data = mf.synthetic("mq2008-like", seed=0).take(range(queries))
    data = data.with_providers([None if i % 7 == 0 else f"shop {i % 3}" for i in range(data.items)])
    return mf.simulate(data, policy, mode, steps=steps, k=5, record=True, **options)


def impressions(trace):
    """The sessions of a run: (query, items in order, clicks), by name."""
    data = trace.data
    for q, pi, hits in zip(trace.arrivals.tolist(), trace.lists, trace.clicks, strict=True):
        filled = pi >= 0
        names = [f"{q}-{d}" for d in pi[filled].tolist()]
        yield f"text {data.query_id(q)}", names, [bool(each) for each in hits[filled]]


def catalogue(trace):
    """The candidates of a run with their groups and true relevance, named as in `impressions`."""
    data = trace.data
    query = np.repeat(np.arange(data.queries), data.sizes)
    place = np.arange(data.items) - data.offsets[query]
    return pl.DataFrame(
        {
            "query": [f"text {data.query_id(q)}" for q in query.tolist()],
            "item": [f"{q}-{d}" for q, d in zip(query.tolist(), place.tolist(), strict=True)],
            "group": [data.provider_names[code] or None for code in data.providers.tolist()],
            "relevance": data.R,
        }
    )


def run_table(trace):
    """The log of a run as a flat table."""
    rows = [
        (t, q, d, j, c)
        for t, (q, names, hits) in enumerate(impressions(trace))
        for j, (d, c) in enumerate(zip(names, hits, strict=True), start=1)
    ]
    return pl.DataFrame(rows, schema=["impression", "query", "item", "rank", "clicked"], orient="row")
