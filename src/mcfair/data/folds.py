"""Where data comes from: LETOR folds and files, built-in profiles, and a catalogue of public data by checksum."""

from __future__ import annotations

import dataclasses
import hashlib
import operator
import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import numpy as np
import platformdirs

from ..arrays import FloatArray
from ..errors import DataError, MCFairError, unknown
from ..random import DATA, draws, uniforms
from .dataset import Dataset
from .grades import relevance
from .letor import content_sum, read_part

__all__ = [
    "CATALOGUE",
    "PROFILES",
    "Entry",
    "Fold",
    "Profile",
    "available",
    "load_letor",
    "locate",
    "open_data",
    "synthetic",
]

FILES = {"train": ("train",), "validation": ("vali", "valid", "validation"), "test": ("test",)}
SPLITS = tuple(FILES)

# The least and the most items of a query: in MQ2008, and in other data.
PRESETS: dict[str, dict[bool, tuple[int, int | None]]] = {
    "paper": {True: (0, 20), False: (0, None)},
    "wsdm23": {True: (6, 19), False: (6, None)},
}


# ---------------------------------------------------------------------------------------------------------------------
# Folds


@dataclasses.dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class Fold:
    """The three parts of a LETOR fold, each read when first asked for; `load_letor` makes it and says what each is."""

    folder: Path
    files: dict[str, Path]
    features: bool = False
    epsilon: float = 0.1
    preset: str | None = None
    min_items: int | None = None
    max_items: int | None = None

    @cached_property
    def train(self) -> Dataset:
        """The part that models are fitted to."""
        return self._read("train")

    @cached_property
    def validation(self) -> Dataset:
        """The part that parameters are chosen on."""
        return self._read("validation")

    @cached_property
    def test(self) -> Dataset:
        """The part that results are reported on."""
        return self._read("test")

    @property
    def name(self) -> str:
        """What to call it in tables: the last parts of its path, such as MQ2008/Fold1."""
        return short_name(self.folder)

    @cached_property
    def _test_sum(self) -> str:
        return content_sum(self.files["test"])

    def __repr__(self) -> str:
        preset = "" if self.preset is None else f", preset {self.preset}"
        return f"Fold('{self.folder}': {', '.join(self.files)}{preset})"

    def _read(self, split: str) -> Dataset:
        if split not in self.files:
            raise DataError(f"no {split} part ({' or '.join(file_names(split))}) in {self.folder}")
        path = self.files[split]
        part = read_part(path, features=self.features)
        y_max = int(part.y.max())
        made_from = f"{part.sha256} epsilon={self.epsilon}"
        data = Dataset(
            offsets=part.offsets, y=part.y, R=relevance(part.y, y_max, self.epsilon), y_max=y_max, X=part.X,
            query_ids=part.query_ids, item_ids=part.item_ids, name=short_name(path),
            fingerprint=hashlib.sha256(made_from.encode()).hexdigest(), preset=self.preset or "",
        )  # fmt: skip
        least: int = 0
        most: int | None = None
        if self.preset is not None:
            test_sum = part.sha256 if split == "test" else self._test_sum
            least, most = PRESETS[self.preset][original(test_sum) in MQ2008]
        return data.select(
            min_items=least if self.min_items is None else self.min_items,
            max_items=most if self.max_items is None else self.max_items,
            relevant_only=self.preset == "wsdm23" and split == "test",
            drop_last=self.preset == "wsdm23",  # the released loader loses the last query of every file
        )


def check_preset(preset: str | None, error: type[MCFairError]) -> None:
    """Refuse a preset that does not exist."""
    if preset is not None and preset not in PRESETS:
        raise error(unknown("preset", preset, PRESETS))


