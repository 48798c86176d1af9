"""The compiled parser of LETOR rows: kernels over a block of bytes.

A block ends with a line feed, which stops every loop.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .._jit import kernel
from ..arrays import IntArray
from .grades import HIGHEST_GRADE, GradeArray

__all__ = ["REASONS", "parse", "scaled"]

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
