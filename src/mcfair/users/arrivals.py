"""Arrivals: which query each session is about."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from .._jit import kernel
from ..arrays import CountArray
from ..random import ARRIVALS, HALF, LOW, Draws, draws, uniform

WordArray = npt.NDArray[np.uint64]

ZERO, ONE = np.uint64(0), np.uint64(1)

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
        return released_arrivals(start + sessions, queries, seed)[start:]
    out = np.empty(sessions, np.int32)
    fill_arrivals(draws(seed, ARRIVALS), start, queries, out)
    return out


@kernel
def fill_arrivals(rng: Draws, start: int, queries: int, out: CountArray) -> None:
    """Write the query of every session from `start` on."""
    for t in range(out.shape[0]):
        session = Draws(rng.seed, rng.purpose, rng.query, np.uint64(start + t))
        out[t] = int(uniform(session, 0) * queries)


def released_arrivals(steps: int, queries: int, seed: int) -> CountArray:
    """Return the released code's stream from the raw words of PCG64, a thousand times faster than its calls."""
    out = np.zeros(steps, np.int32)
    if queries == 1:
        return out  # choice(1) draws nothing
    generator = np.random.PCG64(np.random.SeedSequence(seed))
    spare = np.zeros(4, np.uint64)
    while spare[0] < steps:
        fill_released(generator.random_raw(1 << 16), np.uint64(queries), spare, out)
    return out


@kernel
def fill_released(words: WordArray, queries: np.uint64, spare: WordArray, out: CountArray) -> None:
    """Convert 64-bit words to steps; `spare` keeps the unfinished step until the next words come.

    A step takes one word for `choice(1, p=[1.0])`, which decides nothing, and then half words, low half first, until
    one is not rejected by Lemire's method (2019): the query is the high half of half word × queries.
    """
    done, word_taken, half_left, half = spare[0], spare[1], spare[2], spare[3]
    threshold = (LOW - queries + ONE) % queries
    i = 0
    while done < out.shape[0]:
        if word_taken == ZERO:
            if i == words.shape[0]:
                break
            word_taken = ONE
            i += 1
        elif half_left == ZERO and i == words.shape[0]:
            break
        else:
            if half_left == ZERO:
                x, half, half_left = words[i] & LOW, words[i] >> HALF, ONE
                i += 1
            else:
                x, half_left = half, ZERO
            product = x * queries
            if product & LOW >= threshold:
                out[done] = product >> HALF
                done += ONE
                word_taken = ZERO
    spare[0], spare[1], spare[2], spare[3] = done, word_taken, half_left, half
