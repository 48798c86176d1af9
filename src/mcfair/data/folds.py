"""Loading: LETOR folds and files, and data by what a user calls it: a path, a built-in profile or a catalogue name."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np

from ..arrays import BoolArray
from ..errors import DataError, SettingError, checked, unknown
from ..options import explicit_options, option
from .catalogue import CATALOGUE, PROFILES, locate, recognise, synthetic
from .dataset import EPSILON, Dataset, relevance
from .letor import check_exists, find_part, find_parts, kind_of, path_exists, read_letor_file, short_name
from .protocols import PARTS, Protocol, find_protocol


class LetorOptions(TypedDict, total=False):
    """The fields of `Loading` that apply to LETOR files, as keyword arguments of `load_letor`; all are optional."""

    features: bool
    epsilon: float
    preset: str | None
    min_items: int | None
    max_items: int | None


class LoadingOptions(LetorOptions, total=False):
    """The fields of `Loading`, as keyword arguments of `open_data`; all are optional."""

    split: str
    separator: str | None
    columns: Mapping[str, str] | None
    seed: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Loading:
    """How data is loaded; see `load_letor` and `open_data` for what each field means."""

    features: bool = option(False)
    epsilon: float = option(EPSILON, "Relevance of an item of grade 0.", float)
    preset: str | None = option(None, "paper or wsdm23: the protocol as published, or as the released code runs it.")
    min_items: int | None = option(None, "Leave out queries with fewer items.", int)
    max_items: int | None = option(None, "Leave out queries with more items.", int)
    split: str = option("test", "Part of a fold: train, validation or test.")
    separator: str | None = option(
        None, "What separates the columns of a CSV file: ';', tab, pipe  [default: guessed and shown]"
    )
    columns: Mapping[str, str] | None = option(
        None, "Column of a role, such as item=sku_code; repeat for several.", list[str], "column", "ROLE=COLUMN"
    )
    seed: int = option(0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", checked("epsilon", float, self.epsilon, SettingError))
        find_protocol(self.preset)  # refuse wrong options before a file is read
        relevance([], 0, self.epsilon)

    def protocol_for(self, catalogue: str) -> Protocol:
        """Return the protocol with the bounds of a catalogued dataset, if there are any, and then those of the user."""
        protocol = find_protocol(self.preset)
        if catalogue:
            protocol = protocol.with_bounds(*CATALOGUE[catalogue].bounds.get(protocol.name, (None, None)))
        return protocol.with_bounds(self.min_items, self.max_items)

    def read(self, path: Path, part: str, fold: str | None = None) -> Dataset:
        """Read the file of a part of a fold; `fold` is the catalogue name of the fold if that is known already."""
        table = read_letor_file(path, features=self.features)
        y_max = int(table.y.max())
        catalogue = recognise(table.sha256, part)
        protocol = self.protocol_for(catalogue if fold is None else fold)
        data = Dataset(
            offsets=table.offsets,
            y=table.y,
            R=relevance(table.y, y_max, self.epsilon),
            y_max=y_max,
            X=table.X,
            query_ids=table.query_ids,
            item_ids=table.item_ids,
            name=short_name(path),
            protocol=protocol,
            fingerprint=hashlib.sha256(f"{table.sha256} epsilon={float(self.epsilon)}".encode()).hexdigest(),
            catalogue=catalogue,
        )
        return data.select(
            min_items=protocol.min_items,
            max_items=protocol.max_items,
            relevant_only=protocol.relevant_only and part == "test",
            drop_last=protocol.drop_last,
        )


@dataclasses.dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class Fold(Dataset):
    r"""The test part of a LETOR fold, with access to the other parts; `load_fold` reads it.

    Selections and other changes of a fold return plain datasets, without the other parts.

    Parameters
    ----------
    folder : Path
        The folder of the fold.
    files : dict
        The file of each part that there is.
    loading : Loading
        How the files are read.

    Other Parameters
    ----------------
    offsets, y, ...
        The test part, see `Dataset`.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for part, rows in (("test", "2 qid:7 1:0.5\n0 qid:7 1:0.1\n"), ("vali", "1 qid:8 1:0.3\n")):
    ...         _ = (Path(folder) / f"{part}.txt").write_text(rows)
    ...     fold = load_fold(folder)
    ...     sorted(fold.files), fold.query_ids, fold.validation.query_ids
    (['test', 'validation'], ['7'], ['8'])
    """

    folder: Path
    files: dict[str, Path]
    loading: Loading

    @cached_property
    def train(self) -> Dataset:
        """The part that models are fitted on; read when first used."""
        return self._read("train")

    @cached_property
    def validation(self) -> Dataset:
        """The part that parameters are chosen on; read when first used."""
        return self._read("validation")

    @cached_property
    def test(self) -> Dataset:
        """The part that results are reported on: the queries of the fold itself, as a plain dataset."""
        return self._derived()

    def _read(self, part: str) -> Dataset:
        # The test file alone decides which catalogued fold this is, so that all parts have the same bounds.
        return self.loading.read(find_part(self.folder, part), part, self.catalogue)

    def __repr__(self) -> str:
        return f"Fold({self.name!r}: {self._summary()}; parts {', '.join(self.files)})"

    def pool(self) -> tuple[Dataset, BoolArray]:
        """Return the queries that sessions are drawn from under the fold's protocol, and which of them are evaluated.

        Returns
        -------
        Dataset, (queries,) bool array

        Raises
        ------
        DataError
            If the protocol draws from a part that cannot be read.
        """
        if self.protocol.parts == ("test",):
            return self.test.pool()
        parts: dict[str, Dataset] = {part: getattr(self, part) for part in self.protocol.parts}
        whole = concatenate(list(parts.values()), name=short_name(self.folder))
        return whole, np.repeat([part == "test" for part in parts], [data.queries for data in parts.values()])


@explicit_options(Loading, LetorOptions)
def load_fold(folder: str | os.PathLike[str], **options: Unpack[LetorOptions]) -> Fold:
    r"""Read a fold folder: its test part, with `.train` and `.validation`, which are read when first used.

    Parameters
    ----------
    folder
        A folder with `test.txt` and, where they are used, `train.txt` and `vali.txt`; all may be gzipped.
    features, epsilon, preset, min_items, max_items
        As in `load_letor`.

    Returns
    -------
    Fold

    Raises
    ------
    DataError
        If there is no such folder or no test part in it, if a file is malformed, if no query is left or if the preset
        is unknown.
    SettingError
        If epsilon is not a number from 0 to 1.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for part in ("train", "vali", "test"):
    ...         _ = (Path(folder) / f"{part}.txt").write_text("2 qid:7 1:0.5\n0 qid:7 1:0.1\n")
    ...     fold = load_fold(folder)
    ...     fold.queries, fold.train.queries
    (1, 1)
    """
    loading = Loading(**options)
    path = Path(folder)
    check_exists(path)
    test = loading.read(find_part(path, "test"), "test")
    fields: dict[str, Any] = {field.name: getattr(test, field.name) for field in dataclasses.fields(Dataset)}
    return Fold(**fields, folder=path, files=find_parts(path), loading=loading)


@explicit_options(Loading, LetorOptions)
def load_letor(path: str | os.PathLike[str], **options: Unpack[LetorOptions]) -> Dataset:
    r"""Read a LETOR file, or a fold folder as a `Fold`, which is its test part and has `.train` and `.validation`.

    Rows are `GRADE qid:ID FEATURE:VALUE ... # comment`, plain or gzipped, with the rows of a query adjacent. Rows may
    have no `qid:ID` if a file of the same name with `.query` (LightGBM) or `.group` (XGBoost) appended lists the number
    of rows of each query, one per line. Every token is checked whether or not it is kept. Item ids are read from
    comments such as `docid = GX004-93` if every row has one. y_max is the highest grade in each file.

    Parameters
    ----------
    path
        A file, or a folder with `test.txt` and, where they are used, `train.txt` and `vali.txt`. All may be gzipped.
    features
        Keep the features as X, shape (items, features); features that a row does not list are 0. They are float32,
        which is precise enough for learning and halves the memory. Numbers beyond its range become the largest it has.
    epsilon
        Relevance of an item of grade 0, see `relevance`.
    preset
        Name of a shipped protocol, or None: all queries of the file. `"wsdm23"`: as the code released with the paper
        loads it, that is without the last query of each file and, in the test part, without queries that have no
        relevant item, and then with 6 to 19 items if the test part is one of MQ2008's and 6 or more otherwise.
        `"paper"`: as the paper describes it, with at most 20 items in MQ2008 and all queries otherwise. A single file
        counts as a test part.
    min_items, max_items
        Keep queries with at least and at most so many items, instead of the bounds of the preset.

    Returns
    -------
    Dataset
        For a folder, the `Fold` that `load_fold` returns.

    Raises
    ------
    DataError
        If the path cannot be read, a file is malformed, no query is left or the preset is unknown.
    SettingError
        If epsilon is not a number from 0 to 1.

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
    loading = Loading(**options)
    path = Path(path)
    check_exists(path)
    return load_fold(path, **options) if path.is_dir() else loading.read(path, "test")


