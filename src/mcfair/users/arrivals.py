"""Arrivals: which query each session is about."""

from __future__ import annotations

from typing import Literal

import numpy as np

from .._jit import kernel
from ..arrays import CountArray
from ..random import ARRIVALS, Draws, draws, uniform

Arrivals = Literal["uniform", "cyclic", "wsdm23"]
"""Where the stream of queries comes from: our own generator, one query after the other, or the generator of the code
released with the paper."""


def arrivals(kind: Arrivals, sessions: int, queries: int, seed: int, start: int = 0) -> CountArray:
    """Return which query each session is about; all queries are equally frequent or equally likely.

    Parameters
    ----------
    kind
        "uniform": session t is a draw of the counter-based generator. "cyclic": one query after the other. "wsdm23":
        the same queries, seed by seed, as `numpy.random.default_rng(seed)` draws in the released code, whose steps
        call `choice(1, size=1, p=[1.0])` and then `choice(queries, size=1)`.
    sessions, queries
        How many sessions, over how many queries.
    start
        Number of sessions of the stream to skip.

    Returns
    -------
    (sessions,) int array

    Examples
    --------
    >>> arrivals("wsdm23", 5, queries=82, seed=0).tolist()
    [41, 22, 14, 66, 79]
    """
    if kind == "cyclic":
        return (np.arange(start, start + sessions) % queries).astype(np.int32)
    if kind == "wsdm23":
        out = np.empty(start + sessions, np.int32)
        fill_released(np.random.default_rng(seed), queries, out)
        return out[start:]
    out = np.empty(sessions, np.int32)
    fill_arrivals(draws(seed, ARRIVALS), start, queries, out)
    return out


@kernel
def fill_arrivals(rng: Draws, start: int, queries: int, out: CountArray) -> None:
    """Write the query of every session from `start` on."""
    for t in range(out.shape[0]):
        session = Draws(rng.seed, rng.purpose, rng.query, np.uint64(start + t))
        out[t] = int(uniform(session, 0) * queries)


@kernel(allocates=True)
def fill_released(rng: np.random.Generator, queries: int, out: CountArray) -> None:
    """Write the queries of the released code from its generator, a thousand times faster than its calls.

    `choice(1, p=[1.0])` decides nothing and takes a number, `choice(queries)` is a whole number below `queries`.
    """
    for t in range(out.shape[0]):
        rng.random()
        out[t] = rng.integers(0, queries)
