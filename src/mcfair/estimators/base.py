"""Estimator: the base of relevance estimators, which read clicks and exposure."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Self

import numpy as np

from .._jit import INTERPRET, AnyKernel, Signature, kernel
from ..arrays import CountArray, FloatArray, read_only
from ..errors import PartError
from ..parts import Kind, Part, parameter_types

# Whatever the estimator, its kernels are compiled for one signature each, so that the loop is compiled once.
ESTIMATE = (0, 0.0, np.zeros(1, np.int32), np.zeros(1), np.zeros(1), np.zeros(2))
ESTIMATE_SIGNATURE = Signature(*ESTIMATE)

ITEMS = np.zeros(1, np.int64), np.zeros(1, np.int32), np.zeros(1), np.zeros((1, 1), np.int32)
BATCH = (*ITEMS, np.zeros(1), np.zeros(1), np.zeros((1, 2)))
BATCH_SIGNATURE = Signature(*BATCH)

WEIGHT, MEAN, VARIANCE = range(3)
"""Columns of a posterior, shape (components, 3)."""

FIGURES = 2
"""Entries of a kernel's output before the posterior: the estimate and its uncertainty."""

NORMAL_95 = 1.959963984540054
"""Standard deviations on either side of the mean of a normal distribution that hold 95 % of it."""


