"""The LETOR reader: files are read in blocks of whole lines, which a compiled kernel parses, checking every token.

One thread reads, decompresses and hashes, others parse. So memory stays near the size of what is kept, whatever the
size of the file.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import zlib
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..arrays import IntArray
from ..errors import DataError
from .grades import GradeArray
from .letor_parser import BAD_VALUE, NO_QID, REASONS, parse

__all__ = ["LetorFile", "content_sum", "read_letor_file"]

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
