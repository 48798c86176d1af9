"""LETOR files: the reader, what its lines must be, and the names that the files of a fold may have.

A file is read in blocks of whole lines, which Polars parses, so that memory stays near the size of what is kept. Where
a line is wrong, the lines of its block are read again one by one, by slower code that can say what is wrong.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import re
import stat
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from ..arrays import IntArray
from ..errors import DataError
from .dataset import HIGHEST_GRADE, GradeArray
from .protocols import PARTS

if TYPE_CHECKING:
    import polars as pl


# --- files of a fold --------------------------------------------------------------------------------------------------

STEMS = {"train": ("train",), "validation": ("vali", "valid", "validation"), "test": ("test",)}


KINDS = {".csv": "CSV", ".tsv": "TSV", ".parquet": "Parquet", ".jsonl": "JSON lines", ".ndjson": "JSON lines"}
"""The kind of a table by how the name of its file ends; .gz may follow. Other files are LETOR files."""


def kind_of(path: Path) -> str:
    """Return the kind of table that the name of a file stands for, "" if none."""
    return KINDS.get(Path(path.name.lower().removesuffix(".gz")).suffix, "")


def file_names(part: str) -> list[str]:
    """List the names that the file of a part may have."""
    return [stem + suffix for stem in STEMS[part] for suffix in (".txt", ".txt.gz")]


def find_part(folder: Path, part: str) -> Path:
    """Return the file of a part of a fold; raise DataError, which suggests a subfolder, if there is none."""
    file = find_child(folder, *file_names(part))
    if file is None:
        folds = [each for each in children(folder) if find_child(each, *file_names(part))]
        hint = f"; did you mean {folds[0]}?" if folds else ""
        raise DataError(f"no {part} part ({' or '.join(file_names(part))}) in {folder}{hint}")
    return file


def find_parts(folder: Path) -> dict[str, Path]:
    """Find the files of all parts of a fold that there are."""
    found = {part: find_child(folder, *file_names(part)) for part in PARTS}
    return {part: file for part, file in found.items() if file is not None}


def find_child(folder: Path, *names: str) -> Path | None:
    """Find the first of some names in a folder, case ignored."""
    entries = {each.name.lower(): each for each in children(folder)}
    return next((entries[name.lower()] for name in names if name.lower() in entries), None)


def children(folder: Path) -> list[Path]:
    """List the content of a folder; nothing if it cannot be read or is no folder."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def path_exists(path: Path) -> bool:
    """Return whether a path leads to a file or folder; raise DataError if that cannot be found out."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
    return True


def check_exists(path: Path) -> None:
    """Raise DataError if a path leads to nothing."""
    if not path_exists(path):
        raise DataError(f"no such file or folder: {path}")


def short_name(path: Path) -> str:
    """Return the last two parts of the path of a folder, and of a file its folder and its stem: MQ2008/Fold1/test."""
    path = path.resolve()
    if path.is_dir():
        return "/".join(path.relative_to(path.anchor).parts[-2:])
    return f"{short_name(path.parent)}/{path.name.removesuffix('.gz').removesuffix('.txt')}"


# --- the reader -------------------------------------------------------------------------------------------------------

BLOCK = 2**22
LONGEST_LINE = 2**24  # a longer line is no row of a table, and searching for its end could fill the memory
MOST_UNPACKED, MOST_RATIO = 2**32, 200  # bytes, and how many times the size of the packed file
WIDEST = 2**14  # features are kept as a table, so one stray index must not make it gigabytes wide
HUGE = float(np.finfo(np.float32).max)
SIDE_FILES = (".query", ".group")  # of LightGBM and XGBoost
FIRST_ROW = re.compile(rb"^[^\S\n]*[^\s#]+[^\S\n]*([^\s#]*)", re.MULTILINE)
SPACES = bytes.maketrans(b"\t\v\f\r", b"    ")
NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"


class LetorFile(NamedTuple):
    """The content of one file, and the SHA-256 of its unpacked bytes and of the sizes in its side file."""

    offsets: IntArray
    y: GradeArray
    X: npt.NDArray[np.float32] | None
    query_ids: list[str] | None
    item_ids: list[str] | None
    sha256: str


class Block(NamedTuple):
    """The rows of some whole lines; `runs` has qid, line and row of the first row of each run of rows with one qid."""

    y: GradeArray
    runs: pl.DataFrame
    docids: list[str] | None
    X: npt.NDArray[np.float32]
    width: int


def read_letor_file(path: Path, *, features: bool = False, block_size: int = BLOCK) -> LetorFile:
    """Read a LETOR file, so many bytes at a time.

    Raises
    ------
    DataError
        If the file or its side file cannot be read or is malformed; the message names the line.
    """
    import polars as pl  # built-in profiles do not need it

    side_file, digest, blocks = find_side_file(path), hashlib.sha256(), list[Block]()
    has_qid, undecided = True, side_file is not None  # without a side file every row needs a qid
    rows = lines = 0
    for text in whole_lines(path, block_size, digest.update):
        if undecided and (first := FIRST_ROW.search(text)):
            has_qid, undecided = first[1].startswith(b"qid:"), False
        block = parse_block(text, has_qid, features)
        if block is None:
            raise wrong_line(path, text, lines, has_qid, side_file)
        if features and block.width > WIDEST:
            raise DataError(f"{path}: features go up to {block.width:,}, too many to keep (at most {WIDEST:,})")
        runs = block.runs.with_columns(pl.col("line") + lines, pl.col("row") + rows)
        blocks.append(block._replace(runs=runs))
        rows += block.y.size
        lines += text.count(b"\n")
    if not rows:
        raise DataError(f"{path}: holds no rows; expected lines such as 'GRADE qid:ID FEATURE:VALUE ...'")
    if has_qid:
        queries = new_runs(pl.concat([block.runs for block in blocks]))
        again = queries.filter(~pl.col("qid").is_first_distinct())
        for qid, line, _ in again.head(1).rows():
            raise DataError(
                f"{path}, line {line}: qid {qid} comes back after other queries; the rows of one query must be adjacent"
            )
        offsets, query_ids = np.append(queries["row"].to_numpy(), rows), queries["qid"].to_list()
    else:
        assert side_file is not None
        offsets, query_ids = side_offsets(path, side_file, rows), None
        digest.update(f"sizes {np.diff(offsets).tolist()}".encode())
    docids = [block.docids for block in blocks]
    return LetorFile(
        offsets=offsets,
        y=np.concatenate([block.y for block in blocks]),
        X=stacked([block.X for block in blocks], rows) if features else None,
        query_ids=query_ids,
        item_ids=None if None in docids else [docid for each in docids for docid in each or ()],
        sha256=digest.hexdigest(),
    )


def parse_block(text: bytes, has_qid: bool, features: bool) -> Block | None:
    """Parse whole lines, whose rows have a `qid:ID` after the grade if `has_qid`; return None if one is wrong."""
    import polars as pl

    qid = " +qid:[^ ]+" if has_qid else ""
    whole, comment, row, cells = pl.col("text"), pl.col("comment"), pl.col("row"), pl.col("cells")
    lines = text.translate(SPACES).decode(errors="backslashreplace").split("\n")
    table = (
        pl.DataFrame({"line": np.arange(len(lines)) + 1, "text": lines})
        .with_columns(whole.str.splitn("#", 2).struct.rename_fields(["row", "comment"]))
        .unnest("text")
        .filter(row.str.contains("[^ ]"))
    )
    if not table["row"].str.contains(f"^ *{NUMBER}{qid}(?: +[0-9]+:{NUMBER})* *$").all():
        return None
    table = table.select(
        "line",
        row=np.arange(table.height),
        grade=row.str.extract("^ *([^ ]+)").cast(pl.Float64),
        qid=row.str.extract("qid:([^ ]+)") if has_qid else pl.lit(""),
        docid=comment.str.extract("(?:^|[ #])docid *= *([^ ]+)"),
        cells=row.str.replace(f"^ *[^ ]+{qid}", ""),
    )
    tokens = table.select(cells.str.replace_all(":", " ", literal=True).str.split(" ").explode())["cells"]
    numbers = tokens.filter(tokens != "").cast(pl.Float64, strict=False).to_numpy()
    index, value = numbers[::2], numbers[1::2]
    at = np.repeat(table["row"].to_numpy(), table["cells"].str.count_matches(":", literal=True).to_numpy())
    step = np.where(np.diff(at, prepend=-1) > 0, index, np.diff(index, prepend=0.0))
    y = table["grade"].to_numpy()
    if not (((y >= 0) & (y <= HIGHEST_GRADE) & (y % 1 == 0)).all() and (step > 0).all() and np.isfinite(value).all()):
        return None
    width = int(min(index.max(initial=0), 2**40))
    X = np.zeros((y.size, width) if features and width <= WIDEST else (0, 0), np.float32)
    if X.size:
        X[at, index.astype(np.int64) - 1] = value.clip(-HUGE, HUGE)
    docids = None if table["docid"].null_count() else table["docid"].to_list()
    return Block(y.astype(np.int16), new_runs(table.select("qid", "line", "row")), docids, X, width)


def new_runs(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows whose qid is not that of the row before."""
    import polars as pl

    return rows.filter(pl.col("qid").ne_missing(pl.col("qid").shift()))