class Estimator(Part, kind=Kind(name="estimator", plural="estimators", methods=("estimate",), article="an")):
    """Base of relevance estimators: subclass it, annotate the parameters, and define `estimate` or a kernel.

    The kernel is a function of `(C, E, F, p, theta, out)` for one item: its clicks C, its exposure E, how often it
    was shown at each rank F, shape (k_s,), the examination probabilities p, shape (k_s,). It writes the estimated
    relevance to `out[0]` and its uncertainty, a variance or a bound of it, to `out[1]`. If `posterior_size` > 0, it
    also writes the posterior: weight, mean and variance of each component, by falling mean, from `out[2]` on.

    An estimator is pooled if it defines `fit`: its prior is then learnt from the items of all queries. A run calls
    `fit` when its sessions have grown by `growth`, and by at least one per query, since the last call.

    Attributes
    ----------
    growth
        The share by which the sessions grow between two fits of a pooled estimator.
    fitted
        Names of the parameters that `fit` sets.
    batch
        An optional second kernel, which does the same for several items at once where that is faster. It is a function
        of `(items, C, E, F, p, theta, out)`: positions of items, shape (m,), and the arrays of their query; row i of
        `out` is for `items[i]`, in the same bits as the first kernel writes.

    Examples
    --------
    >>> class Smoothed(Estimator):
    ...     def estimate(self, C, E, F, p):
    ...         return (C + 1.0) / (E + 2.0), 1.0 / (E + 2.0)
    >>> Smoothed().estimates(np.array([1, 0]), np.array([2.0, 0.0]), np.array([[2], [0]]), np.ones(1))[0].tolist()
    [0.5, 0.5]
    """

    growth: ClassVar[float] = 0.3
    fitted: ClassVar[tuple[str, ...]] = ()
    batch: ClassVar[AnyKernel | None] = None

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
        out = self.output(C, E, F, p)
        return float(out[0]), float(out[1])

    def posterior(self, C: int, E: float, F: CountArray, p: FloatArray) -> FloatArray:
        """Return the posterior of one item as a mixture; by default what the kernel writes, empty without components.

        Parameters
        ----------
        C, E, F, p
            As for `estimate`.

        Returns
        -------
        (components, 3) array
            Weight, mean and variance of each component, by falling mean.

        Raises
        ------
        PartError
            If the estimator has components and defines neither `posterior` nor a kernel.
        """
        if self.posterior_size == 0:
            return np.zeros((0, 3))
        return self.output(C, E, F, p)[FIGURES:].reshape(-1, 3)

    def output(self, C: int, E: float, F: CountArray, p: FloatArray) -> FloatArray:
        """Return what the kernel writes for one item."""
        if self.kernel is None:
            raise PartError(f"estimator {self.name()} defines neither estimate nor a kernel")
        out = np.empty(FIGURES + 3 * self.posterior_size)
        self.kernel(C, E, F, p, self.theta, out)
        return out

    def fit(self, C: CountArray, E: FloatArray, F: CountArray, p: FloatArray) -> Self:
        """Return the estimator with its prior fitted to the items of all queries; by default itself.

        Parameters
        ----------
        C, E, F, p
            As for `estimates`.

        Returns
        -------
        Estimator
            Of the same class; only the parameters in `fitted` may differ.
        """
        return self

    @property
    def pooled(self) -> bool:
        """Whether the prior is learnt from all items."""
        return type(self).fit is not Estimator.fit

    @property
    def prior_strength(self) -> float:
        """Exposure that the prior is worth; marginal certainty counts it as exposure. 0 if there is no prior."""
        return 0.0

    @property
    def posterior_size(self) -> int:
        """Number of components of the posterior of an item; 0 if only the estimate and its uncertainty are known."""
        return 0

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
        out = self.outputs(C, E, F, p)
        return out[:, 0].copy(), out[:, 1].copy()

    def posteriors(self, C: CountArray, E: FloatArray, F: CountArray, p: FloatArray) -> FloatArray:
        """Return the posteriors of several items.

        Parameters
        ----------
        C, E, F, p
            As for `estimates`.

        Returns
        -------
        (items, components, 3) array
            See `posterior`.
        """
        # A copy: kernels read the posterior of a view as it lies in memory, without gaps between items.
        return self.outputs(C, E, F, p)[:, FIGURES:].copy().reshape(C.size, self.posterior_size, 3)

    def outputs(self, C: CountArray, E: FloatArray, F: CountArray, p: FloatArray) -> FloatArray:
        """Return what the kernel writes for several items, one row each."""
        out = np.empty((C.size, FIGURES + 3 * self.posterior_size))
        clicks, counts = np.ascontiguousarray(C, dtype=np.int32), np.ascontiguousarray(F, dtype=np.int32)
        arguments = self.theta, clicks, E, counts, p, out
        if self.kernel is None or INTERPRET:
            fill_estimates(self.write_estimate, *arguments)
        else:
            estimate, _ = self.compiled(*ESTIMATE)
            fill_estimates.compile(ESTIMATE_SIGNATURE, *arguments)[1](estimate, *arguments)
        return out

    def write_estimate(
        self, C: int, E: float, F: CountArray, p: FloatArray, theta: FloatArray, out: FloatArray
    ) -> None:
        """Write what `estimate` and `posterior` return, as a kernel would."""
        arguments = int(C), float(E), *read_only(F, p)
        values = self.attempt(self.estimate, *arguments)
        try:
            out[:FIGURES] = np.asarray(values, dtype=np.float64).reshape(FIGURES)
        except (TypeError, ValueError):
            out[:FIGURES] = np.nan
        if np.isnan(out[:FIGURES]).any() or out[1] < 0.0:
            raise PartError(f"{self!r} returned {values!r}, expected an estimate and its uncertainty of at least 0")
        components = self.posterior_size
        if components > 0:
            posterior = np.asarray(self.attempt(self.posterior, *arguments), dtype=np.float64)
            if posterior.shape != (components, 3):
                expected = f"{components} components of weight, mean and variance"
                raise PartError(f"{self!r} returned a posterior of shape {posterior.shape}, expected {expected}")
            out[FIGURES:] = posterior.ravel()

    def refit(self, C: CountArray, E: FloatArray, F: CountArray, p: FloatArray) -> Self:
        """Return what `fit` returns, after checking it.

        Raises
        ------
        PartError
            If `fit` fails or returns something else than the same estimator with other fitted parameters.
        """
        fitted = self.attempt(self.fit, *read_only(C, E, F, p))
        if type(fitted) is not type(self) or not fitted.same_but_fitted(self):
            raise PartError(f"{self!r} was fitted to {fitted!r}, expected the same estimator with another prior")
        return fitted

    def same_but_fitted(self, other: Estimator) -> bool:
        """Return whether two estimators are one, but for the parameters that `fit` sets."""
        return type(self) is type(other) and all(
            getattr(self, name) == getattr(other, name)
            for name in parameter_types(type(self))
            if name not in self.fitted
        )


@kernel(driver=True)
def fill_estimates(
    estimate: Callable[..., None],
    theta: FloatArray,
    C: CountArray,
    E: FloatArray,
    F: CountArray,
    p: FloatArray,
    out: FloatArray,
) -> None:
    """Write the output of an estimator for every item, one row each."""
    for d in range(C.shape[0]):
        estimate(C[d], E[d], F[d], p, theta, out[d])


def relevance_intervals(R: FloatArray, uncertainty: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the ends of intervals that hold relevance with about 95 %: the normal ones, within 0 to 1.

    Parameters
    ----------
    R, uncertainty : (items,) arrays
        Estimates and their variances, or bounds of these, as `Estimator.estimates` returns them.

    Returns
    -------
    (items,) array, (items,) array
        The lower and the upper ends.

    Examples
    --------
    >>> low, high = relevance_intervals(np.array([0.5, 0.9, 0.0]), np.array([0.01, 0.01, np.inf]))
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([0.304, 0.704, 0.0], [0.696, 1.0, 1.0])
    """
    width = NORMAL_95 * np.sqrt(uncertainty)
    return np.clip(R - width, 0.0, 1.0), np.minimum(R + width, 1.0)


parse_estimator = Estimator.parse
