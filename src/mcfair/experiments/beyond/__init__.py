"""The comparison beyond the paper: who takes part, on which data, and what is varied besides.

`contestants.toml` lists the policies; here are the data, the settings and the variations that all of them meet.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from importlib import resources
from typing import Any

import msgspec
import numpy as np

from ...analysis.propensities import fit_propensities, run_counts
from ...data.catalogue import CATALOGUE, locate
from ...data.dataset import Dataset, relevance
from ...errors import DataError
from ...random import DATA, draws, uniforms
from ...simulation.run import simulate
from ..experiment import Experiment, Series
from ..tasks import open_experiments

__all__ = ["Beyond", "Contestants", "beyond", "contestants", "frontier_experiments"]

SMALL, LONG = "mq2008-like", "istella-s-like"
"""Built-in data: in place of MQ2008 where that is not found, and with long lists."""

LONG_ITEMS = (100, 105)
"""Bounds on the items of the queries with long lists, which leave 231 of 6,600 queries: as many visits each as in
the other data, in a run of equal length."""

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

LOG_SEED = 1_000_003
"""Seed of the log that the examination is fitted from: no run that is evaluated has it."""

LOG_SHARE = 10
"""The log for the fit has one session in place of so many of a run."""


class Contestant(Series, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A curve of the comparison; slow ones are left out where lists are long and in the quick version."""

    slow: bool = False


