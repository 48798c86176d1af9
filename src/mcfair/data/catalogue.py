"""A catalogue of public data, recognised by checksum: the data are not part of this package."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import platformdirs

from ..errors import DataError, unknown
from .files import file_names, find_child
from .letor import content_sum
from .profiles import PROFILES

__all__ = ["CATALOGUE", "Entry", "available", "locate", "recognise"]


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


def copies(entry: Entry) -> Iterator[tuple[Path, Path, str]]:
    """Yield each folder that may hold a catalogued fold, its test file and the sum of that."""
    whole = entry.folder.split("/")
    for root in roots():
        for components in (whole, whole[-1:]):
            folder: Path | None = root
            for component in components:
                folder = folder and find_child(folder, component)
            if folder and (test := find_child(folder, *file_names("test"))):
                yield folder, test, original(content_sum(test))


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
    others = []
    for folder, test, found in copies(entry):
        if found == entry.sums["test"]:
            return folder
        others.append((test, found))
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
        where = "not found"
        try:
            for folder, test, found in copies(entry):
                if found == entry.sums["test"]:
                    where = str(folder)
                    break
                where = f"not found: {test} has another checksum"
        except DataError as error:
            where = f"not found: {error}"
        rows.append((name, entry.description, where))
    return rows
