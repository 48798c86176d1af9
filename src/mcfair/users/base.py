"""ClickModel: the base of simulated users."""

from __future__ import annotations

import numpy as np

from .._jit import Signature
from ..arrays import BoolArray, FloatArray, IntArray, read_only
from ..errors import PartError
from ..parts import Kind, Part
from ..random import CLICKS, Draws, draws

# Whatever the click model, its kernel is compiled for one signature, so that the loop is compiled once.
CLICK = (
    np.zeros(1, np.int64),
    np.zeros(1),
    np.zeros(1),
    np.zeros(1),
    draws(seed=0, purpose=CLICKS),
    np.zeros(1, np.bool_),
)
CLICK_SIGNATURE = Signature(*CLICK)

SECOND_DRAW = 2**31
"""Offset of an item's second draw: the first one has the item's position as its slot."""


class ClickModel(Part, kind=Kind(name="click model", plural="clicks", methods=("clicks",))):
    """Base of click models: subclass it, annotate the parameters, and define `clicks` or a kernel.

    The kernel is a function of `(pi, truth, p, theta, rng, hits)`: the list pi, best first, the true relevance of the
    query's items, the probability p that each rank is examined, and the draws of this session. It writes to `hits`
    which ranks were clicked. Draw with `uniform(rng, item)`: the draw belongs to the item, not to its rank, so that a
    user's taste is the same whatever a policy shows.

    Examples
    --------
    >>> class Everything(ClickModel):
    ...     def clicks(self, pi, truth, p, rng):
    ...         return np.ones(pi.size, bool)
    >>> Everything().clicks(np.array([2, 0]), np.zeros(3), np.ones(2), draws(0, CLICKS)).tolist()
    [True, True]
    """

    def clicks(self, pi: IntArray, truth: FloatArray, p: FloatArray, rng: Draws) -> BoolArray:
        """Return which ranks of a list are clicked; by default what the kernel writes.

        Parameters
        ----------
        pi : (k,) int array
            The list: positions of items in their query, best first.
        truth : (n,) array
            True relevance of the query's items.
        p : (k_s,) array
            Probability that a user examines each rank, k_s ≥ k.
        rng
            Draws of this session: `uniform(rng, slot)`.

        Returns
        -------
        (k,) bool array
            Whether each rank is clicked.

        Raises
        ------
        PartError
            If the click model defines neither `clicks` nor a kernel.
        """
        if self.kernel is None:
            raise PartError(f"click model {self.name()} defines neither clicks nor a kernel")
        hits = np.zeros(pi.size, np.bool_)
        self.kernel(pi, truth, p, self.theta, rng, hits)
        return hits

    def examined(self, p: FloatArray) -> FloatArray:
        """Return the probability that users examine each rank; by default what exposure assumes.

        With a model that overrides it, users behave otherwise than the exposure E assumes.

        Parameters
        ----------
        p : (k_s,) array
            Examination probability of each rank that exposure assumes.

        Returns
        -------
        (k_s,) array
        """
        return p

    def attention(self, r: FloatArray, p: FloatArray) -> FloatArray:
        """Return the probability that users examine each rank of given lists; by default that of `examined`.

        This is the exposure that a list really gives to its items. It depends on the items above where users read
        from the top, so that no examination of ranks alone can be right for them.

        Parameters
        ----------
        r : (..., k) array
            True relevance of the item at each rank of one or more lists.
        p : (k_s,) array
            Examination probability of each rank that exposure assumes, k_s ≥ k.

        Returns
        -------
        (..., k) array
        """
        return np.broadcast_to(self.examined(p)[: r.shape[-1]], r.shape)

    def write_clicks(
        self, pi: IntArray, truth: FloatArray, p: FloatArray, theta: FloatArray, rng: Draws, hits: BoolArray
    ) -> None:
        """Write what `clicks` returns, as a kernel would."""
        clicked = np.asarray(self.attempt(self.clicks, *read_only(pi, truth, p), rng))
        if clicked.shape != hits.shape or clicked.dtype != np.bool_:
            raise PartError(f"{self!r} returned {clicked!r}, expected {hits.size} values of True or False")
        hits[:] = clicked


parse_click_model = ClickModel.parse