class Contestants(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The policies of the comparison and of the study of wrong assumptions."""

    compare_with: str
    contestants: tuple[Contestant, ...]
    studied: tuple[Series, ...]

    def series(self, *, slow: bool) -> tuple[Series, ...]:
        """Return the curves, with or without the slow ones."""
        return tuple(each for each in self.contestants if slow or not each.slow)


def contestants() -> Contestants:
    """Read the list of contestants, which ships with the package.

    Returns
    -------
    Contestants

    Examples
    --------
    >>> contestants().compare_with in [each.name for each in contestants().contestants]
    True
    """
    text = (resources.files(__package__) / "contestants.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), Contestants)


@dataclasses.dataclass(frozen=True)
class Beyond:
    """The experiments of the comparison, and the datasets that they name."""

    experiments: list[Experiment]
    data: dict[str, Dataset]


def found_folds() -> list[str]:
    """Return the names of the catalogued folds that are on this machine."""
    found = []
    for name in CATALOGUE:
        with suppress(DataError):
            locate(name)
            found.append(name)
    return found


def frontier_experiments(series: tuple[Series, ...] | None, also: Sequence[str], *, quick: bool) -> list[Experiment]:
    """Return the experiments whose frontiers are compared, for the contestants or for other series.

    Parameters
    ----------
    series
        The curves; None for the contestants.
    also
        Further data with long lists: paths or names.
    quick
        Whether to reduce them to the data, points, seeds and sessions that a minute allows.
    """
    listed = contestants()
    folds = found_folds()
    short = (folds[:2] if quick else folds) or [SMALL]
    common: dict[str, Any] = {"show": "frontier", "compare_with": "" if series else listed.compare_with}
    first = Experiment(
        name="frontier",
        title="Frontiers: short lists",
        about="""Each curve is one policy with growing weight of fairness. Unfairness is counted in fairness floors, \
the lowest possible for the same visits, so that folds can be averaged.""",
        data=tuple(short),
        preset="wsdm23" if folds else "",
        settings=("post-processing", "online"),
        seeds=5,
        series=series or listed.series(slow=not quick),
        **common,
    )
    long = Experiment(
        name="frontier-long",
        title="Frontiers: long lists",
        about="""About a hundred candidates for five ranks. Exposure in proportion to relevance is possible here, so \
the floor is 0 and cannot be a unit: unfairness is counted relative to the fairest lists of perfect NDCG.""",
        data=(LONG,),
        min_items=LONG_ITEMS[0],
        max_items=LONG_ITEMS[1],
        settings=tuple({"mode": mode, "steps": LONG_STEPS} for mode in ("post-processing", "online")),
        seeds=3,
        series=series or listed.series(slow=False),
        **common,
    )
    own = msgspec.structs.replace(long, min_items=None, max_items=None)
    more = [
        msgspec.structs.replace(own, name=f"frontier-also-{i}", title=f"Frontiers: {name}", data=(name,))
        for i, name in enumerate(also, start=1)
    ]
    if not quick:
        return [first, long, *more]
    return [
        first.reduced(seeds=2, points=5, shorter=2),
        *(each.reduced(seeds=2, points=4, shorter=4) for each in (long, *more)),
    ]


def beyond(also: Sequence[str] = (), *, quick: bool = False) -> Beyond:
    """Return all experiments of the comparison beyond the paper and their data.

    Parameters
    ----------
    also
        Further data with long lists: paths or names.
    quick
        Whether to reduce everything to what a minute allows.

    Returns
    -------
    Beyond

    Raises
    ------
    DataError
        If data cannot be opened.
    """
    frontiers = frontier_experiments(None, also, quick=quick)
    data = open_experiments(frontiers)
    name = frontiers[0].data[0]
    varied, variants = robustness(name, data[name], frontiers[0].preset, quick=quick)
    study = assumptions(name, data[name], frontiers[0].preset, quick=quick)
    return Beyond([*frontiers, *varied, study], data | variants)


# --- variations of the data and of the length of runs ----------------------------------------------------------------


def robustness(name: str, data: Dataset, preset: str, *, quick: bool) -> tuple[list[Experiment], dict[str, Dataset]]:
    """Return the experiments that vary the sessions and the relevance of a dataset, and the varied datasets."""
    listed = contestants()
    variants = {f"{name} (continuous)": continuous_relevance(data), f"{name} (noisy)": noisy_grades(data)}
    sessions = (1_000, 10_000) if quick else (10_000, 100_000, 1_000_000)
    common: dict[str, Any] = {"show": "conditions", "seeds": 2 if quick else 3, "preset": preset}
    series = listed.series(slow=False)
    length = Experiment(
        name="sessions",
        title="Robustness: shorter and longer runs",
        about="The same comparison when there are fewer or more sessions to learn from.",
        data=(name,),
        settings=tuple({"mode": "online", "steps": steps} for steps in sessions),
        series=series,
        **common,
    )
    continuous = Experiment(
        name="continuous",
        title="Robustness: continuous relevance",
        about="The relevance of every item is moved by up to 0.15, so that hardly two items are alike.",
        data=(f"{name} (continuous)",),
        settings=("post-processing", {"mode": "online", "steps": sessions[1]}),
        series=series,
        **common,
    )
    noisy = Experiment(
        name="noisy",
        title="Robustness: noisy grades",
        about="""A fifth of the grades that policies see are one grade off, while users and figures keep to the truth. \
Online nothing would change: there policies see clicks alone.""",
        data=(f"{name} (noisy)",),
        settings=("post-processing",),
        series=series,
        **common,
    )
    points = 3 if quick else 9
    return [each.reduced(seeds=3, points=points, shorter=1) for each in (length, continuous, noisy)], variants


def continuous_relevance(data: Dataset, width: float = 0.15) -> Dataset:
    """Return data whose relevance is moved by up to a width, up or down, and stays between 0.01 and 1."""
    pool, _ = data.pool()
    moved = pool.R + width * (2.0 * uniforms(draws(0, DATA, visit=1), pool.items) - 1.0)
    return varied_copy(pool, R=np.clip(moved, 0.01, 1.0), name=f"{pool.name} (continuous)")


def noisy_grades(data: Dataset, share: float = 0.2) -> Dataset:
    """Return data in which policies see a share of the grades one too high or too low; the truth is kept."""
    pool, _ = data.pool()
    wrong = uniforms(draws(0, DATA, visit=2), pool.items) < share
    step = np.where(uniforms(draws(0, DATA, visit=3), pool.items) < 0.5, -1, 1)
    y = np.where(wrong, pool.y + step, pool.y)
    y = np.where((y < 0) | (y > pool.y_max), pool.y - step * wrong, y)  # at an end there is one way only
    return varied_copy(pool, scores=relevance(y, pool.y_max), name=f"{pool.name} (noisy)")


def varied_copy(data: Dataset, **changes: Any) -> Dataset:
    """Return the same queries with some arrays replaced, as data of its own."""
    kept = {"y": data.y, "y_max": data.y_max, "R": data.R, "X": data.X, "places": data.places}
    ids = {"query_ids": data.query_ids, "item_ids": data.item_ids, "protocol": data.protocol}
    return Dataset(offsets=data.offsets, **{**kept, **ids, **changes})


# --- wrong assumptions -----------------------------------------------------------------------------------------------


def assumptions(name: str, data: Dataset, preset: str, *, quick: bool) -> Experiment:
    """Return the study of users who behave otherwise than exposure assumes, with one fit of their examination each."""
    steps = 5_000 if quick else 100_000
    users = USERS[1::4] if quick else USERS
    settings = []
    for clicks in users:
        log = simulate(
            data,
            "RandomK",
            "online",
            steps=steps // LOG_SHARE,
            clicks=clicks,
            seed=LOG_SEED,
            record=True,
            checkpoints=1,
        )
        fitted = fit_propensities(run_counts(log), "ctr", resamples=1)  # lists in random order
        settings += [{"clicks": clicks, "examination": p} for p in (*ASSUMED, fitted.falling.tolist())]
    return Experiment(
        name="assumptions",
        title="Wrong assumptions about users",
        about=f"""Online, exposure and relevance are computed from an assumption: the probability that users examine \
each rank, here (1/log2(j + 1))^s with severity s. What does it cost if users behave otherwise? True unfairness \
counts the exposure that these users really give to every list; NDCG has the usual discount whatever is assumed. \
"Fitted" assumes what the click rates of {steps // LOG_SHARE:,} sessions of lists in random order say, which is right \
if examination depends on the rank alone.""",
        show="assumptions",
        data=(name,),
        preset=preset,  # type: ignore[arg-type]  # one of the presets of an experiment
        settings=tuple({"mode": "online", "steps": steps, **each} for each in settings),
        metrics=("true_unfairness", "log_ndcg@5"),
        seeds=2 if quick else 5,
        series=contestants().studied,
    )
