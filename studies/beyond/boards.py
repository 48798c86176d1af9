"""Boards: the frontiers of policies on some data in one setting, as figures that are stored and compared."""

from __future__ import annotations

import hashlib
import math
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import mcfair as mf
from mcfair.analysis.frontiers import effectiveness_at, hypervolume, unfairness_at

FORMAT = 1
"""Version of the format of the file."""

SMALLEST_FLOOR = 0.01
"""Share of the unfairness of perfect lists below which the floor is no unit."""

Values = list[list[np.ndarray]]
"""A figure of the points of a frontier, by dataset and seed: arrays (points,)."""


class Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the file of a leaderboard is made of."""


class Scale(Stored):
    """How unfairness is counted on a board, and where frontiers are compared.

    `low`, `high` and `least` are the corner of the hypervolume: two levels of unfairness and an average NDCG.
    """

    unit: str
    low: float
    high: float
    least: float
    unfairness_levels: tuple[float, ...]
    ndcg_levels: tuple[float, ...]

    @property
    def unit_name(self) -> str:
        """What unfairness is counted in."""
        return {"floor": "fairness floors", "perfect": "the unfairness of perfect lists"}[self.unit]


SCALES = {
    "floor": Scale(
        unit="floor",
        low=1.0,
        high=2.0,
        least=0.9,
        unfairness_levels=(1.05, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0),
        ndcg_levels=(0.94, 0.95, 0.96, 0.97, 0.98, 0.99),
    ),
    "perfect": Scale(
        unit="perfect",
        low=0.0,
        high=1.0,
        least=0.5,
        unfairness_levels=(0.02, 0.05, 0.1, 0.2, 0.5, 0.8),
        ndcg_levels=(0.6, 0.65, 0.7, 0.75, 0.8, 0.9),
    ),
}
"""Unfairness in fairness floors, or relative to the fairest lists of perfect NDCG where the floor is about 0."""


class Spread(Stored):
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


class BoardPoint(Stored):
    """One policy of an entry: unfairness as it is and in units of the board, NDCG and cNDCG of the whole list."""

    policy: str
    unfairness: Spread
    relative_unfairness: Spread
    ndcg: Spread
    cndcg: Spread


class BoardEntry(Stored):
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


class BoardData(Stored):
    """A dataset of a board, with the limits for its visits, means over seeds."""

    name: str
    fingerprint: str
    queries: int
    items: int
    floor: float
    perfect: float


class Board(Stored):
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


class Leaderboard(Stored):
    """All boards, and how their figures were made: command, machine and versions."""

    format: int
    made_with: dict[str, str]
    boards: tuple[Board, ...]


# --- figures ---------------------------------------------------------------------------------------------------------


class Lines(msgspec.Struct, frozen=True, kw_only=True):
    """The points of one contestant."""

    unfairness: Values
    ndcg: Values
    cndcg: Values

    def measure(self, figure: Callable[[Any, Any], float], effect: str = "ndcg") -> list[list[float]]:
        """Compute a figure of unfairness and effectiveness for every dataset and seed."""
        pairs = zip(self.unfairness, getattr(self, effect), strict=True)
        return [[figure(x, y) for x, y in zip(*pair, strict=True)] for pair in pairs]


def scale_of(floors: Values, perfect: Values) -> Scale:
    """Choose the unit: floors, unless some floor is next to nothing beside the unfairness of perfect lists."""
    pairs = zip(np.ravel(floors), np.ravel(perfect), strict=True)
    return SCALES["floor" if all(floor > SMALLEST_FLOOR * best for floor, best in pairs) else "perfect"]


def figures_of(lines: Lines, limits: Lines, scale: Scale) -> dict[str, Any]:
    """Compute what follows from the frontiers of a contestant, given the limits for the same datasets and seeds."""

    def volume(x: np.ndarray, y: np.ndarray) -> float:
        return hypervolume(x, y, scale.low, scale.high, scale.least)

    def at(function: Callable[..., float], levels: Sequence[float], effect: str = "ndcg") -> dict[str, Spread]:
        return {
            f"{level:g}": Spread.of(lines.measure(lambda x, y: function(x, y, level), effect))  # noqa: B023
            for level in levels
        }

    pairs = zip(lines.measure(volume), limits.measure(volume), strict=True)
    shares = [[a / b if b > 0 else 0.0 for a, b in zip(*pair, strict=True)] for pair in pairs]
    return {
        "hypervolume": Spread.of(shares),
        "least_unfairness": Spread.of(lines.measure(lambda x, _: float(x.min()))),
        "ndcg_at": at(effectiveness_at, scale.unfairness_levels),
        "cndcg_at": at(effectiveness_at, scale.unfairness_levels, "cndcg"),
        "unfairness_at": at(unfairness_at, scale.ndcg_levels),
    }


def scaled(values: Values, units: Values) -> Values:
    """Divide by the unit of each dataset and seed."""
    return [[x / unit for x, unit in zip(*pair, strict=True)] for pair in zip(values, units, strict=True)]


# --- boards ----------------------------------------------------------------------------------------------------------


def canonical(setting: mf.Setting) -> str:
    """Return a setting as the tables of results hold it: canonical JSON."""
    return msgspec.json.encode(setting.to_dict(), order="sorted").decode()


class BoardBuilder:
    """Collect the figures of one experiment in one setting over all its datasets."""

    def __init__(self, results: mf.Results, experiment: mf.Experiment, setting: mf.Setting) -> None:
        self.results, self.experiment, self.setting = results, experiment, setting
        self.seeds = tuple(range(experiment.seeds))
        self.curves: dict[str, list[mf.Series]] = {}
        for series in experiment.series:
            if series.mode in ("", setting.mode):
                self.curves.setdefault(series.name, []).append(series)
        if not self.curves:
            return
        where = next(iter(self.curves.values()))[0].condition(setting)  # limits do not depend on the estimator
        self.floors: Values = [np.array(results.floors(name, where)[: experiment.seeds]) for name in experiment.data]
        frontiers = [self._frontier(name, where) for name in experiment.data]
        self.perfect: Values = [np.array([float(x[-1]) for x, _ in each]) for each in frontiers]
        self.scale = scale_of(self.floors, self.perfect)
        self.units = self.floors if self.scale.unit == "floor" else self.perfect
        best = [[y for _, y in each] for each in frontiers]
        limits = scaled([[x for x, _ in each] for each in frontiers], self.units)
        self.limits = Lines(unfairness=limits, ndcg=best, cndcg=best)

    def _frontier(self, name: str, where: mf.Setting) -> list[tuple[np.ndarray, np.ndarray]]:
        rows = self.results.frontier.filter(data=name, setting=canonical(where)).sort("seed", "point")
        by_seed = [rows.filter(seed=seed) for seed in self.seeds]
        return [(each["unfairness"].to_numpy(), each["ndcg"].to_numpy()) for each in by_seed]

    def points(self, name: str) -> list[tuple[mf.Policy, mf.Setting]]:
        """Return the policies of a contestant, each with the setting that it was run in."""
        return [(policy, each.condition(self.setting)) for each in self.curves[name] for policy in each.points]

    def values(self, name: str, metric: str) -> Values:
        """Return a metric of a contestant's points by dataset and seed."""
        found = []
        for data in self.experiment.data:
            runs = [self.results.of(data, where, policy) for policy, where in self.points(name)]
            found.append(list(np.array([each[metric].to_numpy()[: len(self.seeds)] for each in runs]).T))
        return found

    def lines(self, name: str) -> Lines:
        """Return the points of a contestant with unfairness in units of the board."""
        k, unfair = self.setting.k, self.values(name, "unfairness")
        ndcg, cndcg = self.values(name, f"ndcg@{k}"), self.values(name, f"cndcg@{k}")
        return Lines(unfairness=scaled(unfair, self.units), ndcg=ndcg, cndcg=cndcg)

    def entry(self, name: str, microseconds: float | None = None) -> BoardEntry:
        """Build the entry of a contestant."""
        lines, points = self.lines(name), self.points(name)
        columns = {
            "unfairness": self.values(name, "unfairness"),
            "relative_unfairness": lines.unfairness,
            "ndcg": lines.ndcg,
            "cndcg": lines.cndcg,
        }

        def point(i: int, policy: mf.Policy) -> BoardPoint:
            spreads = {
                column: Spread.of([[float(each[i]) for each in by_seed] for by_seed in values])
                for column, values in columns.items()
            }
            return BoardPoint(policy=repr(policy), **spreads)

        policy, where = points[0]
        return BoardEntry(
            name=name,
            estimator=repr(where.estimator_for(policy)) if where.mode == "online" else "",
            points=tuple(point(i, policy) for i, (policy, _) in enumerate(points)),
            commands=tuple(self.command(name, data) for data in self.experiment.data),
            microseconds=microseconds,
            **figures_of(lines, self.limits, self.scale),
        )

    def command(self, name: str, data: str) -> str:
        """Return the command that runs the policies of a contestant on one dataset."""
        experiment, points = self.experiment, self.points(name)
        policy, setting = points[0]
        words = ["mcfair", "simulate", "--data", data]
        words += ["--preset", experiment.preset] if experiment.preset else []
        words += ["--min-items", str(experiment.min_items)] if experiment.min_items is not None else []
        words += ["--max-items", str(experiment.max_items)] if experiment.max_items is not None else []
        words += ["--setting", setting.mode, "--steps", str(setting.steps), "--seeds", str(experiment.seeds)]
        words += ["--estimator", repr(setting.estimator_for(policy))] if setting.mode == "online" else []
        for each, _ in points:
            words += ["--policy", repr(each)]
        return shlex.join(words)

    def build(self, times: dict[str, float] | None = None) -> Board:
        """Build the board; `times` are the microseconds per session of the contestants."""
        entries = [self.entry(name, (times or {}).get(name)) for name in self.curves]
        about = tuple(
            BoardData(
                name=name,
                fingerprint=self.results.datasets[name].fingerprint,
                queries=self.results.datasets[name].queries,
                items=self.results.datasets[name].items,
                floor=float(np.mean(self.floors[i])),
                perfect=float(np.mean(self.perfect[i])),
            )
            for i, name in enumerate(self.experiment.data)
        )
        plain = self.setting.to_dict()
        same = [plain | {"estimator": ""}, list(self.seeds), [each.fingerprint for each in about]]
        limits = figures_of(self.limits, self.limits, self.scale)
        return Board(
            name=f"{self.experiment.name}, {self.setting.mode}",
            experiment=self.experiment.name,
            key=hashlib.sha256(msgspec.json.encode(same, order="sorted")).hexdigest()[:16],
            preset=self.experiment.preset,
            setting=plain,
            seeds=self.seeds,
            data=about,
            scale=self.scale,
            limit=BoardEntry(name="limit", estimator="", points=(), commands=(), **limits),
            entries=ranked(entries),
        )


