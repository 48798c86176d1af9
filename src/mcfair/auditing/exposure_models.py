"""Exposure models: how much attention each rank gets, as an assumption that every figure stands beside."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from ..arrays import FloatArray
from ..users.examination import described_examination, examination, parse_examination

__all__ = ["ALTERNATIVES", "ExposureModel", "exposure_model"]

ALTERNATIVES = ("log2", "rbp(0.8)", "1/rank", "equal")
"""Models under which conclusions are compared."""


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
    model = parse_examination(given)
    p = np.array(model) if isinstance(model, tuple) else examination(ranks, model)
    return ExposureModel(*described_examination(model), p)
