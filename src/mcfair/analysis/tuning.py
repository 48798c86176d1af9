"""Find the value of a policy's parameter that meets a target, such as "unfairness <= 1.1 * floor", by simulation."""

from __future__ import annotations

import dataclasses
import math
import re
import warnings
from collections.abc import Callable
from typing import Annotated, Any, get_args

import msgspec
import numpy as np

from ..data.dataset import Dataset
from ..data.folds import Fold
from ..errors import MCFairError, MCFairWarning, PolicyError, SettingError, checked, unknown
from ..policies.base import Policy, parameter_types, parse_policy
from ..simulation.run import Setting, make_setting, played, simulate
from ..simulation.trace import Trace
from .limits import fairness_floor

__all__ = ["Tuning", "tune"]

GRID = (*(float(f"{digit}e{exponent}") for exponent in range(-4, 3) for digit in (1, 3)), 1000.0)
"""Values tried first; MCFair's trade-off lies between 0.1 and 1 if its scale is "max", LP's between 0.001 and 0.05."""

Digits = Annotated[int, msgspec.Meta(ge=1, le=9, description="a whole number from 1 to 9")]
Seeds = Annotated[int, msgspec.Meta(ge=1, description="how many seeds to run, at least 1")]

NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
TARGET = re.compile(rf"\s*([\w@]+)\s*(<=|>=)\s*({NUMBER})\s*(\*\s*floor)?\s*", re.ASCII)


# --- targets ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """A bound on one figure of a run: the number itself, or, `of_floor`, times the fairness floor."""

    metric: str
    number: float
    of_floor: bool

    @property
    def for_fairness(self) -> bool:
        """Whether it is a bound on unfairness from above; else it is one on effectiveness from below."""
        return self.metric.endswith("unfairness")

    def missed_by(self, figures: dict[str, float], floor: float) -> float:
        """How far the figure is on the wrong side of the bound; at most 0 if it is met."""
        bound = self.number * floor if self.of_floor else self.number
        return figures[self.metric] - bound if self.for_fairness else bound - figures[self.metric]


def parse_target(text: str, ranks: int) -> Target:
    """Read a target on the figures of runs with so many ranks.

    Examples
    --------
    >>> parse_target("unfairness <= 1.1 * floor", ranks=5).number
    1.1
    """
    match = TARGET.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise SettingError(
            f"cannot read target {text!r}: expected a metric, <= or >=, and a number, such as 'ndcg@5 >= 0.98', "
            "'unfairness <= 25' or 'unfairness <= 1.1 * floor'"
        )
    metric, relation, number, of_floor = match.groups()
    metrics = [
        "unfairness",
        "relative_unfairness",
        *(f"{name}@{k}" for name in ("ndcg", "cndcg") for k in range(1, ranks + 1)),
    ]
    if metric not in metrics:
        raise SettingError(f"target {text!r}: {unknown('metric', metric, metrics)}")
    target = Target(metric=metric, number=float(number), of_floor=of_floor is not None)
    if relation != ("<=" if target.for_fairness else ">="):
        sense = "less unfairness is better, use <=" if target.for_fairness else f"more {metric} is better, use >="
        raise SettingError(f"target {text!r} bounds {metric} from the wrong side: {sense}")
    if target.of_floor and metric != "unfairness":
        raise SettingError(f"target {text!r}: floor is the least unfairness and no bound on {metric}; use a number")
    if not math.isfinite(target.number):
        raise SettingError(f"target {text!r}: expected a finite number, got {number}")
    return target


# --- values ----------------------------------------------------------------------------------------------------------


