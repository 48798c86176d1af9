"""Position bias: the probability that a user examines a rank, in one language for every command and function."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ..arrays import FloatArray
from ..errors import SettingError, checked, renamed_parameters
from ..parts import NonNegative, Share

Examination = float | tuple[float, ...] | str
"""A severity of the position bias; the probability that each rank is examined; or rbp(0.8), 1/rank or equal."""

RBP = re.compile(r"rbp(?:\(\s*(?:persistence\s*=\s*)?(\d+\.?\d*|\.\d+)\s*\))?", re.IGNORECASE)

ALLOWED = "log2, a severity such as 1.5, rbp(0.8), 1/rank, equal, or probabilities such as 1,0.6,0.4"


def parse_examination(given: Any, also: Sequence[str] = ()) -> Examination:
    """Return an examination in its canonical form, which parses back.

    Parameters
    ----------
    given
        A severity s, for `(1/log2(j + 1))^s`, or its text; log2, which is the severity 1; rbp or rbp(0.9), for
        `0.9^(j - 1)`; 1/rank; equal; or the probabilities themselves, as numbers or as text such as 1,0.6,0.4.
    also
        Further words that are allowed here, such as fitted where there is a log.

    Raises
    ------
    SettingError
        If the text means nothing, or the probabilities rise or are not from 0 to 1.

    Examples
    --------
    >>> parse_examination("log2"), parse_examination("1,0.6,0.4"), parse_examination("RBP(0.50)")
    (1.0, (1.0, 0.6, 0.4), 'rbp(0.5)')
    """
    if isinstance(given, str):
        word = given.strip().lower()
        if word in ("1/rank", "equal", *also):
            return word
        if word == "reciprocal":
            return "1/rank"
        if found := RBP.fullmatch(word):
            stay = float(found[1] or 0.8)
            if not 0 < stay <= 1:
                raise SettingError(f"examination = {given!r} is not allowed: expected a persistence above 0, at most 1")
            return f"rbp({stay!r})"
        try:
            numbers = (1.0,) if word == "log2" else tuple(float(part) for part in word.split(","))
        except ValueError:
            words = "".join(f"{each}, " for each in also)
            raise SettingError(f"examination = {given!r} is not allowed: expected {words}{ALLOWED}") from None
        given = numbers if "," in word else numbers[0]
    if not isinstance(given, Sequence | np.ndarray):
        return float(checked("examination", NonNegative, given, SettingError))
    p = tuple(float(checked("examination", Share, each, SettingError)) for each in given)
    if not p or p[0] == 0.0 or any(a < b for a, b in pairwise(p)):
        raise SettingError(
            f"examination = {list(p)} is not allowed: expected probabilities that never rise, the first above 0"
        )
    return p


@renamed_parameters(k_s="k", severity="model")
def examination(k: int, model: Examination | Sequence[float] = 1.0) -> FloatArray:
    """Return the probability that a user examines each of the ranks 1 to k; below k it is 0 (Eq. 11).

    Parameters
    ----------
    k
        Number of ranks that users look at: the selection bias.
    model
        A severity s of the position bias, for `p_j = (1 / log2(j + 1)) ** s`: 1 is the paper's, 0 is none. Or log2,
        rbp(0.8), 1/rank, equal, or the probabilities themselves; ranks beyond their end have 0.

    Returns
    -------
    p : (k,) array

    Raises
    ------
    SettingError
        If k is below 1, or the model is not allowed.

    Examples
    --------
    >>> examination(3).round(3).tolist(), examination(3, "rbp(0.5)").tolist()
    ([1.0, 0.631, 0.5], [1.0, 0.5, 0.25])
    """
    if k < 1:
        raise SettingError(f"k = {k}: expected the number of ranks users look at, a whole number of at least 1")
    model = parse_examination(model)
    if isinstance(model, tuple):
        return np.pad(np.array(model[:k]), (0, max(k - len(model), 0)))
    rank = np.arange(1, k + 1)
    if isinstance(model, float):
        return (1.0 / np.log2(rank + 1)) ** model
    if model == "equal":
        return np.ones(k)
    return 1.0 / rank if model == "1/rank" else np.asarray(float(model[4:-1]) ** (rank - 1.0))


def described_examination(model: Examination) -> tuple[str, str]:
    """Return the name and the formula of an examination in its canonical form.

    Examples
    --------
    >>> described_examination(1.0), described_examination("rbp(0.8)")
    (('log2', '1/log2(rank + 1)'), ('rbp(0.8)', '0.8^(rank - 1)'))
    """
    if isinstance(model, tuple):
        return "given", ", ".join(f"{each:.4g}" for each in model)
    if isinstance(model, float):
        return ("log2", "1/log2(rank + 1)") if model == 1 else (f"log2^{model:g}", f"(1/log2(rank + 1))^{model:g}")
    formulas = {"equal": "1 at every rank", "1/rank": "1/rank"}
    return model, formulas.get(model) or f"{model[4:-1]}^(rank - 1)"
