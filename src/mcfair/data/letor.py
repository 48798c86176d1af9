"""The LETOR reader: files are read in blocks of whole lines, which a compiled kernel parses, checking every token.

One thread reads, unpacks and hashes, others parse. So memory stays near the size of what is kept, whatever the size of
the file.
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

from .._jit import kernel
from ..arrays import IntArray
from ..errors import DataError

__all__ = ["Part", "content_sum", "read_part"]

BLOCK = 2**22
LONGEST_LINE = 2**24  # a "line" longer than this is no text, and looking for its end could fill the memory
WIDEST = 2**14  # features are kept as a table, so one stray index must not make it gigabytes wide
HIGHEST_GRADE = 1000  # 2**grade must be finite


# ---------------------------------------------------------------------------------------------------------------------
# The parser: kernels over a block of bytes that ends with a line feed, which therefore stops every loop

LF, SPACE, HASH, PLUS, MINUS, POINT, COLON, EQUALS, ZERO, NINE, SMALL_E, BIG_E = b"\n #+-.:=09eE"
QID, DOCID = np.frombuffer(b"qid:", np.uint8), np.frombuffer(b"docid", np.uint8)
POWERS = np.array([float(f"1e{k}") for k in range(23)])  # the powers of ten that a float64 holds exactly
FULL = 10**17  # a mantissa below it has room for another digit
FAR = np.int64(2**40)  # indices and exponents beyond it are all the same
HUGE = float(np.finfo(np.float32).max)
FINE, BAD_GRADE, NEGATIVE_GRADE, NO_QID, BAD_INDEX, INDEX_ORDER, BAD_VALUE = range(7)
REASONS = (
    "",
    f"grade {{}} is not a whole number from 0 to {HIGHEST_GRADE}",
    "grade {} is negative",
    "no qid:ID after the grade",
    "{} does not begin with a feature's number, counted from 1",
    "{} comes after a feature with the same or a higher number",
    "{} has no number as its value",
)
NOT_FINITE = re.compile(rb"\d+:[+-]?(nan|inf(inity)?|\d+\.?\d*(e\+?\d+)?)", re.IGNORECASE)


@kernel
def is_digit(byte):  # type: ignore[no-untyped-def]
    """Whether a byte is one of 0 to 9."""
    return ZERO <= byte <= NINE


@kernel
def is_space(byte):  # type: ignore[no-untyped-def]
    """Whether a byte is white space; a line feed is."""
    return byte == SPACE or 9 <= byte <= 13


@kernel
def is_end(byte):  # type: ignore[no-untyped-def]
    """Whether a byte ends a token."""
    return byte == HASH or is_space(byte)


@kernel
def begins(text, i, word):  # type: ignore[no-untyped-def]
    """Whether a word stands at i."""
    for j in range(word.shape[0]):  # noqa: SIM110  # Numba compiles no generators in `all`
        if text[i + j] != word[j]:
            return False
    return True


@kernel
def scaled(mantissa, scale):  # type: ignore[no-untyped-def]
    """Return mantissa · 10**scale, correctly rounded when it has at most 15 digits and |scale| is at most 22."""
    x = float(mantissa)
    while scale > 0 and x != 0.0 and not np.isinf(x):
        step = min(scale, 22)
        x *= POWERS[step]
        scale -= step
    while scale < 0 and x != 0.0:
        step = min(-scale, 22)
        x /= POWERS[step]
        scale += step
    return x


@kernel
def parse(text, y, first_row, first_line, qid, docid, X):  # type: ignore[no-untyped-def]
    """Parse and check a block of whole lines.

    Fills y with the grade of each row; for each run of rows with one qid its first row, first line and where the qid
    begins and ends; for each row where its docid begins and ends; and X, unless that has no rows. Gives the number of
    rows, runs and lines, the highest feature index, what was wrong, and where the wrong token and its line begin.

    Numbers are read in the middle of it all: handing an array to another kernel counts references with two atomic
    operations, which for every token would double the time.
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

            if tokens == 2:
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
            if tokens > 2:
                while is_digit(text[i]):
                    index = min(10 * index + (text[i] - ZERO), FAR)
                    i += 1
                if index == 0 or text[i] != COLON:
                    return rows, runs, lines, width, BAD_INDEX, at, begin
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
                if X.shape[0] > 0 or scale > 280:  # below that nothing is infinite, and nobody asks for the value
                    value = scaled(mantissa, scale)
                    if np.isinf(value):
                        return rows, runs, lines, width, BAD_VALUE, at, begin
                    if X.shape[0] > 0:
                        value = min(value, HUGE)
                        X[rows, index - 1] = -value if negative else value

        if tokens == 1:
            return rows, runs, lines, width, NO_QID, i, begin
        if tokens > 1:
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


# ---------------------------------------------------------------------------------------------------------------------
# Reading files


class Part(NamedTuple):
    """What one file holds, and the SHA-256 of its unpacked bytes."""

    offsets: IntArray
    y: npt.NDArray[np.int16]
    X: npt.NDArray[np.float32] | None
    query_ids: list[str]
    item_ids: list[str] | None
    sha256: str


def pieces(path: Path, size: int) -> Iterator[bytes]:
    """Give the unpacked bytes of a file, so many at a time; what is wrong with it is a DataError."""
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


class Block(NamedTuple):
    """A block of whole lines as the parser leaves it; see `parse`."""

    text: bytes
    y: npt.NDArray[np.int16]
    first_row: IntArray
    first_line: IntArray
    qid: IntArray
    docid: IntArray
    X: npt.NDArray[np.float32]
    lines: int
    width: int
    wrong: int
    at: int
    begin: int


