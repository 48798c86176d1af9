"""Boards: the figures of a leaderboard computed from the runs of experiments."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from ..analysis.frontiers import effectiveness_at, hypervolume, unfairness_at
from ..arrays import FloatArray
from ..policies.base import Policy
from ..simulation.setting import Setting
from .experiment import Experiment, Series
from .leaderboard import Board, BoardData, BoardEntry, BoardPoint, Scale, Spread
from .results import Results, setting_key

__all__ = ["BoardBuilder", "Lines", "boards_of", "scale_of"]

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

SMALLEST_FLOOR = 0.01
"""Share of the unfairness of perfect lists below which the floor is no unit."""


# --- figures ---------------------------------------------------------------------------------------------------------


class Lines(msgspec.Struct, frozen=True, kw_only=True):
    """Points of one contestant by dataset and seed: arrays (points,) of unfairness, NDCG and cNDCG of each."""

    unfairness: list[list[FloatArray]]
    ndcg: list[list[FloatArray]]
    cndcg: list[list[FloatArray]]

    def measure(self, figure: Callable[[FloatArray, FloatArray], float], effect: str = "ndcg") -> Spread:
        """Compute a figure of unfairness and effectiveness for every dataset and seed."""
        pairs = zip(self.unfairness, getattr(self, effect), strict=True)
        return Spread.of([[figure(x, y) for x, y in zip(*pair, strict=True)] for pair in pairs])


def scale_of(floors: Sequence[float], perfect: Sequence[float]) -> Scale:
    """Choose the unit: floors, unless some floor is next to nothing beside the unfairness of perfect lists."""
    usable = all(floor > SMALLEST_FLOOR * best for floor, best in zip(floors, perfect, strict=True))
    return SCALES["floor" if usable else "perfect"]


def text_of(level: float) -> str:
    """Return a level as the key of a table."""
    return f"{level:g}"


def figures_of(lines: Lines, limits: Lines, scale: Scale) -> dict[str, object]:
    """Compute what follows from the frontiers of a contestant, given the limits for the same datasets and seeds."""

    def volume(x: FloatArray, y: FloatArray) -> float:
        return hypervolume(x, y, scale.low, scale.high, scale.least)

    own = [
        [volume(x, y) for x, y in zip(*pair, strict=True)] for pair in zip(lines.unfairness, lines.ndcg, strict=True)
    ]
    best = [
        [volume(x, y) for x, y in zip(*pair, strict=True)] for pair in zip(limits.unfairness, limits.ndcg, strict=True)
    ]
    shares = [[a / b if b > 0 else 0.0 for a, b in zip(*pair, strict=True)] for pair in zip(own, best, strict=True)]

    def at(function: Callable[..., float], level: float, effect: str = "ndcg") -> Spread:
        return lines.measure(lambda x, y: function(x, y, level), effect)

    return {
        "hypervolume": Spread.of(shares),
        "least_unfairness": lines.measure(lambda x, _: float(x.min())),
        "ndcg_at": {text_of(level): at(effectiveness_at, level) for level in scale.unfairness_levels},
        "cndcg_at": {text_of(level): at(effectiveness_at, level, "cndcg") for level in scale.unfairness_levels},
        "unfairness_at": {text_of(level): at(unfairness_at, level) for level in scale.ndcg_levels},
    }


# --- boards ----------------------------------------------------------------------------------------------------------


class BoardBuilder:
    """Collect the figures of one experiment in one setting over all its datasets."""

    def __init__(self, results: Results, experiment: Experiment, setting: Setting) -> None:
        self.results, self.experiment, self.setting = results, experiment, setting
        self.seeds = tuple(range(experiment.seeds))
        self.curves: dict[str, list[Series]] = {}
        for series in experiment.series:
            if series.mode in ("", setting.mode):
                self.curves.setdefault(series.name, []).append(series)
        if not self.curves:
            return
        where = next(iter(self.curves.values()))[0].condition(setting)  # limits do not depend on the estimator
        self.floors = [results.floors(name, where)[: experiment.seeds] for name in experiment.data]
        frontiers = [self._frontier(name, where) for name in experiment.data]
        self.perfect = [[float(x[-1]) for x, _ in each] for each in frontiers]
        self.scale = scale_of(
            [value for each in self.floors for value in each], [value for each in self.perfect for value in each]
        )
        self.units = self.floors if self.scale.unit == "floor" else self.perfect
        self.limits = Lines(
            unfairness=[
                [x / unit for (x, _), unit in zip(each, units, strict=True)]
                for each, units in zip(frontiers, self.units, strict=True)
            ],
            ndcg=[[y for _, y in each] for each in frontiers],
            cndcg=[[y for _, y in each] for each in frontiers],
        )

    def _frontier(self, name: str, where: Setting) -> list[tuple[FloatArray, FloatArray]]:
        rows = self.results.frontier.filter(data=name, setting=setting_key(where)).sort("seed", "point")
        by_seed = [rows.filter(seed=seed) for seed in self.seeds]
        return [(each["unfairness"].to_numpy(), each["ndcg"].to_numpy()) for each in by_seed]

    def points(self, name: str) -> list[tuple[Policy, Setting]]:
        """Return the policies of a contestant, each with the setting that it was run in."""
        return [(policy, each.condition(self.setting)) for each in self.curves[name] for policy in each.points]

    def values(self, name: str, metric: str) -> list[list[FloatArray]]:
        """Return a metric of a contestant's points by dataset and seed."""
        found = []
        for data in self.experiment.data:
            columns = []
            for policy, where in self.points(name):
                runs = self.results.of(data, where, policy)
                columns.append(runs[metric].to_numpy()[: len(self.seeds)])
            found.append([np.array(each) for each in zip(*columns, strict=True)])
        return found

    def lines(self, name: str) -> Lines:
        """Return the points of a contestant with unfairness in units of the board."""
        k = self.setting.k
        unfair = self.values(name, "unfairness")
        scaled = [[x / unit for x, unit in zip(*pair, strict=True)] for pair in zip(unfair, self.units, strict=True)]
        return Lines(unfairness=scaled, ndcg=self.values(name, f"ndcg@{k}"), cndcg=self.values(name, f"cndcg@{k}"))

    def entry(self, name: str) -> BoardEntry:
        """Build the entry of a contestant."""
        lines, points = self.lines(name), self.points(name)
        unfair = self.values(name, "unfairness")

        def spread(values: list[list[FloatArray]], i: int) -> Spread:
            return Spread.of([[float(each[i]) for each in by_seed] for by_seed in values])

        listed = tuple(
            BoardPoint(
                policy=repr(policy),
                unfairness=spread(unfair, i),
                relative_unfairness=spread(lines.unfairness, i),
                ndcg=spread(lines.ndcg, i),
                cndcg=spread(lines.cndcg, i),
            )
            for i, (policy, _) in enumerate(points)
        )
        policy, where = points[0]
        estimator = repr(where.estimator_for(policy)) if where.mode == "online" else ""
        figures = figures_of(lines, self.limits, self.scale)
        commands = tuple(self.command(name, data) for data in self.experiment.data)
        built = {"name": name, "estimator": estimator, "points": listed, "commands": commands}
        return BoardEntry(**built, **figures, microseconds=self.microseconds(name))  # type: ignore[arg-type]

    def microseconds(self, name: str) -> float | None:
        """Return the time of a session on the first dataset, if it was measured for one of the policies."""
        times = [self.results.seconds(self.experiment.data[0], where, policy) for policy, where in self.points(name)]
        return next((1000.0 * each for each in times if each is not None), None)  # s per 1,000 lists to µs per list

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

    def limit(self) -> BoardEntry:
        """Build the entry of the limit for known relevance."""
        figures = figures_of(self.limits, self.limits, self.scale)
        return BoardEntry(name="limit", estimator="", points=(), commands=(), **figures)  # type: ignore[arg-type]

    def build(self) -> Board:
        """Build the board."""
        entries = sorted(map(self.entry, self.curves), key=lambda each: (-(each.hypervolume.mean or 0.0), each.name))
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
        return Board(
            name=f"{self.experiment.name}, {self.setting.mode}",
            experiment=self.experiment.name,
            key=hashlib.sha256(msgspec.json.encode(same, order="sorted")).hexdigest()[:16],
            preset=self.experiment.preset,
            setting=plain,
            seeds=self.seeds,
            data=about,
            scale=self.scale,
            limit=self.limit(),
            entries=tuple(entries),
        )


def boards_of(results: Results) -> list[Board]:
    """Build a board for each experiment that is shown as a frontier, in each of its settings.

    Parameters
    ----------
    results
        The runs.

    Returns
    -------
    list of Board
    """
    builders = [
        BoardBuilder(results, experiment, setting)
        for experiment in results.experiments
        if experiment.show == "frontier"
        for setting in experiment.conditions
    ]
    return [builder.build() for builder in builders if builder.curves]
