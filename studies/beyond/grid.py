"""What is run: the contestants on short and on long lists, under variations, and with users who behave otherwise."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import mcfair as mf

FOLDS = tuple(f"mq2008/fold{i}" for i in range(1, 6))
SMALL, LONG = "mq2008-like", "istella-s-like"
"""Built-in data: in place of MQ2008 where that is not found, and with long lists."""

LONG_ITEMS = {"min_items": 100, "max_items": 105}
"""Bounds that leave 231 of the 6,600 queries with long lists: as many visits each as in the other data."""

LONG_STEPS = 100_000

USERS = (
    "PositionBased(severity=0.5)",
    "PositionBased(severity=1)",
    "PositionBased(severity=2)",
    "PositionBased(noise=0.1, severity=1)",
    "TrustBias(severity=1)",
    "Cascade(stop=0.7)",
    "DBN(satisfaction=0.7, continuation=0.9)",
)
"""Users of the study of wrong assumptions."""

ASSUMED = (0.5, 1.0, 2.0)
"""Severities of the position bias that exposure assumes in that study."""

LOG_SEED, LOG_SHARE = 1_000_003, 10
"""Seed of the log that the examination is fitted from, which no run has, and by how much it is shorter than a run."""


class Contestant(mf.Series, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A curve of the comparison; slow ones are left out where lists are long and in the quick version."""

    slow: bool = False


