"""How lists are made: policy, examination, priors and how the past counts; every change is a new version."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import msgspec
import numpy as np

from ..arrays import FloatArray
from ..errors import PolicyError, RequestError
from ..policies import MCFair
from ..policies.base import Policy, parse_policy
from ..users.examination import examination
from .wire import PolicyChange, convert

__all__ = ["DAY", "Rules", "Version", "check_servable"]

DAY = 86_400.0

STEPS = 4
"""In how many steps a count halves: counts are kept by step, as whole numbers."""

FORGOTTEN = 10
"""After so many half-lives a count is dropped: it would weigh less than a thousandth."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What lists depend on besides what was observed; times are in seconds.

    Parameters
    ----------
    policy
        Who ranks.
    examination
        A severity s for p_j = (1/log2(j + 1))^s at every rank, or a list of probabilities, 0 below its end.
    prior_mean, prior_strength
        `R = (C + s·m)/(E + s)` with s = prior_strength; m is the item's own prior, else prior_mean. An item that has
        neither is estimated without, as in the paper.
    maturing
        Impressions younger than this do not enter R yet: their clicks may still come. 0 is the paper.
    half_life
        Time in which counts lose half their weight; None keeps them for ever.
    entry
        How a newcomer enters a query that others were shown for: with no exposure ("zero", the paper), or with the
        exposure that its relevance would have earned until then ("fair").
    retention
        How long an impression takes feedback and can be explained; then it becomes part of a base.
    seed
        What policies that draw, and ties at random, draw from.
    """

    policy: str = repr(MCFair())
    examination: float | list[float] = 1.0
    prior_mean: float | None = None
    prior_strength: float = 1.0
    maturing: float = 0.0
    half_life: float | None = None
    entry: Literal["zero", "fair"] = "zero"
    retention: float = 7 * DAY
    seed: int = 0

    def changed(self, change: PolicyChange) -> Rules:
        """Return these rules with some of them changed and checked."""
        values = {name: value for name in change.__struct_fields__
                  if (value := getattr(change, name)) is not msgspec.UNSET}  # fmt: skip
        if "policy" in values:
            try:
                values["policy"] = repr(check_servable(parse_policy(values["policy"])))
            except PolicyError as error:
                raise RequestError(f"policy: {error}", "policy") from error
        if isinstance(given := values.get("examination"), list) and not max(given) > 0:
            raise RequestError("examination: at least one rank must be examined", "examination")
        rules = msgspec.structs.replace(self, **values)
        for name, most in (("retention", rules.retention), ("half_life", rules.half_life)):
            if most is not None and rules.maturing > most:
                raise RequestError(
                    f"maturing = {rules.maturing:g} s is longer than {name} = {most:g} s: what takes longer to count "
                    "than it is kept would never count", "maturing",
                )  # fmt: skip
        return rules


def make_rules(start: Rules, policy: Policy | str | None, settings: dict[str, Any]) -> Rules:
    """Change rules by the arguments of the Python interface."""
    named = {"policy": str(policy)} if policy is not None else {}
    return start.changed(convert(PolicyChange, {**named, **settings}))


def check_servable(policy: Policy) -> Policy:
    """Refuse a policy that cannot answer one request at a time."""
    kind = type(policy)
    if kind.prepare is not Policy.prepare or (kind.kernel is not None and kind.rank is not Policy.rank):
        raise PolicyError(
            f"{kind.__name__} cannot serve: it prepares on a dataset or calls a solver; policies that rank by a "
            "score, MMF and RandomK can"
        )
    return policy


class Version(msgspec.Struct, kw_only=True, dict=True):
    """Rules as they were in force: their number, since when (ms), the number of their examination.

    `decaying_since` is when counts began to decay: what was counted before, at no particular time, is as old as that.
    """

    number: int
    since: int
    rules: Rules
    examination: int
    decaying_since: int
    default: bool

    @cached_property
    def policy(self) -> Policy:
        """The policy itself."""
        return parse_policy(self.rules.policy)

    @cached_property
    def theta(self) -> FloatArray:
        """Its parameters, for its kernel."""
        return self.policy.theta

    @cached_property
    def maturing(self) -> int:
        """Time until impressions enter R, in ms."""
        return round(self.rules.maturing * 1000)

    @cached_property
    def half_life(self) -> int:
        """In ms; 0 if counts do not decay."""
        return round((self.rules.half_life or 0) * 1000)

    @cached_property
    def retention(self) -> int:
        """In ms."""
        return round(self.rules.retention * 1000)

    def bucket(self, time: int) -> int:
        """Find the step of time in which something is counted; always 0 if counts do not decay."""
        if not self.half_life:
            return 0
        step = max(1, self.half_life // STEPS)
        return time // step * step

    def decay(self, bucket: int, now: int) -> float:
        """Say what a count of some step weighs now."""
        if not self.half_life:
            return 1.0
        age = max(0, self.bucket(now) - (bucket or self.bucket(self.decaying_since)))
        return float(2.0 ** (-age / self.half_life))

    def forgets(self, bucket: int, now: int) -> bool:
        """Whether a count of some step is so old that it is dropped."""
        return self.half_life > 0 and self.decay(bucket, now) < 2.0**-FORGOTTEN


def examination_of(spec: float | list[float], k: int) -> FloatArray:
    """Probability that each of k ranks is examined."""
    if isinstance(spec, list):
        return np.array((spec + [0.0] * k)[:k])
    return examination(k, spec)
