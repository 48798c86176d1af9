"""Search by simulation for the value of a policy's parameter that meets a target such as "unfairness <= 25"."""

from __future__ import annotations

import dataclasses
import math
import os
import re
import warnings
from collections.abc import Callable
from html import escape
from types import UnionType
from typing import Annotated, Any, Union, Unpack, get_args, get_origin

import msgspec
import numpy as np

from ..analysis.limits import lowest_possible
from ..data.dataset import Dataset
from ..data.folds import open_data
from ..errors import MCFairError, MCFairWarning, PolicyError, SettingError, checked, unknown
from ..metrics.base import Metric, metric_label, parse_metric
from ..metrics.exposure import Unfairness
from ..options import explicit_options
from ..parts import parameter_types
from ..policies.base import Policy
from ..simulation.run import evaluation_pool
from ..simulation.setting import Setting, SettingOptions, make_setting
from ..tables import Table, format_number
from .execute import Task, execute

GRID = (*(float(f"{digit}e{exponent}") for exponent in range(-4, 3) for digit in (1, 3)), 1000.0)
"""Values tried first. MCFair's trade-off lies between 0.1 and 1 with scale "max", that of LP between 0.001 and 0.05."""

Digits = Annotated[int, msgspec.Meta(ge=1, le=9, description="a whole number from 1 to 9")]
Seeds = Annotated[int, msgspec.Meta(ge=1, description="a number of seeds of at least 1")]

NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
TARGET = re.compile(rf"\s*([^<>=\s](?:[^<>]*[^<>=\s])?)\s*(<=|>=)\s*({NUMBER})\s*(\*\s*floor)?\s*", re.ASCII)


# --- targets ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """A bound on one metric of a run: the number itself, or, `of_floor`, times the fairness floor."""

    metric: Metric
    number: float
    of_floor: bool

    def missed_by(self, figures: dict[str, float], floor: float) -> float:
        """Return how far the figure is on the wrong side of the bound; at most 0 if the target is met."""
        bound, figure = self.number * floor if self.of_floor else self.number, figures[repr(self.metric)]
        return bound - figure if self.metric.higher_is_better else figure - bound


def parse_target(text: str) -> Target:
    """Parse a target on a metric of a run.

    Examples
    --------
    >>> parse_target("unfairness <= 1.1 * floor").number
    1.1
    """
    match = TARGET.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise SettingError(
            f"cannot parse target {text!r}: expected a metric, <= or >=, and a number, such as 'ndcg@5 >= 0.98', "
            "'unfairness <= 25' or 'unfairness <= 1.1 * floor'"
        )
    name, relation, number, of_floor = match.groups()
    try:
        metric = parse_metric(name)
    except MCFairError as error:
        raise SettingError(f"target {text!r}: {error}") from None
    if relation != (">=" if metric.higher_is_better else "<="):
        better = f"more {name} is better, use >=" if metric.higher_is_better else f"less {name} is better, use <="
        raise SettingError(f"target {text!r} bounds {name} from the wrong side: {better}")
    if of_floor is not None and metric.floor_among is None:
        raise SettingError(
            f"target {text!r}: no floor of {name} is known, only of unfairness and group_unfairness; use a number"
        )
    if not math.isfinite(float(number)):
        raise SettingError(f"target {text!r}: expected a finite number, got {number}")
    return Target(metric=metric, number=float(number), of_floor=of_floor is not None)


# --- values ----------------------------------------------------------------------------------------------------------


def is_number(hint: Any) -> bool:
    """Return whether a parameter is a number, perhaps beside words such as "auto"."""
    if get_origin(hint) in (Union, UnionType):
        return any(is_number(each) for each in get_args(hint))
    return (get_args(hint) or (hint,))[0] in (int, float)


