"""Setting: the conditions under which a policy is simulated."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, TypedDict

import msgspec

from ..arrays import FloatArray
from ..errors import SettingError, checked, renamed_fields, renamed_keys, unknown
from ..estimators import Estimator
from ..metrics import CNDCG, NDCG, Metric, RelativeUnfairness, Unfairness
from ..options import option
from ..parts import Share
from ..policies.base import Mode, Policy
from ..users import ClickModel, PositionBased
from ..users.examination import Examination, examination, parse_examination

Count = Annotated[int, msgspec.Meta(ge=1, lt=2**31, description="a whole number of at least 1 and below 2**31")]

PAPER_USERS = PositionBased()

RANKS = 5
"""Ranks of a list if neither k nor the examination determines them."""


class SettingOptions(TypedDict, total=False):
    """The fields of `Setting` except its mode, as keyword arguments of `simulate` and others; all are optional."""

    steps: int | None
    k: int | None
    examination: float | Sequence[float] | str
    gamma: float
    clicks: ClickModel | str
    estimator: Estimator | str
    metrics: Sequence[Metric | str]


@renamed_fields(k_s="k")
@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """The conditions under which a policy is simulated.

    Parameters
    ----------
    mode
        "post-processing": relevance is given; "online": it is estimated from the clicks of the run.
    steps
        Steps asked for; by default the paper's 10,000 for post-processing and 100,000 online.
    k
        Ranks that are shown; by default 5, or as many as `examination` lists.
    examination
        What exposure assumes of users: a severity s for `p_j = (1/log2(j + 1))^s`, of which 1 (log2) is the paper's;
        rbp(0.8), 1/rank or equal; or the probability that each rank is examined.
    gamma
        Discount of the cumulative NDCG.
    clicks
        How users behave: a click model or its text. The default examines ranks as exposure assumes.
    estimator
        How relevance is estimated from clicks online: an estimator or its text. "auto" is the policy's own choice, see
        `Policy.estimator`: `IPS()`, the paper's, for most.
    metrics
        Metrics, or their texts, to measure beside unfairness, relative unfairness, NDCG and cNDCG.

    Raises
    ------
    SettingError
        If a value is not allowed.
    PartError
        If a click model, estimator or metric is unknown or invalid.

    Examples
    --------
    >>> Setting(mode="online", k=3, clicks="Cascade(stop=1)").steps
    100000
    """

    mode: Mode = option(
        "post-processing", "post-processing (relevance is given) or online (it is learnt from clicks).", word="setting"
    )
    steps: Count = option(None, "Steps  [default: 10,000 post-processing, 100,000 online]", int)
    k: Count = option(None, "Ranks that are shown  [default: as many as --examination has, or 5]", int)
    examination: Examination = option(
        1.0, "What exposure assumes: a severity of position bias, log2, rbp(0.8), or probabilities: 1,0.6,0.4."
    )
    gamma: Share = option(0.995, "Discount of cNDCG.", float)
    clicks: ClickModel = option(PAPER_USERS, "How users click, such as 'Cascade(stop=0.7)'; see mcfair clicks.")
    estimator: Estimator | Literal["auto"] = option(
        "auto",
        "How relevance is estimated, such as 'IPS(prior_strength=5)'; auto is the policy's own, IPS for most; see "
        "mcfair estimators.",
    )
    metrics: tuple[Metric, ...] = option(
        (), "A further metric, such as gini; see mcfair metrics; repeat for several.", list[str], "metric", "METRIC"
    )

    def __post_init__(self) -> None:
        put = partial(object.__setattr__, self)
        put("mode", checked("mode", Mode, self.mode, SettingError))
        put("examination", parse_examination(self.examination))
        ranks = len(self.examination) if isinstance(self.examination, tuple) else None
        put("steps", self.steps if self.steps is not None else 100_000 if self.mode == "online" else 10_000)
        put("k", self.k if self.k is not None else ranks or RANKS)
        for name, hint in (("steps", Count), ("k", Count), ("gamma", Share)):
            put(name, checked(name, hint, getattr(self, name), SettingError))
        if ranks is not None and self.k > ranks:
            raise SettingError(f"k = {self.k} is not allowed: examination lists {ranks} ranks")
        put("clicks", ClickModel.of(self.clicks))
        put("estimator", "auto" if self.estimator == "auto" else Estimator.of(self.estimator))
        metrics = self.metrics.split(",") if isinstance(self.metrics, str) else self.metrics
        put("metrics", tuple(dict.fromkeys(Metric.of(each) for each in metrics)))

    def estimator_for(self, policy: Policy) -> Estimator:
        """Return the estimator that a policy is run with."""
        return policy.estimator if isinstance(self.estimator, str) else self.estimator

    def for_policy(self, policy: Policy) -> Setting:
        """Return the setting with the estimator that a policy is run with in place of "auto"."""
        return dataclasses.replace(self, estimator=self.estimator_for(policy))

    def p(self, ranks: int) -> FloatArray:
        """Return the examination probabilities that exposure assumes, for at most so many ranks."""
        return examination(min(self.k, ranks), self.examination)

    def measured(self, ranks: int) -> tuple[Metric, ...]:
        """Return all metrics of a run with lists of so many ranks: the standard ones, then the named ones."""
        for each in self.metrics:
            if each.per_list and getattr(each, "k", 1) > ranks:
                raise SettingError(f"{each!r}: expected a cutoff from 1 to {ranks}, the ranks of the lists")
        cutoffs = range(1, ranks + 1)
        standard = (Unfairness(), RelativeUnfairness(), *(kind(k=k) for kind in (CNDCG, NDCG) for k in cutoffs))
        return tuple(dict.fromkeys((*standard, *self.metrics)))

    def to_dict(self) -> dict[str, Any]:
        """Return the setting as plain data, parts as their texts; `make_setting` reads it back."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        estimator = "auto" if self.estimator == "auto" else repr(self.estimator)
        parts = {"clicks": repr(self.clicks), "estimator": estimator}
        examined = list(self.examination) if isinstance(self.examination, tuple) else self.examination
        return values | parts | {"examination": examined, "metrics": [repr(each) for each in self.metrics]}


def make_setting(setting: Setting | str | Mapping[str, Any], options: Mapping[str, Any]) -> Setting:
    """Return one Setting from a setting, a mode or a table of fields, changed by options."""
    fields = [field.name for field in dataclasses.fields(Setting)]
    table = {"mode": setting} if isinstance(setting, str) else {} if isinstance(setting, Setting) else dict(setting)
    table, options = (renamed_keys(each, Setting.__renamed__) for each in (table, options))  # type: ignore[attr-defined]
    for name in (*table, *options):
        if name not in fields:
            raise SettingError(unknown("option of a setting", name, fields))
    if isinstance(setting, Setting):
        return dataclasses.replace(setting, **options)
    return Setting(**{**table, **options})