def concatenate(parts: Sequence[Dataset], name: str) -> Dataset:
    """Join the parts of a fold one after the other; features and ids are kept where all parts have them.

    The draws of a query depend on its place in the whole. If a query id occurs in several parts, all query ids are
    preceded by the names of their parts.
    """

    def joined(field: str) -> Any:
        values = [getattr(part, field) for part in parts]
        return None if any(each is None for each in values) else np.concatenate(values)

    def listed(field: str) -> list[str] | None:
        values = [getattr(part, field) for part in parts]
        return None if any(each is None for each in values) else [name for each in values for name in each]

    query_ids = listed("query_ids")
    if query_ids is not None and len(set(query_ids)) < len(query_ids):
        query_ids = [f"{part.name}/{part.query_id(q)}" for part in parts for q in range(part.queries)]
    catalogues = {part.catalogue for part in parts}
    return Dataset(
        offsets=np.concatenate(([0], np.cumsum(np.concatenate([part.sizes for part in parts])))),
        y=joined("y"),
        R=joined("R"),
        y_max=max(part.y_max for part in parts),
        X=joined("X"),
        query_ids=query_ids,
        item_ids=listed("item_ids"),
        name=name,
        protocol=parts[0].protocol,
        catalogue=catalogues.pop() if len(catalogues) == 1 else "",
        fingerprint=hashlib.sha256("".join(part.fingerprint for part in parts).encode()).hexdigest(),
    )


