"""Data by name: built-in synthetic profiles, and public folds recognised by checksum, which are not shipped."""

from __future__ import annotations

import dataclasses
import operator
import os
from pathlib import Path

import numpy as np
import platformdirs

from ..arrays import FloatArray
from ..errors import DataError, unknown
from ..random import DATA, draws, uniforms
from .dataset import Dataset
from .letor import content_sum, file_names, find_child

# --- profiles ---------------------------------------------------------------------------------------------------------


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


# --- the catalogue ----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """A public fold.

    Parameters
    ----------
    description
        One line for lists of data.
    source, licence
        Where to get it, and on which terms.
    folder
        Where it is looked for, below the folders that hold data.
    sums
        SHA-256 of the unpacked file of each part.
    bounds
        The least and the most items of a query by name of the protocol, where they are not those of the protocol.
    """

    description: str
    source: str
    licence: str
    folder: str
    sums: dict[str, str]
    bounds: dict[str, tuple[int, int | None]] = dataclasses.field(default_factory=dict)


# Part S1 to S5 of MQ2008; the test part of fold f is the one before S_f, and its validation part the one before that.
MQ2008 = (
    "f754c61c4a5e2a14b330af767f12d1e88bab336219ae4f6f91a774f8f68b078e",
    "2104c4f23f0119e0b0726bd80d1170822f37f63639879b0cf8fb43a301517903",
    "ec7a1b9db068aa6d5e8c4d42d5f7b2a727543b9c1f79c30bed746568fb87ed03",
    "971ab752d71d7b019c1c512d7ba4a05b1198bdeeda57a10dd69c62f3ac47dbb9",
    "ce33aa98a1cc42847008f2d4280c30a52b6c8491206893cbc97e412ccb97426b",
)
MQ2008_TRAIN = (
    "906deb7d4db46e908de7d9d8d82a9ce63a12090217a658b2524fcd860dd66bba",
    "98b2944d52cd0da6cd3d43b09cba92879197a4d4ae5b6949156e11eb3586a4f9",
    "4343556f569d7545d2b770b1737acda909cbe6ec6fc0f82f6f31b7d45bd0097b",
    "7480d84a584ca0c1d4d9424c81824765bce29c175de1ac6c07737ecd5781c205",
    "30236927b95d9f2b3c1a0100a325d333fa68e6cc1213db51f032750dec9d6435",
)
# The same files with line feeds alone, as copies that went through a text tool have them.
WITH_LINE_FEEDS = dict(
    zip(
        (
            "cbd42504549a2388f6c0aefdb506f22074225b574c7a5df10194174c9b00e4e0",
            "055ac792cb8f7d5a029090b8acbfb6c57323339d1371251bf2465ac182aa8605",
            "a03fe2b6e76479de60fecdb37d560a40a4e899b0cd685553d2da31ea205af1ab",
            "a239850bc6fe960ad08c2b7b0d99db90fe976dd93a15358e98036591b4e7a2ac",
            "c68c52feb1ecae7f17b64c8e2fda2098302681bbd4ea5fad8c73a1d32a1cf2b2",
            "9b98c14e9536f2a18c59670714c99defc63e74359c56cba219a61db248f27123",
            "96528d299fc07c54d8a6c7a539142be5cde1b75b15b7da875508b874e73bce91",
            "3886fb46484c2f55f78ce992886614dd65974f89897db18cf1127d0af259685b",
            "46bf4d68615328ec7933b28881129df08b8a23a4b12cb0c0a1652b48eab08b50",
            "d672fe2403743defa8642b44fa88a1d389ed9ada5a93aaece412ac563da22834",
        ),
        MQ2008 + MQ2008_TRAIN,
        strict=True,
    )
)
CATALOGUE = {
    f"mq2008/fold{f + 1}": Entry(
        description=f"LETOR 4.0 MQ2008, fold {f + 1} of 5: 784 queries in all, grades 0-2, 46 features",
        source="LETOR 4.0, MQ2008 (Supervised ranking) from Microsoft Research",
        licence="it is not part of this package: bring your own copy",
        folder=f"MQ2008/Fold{f + 1}",
        sums={"train": MQ2008_TRAIN[f], "validation": MQ2008[f - 2], "test": MQ2008[f - 1]},
        bounds={"paper": (0, 20), "wsdm23": (6, 19)},
    )
    for f in range(5)
}


def original(content: str) -> str:
    """Return the published sum of a file whose line ends were changed, and any other sum as it is."""
    return WITH_LINE_FEEDS.get(content, content)


def recognise(content: str, part: str) -> str:
    """Return the name of the catalogued fold whose part has this SHA-256, "" if there is none.

    Examples
    --------
    >>> recognise(CATALOGUE["mq2008/fold1"].sums["test"], "test")
    'mq2008/fold1'
    """
    return next((name for name, entry in CATALOGUE.items() if entry.sums.get(part) == original(content)), "")


def roots() -> list[Path]:
    """List the folders in which catalogued data is looked for."""
    named = os.environ.get("MCFAIR_DATA")
    return [*([Path(named).expanduser()] if named else []), platformdirs.user_data_path("mcfair")]


def find(entry: Entry) -> tuple[Path | None, list[tuple[Path, str]]]:
    """Find the folder of a catalogued fold; return it, and test files in the way with another sum, each with that."""
    whole, others = entry.folder.split("/"), list[tuple[Path, str]]()
    for root in roots():
        for components in (whole, whole[-1:]):
            folder: Path | None = root
            for component in components:
                folder = folder and find_child(folder, component)
            if folder and (test := find_child(folder, *file_names("test"))):
                found = original(content_sum(test))
                if found == entry.sums["test"]:
                    return folder, others
                others.append((test, found))
    return None, others


def locate(name: str) -> Path:
    """Return the folder of a catalogued dataset on this machine, recognised by the checksum of its test part.

    `mq2008/fold1` is looked for as `MQ2008/Fold1` and then `Fold1`, case ignored, first in the folder that the
    environment variable MCFAIR_DATA names and then in the user's data directory.

    Raises
    ------
    DataError
        If the name is not in the catalogue, or the data are not on this machine or have another checksum.

    Examples
    --------
    >>> locate("mq2008/fold9")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    mcfair.errors.DataError: unknown dataset 'mq2008/fold9'; did you mean 'mq2008/fold5'? available: ...
    """
    entry = CATALOGUE.get(name.lower())
    if entry is None:
        raise DataError(unknown("dataset", name, CATALOGUE))
    folder, others = find(entry)
    if folder:
        return folder
    if others:
        test, found = others[0]
        raise DataError(
            f"{test} is not the test part of {name.lower()}: its SHA-256 begins with {found[:8]}, not "
            f"{entry.sums['test'][:8]}; put an untouched copy there, or give the folder itself to use it as it is"
        )
    places = " or ".join(str(root / entry.folder) for root in roots())
    raise DataError(
        f"{name.lower()} is not on this machine ({entry.licence}): get {entry.source} and put it at {places}, "
        f"or point MCFAIR_DATA at the folder that holds {entry.folder}"
    )


def available() -> list[tuple[str, str, str]]:
    """List name, description and place of all data: "built in", a folder, or why it was not found.

    Examples
    --------
    >>> [name for name, _, where in available() if where == "built in"]
    ['mq2008-like', 'istella-s-like', 'marketplace']
    """
    rows = [(name, profile.description, "built in") for name, profile in PROFILES.items()]
    for name, entry in CATALOGUE.items():
        try:
            folder, others = find(entry)
            problem = f": {others[-1][0]} has another checksum" if others else ""
            where = str(folder) if folder else f"not found{problem}"
        except DataError as error:
            where = f"not found: {error}"
        rows.append((name, entry.description, where))
    return rows
