"""Contents and encoding of log entries, candidate sets and snapshots."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ...arrays import FloatArray, IntArray
from ..stores import StoreCorruptError

SHOWN, UNSHOWN, CLICKED, UNCLICKED = 1, 2, 4, 8
"""Feedback state of one rank of an impression. Bits are only ever set, so the order and repetition of events do not
matter."""

encode = msgspec.msgpack.Encoder().encode


def is_exposed(bits: int) -> bool:
    """Return whether a rank counts as shown."""
    return bits & (SHOWN | UNSHOWN) == SHOWN


def is_clicked(bits: int) -> bool:
    """Return whether a rank counts as clicked: a click counts only once its rank counts as shown."""
    return bits == SHOWN | CLICKED


def counted_click(bits: int, p: float) -> bool:
    """Return whether a click enters C.

    A click at a rank whose examination probability is 0 is recorded with its impression, but is no evidence: R = C/E
    has no exposure to set it against, and would rise without bound.
    """
    return is_clicked(bits) and bool(p > 0.0)


class Assignment(msgspec.Struct, array_like=True, frozen=True):
    """The arm of an experiment that a list belongs to: 0 is the control, i the i-th arm of the version of the rules.

    `bucket` is that of the session, and `ndcg` and `unfairness` are the figures of the list in fixed-point units. The
    session is not stored, and the figures would take a replay to compute again.
    """

    arm: int
    bucket: int
    ndcg: int
    unfairness: int


class Impression(msgspec.Struct, array_like=True):
    """A list as positions among the candidates, 16 bits each; in shadow mode also the list that the policy chose.

    `epoch` is that of the engine that ranked it, see `mcfair.service.core.ids.Position`; `policy` is the policy if the
    request named one. `newcomer_exposure` is the starting exposure of the newcomers among the candidates: it depends
    on everything observed until then, so it is recorded and never computed again. `reused` are the rows of deleted
    items that newcomers took: which rows are free depends on how far the log was compacted. `assignment` is the arm
    of the experiment, if any.
    """

    shown: bytes
    policy_list: bytes | None
    deferred: bool
    epoch: int
    policy: str | None = None
    newcomer_exposure: float = 0.0
    reused: list[int] = []
    assignment: Assignment | None = None

    @property
    def ranks(self) -> int:
        """Length of the list."""
        return len(self.shown) // 2

    def initial_bits(self) -> bytes:
        """Return the feedback state of its ranks before any feedback."""
        return bytes([0 if self.deferred else SHOWN]) * self.ranks

    def bits(self, feedback: bytes | None, until: int | None = None) -> bytearray:
        """Return the feedback state of its ranks, as it is or as it was after a log entry."""
        bits = bytearray(self.initial_bits())
        for seq, rank, after in [] if feedback is None else decode_feedback(feedback):
            if not (0 <= rank < len(bits) and 0 <= after < 16):
                raise StoreCorruptError(f"the feedback has bits {after} at rank {rank + 1} of {len(bits)}")
            if until is None or seq <= until:
                bits[rank] = after
        return bits


FeedbackHistory = list[tuple[int, int, int]]
"""The feedback on an impression: (sequence number of the log entry, rank, bits after it), in order."""


class BitChanges(msgspec.Struct, array_like=True):
    """The effect of feedback on an impression: (rank, row, bits before, bits after), and the block it counts in."""

    impression: int
    examination: int
    bucket: int
    changes: list[tuple[int, int, int, int]]

    def history(self, seq: int) -> FeedbackHistory:
        """Return the changes as part of the history of the impression."""
        return [(seq, rank, after) for rank, _, _, after in self.changes]


class ImportedCounts(msgspec.Struct, array_like=True):
    """Counts from a log that the service did not write: how often items were shown and clicked at each rank.

    `source` identifies the part of the log, so that it is counted once. `rows` are the rows of the items, `reused`
    those of them that another item had before. The cells are item (position in `rows`), rank from 0, impressions and
    clicks, each a compressed array.
    """

    source: bytes
    visits: int
    rows: bytes
    reused: list[int]
    cells: tuple[bytes, bytes, bytes, bytes]

    @classmethod
    def of(cls, source: bytes, visits: int, rows: IntArray, reused: list[int], cells: IntArray) -> ImportedCounts:
        """Build it from rows and cells, shape (4, cells)."""
        item, rank, shown, clicks = (compress(each.astype(np.uint32)) for each in cells)
        return cls(source, visits, compress(rows.astype(np.uint32)), reused, (item, rank, shown, clicks))

    def candidates(self) -> Candidates:
        """Return the items as candidates without priors."""
        rows = decompress(self.rows, np.uint32).astype(np.int64)
        return Candidates.of(rows, np.full(rows.size, np.nan))

    def counts(self) -> IntArray:
        """Return the cells, shape (4, cells)."""
        return np.array([decompress(each, np.uint32) for each in self.cells], np.int64)


class RecordedImpression(NamedTuple):
    """An impression that a ledger has counted, with the block it counts in and its feedback state."""

    seq: int
    time: int
    examination: int
    bucket: int
    rows: IntArray
    bits: bytes


class Candidates(NamedTuple):
    """The candidates of a request: ledger rows in request order, priors (nan for none) and groups (counted from 0).

    Groups are part of the set because items change their groups, and a repeated decision must see the former ones.
    """

    rows: IntArray
    priors: FloatArray
    have_priors: bool
    rows_needed: int
    groups: IntArray

    @classmethod
    def of(cls, rows: IntArray, priors: FloatArray, groups: IntArray | None = None) -> Candidates:
        """Build candidates from rows, priors and groups; without groups each candidate is its own."""
        alone = np.arange(rows.size) if groups is None else groups
        return cls(rows, priors, not np.isnan(priors).all(), int(rows.max()) + 1, alone)

    @property
    def nbytes(self) -> int:
        """Size in memory."""
        return 600 + self.rows.nbytes + self.priors.nbytes + self.groups.nbytes

    def packed(self) -> bytes:
        """Encode the candidates."""
        priors = self.priors.tobytes() if self.have_priors else b""
        grouped = bool((self.groups != np.arange(self.rows.size)).any())
        groups = self.groups.astype(np.uint16).tobytes() if grouped else b""
        return self.rows.astype(np.uint32).tobytes() + priors + groups + bytes([self.have_priors + 2 * grouped])

    @classmethod
    def unpacked(cls, body: bytes, n: int) -> Candidates:
        """Decode n candidates."""
        flags = body[-1] if body else 0
        have_priors, grouped = flags & 1, flags & 2
        if n < 1 or len(body) != 1 + n * (4 + 8 * have_priors + grouped):
            raise StoreCorruptError(f"{len(body)} bytes do not encode {n} candidates")
        rows = np.frombuffer(body, np.uint32, n).astype(np.int64)
        priors = np.frombuffer(body, np.float64, n, 4 * n).copy() if have_priors else np.full(n, np.nan)
        groups = np.frombuffer(body, np.uint16, n, 12 * n if have_priors else 4 * n) if grouped else None
        return cls.of(rows, priors, None if groups is None else groups.astype(np.int64))

    def rows_at(self, positions: IntArray) -> IntArray:
        """Return the rows at stored positions among the candidates."""
        if positions.size and positions.max() >= self.rows.size:
            raise StoreCorruptError(f"a list has position {positions.max()} of {self.rows.size} candidates")
        return self.rows[positions]


class Snapshot(msgspec.Struct, array_like=True):
    """The state of a ledger after a log entry.

    Blocks are (examination, bucket, since, ranks, F, C, pending F, pending C). `first_pending` is the first impression
    that has not matured and `pending_since` its time, under the maturation in force (in ms). `used` is the last
    impression that had each row among its candidates. `imports` are the sources whose counts are included.
    """

    seq: int
    time: int
    visits: int
    rows: int
    deleted: list[int]
    priors: bytes
    used: bytes
    newcomer_exposure: bytes
    newcomer_times: bytes
    maturation: int
    first_pending: int
    pending_since: int | None
    blocks: list[tuple[int, int, int, int, bytes, bytes, bytes, bytes]]
    imports: list[bytes] = []

    def packed(self) -> Snapshot:
        """Return this snapshot, whose arrays are raw bytes, with compressed ones."""
        arrays = {name: zlib.compress(getattr(self, name), 1) for name in ARRAYS}
        blocks = [(*each[:4], *(zlib.compress(part, 1) for part in each[4:])) for each in self.blocks]
        return msgspec.structs.replace(self, blocks=blocks, **arrays)


def decoder(kind: Any, name: str) -> Callable[[bytes], Any]:
    """Return the decoder of a kind of record, which raises StoreCorruptError for anything else."""
    decode = msgspec.msgpack.Decoder(kind).decode

    def decode_record(body: bytes) -> Any:
        try:
            return decode(body)
        except (msgspec.MsgspecError, ValueError, TypeError) as error:
            raise StoreCorruptError(f"{name} cannot be decoded: {error}") from error

    return decode_record


decode_impression: Callable[[bytes], Impression] = decoder(Impression, "an impression")
decode_flips: Callable[[bytes], BitChanges] = decoder(BitChanges, "feedback")
decode_snapshot: Callable[[bytes], Snapshot] = decoder(Snapshot, "a snapshot")
decode_feedback: Callable[[bytes], FeedbackHistory] = decoder(FeedbackHistory, "the feedback state of an impression")
decode_import: Callable[[bytes], ImportedCounts] = decoder(ImportedCounts, "an import")
decode_rows: Callable[[bytes], list[int]] = decoder(list[int], "a deletion")


def encode_positions(places: IntArray) -> bytes:
    """Encode positions among the candidates, 16 bits each."""
    return places.astype(np.uint16).tobytes()


def decode_positions(packed: bytes) -> IntArray:
    """Decode positions among the candidates."""
    if not packed or len(packed) % 2:
        raise StoreCorruptError(f"{len(packed)} bytes do not encode a list")
    return np.frombuffer(packed, np.uint16).astype(np.int64)


ARRAYS = ("priors", "used", "newcomer_exposure", "newcomer_times")
"""Fields of a snapshot that are arrays, besides the blocks."""


def raw_bytes(values: npt.NDArray[np.generic]) -> bytes:
    """Copy an array."""
    return np.ascontiguousarray(values).tobytes()


def compress(values: npt.NDArray[np.generic]) -> bytes:
    """Compress an array: most counts are small, and many priors are equal."""
    return zlib.compress(raw_bytes(values), 1)


def decompress(body: bytes, kind: type[np.generic]) -> npt.NDArray[np.generic]:
    """Decompress an array."""
    return np.frombuffer(zlib.decompress(body), kind)