# --- data by path or name ---------------------------------------------------------------------------------------------


@explicit_options(Loading, LoadingOptions)
def open_data(source: str | os.PathLike[str], **options: Unpack[LoadingOptions]) -> Dataset:
    """Open data by path or name.

    Parameters
    ----------
    source
        A path, if there is a file or folder: a fold folder, a LETOR file, or a table (CSV, TSV, Parquet or JSON lines)
        with the columns query, item, grade or relevance, score and provider, of which only query and one of grade and
        relevance are required. Their names are matched ignoring case, and common ones such as qid, docid and label are
        understood. Otherwise one of `PROFILES` or `CATALOGUE`.
    split
        Which part of a fold: `train`, `validation` or `test`.
    features, epsilon, preset, min_items, max_items
        As in `load_letor`; a profile always has its features, a table never. A profile or table has a test part only.
    separator, columns
        Of a table: what separates the columns of a CSV file, guessed from its first line if left out; and columns by
        role, such as `{"item": "sku_code"}`, where they do not have their usual names.
    seed
        Seed of a profile.

    Returns
    -------
    Dataset
        For the test part of a fold, a `Fold`, which has the other parts too.

    Raises
    ------
    DataError
        If nothing has this name, if a file cannot be read or is malformed, if the split, preset or seed does not apply,
        or if no query is left.
    SettingError
        If epsilon is not a number from 0 to 1.

    Examples
    --------
    >>> sorted(set(open_data("mq2008-like", min_items=15).sizes.tolist()))
    [15, 16]
    """
    name, loading = os.fspath(source), Loading(**options)
    split, protocol = loading.split, find_protocol(loading.preset)
    bounded = protocol.with_bounds(loading.min_items, loading.max_items)
    if split not in PARTS:
        raise DataError(unknown("split", split, PARTS))
    if protocol.name and split != "test":
        raise DataError(f"preset {loading.preset} evaluates on the test part, but split {split!r} was asked for")
    path = Path(name)
    kind = ""
    if not path_exists(path):
        if name in PROFILES:
            kind = "a built-in profile"
        elif name.lower() in CATALOGUE:
            path = locate(name)
        else:
            names = unknown("profile or catalogue name", name, [*PROFILES, *CATALOGUE])
            raise DataError(f"no such file or folder: {name}; {names}")
    if not kind and not path.is_dir() and kind_of(path):
        kind = "a table"
    if not kind and split == "test":
        return load_letor(path, **{each: getattr(loading, each) for each in LetorOptions.__annotations__})
    if not kind and path.is_dir():
        return loading.read(find_part(path, split), split)
    if kind and protocol.drop_last:
        raise DataError(f"preset {protocol.name} reads a LETOR fold or file, but {name!r} is {kind}")
    if split != "test":
        raise DataError(f"{name} is {kind or 'a single file'} and has no {split} part")
    if kind == "a table":
        from .frames import load_table  # imports Polars, which other data do not need

        data = load_table(path, loading.epsilon, columns=loading.columns, separator=loading.separator)
    else:
        data = synthetic(name, loading.seed)
        data = data if loading.epsilon == EPSILON else data.with_relevance(loading.epsilon)
    data = data._derived(protocol=bounded)
    bounds = bounded.min_items, bounded.max_items
    return data if bounds == (0, None) else data.select(min_items=bounds[0], max_items=bounds[1])