class Contestants(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The policies of the comparison and of the study of wrong assumptions."""

    compare_with: str
    contestants: tuple[Contestant, ...]
    studied: tuple[mf.Series, ...]

    def series(self, *, slow: bool) -> tuple[mf.Series, ...]:
        """Return the curves, with or without the slow ones."""
        return tuple(each for each in self.contestants if slow or not each.slow)


@dataclasses.dataclass(frozen=True)
class Grid:
    """The experiments by how they are shown, and the datasets that they name."""

    frontiers: list[mf.Experiment]
    conditions: list[mf.Experiment]
    assumptions: list[mf.Experiment]
    data: dict[str, mf.Dataset]

    @property
    def experiments(self) -> list[mf.Experiment]:
        """All experiments."""
        return [*self.frontiers, *self.conditions, *self.assumptions]


def contestants() -> Contestants:
    """Read the list of contestants."""
    text = Path(__file__).with_name("contestants.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), Contestants)


@cache
def short_lists() -> dict[str, mf.Dataset]:
    """Return the folds of MQ2008 that are on this machine, or built-in data of their size."""
    found = {}
    for name in FOLDS:
        with suppress(mf.DataError):
            found[name] = mf.open_data(name, preset="wsdm23", features=True)
    return found or {SMALL: mf.open_data(SMALL)}


def experiment(**fields: Any) -> mf.Experiment:
    """Return an experiment whose runs are shown by the study itself; the package has no times to measure for it."""
    return mf.Experiment(**{"show": "tradeoff", **fields})


def frontiers(series: Sequence[mf.Series] | None, also: Sequence[str], *, quick: bool) -> Grid:
    """Return the experiments whose frontiers are compared, for the contestants or for other series.

    Parameters
    ----------
    series
        The curves; None for the contestants.
    also
        Further data with long lists: paths or names.
    quick
        Whether to reduce them to the data, points, seeds and sessions that a minute or two allow.
    """
    listed, folds = contestants(), short_lists()
    short = dict(list(folds.items())[: 2 if quick else None])
    preset = "" if SMALL in short else "wsdm23"
    common: dict[str, Any] = {"compare_with": "" if series else listed.compare_with}
    first = experiment(
        name="frontier",
        title="Frontiers: short lists",
        about="""Each curve is one policy with growing weight of fairness. Unfairness is counted in fairness floors, \
the lowest possible for the same visits, so that folds can be averaged.""",
        data=tuple(short),
        preset=preset,
        settings=("post-processing", "online"),
        seeds=5,
        series=tuple(series or listed.series(slow=not quick)),
        **common,
    )
    long = experiment(
        name="frontier-long",
        title="Frontiers: long lists",
        about="""About a hundred candidates for five ranks. Exposure in proportion to relevance is possible here, so \
the floor is 0 and cannot be a unit: unfairness is counted relative to the fairest lists of perfect NDCG.""",
        data=(LONG,),
        **LONG_ITEMS,
        settings=tuple({"mode": mode, "steps": LONG_STEPS} for mode in ("post-processing", "online")),
        seeds=3,
        series=tuple(series or listed.series(slow=False)),
        **common,
    )
    own = msgspec.structs.replace(long, min_items=None, max_items=None)
    more = [
        msgspec.structs.replace(own, name=f"frontier-also-{i}", title=f"Frontiers: {name}", data=(name,))
        for i, name in enumerate(also, start=1)
    ]
    data = short | {name: mf.open_data(name) for name in also} | {LONG: mf.open_data(LONG, **LONG_ITEMS)}
    if not quick:
        return Grid([first, long, *more], [], [], data)
    reduced = [each.reduced(seeds=2, points=4, shorter=4) for each in (long, *more)]
    return Grid([first.reduced(seeds=2, points=5, shorter=2), *reduced], [], [], data)


def whole(also: Sequence[str] = (), *, quick: bool = False) -> Grid:
    """Return all experiments of the study; the parameters are those of `frontiers`."""
    grid = frontiers(None, also, quick=quick)
    first = grid.frontiers[0]
    name = first.data[0]
    data = grid.data[name]
    varied, variants = robustness(name, data, first.preset, quick=quick)
    return Grid(grid.frontiers, varied, [assumptions(name, data, first.preset, quick=quick)], grid.data | variants)


# --- variations of the data and of the length of runs ----------------------------------------------------------------


def robustness(
    name: str, data: mf.Dataset, preset: str, *, quick: bool
) -> tuple[list[mf.Experiment], dict[str, mf.Dataset]]:
    """Return the experiments that vary the sessions and the relevance of a dataset, and the varied datasets."""
    sessions = (1_000, 10_000) if quick else (10_000, 100_000, 1_000_000)
    common: dict[str, Any] = {"seeds": 3, "preset": preset, "series": contestants().series(slow=False)}
    length = experiment(
        name="sessions",
        title="Robustness: shorter and longer runs",
        about="The same comparison when there are fewer or more sessions to learn from.",
        data=(name,),
        settings=tuple({"mode": "online", "steps": steps} for steps in sessions),
        **common,
    )
    continuous = experiment(
        name="continuous",
        title="Robustness: continuous relevance",
        about="The relevance of every item is moved by up to 0.15, so that hardly two items are alike.",
        data=(f"{name} (continuous)",),
        settings=("post-processing", {"mode": "online", "steps": sessions[1]}),
        **common,
    )
    noisy = experiment(
        name="noisy",
        title="Robustness: noisy grades",
        about="""A fifth of the grades that policies see are one grade off, while users and figures keep to the truth. \
Online nothing would change: there policies see clicks alone.""",
        data=(f"{name} (noisy)",),
        settings=("post-processing",),
        **common,
    )
    variants = {f"{name} (continuous)": continuous_relevance(data), f"{name} (noisy)": noisy_grades(data)}
    size = {"seeds": 2 if quick else 3, "points": 3 if quick else 9, "shorter": 1}
    return [each.reduced(**size) for each in (length, continuous, noisy)], variants


def continuous_relevance(data: mf.Dataset, width: float = 0.15) -> mf.Dataset:
    """Return data whose relevance is moved by up to a width, up or down, and stays between 0.01 and 1."""
    pool, _ = data.pool()
    moved = pool.R + width * (2.0 * np.random.default_rng(1).random(pool.items) - 1.0)
    return variant(pool, "continuous", R=np.clip(moved, 0.01, 1.0))


def noisy_grades(data: mf.Dataset, share: float = 0.2) -> mf.Dataset:
    """Return data in which policies see a share of the grades one too high or too low; the truth is kept."""
    pool, _ = data.pool()
    rng = np.random.default_rng(2)
    wrong = rng.random(pool.items) < share
    step = np.where(rng.random(pool.items) < 0.5, -1, 1)
    y = np.where(wrong, pool.y + step, pool.y)
    y = np.where((y < 0) | (y > pool.y_max), pool.y - step * wrong, y)  # at an end there is one way only
    grades, first = np.unique(pool.y, return_index=True)
    return variant(pool, "noisy", scores=np.interp(y, grades, pool.R[first]))


def variant(data: mf.Dataset, name: str, **changes: Any) -> mf.Dataset:
    """Return the same queries with some arrays replaced, as data of its own."""
    return dataclasses.replace(data, name=f"{data.name} ({name})", fingerprint="", **changes)


# --- wrong assumptions -----------------------------------------------------------------------------------------------


def assumptions(name: str, data: mf.Dataset, preset: str, *, quick: bool) -> mf.Experiment:
    """Return the study of users who behave otherwise than exposure assumes, with one fit of their examination each."""
    steps = 5_000 if quick else 100_000
    settings = []
    for clicks in USERS[1::4] if quick else USERS:
        log = mf.simulate(
            data,
            "RandomK",
            "online",
            steps=steps // LOG_SHARE,
            clicks=clicks,
            seed=LOG_SEED,
            record=True,
            checkpoints=1,
        )
        fitted = mf.fit_examination(log, "ctr", resamples=1)  # lists in random order
        settings += [{"clicks": clicks, "examination": p} for p in (*ASSUMED, fitted.falling.tolist())]
    return experiment(
        name="assumptions",
        title="Wrong assumptions about users",
        about=f"""Online, exposure and relevance are computed from an assumption: the probability that users examine \
each rank, here (1/log2(j + 1))^s with severity s. What does it cost if users behave otherwise? True unfairness \
counts the exposure that these users really give to every list; NDCG has the usual discount whatever is assumed. \
"Fitted" assumes what the click rates of {steps // LOG_SHARE:,} sessions of lists in random order say, which is right \
if examination depends on the rank alone.""",
        data=(name,),
        preset=preset,
        settings=tuple({"mode": "online", "steps": steps, **each} for each in settings),
        metrics=("true_unfairness", "log_ndcg@5"),
        seeds=2 if quick else 5,
        series=contestants().studied,
    )
