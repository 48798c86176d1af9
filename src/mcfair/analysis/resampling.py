"""Bootstrap over clusters: weights of resamples, and intervals of what is computed from them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..arrays import FloatArray

FEW_CLUSTERS = 20
"""With fewer clusters than this, resamples of them say little about the spread."""

CELLS = 10_000_000
"""Weights that are held at a time."""

LEVELS = (2.5, 97.5)


def cluster_weights(clusters: int, resamples: int, rng: np.random.Generator) -> Iterator[FloatArray]:
    """Draw how often each cluster is in each resample, in parts of bounded size.

    Parameters
    ----------
    clusters
        Number of clusters, such as queries with all their sessions.
    resamples
        Number of resamples.
    rng
        Draws them.

    Yields
    ------
    (some resamples, clusters) array
    """
    step = max(1, CELLS // clusters)
    for begin in range(0, resamples, step):
        size = min(step, resamples - begin)
        yield rng.multinomial(clusters, np.full(clusters, 1 / clusters), size).astype(np.float64)


def ratio_of_sums(
    above: FloatArray, below: FloatArray, resamples: int = 1_000, seed: int = 0
) -> tuple[FloatArray, FloatArray]:
    """Compute ratios of sums over clusters, such as means per list, and the same of resamples of the clusters.

    Parameters
    ----------
    above, below : (clusters, figures) arrays
        The sums of each cluster; `below` may have one column.
    resamples
        Number of resamples.
    seed
        Seed of the draws. The same seed and number of clusters give the same resamples, so that differences of figures
        that were computed in two calls are paired.

    Returns
    -------
    (figures,) array, (resamples, figures) array
        nan where a sum below is 0; one cluster has no spread, and its resamples are nan.

    Examples
    --------
    >>> ratio, drawn = ratio_of_sums(np.array([[1.0], [2.0]]), np.array([[2.0], [2.0]]))
    >>> ratio.tolist(), interval(drawn, ratio)[:, 0].round(1).tolist()
    ([0.75], [0.5, 1.0])
    """
    weights = list(cluster_weights(above.shape[0], resamples, np.random.default_rng(seed)))
    with np.errstate(invalid="ignore", divide="ignore"):
        drawn = np.concatenate([(each @ above) / (each @ below) for each in weights])
        return above.sum(axis=0) / below.sum(axis=0), drawn if above.shape[0] > 1 else np.full_like(drawn, np.nan)


def interval(values: FloatArray, estimate: FloatArray, *, least: float = -np.inf, most: float = np.inf) -> FloatArray:
    """Return the 95 % interval of figures from their resamples along the first axis; nan where most do not exist.

    Its ends are the percentiles of the resamples less the bias of these, which is their mean less the estimate. A
    resample has the noise of the data and, once more, that of the draw, so that a figure which noise raises, such as a
    squared distance, is larger in most resamples than in the data, and plain percentiles need not hold the estimate.
    The interval is of the expected figure of data of the same size; `least` and `most` are the bounds of the figures.

    Examples
    --------
    >>> interval(np.arange(101.0), np.array(40.0), least=0.0).tolist()
    [0.0, 87.5]
    """
    known = (np.isfinite(values).mean(axis=0) > 0.5) & np.isfinite(estimate)
    held = np.where(known & np.isfinite(values), values, np.where(known, np.nan, 0.0))
    centre = np.where(known, estimate, 0.0)
    ends = np.nanpercentile(held, LEVELS, axis=0) - np.nanmean(held, axis=0) + centre
    ends = np.clip(ends, least, most)
    ends = np.stack((np.minimum(ends[0], centre), np.maximum(ends[1], centre)))  # whatever the skew
    return np.where(known, ends, np.nan)