def load_letor(
    path: str | os.PathLike[str],
    *,
    features: bool = False,
    epsilon: float = 0.1,
    preset: str | None = None,
    min_items: int | None = None,
    max_items: int | None = None,
) -> Fold | Dataset:
    r"""Read a fold folder, as a `Fold` with `.train`, `.validation` and `.test`, or one file, as a `Dataset`.

    Rows are `GRADE qid:ID FEATURE:VALUE ... # comment`, plain or gzipped, the rows of a query one after the other.
    Every token is checked whether or not it is kept. Item ids are taken from comments such as `docid = GX004-93` when
    every row has one. y_max is the highest grade in each file.

    Parameters
    ----------
    path
        A folder with `test.txt` and, where they are used, `train.txt` and `vali.txt`; or a file. All may be gzipped.
    features
        Keep the features as X, shape (items, features); what a row leaves out is 0. They are float32: learning needs
        no more, and Istella-S takes 3 GB instead of 6. Numbers beyond its range become the largest it has.
    epsilon
        Relevance of an item of grade 0, see `relevance`.
    preset
        None: as it is in the file. `"wsdm23"`: as the code released with the paper loads it, that is without the last
        query of each file and, in the test part, without queries that have no relevant item, and then with 6 to 19
        items if the test part is one of MQ2008's and 6 or more otherwise. `"paper"`: as the paper says, with at most
        20 items in MQ2008 and all queries otherwise. A single file counts as a test part.
    min_items, max_items
        Keep queries with at least and at most so many items, instead of the bounds of the preset.

    Returns
    -------
    Fold or Dataset
        A fold for a folder, whose parts are read when first used; a dataset for a file.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "toy.txt"
    ...     _ = file.write_text("2 qid:7 1:0.5 3:1\n0 qid:7 2:0.1\n1 qid:8 1:0.3\n")
    ...     data = load_letor(file, features=True)
    >>> data.query_ids, data.sizes.tolist(), data.X.shape
    (['7', '8'], [2, 1], (3, 3))
    """
    check_preset(preset, DataError)
    relevance([], 0, epsilon)  # refuses a wrong epsilon now, not when a part is first used
    path = Path(path)
    if not is_there(path):
        raise DataError(f"no such file or folder: {path}")
    if path.is_dir():
        found = {split: inside(path, *file_names(split)) for split in SPLITS}
        files = {split: file for split, file in found.items() if file is not None}
        if "test" not in files:
            folds = [each for each in children(path) if inside(each, *file_names("test"))]
            hint = f"; did you mean {folds[0]}?" if folds else ""
            raise DataError(f"no test part ({' or '.join(file_names('test'))}) in {path}{hint}")
    else:
        files = {"test": path}
    fold = Fold(
        folder=path if path.is_dir() else path.parent, files=files, features=bool(features), epsilon=float(epsilon),
        preset=preset, min_items=min_items, max_items=max_items,
    )  # fmt: skip
    return fold if path.is_dir() else fold.test


def is_there(path: Path) -> bool:
    """Whether a path leads to something; a DataError if that cannot be told."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
    return True


def file_names(split: str) -> list[str]:
    """List the names that the file of a part may have."""
    return [stem + suffix for stem in FILES[split] for suffix in (".txt", ".txt.gz")]


def children(folder: Path) -> list[Path]:
    """List what is in a folder; nothing if that cannot be read or is no folder."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def inside(folder: Path, *names: str) -> Path | None:
    """Find the first of some names in a folder, case ignored."""
    entries = {each.name.lower(): each for each in children(folder)}
    return next((entries[name.lower()] for name in names if name.lower() in entries), None)


def short_name(path: Path) -> str:
    """Call a folder by the last two parts of its path, and a file in it so too, as in MQ2008/Fold1/test."""
    path = path.resolve()
    if path.is_dir():
        return "/".join(path.relative_to(path.anchor).parts[-2:])
    return f"{short_name(path.parent)}/{path.name.removesuffix('.gz').removesuffix('.txt')}"


# ---------------------------------------------------------------------------------------------------------------------
# Synthetic data


