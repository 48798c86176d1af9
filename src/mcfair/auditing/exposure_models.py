"""Exposure models: how much attention each rank gets, as an assumption that every figure stands beside."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

import numpy as np

from ..arrays import FloatArray
from ..errors import SettingError
from ..simulation.setting import checked_examination
from ..users.examination import examination

__all__ = ["ALTERNATIVES", "ExposureModel", "exposure_model"]

ALTERNATIVES = ("log2", "rbp(0.8)", "1/rank", "equal")
"""Models under which conclusions are compared."""

RBP = re.compile(r"rbp(?:\(\s*(\d+\.?\d*|\.\d+)\s*\))?", re.IGNORECASE)


@dataclasses.dataclass(frozen=True, eq=False)
class ExposureModel:
    """The examination probability of each rank, with the name of the model and its formula."""

    name: str
    formula: str
    p: FloatArray


def exposure_model(given: str | float | Sequence[float] | FloatArray, ranks: int) -> ExposureModel:
    """Return a model for so many ranks.

    Parameters
    ----------
    given
        log2 (the default of the paper), rbp or rbp(0.9), 1/rank, equal; a severity s for `(1/log2(j + 1))^s`; or the
        probabilities themselves, as numbers or as text such as 1,0.6,0.4. Ranks beyond their end have no exposure.
    ranks
        The last rank of the log.

    Returns
    -------
    ExposureModel

    Raises
    ------
    SettingError
        If the text names no model, or the probabilities rise or are not from 0 to 1.

    Examples
    --------
    >>> exposure_model("rbp(0.5)", 3).p.tolist(), exposure_model("1/rank", 2).p.tolist()
    ([1.0, 0.5, 0.25], [1.0, 0.5])
    """
    if isinstance(given, str):
        word = given.strip().lower()
        rank = np.arange(1, ranks + 1)
        if word == "log2":
            return ExposureModel("log2", "1/log2(rank + 1)", examination(ranks))
        if word in ("1/rank", "reciprocal"):
            return ExposureModel("1/rank", "1/rank", 1.0 / rank)
        if word == "equal":
            return ExposureModel("equal", "1 at every rank", np.ones(ranks))
        if found := RBP.fullmatch(word):
            stay = float(found[1] or 0.8)
            if not 0 < stay <= 1:
                raise SettingError(f"examination = {given!r} is not allowed: expected a persistence above 0, at most 1")
            return ExposureModel(f"rbp({stay:g})", f"{stay:g}^(rank - 1)", np.asarray(stay ** (rank - 1.0)))
        if re.match("[a-z]", word):
            raise SettingError(
                f"unknown exposure model {given!r}; available: log2, rbp(0.8), 1/rank, equal, fitted, a severity such "
                "as 1.5, or probabilities such as 1,0.6,0.4"
            )
    checked = checked_examination(given)
    if isinstance(checked, tuple):
        return ExposureModel("given", ", ".join(f"{each:.4g}" for each in checked), np.array(checked))
    name = "log2" if checked == 1 else f"log2^{checked:g}"
    return ExposureModel(name, f"(1/log2(rank + 1))^{checked:g}", examination(ranks, checked))
