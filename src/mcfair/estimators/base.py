"""Estimator: the base of relevance estimators, which read clicks and exposure."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._jit import INTERPRET, Signature, kernel
from ..arrays import CountArray, FloatArray, read_only
from ..errors import PartError
from ..parsing import as_part, parse_part
from ..parts import Kind, Part

__all__ = ["ESTIMATE", "ESTIMATE_SIGNATURE", "Estimator", "parse_estimator"]

# Whatever the estimator, its kernel is compiled for one signature, so that the loop is compiled once.
ESTIMATE = (0, 0.0, np.zeros(1, np.int32), np.zeros(1), np.zeros(1), np.zeros(2))
ESTIMATE_SIGNATURE = Signature(*ESTIMATE)


class Estimator(Part, kind=Kind(name="estimator", plural="estimators", methods=("estimate",), article="an")):
    """Base of relevance estimators: subclass it, annotate the parameters, and define `estimate` or a kernel.

    The kernel is a function of `(C, E, F, p, theta, out)` for one item: its clicks C, its exposure E, how often it
    was shown at each rank F, shape (k_s,), the examination probabilities p, shape (k_s,). It writes the estimated
    relevance to `out[0]` and its uncertainty, a variance or a bound of it, to `out[1]`.

    Examples
    --------
    >>> class Smoothed(Estimator):
    ...     def estimate(self, C, E, F, p):
    ...         return (C + 1.0) / (E + 2.0), 1.0 / (E + 2.0)
    >>> Smoothed().estimates(np.array([1, 0]), np.array([2.0, 0.0]), np.array([[2], [0]]), np.ones(1))[0].tolist()
    [0.5, 0.5]
    """

    def estimate(self, C: int, E: float, F: CountArray, p: FloatArray) -> tuple[float, float]:
        """Return the estimated relevance of one item and its uncertainty; by default what the kernel writes.

        Parameters
        ----------
        C, E
            Clicks and exposure of the item.
        F : (k_s,) int array
            How often the item was shown at each rank.
        p : (k_s,) array
            Examination probability of each rank.

        Returns
        -------
        (float, float)
            The estimate and its uncertainty, a variance or a bound of it.

        Raises
        ------
        PartError
            If the estimator defines neither `estimate` nor a kernel.
        """
        if self.kernel is None:
            raise PartError(f"estimator {self.name()} defines neither estimate nor a kernel")
        out = np.empty(2)
        self.kernel(C, E, F, p, self.theta, out)
        return float(out[0]), float(out[1])

    @property
    def prior_strength(self) -> float:
        """Exposure that the prior is worth; marginal certainty counts it as exposure. 0 if there is no prior."""
        return 0.0

    def estimates(self, C: CountArray, E: FloatArray, F: CountArray, p: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the estimates of several items and their uncertainties.

        Parameters
        ----------
        C : (items,) int array
            Clicks.
        E : (items,) array
            Exposure.
        F : (items, k_s) int array
            How often each item was shown at each rank.
        p : (k_s,) array
            Examination probability of each rank.

        Returns
        -------
        (items,) array, (items,) array
            The estimates and their uncertainties.
        """
        R, uncertainty = np.empty(C.size), np.empty(C.size)
        clicks, counts = np.ascontiguousarray(C, dtype=np.int32), np.ascontiguousarray(F, dtype=np.int32)
        arguments = self.theta, clicks, E, counts, p, R, uncertainty, np.empty(2)
        if self.kernel is None or INTERPRET:
            fill_estimates(self.write_estimate, *arguments)
        else:
            estimate, _ = self.compiled(*ESTIMATE)
            fill_estimates.compile(ESTIMATE_SIGNATURE, *arguments)[1](estimate, *arguments)
        return R, uncertainty

    def write_estimate(
        self, C: int, E: float, F: CountArray, p: FloatArray, theta: FloatArray, out: FloatArray
    ) -> None:
        """Write what `estimate` returns, as a kernel would."""
        values = self.attempt(self.estimate, int(C), float(E), *read_only(F, p))
        try:
            out[:] = np.asarray(values, dtype=np.float64).reshape(2)
        except (TypeError, ValueError):
            out[:] = np.nan
        if np.isnan(out).any() or out[1] < 0.0:
            raise PartError(f"{self!r} returned {values!r}, expected an estimate and its uncertainty of at least 0")


@kernel(driver=True)
def fill_estimates(
    estimate: Callable[..., None],
    theta: FloatArray,
    C: CountArray,
    E: FloatArray,
    F: CountArray,
    p: FloatArray,
    R: FloatArray,
    uncertainty: FloatArray,
    out: FloatArray,
) -> None:
    """Write the estimate and the uncertainty of every item."""
    for d in range(C.shape[0]):
        estimate(C[d], E[d], F[d], p, theta, out)
        R[d] = out[0]
        uncertainty[d] = out[1]


def parse_estimator(text: str) -> Estimator:
    """Parse an estimator from its text.

    Parameters
    ----------
    text
        A name, or a name with parameters, as the repr of an estimator writes it.

    Returns
    -------
    Estimator

    Raises
    ------
    PartError
        If the text names no registered estimator or an invalid parameter.

    Examples
    --------
    >>> parse_estimator("IPS(prior_strength=5)")
    IPS(prior_mean=0.0, prior_strength=5.0)
    """
    return parse_part(Estimator, text)


def as_estimator(value: Estimator | str) -> Estimator:
    """Return an estimator given as itself or as its text."""
    return as_part(Estimator, value)