def ranked(entries: Sequence[BoardEntry]) -> tuple[BoardEntry, ...]:
    """Return entries in the order of a board: the best hypervolume first."""
    return tuple(sorted(entries, key=lambda each: (-(each.hypervolume.mean or 0.0), each.name)))


def builders_of(results: mf.Results, experiment: mf.Experiment) -> list[BoardBuilder]:
    """Return the builder of a board for each setting of an experiment."""
    found = [BoardBuilder(results, experiment, setting) for setting in experiment.conditions]
    return [builder for builder in found if builder.curves]


# --- the file --------------------------------------------------------------------------------------------------------


def merge_boards(old: Sequence[Board], new: Sequence[Board]) -> list[Board]:
    """Put the entries of new boards beside those of old boards with the same key; other old boards are kept.

    An entry replaces an older one of the same name.
    """
    by_key = {board.key: board for board in old}
    for board in new:
        names = {entry.name for entry in board.entries}
        kept = [entry for entry in by_key[board.key].entries if entry.name not in names] if board.key in by_key else []
        by_key[board.key] = msgspec.structs.replace(board, entries=ranked([*kept, *board.entries]))
    return list(by_key.values())


def read_boards(file: Path) -> tuple[Board, ...]:
    """Read the boards of a file; none if there is no such file."""
    try:
        found = msgspec.json.decode(file.read_bytes(), type=Leaderboard)
    except FileNotFoundError:
        return ()
    except (OSError, msgspec.DecodeError) as error:
        raise mf.TraceError(f"{file} is not a leaderboard: {error}; write to another folder or remove it") from None
    if found.format != FORMAT:
        raise mf.TraceError(f"{file} has format {found.format}, and this leaderboard reads format {FORMAT}")
    return found.boards


def write_boards(file: Path, boards: Sequence[Board], made_with: dict[str, str]) -> None:
    """Write a leaderboard, whole or not at all."""
    content = Leaderboard(format=FORMAT, made_with=made_with, boards=tuple(boards))
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(".draft")
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(content)) + b"\n")
        draft.replace(file)
    except OSError as error:
        raise mf.TraceError(f"cannot write {file}: {error.strerror or error}") from None
