"""Users that read from the top: the cascade model (Craswell et al. 2008) and DBN (Chapelle and Zhang 2009)."""

from __future__ import annotations

import numpy as np

from .._jit import kernel
from ..arrays import BoolArray, FloatArray, IntArray
from ..parts import Share, register
from ..random import Draws, uniform
from .base import SECOND_DRAW, ClickModel


@kernel
def read_from_top(
    pi: IntArray, truth: FloatArray, satisfaction: float, continuation: float, rng: Draws, hits: BoolArray
) -> None:
    """Click a rank that is read with probability R; read the next one with probability γ (1 - s·clicked).

    The second draw of an item decides on both satisfaction and continuation, which matter only together.
    """
    reading = True
    for j in range(pi.shape[0]):
        hits[j] = reading and uniform(rng, pi[j]) < truth[pi[j]]
        stays = continuation * (1.0 - satisfaction) if hits[j] else continuation
        reading = reading and uniform(rng, pi[j] + SECOND_DRAW) < stays


def reading(r: FloatArray, satisfaction: float, continuation: float) -> FloatArray:
    """Compute the probability that each rank is read: `Π γ (1 - s R)` over the items above it."""
    stays = continuation * (1.0 - satisfaction * r[..., :-1])
    return np.concatenate((np.ones_like(r[..., :1]), np.cumprod(stays, axis=-1)), axis=-1)


@kernel
def cascade_clicks(
    pi: IntArray, truth: FloatArray, p: FloatArray, theta: FloatArray, rng: Draws, hits: BoolArray
) -> None:
    """Read from the top; stop after a click with probability `stop`."""
    read_from_top(pi, truth, theta[0], 1.0, rng, hits)


@register
class Cascade(ClickModel):
    """Read from the top, click what is relevant, and stop after a click with probability `stop`.

    Every rank is read that is reached: the examination that exposure assumes does not matter to these users.

    Parameters
    ----------
    stop
        Probability that a click ends the session; 1 is the model of Craswell et al.

    Examples
    --------
    Two of three items are relevant; with stop = 1 the first click ends the session.

    >>> import numpy as np
    >>> from mcfair.random import CLICKS, draws
    >>> pi, truth, p = np.arange(3), np.array([0.0, 1.0, 1.0]), np.ones(3)
    >>> Cascade(stop=0.0).clicks(pi, truth, p, draws(0, CLICKS)).tolist()
    [False, True, True]
    >>> Cascade(stop=1.0).clicks(pi, truth, p, draws(0, CLICKS)).tolist()
    [False, True, False]
    """

    stop: Share = 0.7

    kernel = cascade_clicks

    def attention(self, r: FloatArray, p: FloatArray) -> FloatArray:
        """Return the probability that each rank is reached."""
        return reading(r, self.stop, 1.0)


@kernel
def dbn_clicks(pi: IntArray, truth: FloatArray, p: FloatArray, theta: FloatArray, rng: Draws, hits: BoolArray) -> None:
    """Read from the top; a satisfying click ends the session, else the next rank is read with some probability."""
    read_from_top(pi, truth, theta[0], theta[1], rng, hits)


@register
class DBN(ClickModel):
    """Read from the top until a click satisfies or the user gives up (dynamic Bayesian network model).

    Parameters
    ----------
    satisfaction
        Probability that a click satisfies the user and ends the session.
    continuation
        Probability that an unsatisfied user reads the next rank.

    Examples
    --------
    Without continuation only the first rank is read, here an item that is not relevant.

    >>> import numpy as np
    >>> from mcfair.random import CLICKS, draws
    >>> pi, truth, p = np.arange(3), np.array([0.0, 1.0, 1.0]), np.ones(3)
    >>> DBN(satisfaction=1.0, continuation=1.0).clicks(pi, truth, p, draws(0, CLICKS)).tolist()
    [False, True, False]
    >>> DBN(continuation=0.0).clicks(pi, truth, p, draws(0, CLICKS)).tolist()
    [False, False, False]
    """

    satisfaction: Share = 0.7
    continuation: Share = 0.9

    kernel = dbn_clicks

    def attention(self, r: FloatArray, p: FloatArray) -> FloatArray:
        """Return the probability that each rank is reached."""
        return reading(r, self.satisfaction, self.continuation)
