"""The compiled loops, one for each set of functions that a run passes to the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..estimators.base import BATCH_SIGNATURE, ESTIMATE_SIGNATURE
from ..policies.selection import RANK_SIGNATURE, SCORE_SIGNATURE
from ..users.base import CLICK_SIGNATURE
from .loop import play

__all__ = ["NO_ANSWER", "compiled_play"]

NO_ANSWER = (-1, -1)
"""The argument of a call of the loop that begins at the beginning."""

SIGNATURES = CLICK_SIGNATURE, ESTIMATE_SIGNATURE, BATCH_SIGNATURE, SCORE_SIGNATURE, RANK_SIGNATURE

COMPILED: dict[tuple[bool, ...], Callable[..., tuple[int, int]]] = {}
"""The compiled loops, by which functions are given; the types of the other arguments are the same in every run."""


def compiled_play(functions: tuple[Any, ...], examples: tuple[Any, ...]) -> Callable[..., tuple[int, int]]:
    """Return the loop for any functions, as it takes them: all arguments up to the guard; None what is not given."""
    kind = tuple(each is not None for each in functions)
    if kind not in COMPILED:
        examples_given = *SIGNATURES, True, True, *functions[-2:]
        types = [each if given else None for each, given in zip(examples_given, kind, strict=True)]
        _, COMPILED[kind] = play.compile(*types, *examples, (0, 0), (0, 0), NO_ANSWER)
    return COMPILED[kind]
