"""Experiments as data: which policies are simulated on which data in which settings, and how it is shown."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import msgspec

from ..data.catalogue import CATALOGUE, locate
from ..data.letor import path_exists, pieces
from ..errors import DataError, MCFairError, SettingError, choices, field_names, hint_at, unknown
from ..policies.base import Policy, parse_policies
from ..simulation.setting import Setting, make_setting


class Paper(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Figures of the paper for a series: mean and standard deviation of unfairness, seconds per 1,000 lists."""

    unfairness: tuple[float, float] | None = None
    seconds: float | None = None


class Series(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """Policies that belong together: the points of one curve, in order, or one row each of a table.

    Parameters
    ----------
    policies
        Texts of policies; a list of values in one is a policy for each value: "MCFair(alpha=[0, 1, 10], beta=0)". Or
        policies themselves, which need not be registered.
    label
        Name of the series in tables and figures; by default the name of its policies.
    mode
        Run it in this mode only.
    estimator
        Text of its own estimator, used online instead of the setting's.
    paper
        Figures of the paper to compare with.
    note
        Why they differ.

    Examples
    --------
    >>> series = Series(policies=("MCFair(alpha=[0.1, 1])", "TopK"), label="ours")
    >>> series.name, [policy.label for policy in series.points]
    ('ours', ['MCFair(alpha=0.1)', 'MCFair', 'TopK'])
    """

    policies: tuple[Any, ...]
    label: str = ""
    mode: Literal["", "post-processing", "online"] = ""
    estimator: str = ""
    paper: Paper | None = None
    note: str = ""

    @cached_property
    def points(self) -> list[Policy]:
        """The policies, one for each value in a list of values."""
        given = self.policies
        return [p for each in given for p in ([each] if isinstance(each, Policy) else parse_policies(each))]

    @property
    def name(self) -> str:
        """The label, or the name of the policies."""
        return self.label or type(self.points[0]).__name__

    def condition(self, setting: Setting) -> Setting:
        """Return a setting with the estimator of the series; where relevance is given, nothing is estimated."""
        if not self.estimator or setting.mode != "online":
            return setting
        return make_setting(setting, {"estimator": self.estimator})


class Experiment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """A grid of runs, data × settings × policies × seeds, and the form in which they are shown.

    Parameters
    ----------
    name, title, about
        A word, a heading and a paragraph for the report.
    show
        "table": a row per policy. "cutoffs": cNDCG@1..k of each policy. "tradeoff": cNDCG against unfairness.
    k_c
        Cutoffs of the cNDCG of a trade-off; by default the length of the shortest lists.
    data
        What `open_data` takes: folders, files, built-in profiles or names in the catalogue; or names of datasets that
        are given to `run_experiments`.
    preset, split, epsilon, min_items, max_items, separator, columns
        How the data are loaded, as by `open_data`, and with the preset how they are simulated.
    settings
        Modes, tables with a mode and other fields of `Setting`, or settings themselves.
    clicks, estimator, metrics
        Texts of the click model, the estimator and further metrics for all modes and tables in `settings`; a table may
        have its own.
    seeds
        How many, beginning with 0.
    compare_with
        Label of the series that the others are tested against.
    series
        The policies.
    as_published
        Whether it is the experiment that `series` quotes figures of the paper for; false for other data and for a
        reduced version.

    Raises
    ------
    SettingError
        If something is empty, unknown or out of range.

    Examples
    --------
    >>> experiment = Experiment(name="mine", series=(Series(policies=("MCFair(alpha=[0, 1])",)),))
    >>> [policy.label for policy in experiment.series[0].points]
    ['MCFair(alpha=0.0)', 'MCFair']
    """

    name: str
    series: tuple[Series, ...]
    title: str = ""
    about: str = ""
    show: Literal["table", "cutoffs", "tradeoff"] = "table"
    k_c: tuple[int, ...] | None = None
    data: tuple[str, ...] = ("mq2008-like",)
    preset: Literal["", "paper", "wsdm23"] = ""
    split: Literal["train", "validation", "test"] = "test"
    epsilon: float = 0.1
    min_items: int | None = None
    max_items: int | None = None
    separator: str | None = None
    columns: dict[str, str] | None = None
    settings: tuple[Any, ...] = ("post-processing",)
    clicks: str = ""
    estimator: str = ""
    metrics: tuple[str, ...] = ()
    seeds: int = 5
    compare_with: str = ""
    as_published: bool = True

    def __post_init__(self) -> None:
        for wrong in self._problems():
            raise SettingError(f"experiment {self.name}: {wrong}")
        for _ in self.played():
            pass  # the estimator of a series is parsed here

    def _problems(self) -> Iterator[str]:
        """Yield what is wrong, before any run."""
        for what in ("series", "data", "settings"):
            if not getattr(self, what):
                yield f"{what} is empty, so there is nothing to run"
        if self.seeds < 1:
            yield f"seeds = {self.seeds}: expected a number of seeds of at least 1"
        if not all(each.policies for each in self.series):
            yield "a series has no policies"
        names = [each.name for each in self.series]
        if self.compare_with and self.compare_with not in names:
            yield unknown("series in compare_with", self.compare_with, names)
        for name in names:
            classes = {type(policy) for each in self.series if each.name == name for policy in each.points}
            if names.count(name) > 1 and len(classes) > 1:
                yield f"two series of different policies are called {name!r}"
        for what, values in (("data", self.data), ("settings", self.conditions)):
            if twice := [value for i, value in enumerate(values) if value in values[:i]]:
                yield f"{what} has {twice[0]!r} twice"
        if self.show == "tradeoff" and self.k_c == ():
            yield "k_c is empty: a trade-off needs at least one cutoff"
        if not all(1 <= k <= self.ranks for k in self.k_c or ()):
            yield f"k_c = {self.k_c}: expected cutoffs from 1 to k = {self.ranks}"

    @cached_property
    def conditions(self) -> list[Setting]:
        """The settings, with the values that the experiment prescribes for all of them."""
        given = {"clicks": self.clicks, "estimator": self.estimator, "metrics": self.metrics}
        common = {name: value for name, value in given.items() if value}
        tables = [{"mode": each} if isinstance(each, str) else each for each in self.settings]
        return [each if isinstance(each, Setting) else make_setting({**common, **each}, {}) for each in tables]

    @property
    def ranks(self) -> int:
        """Ranks that are shown in all settings; queries may have fewer items."""
        return min(setting.k for setting in self.conditions)

    def played(self) -> Iterator[tuple[Series, Setting, Policy]]:
        """Iterate over what is simulated on each dataset with each seed, each in the setting that its series has."""
        for series in self.series:
            points = series.points
            for setting in self.conditions:
                if series.mode in ("", setting.mode):
                    condition = series.condition(setting)
                    for policy in points:
                        yield series, condition, policy

    def on(self, data: str, preset: str) -> Experiment:
        """Return the same experiment on other data, or with another preset; it is no longer as published then.

        Parameters
        ----------
        data
            What `open_data` takes, or the name of a dataset that is given to `run_experiments`.
        preset
            How the data are loaded and simulated, "" for no preset.
        """
        same = preset == self.preset and all(is_same_data(data, each) for each in self.data)
        return msgspec.structs.replace(self, data=(data,), preset=preset, as_published=self.as_published and same)

    def reduced(self, *, seeds: int, points: int, shorter: int) -> Experiment:
        """Return a quick version.

        Parameters
        ----------
        seeds
            At most so many seeds.
        points
            At most so many policies of each series.
        shorter
            Divide the steps by this factor.
        """
        series = tuple(
            msgspec.structs.replace(each, policies=tuple(thinned(each.points, points))) for each in self.series
        )
        settings = tuple(
            dataclasses.replace(setting, steps=max(setting.steps // shorter, 2)) for setting in self.conditions
        )
        return msgspec.structs.replace(
            self, series=series, settings=settings, seeds=min(seeds, self.seeds), as_published=False
        )


def is_same_data(name: str, other: str) -> bool:
    """Return whether two names stand for the same dataset; a path may lead to the folder of one in the catalogue."""
    if name.lower() == other.lower():
        return True
    if other.lower() not in CATALOGUE or not path_exists(Path(name)):
        return False
    with suppress(DataError):
        return Path(name).resolve() == locate(other).resolve()
    return False


def thinned(policies: list[Policy], most: int) -> list[Policy]:
    """Return at most so many policies, evenly spread, the first and the last among them."""
    if len(policies) <= most:
        return policies
    last = len(policies) - 1
    return [policies[round(i * last / (most - 1))] for i in range(most)]


# --- files -----------------------------------------------------------------------------------------------------------


SHIPPED = ("table1", "fig2", "fig3", "fig4", "fig5")
"""Names of the paper's experiments, in its order."""


def shipped_experiment(name: str) -> Experiment:
    """Read one of the paper's experiments, which ship with the package.

    Parameters
    ----------
    name
        "table1", "fig2", "fig3", "fig4" or "fig5".

    Returns
    -------
    Experiment

    Raises
    ------
    SettingError
        If no shipped experiment has this name.

    Examples
    --------
    >>> shipped_experiment("table1").data
    ('mq2008/fold1',)
    """
    if name not in SHIPPED:
        raise SettingError(unknown("experiment", name, SHIPPED))
    text = (resources.files(__package__) / "paper" / f"{name}.toml").read_text(encoding="utf-8")
    found, reasons = parse_experiment(text, f"{name}.toml"), differences()["rows"].get(name, {})
    series = [msgspec.structs.replace(each, note=reasons.get(each.label, each.note)) for each in found.series]
    return msgspec.structs.replace(found, series=tuple(series))


def differences() -> dict[str, Any]:
    """Read why figures differ from the paper: an introduction, points by their heading, and reasons by row."""
    return tomllib.loads((resources.files(__package__) / "paper" / "differences.toml").read_text(encoding="utf-8"))


LARGEST = 2**24
"""Bytes of a TOML file at most."""


def read_experiment(path: str | Path) -> Experiment:
    r"""Read an experiment from a TOML file.

    Parameters
    ----------
    path
        The file. Paths of data in it are relative to the current directory or, if there is nothing, to the file.

    Returns
    -------
    Experiment

    Raises
    ------
    SettingError
        If the file cannot be read or something in it is wrong; the message names the line.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "mine.toml"
    ...     _ = file.write_text('seeds = 2\n[[series]]\npolicies = ["TopK", "MCFair"]')
    ...     experiment = read_experiment(file)
    >>> experiment.name, experiment.seeds, experiment.data
    ('mine', 2, ('mq2008-like',))
    """
    source = Path(path)
    try:
        content = next(pieces(source, LARGEST + 1), b"")  # a pipe, or what never ends, is refused there
        text = content.decode()
    except DataError as error:
        raise SettingError(str(error)) from None
    except UnicodeDecodeError as error:
        raise SettingError(f"cannot read {source}: {error}") from None
    if len(content) > LARGEST:
        raise SettingError(f"{source}: larger than {LARGEST // 2**20} MiB, so it is no experiment")
    experiment = parse_experiment(text, str(source))
    data = tuple(str(source.parent / each) if is_beside(each, source) else each for each in experiment.data)
    return msgspec.structs.replace(experiment, data=data)


def is_beside(name: str, source: Path) -> bool:
    """Return whether a name of data is a path relative to the folder of a file, and not to the current directory."""
    return not path_exists(Path(name)) and path_exists(source.parent / name)


def parse_experiment(text: str, source: str) -> Experiment:
    """Parse the text of a TOML file; an error names the line."""
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingError(f"{source}: not TOML: {error}") from None
    tree.setdefault("name", Path(source).stem)
    try:
        return msgspec.convert(tree, Experiment)
    except (msgspec.ValidationError, MCFairError) as error:
        message, where = located(str(error), text)
        raise SettingError(f"{source}{where}: {message}") from None


def located(message: str, text: str) -> tuple[str, str]:
    """Return the message of an error in terms of the file, and the line it is about."""
    path = re.search(r" - at `\$(.*)`$", message)
    parts = re.findall(r"\w+", path[1]) if path else []
    message = message[: path.start()] if path else message
    surplus = re.search(r"unknown field `(.*)`", message)
    if surplus:
        message = unknown("key", surplus[1], field_names(hint_at(Experiment, parts)))
        parts.append(surplus[1])
    elif wrong := re.match(r"Invalid enum value '(.*)'$", message):
        message = unknown(f"{'.'.join(parts)} =", wrong[1], filter(None, choices(hint_at(Experiment, parts))))
    elif parts:
        message = f"{'.'.join(parts)}: {message[0].lower()}{message[1:]}"
    line = line_of(parts, text) if parts else line_with(message, text)
    return message, f", line {line}" if line else ""


def line_with(message: str, text: str) -> int | None:
    """Return the first line that holds the first word that a message quotes."""
    word = re.search(r"'([^']+)'", message)
    hits = [i for i, line in enumerate(text.splitlines(), start=1) if word and word[1] in line]
    return hits[0] if hits else None


def line_of(parts: list[str], text: str) -> int | None:
    """Return the line of a key, after the heading of its table if it is in one of several."""
    lines, begin, found = text.splitlines(), 0, None
    for depth, part in enumerate(parts):
        pattern = rf"\s*(\[+\s*)?([\w.-]+\.)?\"?{re.escape(part)}\"?\s*(\]+|=)"
        if depth:  # it may be a key of an inline table
            pattern += rf"|.*[{{,]\s*{re.escape(part)}\s*="
        hits = [i for i in range(begin, len(lines)) if re.match(pattern, lines[i])]
        if part.isdigit():
            heads = [i for i in range(len(lines)) if re.match(r"\s*\[\[", lines[i])]
            begin = found = heads[int(part)] if int(part) < len(heads) else begin
        elif hits:
            begin = found = hits[0]
    return None if found is None else found + 1