def values_to_try(policy: Policy, parameter: str, low: float | None, high: float | None) -> list[float]:
    """Return the values of the grid that a parameter may have between two bounds, by default its own, ascending."""
    name, hints = type(policy).__name__, parameter_types(type(policy))
    numbers = [each for each, hint in hints.items() if is_number(hint)]
    if parameter not in hints:
        raise PolicyError(unknown(f"parameter of {name}", parameter, numbers))
    if parameter not in numbers:
        raise PolicyError(f"{name}: {parameter} is not a number and cannot be tuned; numbers: {', '.join(numbers)}")
    hint = hints[parameter]
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    bounds = [meta for each in options for meta in get_args(each) if isinstance(meta, msgspec.Meta)]
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
    """Return the middle of two values, on a log scale if both are positive, rounded to significant digits.

    A middle below `least` is rounded to as many decimals as `least`; else halving towards 0 would never end.

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
    """Result of `tune`.

    Attributes
    ----------
    policy : Policy
        The policy with the value found.
    parameter, value : str, float
        The parameter, and its value.
    figures : dict
        Its figures, mean over seeds, by metric, such as "unfairness" and "ndcg@5".
    floor : float
        The lowest possible value of `floor_metric` on the same visits, mean over seeds.
    floor_metric : str
        The bounded metric if its floor is known, such as "group_unfairness"; otherwise "unfairness".
    met : bool
        Whether the target is met; if not, no value tried met it, and this one came closest.
    runs : list of (value, figures)
        All values tried, in order.
    target, metric : str
        The target, and the metric that it bounds.

    Examples
    --------
    >>> data = Dataset(offsets=[0, 3], y=[2, 1, 0])
    >>> found = tune(data, "MCFair(beta=0)", "unfairness <= 1.5 * floor", steps=50, k=2, seeds=1)
    >>> found.met, found.value, found.figures["unfairness"] <= 1.5 * found.floor
    (True, 0.341, True)
    """

    policy: Policy
    parameter: str
    value: float
    figures: dict[str, float]
    floor: float
    floor_metric: str
    met: bool
    runs: list[tuple[float, dict[str, float]]]
    target: str
    metric: str

    def __repr__(self) -> str:
        unfair = f"{metric_label(self.floor_metric)} {self.figures[self.floor_metric]:.4g}"
        ndcg = f"ndcg@{self.ranks}"
        return (
            f"Tuning({self.policy!r}, {self.target} {'met' if self.met else 'not met'}: {unfair}, floor "
            f"{self.floor:.4g}, {metric_label(ndcg)} {self.figures[ndcg]:.4g}; {len(self.runs)} values tried)"
        )

    @property
    def ranks(self) -> int:
        """How many ranks the lists had."""
        return max(int(name.removeprefix("ndcg@")) for name in self.figures if name.startswith("ndcg@"))

    def table(self) -> Table:
        """Return the values tried, in order, with their figures; the one found stands out."""
        standard = ("unfairness", "ndcg@1", f"ndcg@{self.ranks}", f"cndcg@{self.ranks}")
        texts, tried = list(dict.fromkeys([*standard, self.metric])), sorted(self.runs)
        rows = []
        for value, figures in tried:
            above = f"{100 * (figures[self.floor_metric] / self.floor - 1):.1f} %" if self.floor > 0 else ""
            rows.append((f"{value:g}", *(format_number(figures[text]) for text in texts), above))
        columns = (self.parameter, *map(metric_label, texts), "above floor")
        found = [value for value, _ in tried].index(self.value)
        return Table(caption=self.target, columns=columns, rows=tuple(rows), row_classes={found: "base"})

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p>{self.table().as_html()}"


@explicit_options(Setting, SettingOptions)
def tune(
    data: Dataset | str | os.PathLike[str],
    policy: Policy | str,
    target: str,
    *,
    parameter: str = "alpha",
    setting: Setting | str = "post-processing",
    seeds: int = 3,
    low: float | None = None,
    high: float | None = None,
    digits: int = 3,
    jobs: int = 1,
    threads: int = 1,
    progress: Callable[[float, dict[str, float]], None] | None = None,
    **options: Unpack[SettingOptions],
) -> Tuning:
    """Search for the value of one parameter that meets a target at the least cost to other figures.

    For a bound on unfairness that is the smallest value that meets it, for a bound on effectiveness the largest: both
    figures are assumed to fall when the parameter grows, as with `alpha`. Values of a grid are tried, beginning at the
    end that is worst for the bounded figure, until one meets the target; then the interval between it and the value
    before is halved. Every value is judged by the mean over the same seeds. If no value of the grid meets the target,
    the closest is returned.

    Figures are noisy and need not be monotone: online, fairness also explores, and NDCG may first rise with `alpha`.
    The value found was run and met the target on these seeds, and the nearest value tried before it missed the target.
    A value that was not tried may do better, and other seeds may miss the target.

    Parameters
    ----------
    data
        The queries, of a fold its test split; or what `open_data` takes: a path, a profile or a catalogue name.
    policy
        A policy or its text; its other parameters are kept.
    target
        "METRIC >= NUMBER" for metrics of which more is better, such as ndcg@5 and cndcg@5, "METRIC <= NUMBER" for
        the others, such as unfairness; or "unfairness <= NUMBER * floor", where floor is that of `fairness_floor` for
        the visits of the runs, or "group_unfairness <= NUMBER * floor" with that of `group_floor`.
    parameter
        Name of the parameter to vary.
    setting, threads, **options
        As for `simulate`.
    seeds
        How many seeds: 0, 1, ...
    low, high
        Bounds of the search; by default those of the parameter, and 0 and 1000 where it has none.
    digits
        Significant digits of the value; below the least positive value of the grid, as many decimals as that has.
    jobs
        How many processes to use on this machine.
    progress
        Called after every value tried, with the value and its figures.

    Returns
    -------
    Tuning

    Raises
    ------
    SettingError, PolicyError, DataError
        If the target, an option, the policy, its parameter or the data are wrong.

    Examples
    --------
    >>> from mcfair import synthetic
    >>> found = tune(synthetic("mq2008-like"), "MCFair(beta=0)", "ndcg@5 >= 0.95", steps=1000, seeds=1)
    >>> found.met, found.figures["ndcg@5"] >= 0.95, found.policy.alpha == found.value
    (True, True, True)
    """
    start, goal = Policy.of(policy), parse_target(target)
    conditions = make_setting(setting, options)
    conditions = dataclasses.replace(conditions, metrics=(*conditions.metrics, goal.metric))
    number, places = checked("seeds", Seeds, seeds, SettingError), checked("digits", Digits, digits, SettingError)
    values = values_to_try(start, parameter, low, high)
    bounded = goal.metric if goal.metric.floor_among is not None else Unfairness()
    if isinstance(data, str | os.PathLike):
        data = open_data(data, features=start.needs_features)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MCFairWarning)  # the runs issue the same ones
        table, judged = evaluation_pool(data)
    runs: dict[float, dict[str, float]] = {}
    floors: list[float] = []

    def missed_by(value: float) -> float:
        if value not in runs:
            varied = dataclasses.replace(start, **{parameter: value})
            tasks = [Task("data", varied, conditions, seed) for seed in range(number)]
            done = execute(tasks, {"data": data}, jobs=jobs, checkpoints=1, threads=threads)
            traces = [trace for _, trace in sorted(done, key=lambda each: each[0].seed)]
            if not runs:  # arrivals do not depend on the policy
                visits = [trace.state.visits * judged for trace in traces]
                p = traces[0].state.p
                floors.extend(lowest_possible(bounded, table, each, p).unfairness for each in visits)
            runs[value] = {
                name: float(np.mean([trace.figures[name] for trace in traces])) for name in traces[0].figures
            }
            if progress is not None:
                progress(value, runs[value])
        return goal.missed_by(runs[value], float(np.mean(floors)))

    value, met = search(values[::-1] if goal.metric.higher_is_better else values, missed_by, places)
    return Tuning(
        policy=dataclasses.replace(start, **{parameter: value}),
        parameter=parameter,
        value=value,
        figures=runs[value],
        floor=float(np.mean(floors)),
        floor_metric=repr(bounded),
        met=met,
        runs=list(runs.items()),
        target=target,
        metric=repr(goal.metric),
    )


def search(values: list[float], missed_by: Callable[[float], float], digits: int) -> tuple[float, bool]:
    """Return the first value that meets a target, refined by halving the interval before it, and whether one does.

    Examples
    --------
    >>> search([1.0, 2.0, 4.0], lambda value: 3 - value, digits=2)
    (3.0, True)
    >>> search([1.0, 2.0], lambda value: 3 - value, digits=2)
    (2.0, False)
    """
    met = next((i for i, value in enumerate(values) if missed_by(value) <= 0), None)
    if met is None:
        return min(values, key=missed_by), False
    value = values[met]
    if met > 0:
        fails, least = values[met - 1], min(abs(each) for each in values if each != 0)
        while min(fails, value) < (middle := between(fails, value, least, digits)) < max(fails, value):
            if missed_by(middle) <= 0:
                value = middle
            else:
                fails = middle
    return value, True
