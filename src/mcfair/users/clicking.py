"""Clicks of simulated users."""

from __future__ import annotations

from .._jit import kernel
from ..random import uniform

__all__ = ["clicked"]


@kernel
def clicked(rng, item, probability):  # type: ignore[no-untyped-def]
    """Whether the user of this session clicks an item that is clicked with probability p·R (Eq. 10).

    The draw belongs to the item, not to the rank: the same user meets the same luck under every policy.
    """
    return uniform(rng, item) < probability
