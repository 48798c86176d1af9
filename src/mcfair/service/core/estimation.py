"""Relevance by an estimator with a posterior, compiled for the service: decay and priors make counts fractions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..._jit import Signature, compile_kernel, kernel
from ...arrays import FloatArray
from ...errors import PartError
from ...estimators.base import FIGURES, Estimator

ESTIMATE = (0.0, 0.0, np.zeros(1), np.zeros(1), np.zeros(1), np.zeros(1))
ESTIMATE_SIGNATURE = Signature(*ESTIMATE)

MaturedCounts = tuple[FloatArray, FloatArray, FloatArray, FloatArray]
"""Clicks and exposure of some items, their views by rank, and the examination: exposure = Σ views · examination."""


@kernel(driver=True)
def fill_posteriors(
    estimate: Callable[..., None],
    theta: FloatArray,
    C: FloatArray,
    E: FloatArray,
    views: FloatArray,
    p: FloatArray,
    out: FloatArray,
) -> None:
    """Write the output of an estimator for every candidate, one row each."""
    for i in range(C.shape[0]):
        estimate(C[i], E[i], views[i], p, theta, out[i])


class CompiledEstimator:
    """An estimator whose kernel is compiled for counts that are fractions.

    Parameters
    ----------
    estimator
        An estimator with a kernel.

    Raises
    ------
    PartError
        If the kernel does not compile for fractions.
    """

    def __init__(self, estimator: Estimator) -> None:
        assert estimator.kernel is not None
        self.theta, self.figures = estimator.theta, FIGURES + 3 * estimator.posterior_size
        self.estimate, _ = compile_kernel(estimator.kernel, f"estimator {estimator.name()}", PartError, *ESTIMATE)
        vector, matrix = np.zeros(1), np.zeros((1, 1))
        _, self.fill = fill_posteriors.compile(ESTIMATE_SIGNATURE, vector, vector, vector, matrix, vector, matrix)

    def relevance(
        self, counts: MaturedCounts, priors: FloatArray, strength: float
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return estimates, uncertainties and posteriors, shape (items, components, 3).

        A prior, unless it is nan, counts as `strength` views at a rank that everybody examines.
        """
        C, E, views, p = counts
        weights = np.where(np.isnan(priors), 0.0, strength)
        hits = np.where(weights > 0.0, weights * priors, 0.0)
        out = np.empty((C.size, self.figures))
        views, p = np.column_stack([views, weights]), np.append(p, 1.0)
        self.fill(self.estimate, self.theta, C + hits, E + weights, views, p, out)
        posterior = np.ascontiguousarray(out[:, FIGURES:]).reshape(C.size, -1, 3)
        return out[:, 0].copy(), out[:, 1].copy(), posterior