def values_to_try(policy: Policy, parameter: str, low: float | None, high: float | None) -> list[float]:
    """Values of the grid that a parameter may have between two ends, which by default are its own, ascending."""
    name, hints = type(policy).__name__, parameter_types(type(policy))
    numbers = [each for each, hint in hints.items() if (get_args(hint) or (hint,))[0] in (int, float)]
    if parameter not in hints:
        raise PolicyError(unknown(f"parameter of {name}", parameter, numbers))
    if parameter not in numbers:
        raise PolicyError(f"{name}: {parameter} is not a number and cannot be tuned; numbers: {', '.join(numbers)}")
    hint = hints[parameter]
    bounds = [each for each in get_args(hint) if isinstance(each, msgspec.Meta)]
    own = [end for each in bounds for end in (each.ge, each.le) if end is not None]
    values = set()
    for value in (0.0, *GRID, *own):
        try:
            values.add(checked(parameter, hint, value, PolicyError))
        except MCFairError:
            continue  # not allowed for this parameter
    low = min(values, default=math.nan) if low is None else checked(f"{name}: low", hint, low, SettingError)
    high = max(values, default=math.nan) if high is None else checked(f"{name}: high", hint, high, SettingError)
    if not -math.inf < low < high < math.inf:
        raise SettingError(f"low = {low} and high = {high}: expected finite numbers, low below high")
    return sorted({low, high} | {value for value in values if low < value < high})


def between(a: float, b: float, least: float, digits: int) -> float:
    """Give the middle of two values, on a log scale if both are positive, with so many significant digits.

    Digits are those of `least` for anything smaller, or there would be no end of values above 0.

    Examples
    --------
    >>> between(1.0, 3.0, least=0.01, digits=3), between(0.0, 0.01, least=0.01, digits=3), between(2, 9, 1, digits=3)
    (1.73, 0.005, 4)
    """
    middle = math.sqrt(a * b) if min(a, b) > 0 else (a + b) / 2
    if isinstance(a, int):
        return round(middle)
    return round(middle, digits - 1 - math.floor(math.log10(max(abs(middle), least))))


# --- search ----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Tuning:
    """What `tune` found.

    Attributes
    ----------
    policy : Policy
        The policy with the value found.
    value : float
    figures : dict
        What it achieved, mean over seeds, by metric: "unfairness", "relative_unfairness", "ndcg@1", ..., "cndcg@1", ...
    floor : float
        The least unfairness that any policy can reach on the same visits, mean over seeds.
    met : bool
        Whether it meets the target; if not, no value tried did, and this one came closest.
    runs : list of (value, figures)
        All values tried, in order.
    target : str
    """

    policy: Policy
    value: float
    figures: dict[str, float]
    floor: float
    met: bool
    runs: list[tuple[float, dict[str, float]]]
    target: str

    def __repr__(self) -> str:
        ranks = max(int(name.removeprefix("ndcg@")) for name in self.figures if name.startswith("ndcg@"))
        return (f"Tuning({self.policy!r}, {self.target} {'met' if self.met else 'not met'}: unfairness "
                f"{self.figures['unfairness']:.4g}, floor {self.floor:.4g}, NDCG@{ranks} "
                f"{self.figures[f'ndcg@{ranks}']:.4g}; {len(self.runs)} values tried)")  # fmt: skip


def figures_of(trace: Trace) -> dict[str, float]:
    """Figures at the end of a run by the names that targets use."""
    return {
        "unfairness": trace.unfairness,
        "relative_unfairness": trace.relative_unfairness,
        **{f"ndcg@{k}": value for k, value in trace.ndcg.items()},
        **{f"cndcg@{k}": value for k, value in trace.cndcg.items()},
    }