@dataclasses.dataclass(frozen=True, kw_only=True)
class Profile:
    """The shape of a synthetic dataset.

    Parameters
    ----------
    description
        One line for people.
    queries, features
        How many.
    sizes
        Pairs of a number of items and how often it occurs.
    relevant
        Each query has its own share of relevant items, spread evenly from 0 to this; one item at least is relevant.
    steps
        What share of a query's relevant items have a grade of at least 2, 3, …: these times u², cut off at 1, where u
        is the query's own and spread evenly from 0 to 1.
    """

    description: str
    queries: int
    features: int
    sizes: tuple[tuple[int, int], ...]
    relevant: float
    steps: tuple[float, ...]


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
}


def synthetic(name: str, seed: int = 0) -> Dataset:
    """Make a built-in synthetic dataset; the same name and seed give the same data for ever.

    Features lie in [0, 1]. They see a blurred version of the grade, the first one best, the last quarter not at all.

    Parameters
    ----------
    name
        One of `PROFILES`.
    seed
        A whole number from 0 to 2**64 - 1.

    Examples
    --------
    >>> synthetic("mq2008-like").queries
    83
    """
    if name not in PROFILES:
        raise DataError(unknown("profile", name, PROFILES))
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
    return Dataset(offsets=offsets, y=y, y_max=y_max, X=X, name=name)


# ---------------------------------------------------------------------------------------------------------------------
# The catalogue


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """A public dataset: what it is, where to get it, the folder it goes to and the SHA-256 of its unpacked files."""

    description: str
    source: str
    licence: str
    folder: str
    sums: dict[str, str]


# Part S1 to S5 of MQ2008; the test part of fold f is the one before S_f, and its validation part the one before that.
MQ2008 = (
    "f754c61c4a5e2a14b330af767f12d1e88bab336219ae4f6f91a774f8f68b078e",
    "2104c4f23f0119e0b0726bd80d1170822f37f63639879b0cf8fb43a301517903",
    "ec7a1b9db068aa6d5e8c4d42d5f7b2a727543b9c1f79c30bed746568fb87ed03",
    "971ab752d71d7b019c1c512d7ba4a05b1198bdeeda57a10dd69c62f3ac47dbb9",
    "ce33aa98a1cc42847008f2d4280c30a52b6c8491206893cbc97e412ccb97426b",
)
# The same parts with line feeds alone, as copies that went through a text tool have them.
WITH_LINE_FEEDS = dict(
    zip(
        (
            "cbd42504549a2388f6c0aefdb506f22074225b574c7a5df10194174c9b00e4e0",
            "055ac792cb8f7d5a029090b8acbfb6c57323339d1371251bf2465ac182aa8605",
            "a03fe2b6e76479de60fecdb37d560a40a4e899b0cd685553d2da31ea205af1ab",
            "a239850bc6fe960ad08c2b7b0d99db90fe976dd93a15358e98036591b4e7a2ac",
            "c68c52feb1ecae7f17b64c8e2fda2098302681bbd4ea5fad8c73a1d32a1cf2b2",
        ),
        MQ2008,
        strict=True,
    )
)
MQ2008_TRAIN = (
    "906deb7d4db46e908de7d9d8d82a9ce63a12090217a658b2524fcd860dd66bba",
    "98b2944d52cd0da6cd3d43b09cba92879197a4d4ae5b6949156e11eb3586a4f9",
    "4343556f569d7545d2b770b1737acda909cbe6ec6fc0f82f6f31b7d45bd0097b",
    "7480d84a584ca0c1d4d9424c81824765bce29c175de1ac6c07737ecd5781c205",
    "30236927b95d9f2b3c1a0100a325d333fa68e6cc1213db51f032750dec9d6435",
)
CATALOGUE = {
    f"mq2008/fold{f + 1}": Entry(
        description=f"LETOR 4.0 MQ2008, fold {f + 1} of 5: 784 queries in all, grades 0-2, 46 features",
        source="LETOR 4.0, MQ2008 (Supervised ranking) from Microsoft Research",
        licence="it is not part of this package: bring your own copy",
        folder=f"MQ2008/Fold{f + 1}",
        sums={"train": MQ2008_TRAIN[f], "validation": MQ2008[f - 2], "test": MQ2008[f - 1]},
    )
    for f in range(5)
}


