"""Built-in synthetic profiles: data without files."""

from __future__ import annotations

import dataclasses
import operator

import numpy as np

from ..arrays import FloatArray
from ..errors import DataError, unknown
from ..random import DATA, draws, uniforms
from .dataset import Dataset

__all__ = ["PROFILES", "Profile", "synthetic"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Profile:
    """The shape of a synthetic dataset.

    Parameters
    ----------
    description
        One line for lists of data.
    queries, features
        Number of queries and of features.
    sizes
        Pairs of a number of items and how often it occurs.
    relevant
        Upper bound on the share of relevant items: each query draws its own share uniformly from 0 to this bound, and
        has at least one relevant item.
    steps
        Share of a query's relevant items that have a grade of at least 2, 3, …: these factors times u², at most 1,
        where each query draws its own u uniformly from 0 to 1.
    providers
        Providers that every query has. Each has an item of every grade and features drawn, so that all have the same
        merit; sizes are then those of one provider.
    """

    description: str
    queries: int
    features: int
    sizes: tuple[tuple[int, int], ...]
    relevant: float
    steps: tuple[float, ...]
    providers: tuple[str, ...] = ()


# mq2008-like has the shape of the MQ2008 test parts as the released code filters them: the sizes with their
# frequencies in percent, a third of the items relevant and a third of those of grade 2, both very uneven over queries,
# and relevant items anywhere in the file.
PROFILES = {
    "mq2008-like": Profile(
        description="83 queries of 6-19 items, grades 0-2, 46 features, shaped like a filtered MQ2008 test part",
        queries=83,
        features=46,
        sizes=((6, 1), (7, 10), (8, 55), (12, 1), (13, 1), (14, 3), (15, 11), (16, 18)),
        relevant=0.62,
        steps=(1.0,),
    ),
    "istella-s-like": Profile(
        description="6,600 queries of about 103 items, grades 0-4, 11 % relevant, 20 features, the size of Istella-S",
        queries=6600,
        features=20,
        sizes=tuple((n, 1) for n in range(20, 187)),
        relevant=0.22,
        steps=(4.0, 1.3, 0.5),
    ),
    "marketplace": Profile(
        description="40 queries of 8-16 items, half of each of two providers of the same merit, grades 0-2, 8 features",
        queries=40,
        features=8,
        sizes=((4, 1), (5, 1), (6, 1), (7, 1), (8, 1)),
        relevant=0.9,
        steps=(1.0,),
        providers=("established", "newcomer"),
    ),
}


def synthetic(name: str, seed: int = 0) -> Dataset:
    """Draw a built-in synthetic dataset; the same name and seed yield the same data in every release.

    Features lie in [0, 1]. They are noisy versions of the grade: the first one is the most informative, and the last
    quarter does not depend on the grade.

    Parameters
    ----------
    name
        One of `PROFILES`.
    seed
        A whole number from 0 to 2**64 - 1.

    Returns
    -------
    Dataset

    Raises
    ------
    DataError
        If no profile has this name or the seed is out of range.

    Examples
    --------
    >>> synthetic("mq2008-like").queries
    83
    >>> synthetic("marketplace").provider_names
    ('established', 'newcomer')
    """
    if name not in PROFILES:
        raise DataError(unknown("profile", str(name), PROFILES))
    try:
        whole = operator.index(seed)
    except TypeError:
        whole = -1
    if not 0 <= whole < 2**64:
        raise DataError(f"seed = {seed!r}: expected a whole number from 0 to 2**64 - 1")
    profile = PROFILES[name]

    def column(number: int, size: int) -> FloatArray:
        return uniforms(draws(whole, DATA, visit=number), size)

    size, weight = np.array(profile.sizes).T
    n = size[np.searchsorted(np.cumsum(weight), column(0, profile.queries) * weight.sum(), side="right")]
    offsets = np.concatenate(([0], np.cumsum(n)))
    items = int(offsets[-1])
    place = column(1, items)  # the items with the lowest places are the relevant ones, the very lowest always
    share = np.maximum(profile.relevant * column(2, profile.queries), np.minimum.reduceat(place, offsets[:-1]))
    tilt = column(3, profile.queries)
    above = column(4, items)
    y = np.ones(items, np.int16)
    for step in profile.steps:
        y += above < np.repeat(step * tilt * tilt, n)
    y[place > np.repeat(share, n)] = 0

    y_max = 1 + len(profile.steps)
    blurred = 0.5 * (y + column(5, items)) / (y_max + 1) + 0.5 * column(6, items)
    X = np.empty((items, profile.features), np.float32)
    for j in range(profile.features):
        strength = max(0.6 - 0.8 * j / profile.features, 0.0)
        X[:, j] = strength * blurred + (1.0 - strength) * column(7 + j, items)
    if not profile.providers:
        return Dataset(offsets=offsets, y=y, y_max=y_max, X=X, name=name)
    m = len(profile.providers)
    return Dataset(
        offsets=m * offsets,
        y=np.repeat(y, m),
        y_max=y_max,
        X=np.repeat(X, m, axis=0),
        providers=list(profile.providers) * items,
        name=name,
    )
