"""Randomness as a function: the counter-based generator Philox4x32-10 of Salmon et al. (2011).

A draw depends on the seed and on (purpose, query, visit, slot) and on nothing else, so results depend neither on
threads nor on the order of work, and a simulated user's taste for an item is the same whatever a policy shows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ._jit import kernel
from .arrays import FloatArray

CLICKS, POLICY, TIES, ARRIVALS, DATA, PREPARE = range(6)
"""The purpose of a draw; draws for different purposes are independent."""

M0, M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
W0, W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
LOW, HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
UNIT = 1.0 / 9007199254740992.0  # 2**-53


class Draws(NamedTuple):
    """A random generator with everything but the slot filled in; `uniform(rng, slot)` draws.

    Attributes
    ----------
    seed : uint64
        Seed of the run.
    purpose : uint64
        What the draws are for: CLICKS, POLICY, TIES, ARRIVALS, DATA or PREPARE of `mcfair.random`.
    query : uint64
        Place of the query in its file.
    visit : uint64
        Sessions of the query before this one.

    Examples
    --------
    The generator has no state: a slot always has the same draw.

    >>> rng = draws(seed=7, purpose=POLICY, query=0, visit=3)
    >>> [round(float(uniform(rng, slot)), 4) for slot in (0, 1, 0)]
    [0.0146, 0.5185, 0.0146]
    """

    seed: np.uint64
    purpose: np.uint64
    query: np.uint64
    visit: np.uint64


def draws(seed: int, purpose: int, query: int = 0, visit: int = 0) -> Draws:
    """Fill in a generator: a 64-bit seed and three 32-bit numbers."""
    return Draws(np.uint64(seed), np.uint64(purpose), np.uint64(query), np.uint64(visit))


@kernel
def philox4x32(
    c0: np.uint64, c1: np.uint64, c2: np.uint64, c3: np.uint64, k0: np.uint64, k1: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """Apply ten rounds of Philox to a counter of four and a key of two 32-bit words, each held in a uint64."""
    for _ in range(10):
        a = M0 * c0
        b = M1 * c2
        c0, c1, c2, c3 = (b >> HALF) ^ c1 ^ k0, b & LOW, (a >> HALF) ^ c3 ^ k1, a & LOW
        k0 = (k0 + W0) & LOW
        k1 = (k1 + W1) & LOW
    return c0, c1, c2, c3


@kernel
def uniform(rng: Draws, slot: int) -> float:
    """Draw the number in [0, 1) that belongs to a slot: 53 bits from the first two words of its Philox block.

    Parameters
    ----------
    rng
        The generator.
    slot
        Number of the draw, from 0 to 2**32 - 1, such as the position of an item in its query.

    Returns
    -------
    float

    Examples
    --------
    >>> rng = draws(seed=7, purpose=POLICY, query=0, visit=3)
    >>> round(float(uniform(rng, 0)), 6)
    0.014603
    """
    x0, x1, _, _ = philox4x32(np.uint64(slot), rng.visit, rng.query, rng.purpose, rng.seed & LOW, rng.seed >> HALF)
    return ((x0 >> np.uint64(5)) * 67108864.0 + (x1 >> np.uint64(6))) * UNIT


@kernel
def fill_uniform(rng: Draws, out: FloatArray) -> None:
    """Write the draws of slots 0, 1, … to an array."""
    for slot in range(out.shape[0]):
        out[slot] = uniform(rng, slot)


def uniforms(rng: Draws, size: int) -> FloatArray:
    """Draw slots 0 to size - 1 at once.

    Examples
    --------
    >>> rng = draws(seed=7, purpose=POLICY)
    >>> bool((uniforms(rng, 3)[2] == uniform(rng, 2)))
    True
    """
    out = np.empty(size)
    fill_uniform(rng, out)
    return out