def tune(
    data: Dataset | Fold,
    policy: Policy | str,
    target: str,
    *,
    parameter: str = "alpha",
    setting: Setting | str = "post-processing",
    seeds: int = 3,
    preset: str | None = None,
    low: float | None = None,
    high: float | None = None,
    digits: int = 3,
    threads: int = 1,
    progress: Callable[[float, dict[str, float]], None] | None = None,
    **changes: Any,
) -> Tuning:
    """Find the value of one parameter that meets a target and costs the other side least.

    For a bound on unfairness that is the smallest value that meets it, for one on effectiveness the largest: unfairness
    and effectiveness are taken to fall when the parameter grows, as with `alpha`. A grid is walked from the end that is
    best for the other side until a value meets the target; then the interval between it and the value before is halved.
    Every value is judged by the mean over the same seeds. If no value of the grid meets the target, the closest is
    returned.

    Figures are noisy and need not be monotone: online, fairness also explores, and NDCG may first rise with `alpha`.
    What holds is that the value found was run and met the target on these seeds, and that the nearest value tried on
    its cheaper side missed it. A value that was not tried may do better, and other seeds may miss the target.

    Parameters
    ----------
    data
        The queries; of a fold, its test split.
    policy
        A policy or its text; its other parameters are kept.
    target
        "METRIC <= NUMBER" for unfairness and relative_unfairness, "METRIC >= NUMBER" for ndcg@k and cndcg@k, or
        "unfairness <= NUMBER * floor", where floor is that of `fairness_floor` for the visits of the runs.
    parameter
        Which parameter to vary.
    setting, preset, threads, **changes
        As for `simulate`.
    seeds
        How many seeds: 0, 1, ...
    low, high
        Between which values to search; by default between the parameter's own bounds, and no further than 0 and 1000
        where it has none.
    digits
        Significant digits of the value; below the least positive value of the grid, as many decimals as that has.
    progress
        Called after every value tried, with the value and its figures.

    Returns
    -------
    Tuning

    Examples
    --------
    >>> from mcfair import synthetic
    >>> found = tune(synthetic("mq2008-like"), "MCFair(beta=0)", "ndcg@5 >= 0.95", steps=1000, seeds=1)
    >>> found.met, found.figures["ndcg@5"] >= 0.95, found.policy.alpha == found.value
    (True, True, True)
    """
    start = parse_policy(policy) if isinstance(policy, str) else policy
    if not isinstance(start, Policy):
        raise PolicyError(f"expected a policy or its text, got {policy!r}")
    conditions = make_setting(setting, preset, changes)
    number, places = checked("seeds", Seeds, seeds, SettingError), checked("digits", Digits, digits, SettingError)
    values = values_to_try(start, parameter, low, high)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MCFairWarning)  # simulate gives the same ones
        table, judged = played(data, preset)
    goal = parse_target(target, min(conditions.k_s, int(table.sizes.max())))
    runs: dict[float, dict[str, float]] = {}
    floors: list[float] = []  # arrivals do not depend on the policy: one floor for each seed

    def missed_by(value: float) -> float:
        if value not in runs:
            varied, figures = dataclasses.replace(start, **{parameter: value}), []  # type: ignore[type-var]
            for seed in range(number):
                trace = simulate(data, varied, conditions, seed=seed, preset=preset, checkpoints=1, threads=threads)
                figures.append(figures_of(trace))
                if len(floors) < number:
                    floors.append(fairness_floor(table, trace.state.visits * judged, trace.state.p).unfairness)
            runs[value] = {name: float(np.mean([each[name] for each in figures])) for name in figures[0]}
            if progress is not None:
                progress(value, runs[value])
        return goal.missed_by(runs[value], float(np.mean(floors)))

    met, fails = False, None
    for value in values if goal.for_fairness else values[::-1]:
        if met := missed_by(value) <= 0:
            break
        fails = value
    if not met:
        value = min(runs, key=missed_by)
    elif fails is not None:
        least = min(abs(each) for each in values if each != 0)
        while min(fails, value) < (middle := between(fails, value, least, places)) < max(fails, value):
            if missed_by(middle) <= 0:
                value = middle
            else:
                fails = middle
    return Tuning(
        policy=dataclasses.replace(start, **{parameter: value}),  # type: ignore[type-var]
        value=value, figures=runs[value], floor=float(np.mean(floors)), met=met,
        runs=list(runs.items()), target=target,
    )  # fmt: skip
