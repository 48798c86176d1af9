"""LETOR files: the reader, its compiled parser, and the names that the files of a fold may have.

A file is read in blocks of whole lines, which a compiled kernel parses, checking every token. One thread reads,
decompresses and hashes, others parse. So memory stays near the size of what is kept, whatever the size of the file.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import stat
import zlib
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .._jit import kernel
from ..arrays import IntArray
from ..errors import DataError
from .dataset import HIGHEST_GRADE, GradeArray
from .protocols import PARTS

__all__ = [
    "KINDS",
    "LetorFile",
    "check_exists",
    "content_sum",
    "file_names",
    "find_child",
    "find_part",
    "find_parts",
    "kind_of",
    "path_exists",
    "pieces",
    "read_letor_file",
    "short_name",
]

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


# --- the parser: kernels over a block of bytes, which ends with a line feed that stops every loop ---------------------

ByteArray = npt.NDArray[np.uint8]

LF, SPACE, HASH, PLUS, MINUS, POINT, COLON, EQUALS, ZERO, NINE, SMALL_E, BIG_E = b"\n #+-.:=09eE"
QID, DOCID = np.frombuffer(b"qid:", np.uint8), np.frombuffer(b"docid", np.uint8)
POWERS = np.array([float(f"1e{k}") for k in range(23)])  # the powers of ten that a float64 holds exactly
LAST_POWER = np.int64(22)
FULL = 10**17  # a mantissa below it has room for another digit
FAR = np.int64(2**40)  # indices and exponents beyond it are all the same
HUGE = float(np.finfo(np.float32).max)
FINE, BAD_GRADE, NEGATIVE_GRADE, NO_QID, BAD_INDEX, INDEX_ORDER, BAD_VALUE, SOME_QID = range(8)
REASONS = (
    "",
    f"grade {{}} is not a whole number from 0 to {HIGHEST_GRADE}",
    "grade {} is negative",
    "no qid:ID after the grade",
    "{} does not begin with a feature's number, counted from 1",
    "{} comes after a feature with the same or a higher number",
    "{} has no number as its value",
    "{} in a file whose first row has no qid",
)


@kernel
def is_digit(byte: int) -> bool:
    """Return whether a byte is one of 0 to 9."""
    return ZERO <= byte <= NINE


@kernel
def is_space(byte: int) -> bool:
    """Return whether a byte is white space; a line feed is."""
    return byte == SPACE or 9 <= byte <= 13


@kernel
def is_end(byte: int) -> bool:
    """Return whether a byte ends a token."""
    return byte == HASH or is_space(byte)


@kernel
def begins(text: ByteArray, i: int, word: ByteArray) -> bool:
    """Return whether a word begins at i."""
    for j in range(word.shape[0]):  # noqa: SIM110  # Numba compiles no generators in `all`
        if text[i + j] != word[j]:
            return False
    return True


@kernel
def scaled(mantissa: np.int64, scale: np.int64) -> float:
    """Return mantissa · 10**scale, correctly rounded when it has at most 15 digits and |scale| is at most 22."""
    x = float(mantissa)
    while scale > 0 and x != 0.0 and not np.isinf(x):
        step = min(scale, LAST_POWER)
        x *= POWERS[step]
        scale -= step
    while scale < 0 and x != 0.0:
        step = min(-scale, LAST_POWER)
        x /= POWERS[step]
        scale += step
    return x


# One function: passing an array to another kernel for every token would double the time.
@kernel
def parse(
    text: ByteArray,
    has_qid: bool,
    y: GradeArray,
    first_row: IntArray,
    first_line: IntArray,
    qid: IntArray,
    docid: IntArray,
    X: npt.NDArray[np.float32],
) -> tuple[int, int, int, np.int64, int, int, int]:
    """Parse and check a block of whole lines, whose rows have a `qid:ID` after the grade if `has_qid`.

    Fills y with the grade of each row; for each run of rows with one qid its first row, first line and where the qid
    begins and ends; for each row where its docid begins and ends; and X, unless that has no rows. Returns the number of
    rows, runs and lines, the highest feature index, the number of the error, and where the wrong token and its line
    begin.

    It is long because numbers are read in the middle of it all: passing an array to another kernel counts references
    with two atomic operations, which for every token would double the time.
    """
    rows = runs = lines = i = 0
    width = np.int64(0)
    while i < text.shape[0]:
        begin = i
        tokens = 0
        last = np.int64(0)
        while True:
            while is_space(text[i]) and text[i] != LF:
                i += 1
            if text[i] == LF or text[i] == HASH:
                break
            at = i
            tokens += 1

            if tokens == 2 and has_qid:
                while not is_end(text[i]):
                    i += 1
                a = at + QID.shape[0]
                if a >= i or not begins(text, at, QID):
                    return rows, runs, lines, width, NO_QID, at, begin
                b = qid[runs - 1, 0]
                if runs == 0 or i - a != qid[runs - 1, 1] - b or not begins(text, b, text[a:i]):
                    first_row[runs] = rows
                    first_line[runs] = lines
                    qid[runs, 0] = a
                    qid[runs, 1] = i
                    runs += 1
                continue

            index = np.int64(0)
            if tokens > 1:
                while is_digit(text[i]):
                    index = min(10 * index + (text[i] - ZERO), FAR)
                    i += 1
                if index == 0 or text[i] != COLON:
                    wrong = SOME_QID if tokens == 2 and begins(text, at, QID) else BAD_INDEX
                    return rows, runs, lines, width, wrong, at, begin
                if index <= last:
                    return rows, runs, lines, width, INDEX_ORDER, at, begin
                last = index
                i += 1

            # A number is mantissa * 10**scale; the mantissa has up to 18 digits, and more of them only move the scale.
            negative = text[i] == MINUS
            if negative or text[i] == PLUS:
                i += 1
            mantissa = np.int64(0)
            scale = np.int64(0)
            first = i
            while is_digit(text[i]):
                if mantissa < FULL:
                    mantissa = 10 * mantissa + (text[i] - ZERO)
                else:
                    scale += 1
                i += 1
            good = i > first
            if text[i] == POINT:
                i += 1
                first = i
                while is_digit(text[i]):
                    if mantissa < FULL:
                        mantissa = 10 * mantissa + (text[i] - ZERO)
                        scale -= 1
                    i += 1
                good = good or i > first
            if good and (text[i] == SMALL_E or text[i] == BIG_E):
                i += 1
                down = text[i] == MINUS
                if down or text[i] == PLUS:
                    i += 1
                exponent = np.int64(0)
                first = i
                while is_digit(text[i]):
                    exponent = min(10 * exponent + (text[i] - ZERO), FAR)
                    i += 1
                good = i > first
                scale += -exponent if down else exponent
            good = good and is_end(text[i])

            if tokens == 1:
                grade = scaled(mantissa, scale)
                if good and negative and grade > 0.0:
                    return rows, runs, lines, width, NEGATIVE_GRADE, at, begin
                if not good or grade > HIGHEST_GRADE or grade != np.floor(grade):
                    return rows, runs, lines, width, BAD_GRADE, at, begin
                y[rows] = np.int16(grade)
            else:
                if not good:
                    return rows, runs, lines, width, BAD_VALUE, at, begin
                if X.shape[0] > 0 or scale > 280:  # no value below that is infinite, and only X needs it
                    value = scaled(mantissa, scale)
                    if np.isinf(value):
                        return rows, runs, lines, width, BAD_VALUE, at, begin
                    if X.shape[0] > 0:
                        value = min(value, HUGE)
                        X[rows, index - 1] = -value if negative else value

        if tokens == 1 and has_qid:
            return rows, runs, lines, width, NO_QID, i, begin
        if tokens > 0:
            width = max(width, last)
            docid[rows, 0] = 0
            docid[rows, 1] = 0
            if text[i] == HASH:
                i += 1
                while text[i] != LF and docid[rows, 1] == 0:
                    a = i
                    if is_end(text[i - 1]) and begins(text, i, DOCID):
                        a += DOCID.shape[0]
                        while is_space(text[a]) and text[a] != LF:
                            a += 1
                    if text[a] == EQUALS and a > i:
                        a += 1
                        while is_space(text[a]) and text[a] != LF:
                            a += 1
                        i = a
                        while not is_space(text[i]):
                            i += 1
                        docid[rows, 0] = a
                        docid[rows, 1] = i
                    else:
                        i += 1
            rows += 1
        while text[i] != LF:
            i += 1
        i += 1
        lines += 1
    return rows, runs, lines, width, FINE, 0, 0


# --- the reader -------------------------------------------------------------------------------------------------------

BLOCK = 2**22
LONGEST_LINE = 2**24  # a "line" longer than this is no text, and searching for its end could fill the memory
WIDEST = 2**14  # features are kept as a table, so one stray index must not make it gigabytes wide
SIDE_FILES = (".query", ".group")  # of LightGBM and XGBoost
NOT_FINITE = re.compile(rb"\d+:[+-]?(nan|inf(inity)?|\d+\.?\d*(e\+?\d+)?)", re.IGNORECASE)
FIRST_ROW = re.compile(rb"^[^\S\n]*[^\s#]+[^\S\n]*([^\s#]*)", re.MULTILINE)


class LetorFile(NamedTuple):
    """The content of one file, and the SHA-256 of its unpacked bytes and of the sizes in its side file."""

    offsets: IntArray
    y: GradeArray
    X: npt.NDArray[np.float32] | None
    query_ids: list[str] | None
    item_ids: list[str] | None
    sha256: str


class ParsedBlock(NamedTuple):
    """A block of whole lines as the parser leaves it; see `parse`."""

    text: bytes
    has_qid: bool
    y: GradeArray
    first_row: IntArray
    first_line: IntArray
    qid: IntArray
    docid: IntArray
    X: npt.NDArray[np.float32]
    lines: int
    width: int
    error: int
    at: int
    begin: int


def read_letor_file(path: Path, *, features: bool = False, block_size: int = BLOCK) -> LetorFile:
    """Read a LETOR file, so many bytes at a time.

    Raises
    ------
    DataError
        If the file or its side file cannot be read or is malformed; the message names the line.
    """
    reader = Reader(path, features=features, block_size=block_size)
    with closing(reader.blocks()) as blocks:
        for block in blocks:
            reader.add(block)
    return reader.part()


class Reader:
    """Reads the blocks of one file and collects their content."""

    def __init__(self, path: Path, *, features: bool, block_size: int) -> None:
        self.path, self.features, self.block_size = path, features, block_size
        self.side_file = find_side_file(path)
        self.digest = hashlib.sha256()
        self.grades: list[GradeArray] = []
        self.tables: list[npt.NDArray[np.float32]] = []
        self.starts: list[int] = []
        self.qids: dict[bytes, None] = {}
        self.docids: list[str] | None = []
        self.last_qid = b""
        self.has_qid = True
        self.rows = self.lines = 0

    def texts(self) -> Iterator[bytes]:
        """Yield the content in blocks of whole lines; hash it on the way."""
        rest = b""
        for piece in pieces(self.path, self.block_size):
            self.digest.update(piece)
            cut = piece.rfind(b"\n") + 1
            if cut:
                yield b"".join((rest, memoryview(piece)[:cut]))
                rest = piece[cut:]
            elif len(rest := rest + piece) > LONGEST_LINE:
                raise DataError(f"{self.path}: not a LETOR file: it has a line of more than {LONGEST_LINE:,} bytes")
        if rest:
            yield rest + b"\n"

    def blocks(self) -> Generator[ParsedBlock, None, None]:
        """Yield the content in parsed blocks; threads parse ahead."""
        parse_block(b"\n", True, self.features)  # compiles before there are threads, which would all compile
        undecided = self.side_file is not None  # without a side file every row needs a qid
        workers = min(os.cpu_count() or 1, 4)  # more would wait for the one thread that reads and hashes
        with ThreadPoolExecutor(workers) as pool:
            coming: deque[Future[ParsedBlock]] = deque()
            for text in self.texts():
                if undecided and (row := FIRST_ROW.search(text)):
                    self.has_qid, undecided = row[1].startswith(b"qid:"), False
                coming.append(pool.submit(parse_block, text, self.has_qid, self.features))
                if len(coming) > workers:
                    yield coming.popleft().result()
            while coming:
                yield coming.popleft().result()

    def add(self, block: ParsedBlock) -> None:
        """Append the rows of a block."""
        if block.error:
            raise self.wrong_line(block)
        self.add_queries(block)
        if self.docids is not None:
            if np.all(block.docid[:, 0] < block.docid[:, 1]):
                self.docids += [text_of(block.text[a:b]) for a, b in block.docid.tolist()]
            else:
                self.docids = None
        if self.features:
            if block.width > WIDEST:
                raise DataError(
                    f"{self.path}: features go up to {block.width:,}, too many to keep (at most {WIDEST:,})"
                )
            self.tables.append(block.X)
        self.grades.append(block.y)
        self.rows += block.y.size
        self.lines += block.lines

    def add_queries(self, block: ParsedBlock) -> None:
        """Append the queries that begin in a block."""
        for row, line, (a, b) in zip(block.first_row.tolist(), block.first_line, block.qid.tolist(), strict=True):
            qid = block.text[a:b]
            if qid == self.last_qid:  # the query began in the block before
                continue
            if qid in self.qids:
                raise DataError(
                    f"{self.path}, line {self.lines + line + 1}: qid {text_of(qid)} comes back after other queries; "
                    f"the rows of one query must be adjacent"
                )
            self.qids[qid] = None
            self.starts.append(self.rows + row)
            self.last_qid = qid

    def part(self) -> LetorFile:
        """Return what was collected."""
        if not self.rows:
            raise DataError(f"{self.path}: holds no rows; expected lines such as 'GRADE qid:ID FEATURE:VALUE ...'")
        query_ids = [text_of(qid) for qid in self.qids] if self.has_qid else None
        offsets = np.array([*self.starts, self.rows]) if self.has_qid else self.side_offsets()
        return LetorFile(
            offsets=offsets,
            y=np.concatenate(self.grades),
            X=stacked(self.tables, self.rows) if self.features else None,
            query_ids=query_ids,
            item_ids=self.docids,
            sha256=self.digest.hexdigest(),
        )

    def side_offsets(self) -> IntArray:
        """Return the offsets that follow from the sizes in the side file, which become part of the hash."""
        assert self.side_file is not None
        sizes = read_sizes(self.side_file)
        if sum(sizes) != self.rows:
            raise DataError(
                f"{self.path} has {self.rows:,} rows without a qid, but the sizes in {self.side_file.name} add up to "
                f"{sum(sizes):,}"
            )
        self.digest.update(f"sizes {sizes}".encode())
        return np.cumsum([0, *sizes])

    def wrong_line(self, block: ParsedBlock) -> DataError:
        """Return the error for the line of a block at which the parser stopped."""
        token = re.compile(rb"[^\s#]*").match(block.text, block.at)[0]  # type: ignore[index]  # it matches any text
        reason = REASONS[block.error].format(shortened(token))
        if block.error == BAD_VALUE and NOT_FINITE.fullmatch(token):
            reason = f"{shortened(token)} is not a finite number"
        if block.error == NO_QID and self.side_file is None:
            names = " or ".join(f"FILE{suffix}" for suffix in SIDE_FILES)
            reason += f", and no side file {names} that lists the number of rows of each query"
        got = shortened(block.text[block.begin : block.text.index(b"\n", block.begin)].rstrip())
        expected = "GRADE qid:ID FEATURE:VALUE ..." if block.has_qid else "GRADE FEATURE:VALUE ..."
        line = self.lines + block.lines + 1
        return DataError(f"{self.path}, line {line}: expected '{expected}', got {got}: {reason}")


def parse_block(text: bytes, has_qid: bool, features: bool) -> ParsedBlock:
    """Parse a block of whole lines."""
    array = np.frombuffer(text, np.uint8)
    most = text.count(b"\n")
    runs_at_most = most if has_qid else 1
    y, docid, X = np.empty(most, np.int16), np.empty((most, 2), np.int64), np.empty((0, 0), np.float32)
    first_row, first_line = np.empty(runs_at_most, np.int64), np.empty(runs_at_most, np.int64)
    qid = np.empty((runs_at_most, 2), np.int64)
    rows, runs, lines, width, error, at, begin = parse(array, has_qid, y, first_row, first_line, qid, docid, X)
    if features and not error and width <= WIDEST:
        X = np.zeros((rows, width), np.float32)
        parse(array, has_qid, y, first_row, first_line, qid, docid, X)  # again: the width of X is known only now
    return ParsedBlock(
        text,
        has_qid,
        y[:rows].copy(),
        first_row[:runs].copy(),
        first_line[:runs].copy(),
        qid[:runs].copy(),
        docid[:rows].copy(),
        X,
        lines,
        int(width),
        error,
        at,
        begin,
    )


def pieces(path: Path, size: int) -> Iterator[bytes]:
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
    for piece in pieces(path, BLOCK):
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


def read_sizes(path: Path) -> list[int]:
    """Read the numbers of rows of consecutive queries, one per line."""
    sizes = []
    for number, line in enumerate(b"".join(pieces(path, BLOCK)).splitlines(), 1):
        if not (text := line.strip()):
            continue
        if not text.isdigit() or len(text) > 9 or int(text) < 1:
            raise DataError(f"{path}, line {number}: expected the number of rows of a query, got {shortened(line)}")
        sizes.append(int(text))
    return sizes


def stacked(tables: list[npt.NDArray[np.float32]], rows: int) -> npt.NDArray[np.float32]:
    """Stack tables of different widths, releasing each once it is copied."""
    X = np.zeros((rows, max(table.shape[1] for table in tables)), np.float32)
    while tables:
        table = tables.pop()
        X[rows - table.shape[0] : rows, : table.shape[1]] = table
        rows -= table.shape[0]
    return X


def text_of(token: bytes) -> str:
    """Decode a token; bytes that are no UTF-8 are escaped."""
    return token.decode(errors="backslashreplace")


def shortened(text: bytes, most: int = 60) -> str:
    """Quote a piece of a file, which may be long and may be no text."""
    quoted = repr(text[:most].decode(errors="replace"))
    return quoted if len(text) <= most else f"{quoted[:most]}…{quoted[0]}"