def parsed(text: bytes, features: bool) -> Block:
    """Parse a block of whole lines."""
    array = np.frombuffer(text, np.uint8)
    most = array.size // 8 + 1  # no row is shorter than "0 qid:1" and its line feed
    y, first_row, first_line = np.empty(most, np.int16), np.empty(most, np.int64), np.empty(most, np.int64)
    qid, docid, X = np.empty((most, 2), np.int64), np.empty((most, 2), np.int64), np.empty((0, 0), np.float32)
    rows, runs, lines, width, wrong, at, begin = parse(array, y, first_row, first_line, qid, docid, X)
    if features and not wrong and width <= WIDEST:
        X = np.zeros((rows, width), np.float32)
        parse(array, y, first_row, first_line, qid, docid, X)  # again: how wide X must be is known only now
    return Block(
        text, y[:rows].copy(), first_row[:runs].copy(), first_line[:runs].copy(), qid[:runs].copy(),
        docid[:rows].copy(), X, lines, width, wrong, at, begin,
    )  # fmt: skip


def read_part(path: Path, *, features: bool = False, block_size: int = BLOCK) -> Part:
    """Read a LETOR file, so many bytes at a time."""
    digest = hashlib.sha256()

    def texts() -> Iterator[bytes]:
        rest = b""
        for piece in pieces(path, block_size):
            digest.update(piece)
            cut = piece.rfind(b"\n") + 1
            if cut:
                yield b"".join((rest, memoryview(piece)[:cut]))
                rest = piece[cut:]
            elif len(rest := rest + piece) > LONGEST_LINE:
                raise DataError(f"{path}: not a LETOR file: it has a line of more than {LONGEST_LINE:,} bytes")
        if rest:
            yield rest + b"\n"

    def blocks() -> Generator[Block, None, None]:
        parsed(b"\n", features)  # compiles, which several threads had better not do at once
        workers = min(os.cpu_count() or 1, 4)  # more would wait for the one thread that reads and hashes
        with ThreadPoolExecutor(workers) as pool:
            coming: deque[Future[Block]] = deque()
            for text in texts():
                coming.append(pool.submit(parsed, text, features))
                if len(coming) > workers:
                    yield coming.popleft().result()
            while coming:
                yield coming.popleft().result()

    grades: list[npt.NDArray[np.int16]] = []
    tables: list[npt.NDArray[np.float32]] = []
    starts: list[int] = []
    qids: dict[bytes, None] = {}
    docids: list[str] | None = []
    last = b""
    rows = lines = 0
    with closing(blocks()) as each_block:
        for block in each_block:
            if block.wrong:
                raise wrong_line(path, lines + block.lines + 1, block)
            for row, line, (a, b) in zip(block.first_row.tolist(), block.first_line, block.qid.tolist(), strict=True):
                qid = block.text[a:b]
                if qid == last:  # the query goes on from the block before
                    continue
                if qid in qids:
                    raise DataError(
                        f"{path}, line {lines + line + 1}: qid {text_of(qid)} comes back after other queries; "
                        f"the rows of one query must stand together"
                    )
                qids[qid] = None
                starts.append(rows + row)
                last = qid
            if docids is not None:
                if np.all(block.docid[:, 0] < block.docid[:, 1]):
                    docids += [text_of(block.text[a:b]) for a, b in block.docid.tolist()]
                else:
                    docids = None
            if features:
                if block.width > WIDEST:
                    raise DataError(f"{path}: features go up to {block.width:,}, too many to keep (at most {WIDEST:,})")
                tables.append(block.X)
            grades.append(block.y)
            rows += block.y.size
            lines += block.lines
    if not rows:
        raise DataError(f"{path}: holds no rows; expected lines such as 'GRADE qid:ID FEATURE:VALUE ...'")
    return Part(
        offsets=np.array([*starts, rows], dtype=np.int64),
        y=np.concatenate(grades),
        X=stacked(tables, rows) if features else None,
        query_ids=[text_of(qid) for qid in qids],
        item_ids=docids,
        sha256=digest.hexdigest(),
    )


def stacked(tables: list[npt.NDArray[np.float32]], rows: int) -> npt.NDArray[np.float32]:
    """Put tables of different widths below one another, letting each go once it is copied."""
    X = np.zeros((rows, max(table.shape[1] for table in tables)), np.float32)
    while tables:
        table = tables.pop()
        X[rows - table.shape[0] : rows, : table.shape[1]] = table
        rows -= table.shape[0]
    return X


def text_of(token: bytes) -> str:
    """Decode a piece of a file, whatever it is."""
    return token.decode(errors="backslashreplace")


def wrong_line(path: Path, line: int, block: Block) -> DataError:
    """Say what is wrong with a line."""
    token = re.compile(rb"[^\s#]*").match(block.text, block.at)[0]  # type: ignore[index]
    reason = REASONS[block.wrong]
    if block.wrong == BAD_VALUE and NOT_FINITE.fullmatch(token):
        reason = "{} is not a finite number"
    got = shortened(block.text[block.begin : block.text.index(b"\n", block.begin)].rstrip())
    return DataError(
        f"{path}, line {line}: expected 'GRADE qid:ID FEATURE:VALUE ...', got {got}: {reason.format(shortened(token))}"
    )


def shortened(text: bytes, most: int = 60) -> str:
    """Quote a piece of a file, which may be long and may be no text."""
    quoted = repr(text[:most].decode(errors="replace"))
    return quoted if len(text) <= most else f"{quoted[:most]}…{quoted[0]}"
