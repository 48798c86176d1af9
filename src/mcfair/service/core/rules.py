"""Ranking rules: policy, examination, priors, decay and retention. Every change creates a new version."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from ...arrays import FloatArray
from ...errors import MCFairError, PartError, PolicyError, RequestError
from ...estimators import IPS, Estimator, parse_estimator
from ...policies import MCFair
from ...policies.base import Policy, parse_policy
from ...users.examination import examination
from ..wire import CONTROL, OnlineExperiment, PolicyChange, check_label, convert
from .estimation import CompiledEstimator

DAY = 86_400.0

BUCKETS_PER_HALF_LIFE = 4
"""Time buckets per half-life. Counts are integers per bucket; decay weighs whole buckets."""

ANCHOR_SPAN = 256
"""Half-lives between anchors of the weights, few enough that no weight overflows. Counts that are twice as old weigh
nothing, so that no weight is too small to be exact either."""

MAX_HALF_LIVES = 10
"""Age, in half-lives, at which counts are dropped: they would weigh less than a thousandth."""


Kernels = tuple[type[Policy], type[Estimator], bool, bool]
"""What decides on the code that ranks: policy, estimator, and whether there is decay and maturation."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that rankings depend on besides the observations; times are in seconds.

    Parameters
    ----------
    policy
        The ranking policy. The default explores gently, and its guard keeps 93 % of the DCG that the estimates allow.
    estimator
        How relevance is estimated. "auto" is the policy's own choice: `IPS()` with the priors below for most. The prior
        of a pooled one is fitted to the counts of many queries in the background; the version of the rules has it.
    examination
        A severity s for p_j = (1/log2(j + 1))^s at every rank, or a list of probabilities; ranks below the end of the
        list have probability 0: nothing shown there is exposed, and clicks there do not change R.
    prior_mean, prior_strength
        `R = (C + s·m)/(E + s)` with s = prior_strength; m is the item's own prior, else prior_mean. An item that has
        neither is estimated without a prior, as in the paper. The default trusts a prior as much as 100 views at the
        first rank.
    prior_certainty
        The exposure that a prior counts for in marginal certainty, `MC = 1/(E + min(s, prior_certainty))²`. Little, so
        that exploration reaches items that were never shown, however much their prior is trusted. A value of at least
        s counts all of s, as the simulator does.
    maturation
        Age at which impressions enter the relevance estimate R. Younger ones are pending: their clicks may still
        arrive. 0 is the paper's setting.
    half_life
        Time in which counts lose half their weight; None disables decay.
    newcomer_exposure
        The starting exposure of an item that joins a query whose other items have been shown: none ("zero", the
        paper's setting), or the exposure that its relevance would have earned so far ("fair").
    retention
        How long an impression accepts feedback and can be explained. Compaction then adds it to the base snapshot.
    seed
        Seed of randomised policies and of random tie-breaking.
    experiment
        The A/B test: arms with policies of their own for shares of the sessions. The control is `policy`.
    """

    policy: str = repr(MCFair(beta=3.0, guard=0.93))
    estimator: str = "auto"
    examination: float | list[float] = 1.0
    prior_mean: float | None = None
    prior_strength: float = 100.0
    prior_certainty: float = 0.3
    maturation: float = 0.0
    half_life: float | None = None
    newcomer_exposure: Literal["zero", "fair"] = "zero"
    retention: float = 7 * DAY
    seed: int = 0
    experiment: OnlineExperiment | None = None

    def changed(self, change: PolicyChange) -> Rules:
        """Return a validated copy of these rules with the given changes."""
        fields = msgspec.structs.asdict(change)
        values = {name: value for name, value in fields.items() if value is not msgspec.UNSET}
        if "policy" in values:
            try:
                values["policy"] = canonical_policy(values["policy"])
            except PolicyError as error:
                raise RequestError(f"policy: {error}", "policy") from error
        if "estimator" in values:
            try:
                values["estimator"] = canonical_estimator(values["estimator"])
            except PartError as error:
                raise RequestError(f"estimator: {error}", "estimator") from error
        if (experiment := values.get("experiment")) is not None:
            values["experiment"] = checked_experiment(experiment)
        if isinstance(given := values.get("examination"), list) and not max(given) > 0:
            raise RequestError("examination: at least one rank must be examined", "examination")
        rules = msgspec.structs.replace(self, **values)
        for name, most in (("retention", rules.retention), ("half_life", rules.half_life)):
            if most is not None and rules.maturation > most:
                raise RequestError(
                    f"maturation = {rules.maturation:g} s is not allowed: it must not exceed {name} = {most:g} s",
                    "maturation",
                )
        return rules

    def continues(self, before: Rules) -> bool:
        """Return whether these rules continue the experiment of earlier ones: at most, arms were stopped or resumed."""
        new, old = self.experiment, before.experiment
        return new is not None and old is not None and self.policy == before.policy and running(new) == running(old)


def running(experiment: OnlineExperiment) -> OnlineExperiment:
    """Return an experiment as it was before any arm was stopped."""
    arms = [msgspec.structs.replace(arm, stopped=None) for arm in experiment.arms]
    return msgspec.structs.replace(experiment, arms=arms)


def checked_experiment(experiment: OnlineExperiment) -> OnlineExperiment:
    """Return an experiment with canonical policies; raise RequestError if it is not allowed."""
    check_label("experiment.name", experiment.name)
    names, arms = [CONTROL], []
    for i, arm in enumerate(experiment.arms):
        field = f"experiment.arms[{i}]"
        check_label(f"{field}.name", arm.name)
        if arm.name in names:
            raise RequestError(f"{field}.name = {arm.name!r} is taken: names of arms must be distinct", f"{field}.name")
        names.append(arm.name)
        try:
            arms.append(msgspec.structs.replace(arm, policy=canonical_policy(arm.policy)))
        except PolicyError as error:
            raise RequestError(f"{field}.policy: {error}", f"{field}.policy") from error
    if (total := sum(arm.share for arm in arms)) >= 1.0:
        raise RequestError(
            f"experiment.arms have {total:g} of the sessions: expected less than 1, because the control has the rest",
            "experiment.arms",
        )
    return msgspec.structs.replace(experiment, arms=arms)


def change_rules(start: Rules, policy: Policy | str | None, settings: dict[str, Any]) -> Rules:
    """Return the rules changed by the arguments of the Python interface."""
    named = {"policy": str(policy)} if policy is not None else {}
    return start.changed(convert(PolicyChange, {**named, **settings}))


def canonical_policy(text: str) -> str:
    """Return the one text of a policy that can serve; raise PolicyError if there is none."""
    policy = check_servable(parse_policy(text))
    try:
        if np.isnan(policy.in_mode("online").theta).any():
            raise ValueError("a parameter is not a number")
        canonical = repr(policy)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise PolicyError(f"{policy.name()} cannot serve with these parameters: {error}") from error
    return canonical


def canonical_estimator(text: str) -> str:
    """Return the one text of an estimator that can serve; raise PartError if there is none."""
    if text == "auto":
        return text
    estimator = parse_estimator(text)
    if isinstance(estimator, IPS):
        if estimator != IPS():
            raise PartError(f"{estimator!r} is not allowed: set prior_mean and prior_strength instead")
    elif estimator.kernel is None:
        raise PartError(f"{estimator.name()} cannot serve: it has no kernel")
    else:
        CompiledEstimator(estimator)  # refuses a kernel that does not compile for the service
    return repr(estimator)


def check_servable(policy: Policy) -> Policy:
    """Return the policy if it can rank one request at a time; raise PolicyError otherwise."""
    kind = type(policy)
    if kind.prepare is not Policy.prepare or kind.solve is not Policy.solve:
        raise PolicyError(
            f"{kind.__name__} cannot serve: it prepares on a dataset or calls a solver; policies that do neither can, "
            "such as MCFair"
        )
    return policy


class Version(msgspec.Struct, kw_only=True, dict=True):
    """One version of the rules: its number, its start (ms) and the number of its examination.

    `decaying_since` is when decay was turned on. Counts from before then carry no time and are treated as that old.
    `fitted` is the text of the estimator with its fitted prior, None before the first fit, and `fitted_visits` the
    number of visits it was fitted to. `experiment` is the number of the version with which the present experiment
    began, or the last one; 0 if there was none.
    """

    number: int
    since: int
    rules: Rules
    examination: int
    decaying_since: int
    fitted: str | None = None
    fitted_visits: int = 0
    experiment: int = 0
    served = False  # whether a list was ranked by its policy, which was compiled for it then

    @cached_property
    def policy(self) -> Policy:
        """The parsed policy."""
        return parse_policy(self.rules.policy).in_mode("online")

    @cached_property
    def is_known(self) -> bool:
        """Whether the policy can be parsed; that of an old version may be of a plugin that is not loaded now."""
        try:
            return self.policy is not None
        except PolicyError:
            return False

    @cached_property
    def theta(self) -> FloatArray:
        """The policy parameters, as its kernel reads them."""
        return self.policy.theta

    @cached_property
    def estimator(self) -> Estimator:
        """The relevance estimator, with its fitted prior if there is one."""
        named = self.rules.estimator
        chosen = self.policy.estimator if named == "auto" else parse_estimator(named)
        fitted = None if self.fitted is None else parse_estimator(self.fitted)
        return fitted if fitted is not None and fitted.same_but_fitted(chosen) else chosen

    @cached_property
    def compiled_estimator(self) -> CompiledEstimator | None:
        """The estimator as the service calls it; None for IPS, which a ledger computes itself, with priors of items."""
        return None if isinstance(self.estimator, IPS) else CompiledEstimator(self.estimator)

    @cached_property
    def kernels(self) -> Kernels:
        """What decides on the code that must be compiled before a list can be ranked by this version."""
        return type(self.policy), type(self.estimator), self.half_life > 0, self.maturation > 0

    @cached_property
    def maturation(self) -> int:
        """Age at which impressions enter R, in ms."""
        return round(self.rules.maturation * 1000)

    @cached_property
    def half_life(self) -> int:
        """Half-life of counts in ms; 0 if counts do not decay."""
        return round((self.rules.half_life or 0) * 1000)

    @cached_property
    def retention(self) -> int:
        """Retention of impressions in ms."""
        return round(self.rules.retention * 1000)

    @cached_property
    def time_buckets(self) -> int:
        """Maximum number of time buckets whose counts are not negligible."""
        return MAX_HALF_LIVES * BUCKETS_PER_HALF_LIFE + 2 if self.half_life else 1

    def bucket(self, time: int) -> int:
        """Return the start of the time bucket of a time; always 0 if counts do not decay."""
        if not self.half_life:
            return 0
        width = max(1, self.half_life // BUCKETS_PER_HALF_LIFE)
        return time // width * width

    def age(self, bucket: int, now: int) -> int:
        """Return the age of the counts of a bucket, in ms; counts without a time are as old as the decay."""
        return max(0, self.bucket(now) - (bucket or self.bucket(self.decaying_since)))

    def is_negligible(self, bucket: int, now: int) -> bool:
        """Return whether the counts of a bucket are old enough to be dropped."""
        return self.half_life > 0 and self.age(bucket, now) > MAX_HALF_LIVES * self.half_life

    def weighting(self, now: int, newest: int) -> tuple[Weighting, float]:
        """Return the relative weights of counts at a time, and their scale; `newest` is the newest bucket with counts.

        The present weight of a bucket is its weight relative to a fixed anchor, times a scale that all buckets share.
        So the passing of time changes one number, and sums over the relative weights stay valid.
        """
        if not self.half_life:
            return UNDECAYED, 1.0
        span = ANCHOR_SPAN * self.half_life
        current = self.bucket(now)
        anchor = current // span * span
        since = min(current, self.bucket(self.decaying_since))  # it is in the future if the clock was set back
        state = Weighting(self.half_life, since, anchor, min(current, max(newest, since)))
        return state, float(2.0 ** (-(current - anchor) / self.half_life))


class NotCompiledError(MCFairError):
    """An operation has written nothing, because code that it needs must be compiled before.

    `version` has the policy, and `compiled` is where those that are compiled are recorded.
    """

    def __init__(self, version: Version, compiled: set[Kernels]) -> None:
        super().__init__(f"{version.policy.name()} is not compiled yet")
        self.version, self.compiled = version, compiled


class Weighting(NamedTuple):
    """The relative weights of time buckets; `latest` is the newest bucket, or the present one if that is earlier."""

    half_life: int
    decaying_since: int
    anchor: int
    latest: int

    def weight(self, bucket: int) -> float:
        """Return the weight of the counts of a bucket relative to the anchor."""
        return self.weight_at(min(bucket or self.decaying_since, self.latest))

    def newcomer_weight(self, bucket: int) -> float:
        """Return the weight of a starting exposure: newcomers may join in a bucket that has no counts yet."""
        return self.weight_at(bucket or self.decaying_since)

    def weight_at(self, bucket: int) -> float:
        """Return the weight of a time relative to the anchor, bounded on both sides."""
        if not self.half_life:
            return 1.0
        exponent = min((bucket - self.anchor) / self.half_life, ANCHOR_SPAN)
        return 0.0 if exponent < -2 * ANCHOR_SPAN else float(2.0**exponent)


UNDECAYED = Weighting(0, 0, 0, 0)
"""The weights of counts that do not decay."""


def examination_probabilities(spec: float | list[float], k: int) -> FloatArray:
    """Return the examination probabilities of k ranks."""
    if isinstance(spec, list):
        return np.array((spec + [0.0] * k)[:k])
    return examination(k, spec)
