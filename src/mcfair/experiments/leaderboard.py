"""Leaderboards: the frontiers of policies on some data in one setting, as figures that can be stored and compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from ..errors import TraceError

__all__ = [
    "Board",
    "BoardData",
    "BoardEntry",
    "BoardPoint",
    "Leaderboard",
    "Scale",
    "Spread",
    "merge_boards",
    "read_leaderboard",
    "write_leaderboard",
]

FORMAT = 1
"""Version of the format of the file."""


class Scale(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How unfairness is counted on a board, and where frontiers are compared.

    `low`, `high` and `least` are the corner of the hypervolume: two levels of unfairness and an average NDCG.
    """

    unit: str
    low: float
    high: float
    least: float
    unfairness_levels: tuple[float, ...]
    ndcg_levels: tuple[float, ...]


class Spread(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A figure over datasets: of each the mean over seeds, None where a seed did not reach it; mean and population std.

    Mean and std are None unless the figure was reached on all datasets.
    """

    mean: float | None
    std: float | None
    each: tuple[float | None, ...]

    @classmethod
    def of(cls, by_data: Sequence[Sequence[float]]) -> Spread:
        """Build the spread of values by dataset and seed, nan where a level was not reached."""
        each = [float(np.mean(values)) for values in by_data]
        reached = not any(map(math.isnan, each))
        return cls(
            mean=float(np.mean(each)) if reached else None,
            std=float(np.std(each)) if reached else None,
            each=tuple(None if math.isnan(value) else value for value in each),
        )

    @property
    def reached(self) -> int:
        """On how many datasets it was reached."""
        return sum(value is not None for value in self.each)


class BoardPoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One policy of an entry: unfairness as it is and in units of the board, NDCG and cNDCG of the whole list."""

    policy: str
    unfairness: Spread
    relative_unfairness: Spread
    ndcg: Spread
    cndcg: Spread


class BoardEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A contestant: its frontier and what follows from it; levels are keys as text."""

    name: str
    estimator: str
    hypervolume: Spread
    least_unfairness: Spread
    ndcg_at: dict[str, Spread]
    cndcg_at: dict[str, Spread]
    unfairness_at: dict[str, Spread]
    points: tuple[BoardPoint, ...]
    commands: tuple[str, ...]
    microseconds: float | None = None


class BoardData(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A dataset of a board, with the limits for its visits, means over seeds."""

    name: str
    fingerprint: str
    queries: int
    items: int
    floor: float
    perfect: float


class Board(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Contestants on the same data, in the same setting, with the same seeds; the best hypervolume first."""

    name: str
    experiment: str
    key: str
    preset: str
    setting: dict[str, object]
    seeds: tuple[int, ...]
    data: tuple[BoardData, ...]
    scale: Scale
    limit: BoardEntry
    entries: tuple[BoardEntry, ...]


class Leaderboard(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All boards, and how their figures were made: command, machine and versions."""

    format: int
    made_with: dict[str, str]
    boards: tuple[Board, ...]


# --- files -----------------------------------------------------------------------------------------------------------


def merge_boards(old: Sequence[Board], new: Sequence[Board]) -> list[Board]:
    """Put the entries of new boards beside those of old boards with the same key; other old boards are kept.

    An entry replaces an older one of the same name.
    """
    by_key = {board.key: board for board in old}
    for board in new:
        names = {entry.name for entry in board.entries}
        kept = [entry for entry in by_key[board.key].entries if entry.name not in names] if board.key in by_key else []
        entries = sorted([*kept, *board.entries], key=lambda each: (-(each.hypervolume.mean or 0.0), each.name))
        by_key[board.key] = msgspec.structs.replace(board, entries=tuple(entries))
    return list(by_key.values())


def read_leaderboard(file: Path) -> Leaderboard | None:
    """Read a leaderboard; None if there is no such file.

    Raises
    ------
    TraceError
        If the file is not a leaderboard of this format.
    """
    try:
        found = msgspec.json.decode(file.read_bytes(), type=Leaderboard)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise TraceError(f"{file} is not a leaderboard: {error}; write to another folder or remove it") from None
    if found.format != FORMAT:
        raise TraceError(f"{file} has format {found.format}, and this version reads format {FORMAT}")
    return found


def write_leaderboard(file: Path, boards: Sequence[Board], made_with: dict[str, str]) -> None:
    """Write a leaderboard, whole or not at all.

    Raises
    ------
    TraceError
        If the file cannot be written.
    """
    content = Leaderboard(format=FORMAT, made_with=made_with, boards=tuple(boards))
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(".draft")
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(content)) + b"\n")
        draft.replace(file)
    except OSError as error:
        raise TraceError(f"cannot write {file}: {error.strerror or error}") from None
