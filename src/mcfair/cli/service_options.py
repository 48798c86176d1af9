"""Options of the commands of the service, each declared once."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Annotated, Any

import typer

from ..errors import SettingError

__all__ = ["DEFAULT_STORE", "STORE", "RuleOptions", "parse_duration"]

STORE = Annotated[
    str,
    typer.Option(
        help="Store: sqlite:///PATH (three slashes relative, four absolute), a path, or "
        "postgresql://USER:PASSWORD@HOST:PORT/DATABASE."
    ),
]
DEFAULT_STORE = "sqlite:///mcfair.db"

MAX_SECONDS = 1e10
"""Longest duration, about 300 years; each rule has its own limit below it."""

SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RuleOptions:
    """Rules that differ from those in force."""

    policy: Annotated[str | None, typer.Option(help="Ranking policy, such as 'MCFair(alpha=2, guard=0.95)'.")] = None
    estimator: Annotated[
        str | None, typer.Option(help="Relevance estimator, such as 'Mixture'; auto is the policy's own.")
    ] = None
    examination: Annotated[
        str | None, typer.Option(help="Severity of position bias, or examination probabilities: 1,0.6,0.5.")
    ] = None
    prior_mean: Annotated[float | None, typer.Option(help="Prior relevance of items without a prior.")] = None
    prior_strength: Annotated[float | None, typer.Option(help="Weight of the prior, as pseudo-exposure.")] = None
    prior_certainty: Annotated[float | None, typer.Option(help="Exposure that a prior counts for in exploration.")] = (
        None
    )
    maturation: Annotated[
        str | None, typer.Option(help="Age at which impressions enter the relevance estimate: 30m, 1d.")
    ] = None
    half_life: Annotated[str | None, typer.Option(help="Time in which counts lose half their weight: 30d.")] = None
    newcomer_exposure: Annotated[str | None, typer.Option(help="Starting exposure of new items: zero or fair.")] = None

    def settings(self) -> dict[str, Any]:
        """Return the rules besides the policy, as `Ranker` takes them, without those that were not given."""
        given = {name: value for name, value in dataclasses.asdict(self).items() if value is not None}
        given.pop("policy", None)
        for name in given.keys() & {"maturation", "half_life", "retention"}:
            given[name] = parse_duration(name.replace("_", "-"), given[name])
        if "examination" in given:
            given["examination"] = parse_examination(given["examination"])
        return given


def parse_duration(name: str, text: str) -> float:
    """Parse a duration such as 90, 45s, 30m, 12h or 7d to seconds.

    Examples
    --------
    >>> parse_duration("retention", "1.5h")
    5400.0
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smhdw]?)", text)
    seconds = math.inf if found is None else float(found[1]) * SECONDS[found[2] or "s"]
    if seconds > MAX_SECONDS:
        raise SettingError(f"{name} = {text!r} is not allowed: expected a duration such as 45s, 30m, 12h or 7d")
    return seconds


def parse_examination(text: str) -> float | list[float]:
    """Parse a severity, or examination probabilities separated by commas."""
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        raise SettingError(
            f"examination = {text!r} is not allowed: expected a severity such as 1, or probabilities such as 1,0.6,0.5"
        ) from None
    return numbers if "," in text else numbers[0]