def wrong_line(path: Path, text: bytes, before: int, has_qid: bool, side_file: Path | None) -> DataError:
    """Return the error for the first wrong one of some lines, which follow so many others."""
    lines = ((number, line.rstrip()) for number, line in enumerate(text.split(b"\n"), before + 1))
    wrong = ((number, line, problem_of(line.split(b"#")[0].split(), has_qid)) for number, line in lines)
    number, line, problem = next(each for each in wrong if each[-1])
    if problem == NO_QID and side_file is None:
        names = " or ".join(f"FILE{suffix}" for suffix in SIDE_FILES)
        problem += f", and no side file {names} that lists the number of rows of each query"
    expected = "GRADE qid:ID FEATURE:VALUE ..." if has_qid else "GRADE FEATURE:VALUE ..."
    return DataError(f"{path}, line {number}: expected '{expected}', got {shortened(line)}: {problem}")


NO_QID = "no qid:ID after the grade"


def problem_of(tokens: list[bytes], has_qid: bool) -> str:
    """Return what is wrong with the tokens of a line, "" if nothing."""
    if not tokens:
        return ""
    is_number = re.compile(NUMBER.encode()).fullmatch
    grade = tokens[0]
    if not is_number(grade) or not 0 <= float(grade) <= HIGHEST_GRADE or float(grade) % 1:
        return f"grade {shortened(grade)} is not a whole number from 0 to {HIGHEST_GRADE}"
    if has_qid and not (tokens[1:] and re.fullmatch(rb"qid:.+", tokens[1])):
        return NO_QID
    last = 0.0
    for token in tokens[1 + has_qid :]:
        index, colon, value = token.partition(b":")
        if not (index.isdigit() and colon and float(index)):
            return f"{shortened(token)} does not begin with a feature's number, counted from 1"
        if float(index) <= last:
            return f"{shortened(token)} comes after a feature with the same or a higher number"
        last = float(index)
        if not (is_number(value) and math.isfinite(float(value))):
            return f"{shortened(token)} has no finite number as its value"
    return ""