def original(content: str) -> str:
    """Return the published sum of a file whose line ends were changed, and any other sum as it is."""
    return WITH_LINE_FEEDS.get(content, content)


def roots() -> list[Path]:
    """List the folders in which catalogued data is looked for."""
    named = os.environ.get("MCFAIR_DATA")
    return [*([Path(named).expanduser()] if named else []), platformdirs.user_data_path("mcfair")]


def copies(entry: Entry) -> Iterator[tuple[Path, Path, str]]:
    """Give each folder that may hold a catalogued fold, its test file and the sum of that."""
    whole = entry.folder.split("/")
    for root in roots():
        for components in (whole, whole[-1:]):
            folder: Path | None = root
            for component in components:
                folder = folder and inside(folder, component)
            if folder and (test := inside(folder, *file_names("test"))):
                yield folder, test, original(content_sum(test))


def locate(name: str) -> Path:
    """Find the folder of a catalogued dataset on this machine, known by the checksum of its test part.

    `mq2008/fold1` is looked for as `MQ2008/Fold1` and then `Fold1`, case ignored, first in the folder that the
    environment variable MCFAIR_DATA names and then in the user's data directory.
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
    """List the name of all data there is, what it is, and where: built in, a folder, or why there is none.

    Examples
    --------
    >>> [name for name, _, where in available() if where == "built in"]
    ['mq2008-like', 'istella-s-like']
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


def open_data(
    source: str | os.PathLike[str],
    *,
    split: str = "test",
    features: bool = False,
    epsilon: float = 0.1,
    preset: str | None = None,
    min_items: int | None = None,
    max_items: int | None = None,
    seed: int = 0,
) -> Dataset | Fold:
    """Open data by what a user calls it: a fold folder or a file, a built-in profile, or a name in the catalogue.

    Parameters
    ----------
    source
        A path, if there is something; otherwise one of `PROFILES` or `CATALOGUE`.
    split
        Which part of a fold: `train`, `validation` or `test`.
    seed
        Of a profile.
    features, epsilon, preset, min_items, max_items
        As in `load_letor`; a profile always has its features.

    Returns
    -------
    Dataset or Fold
        A fold only with preset `paper`, which plays all three parts.

    Examples
    --------
    >>> sorted(set(open_data("mq2008-like", min_items=15).sizes.tolist()))
    [15, 16]
    """
    name = os.fspath(source)
    if split not in SPLITS:
        raise DataError(unknown("split", split, SPLITS))
    check_preset(preset, DataError)
    if preset is not None and split != "test":
        raise DataError(f"preset {preset} evaluates on the test part, but split {split!r} was asked for")
    if not is_there(Path(name)):
        if name in PROFILES:
            if preset == "wsdm23":
                raise DataError(f"preset wsdm23 reads a LETOR fold or file, but {name!r} is a built-in profile")
            if split != "test":
                raise DataError(f"{name} is a built-in profile and has no {split} part")
            data = dataclasses.replace(synthetic(name, seed), preset=preset or "")
            if epsilon != 0.1:
                data = data.with_relevance(epsilon)
            return data.select(min_items=min_items or 0, max_items=max_items)
        if name.lower() not in CATALOGUE:
            names = unknown("profile or catalogue name", name, [*PROFILES, *CATALOGUE])
            raise DataError(f"no such file or folder: {name}; {names}")
        name = str(locate(name))
    if split != "test" and not Path(name).is_dir():
        raise DataError(f"{name} is a single file and has no {split} part")
    loaded = load_letor(
        name, features=features, epsilon=epsilon, preset=preset, min_items=min_items, max_items=max_items
    )
    if isinstance(loaded, Dataset) or preset == "paper":
        return loaded
    part: Dataset = getattr(loaded, split)
    return part