def whole_lines(path: Path, size: int = BLOCK, see: Callable[[bytes], object] = len) -> Iterator[bytes]:
    """Yield a text file in pieces of whole lines; DataError if a line or the unpacked whole is too long.

    `see` is called with all bytes, in any pieces.
    """
    packed, unpacked, rest = path.stat().st_size if path.exists() else 0, 0, b""
    for piece in pieces(path, size):
        see(piece)
        unpacked += len(piece)
        if unpacked > max(MOST_UNPACKED, packed) and unpacked > MOST_RATIO * packed:
            raise DataError(
                f"{path}: its {packed:,} bytes unpack to more than {unpacked:,}; unpack it first if that is meant"
            )
        cut = piece.rfind(b"\n") + 1
        if cut:
            yield rest + piece[:cut]
            rest = piece[cut:]
        else:
            rest += piece
        if len(rest) > LONGEST_LINE:
            raise DataError(f"{path}: a line has more than {LONGEST_LINE:,} bytes, too many for a row of a table")
    if rest:
        yield rest


def pieces(path: Path, size: int = BLOCK) -> Iterator[bytes]:
    """Yield the unpacked bytes of a file, so many at a time; raise DataError if it cannot be read."""
    try:
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # it may never end, or nobody may ever write to it
            what = "named pipe" if stat.S_ISFIFO(mode) else "device"
            raise DataError(f"{path}: expected a file, got a {what}")
        with path.open("rb") as raw:
            packed = raw.peek(2)[:2] == b"\x1f\x8b"
            stream = gzip.GzipFile(fileobj=raw) if packed else raw
            while piece := stream.read(size):
                yield piece
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: the gzip file is damaged or cut short: {error}") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None


def content_sum(path: Path) -> str:
    """Return the SHA-256 of the unpacked bytes of a file."""
    digest = hashlib.sha256()
    for piece in pieces(path):
        digest.update(piece)
    return digest.hexdigest()


def find_side_file(path: Path) -> Path | None:
    """Find the file beside a file that lists the sizes of its queries; the side file of a gzipped one may be plain."""
    for name in dict.fromkeys((path.name, path.name.removesuffix(".gz"))):
        for suffix in SIDE_FILES:
            try:
                if (beside := path.with_name(name + suffix)).is_file():
                    return beside
            except OSError:  # a name that the file system does not allow
                return None
    return None


def side_offsets(path: Path, side_file: Path, rows: int) -> IntArray:
    """Return the offsets that follow from a side file: the numbers of rows of consecutive queries, one per line."""
    sizes = []
    for number, line in enumerate(b"".join(pieces(side_file)).splitlines(), 1):
        if not (text := line.strip()):
            continue
        if not text.isdigit() or len(text) > 9 or int(text) < 1:
            raise DataError(
                f"{side_file}, line {number}: expected the number of rows of a query, got {shortened(line)}"
            )
        sizes.append(int(text))
    if sum(sizes) != rows:
        raise DataError(
            f"{path} has {rows:,} rows without a qid, but the sizes in {side_file.name} add up to {sum(sizes):,}"
        )
    return np.cumsum([0, *sizes])


def stacked(tables: list[npt.NDArray[np.float32]], rows: int) -> npt.NDArray[np.float32]:
    """Stack tables of different widths, releasing each once it is copied."""
    X = np.zeros((rows, max(table.shape[1] for table in tables)), np.float32)
    while tables:
        table = tables.pop()
        X[rows - table.shape[0] : rows, : table.shape[1]] = table
        rows -= table.shape[0]
    return X


def shortened(text: bytes, most: int = 60) -> str:
    """Quote a piece of a file, which may be long and may be no text."""
    quoted = repr(text[:most].decode(errors="replace"))
    return quoted if len(text) <= most else f"{quoted[:most]}…{quoted[0]}"
