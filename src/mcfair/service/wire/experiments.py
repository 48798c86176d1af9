"""The types of experiments (A/B tests) and of comparisons of policies."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from .requests import PolicyText, about
from .responses import ResponseBody, Time

__all__ = [
    "ArmGroup",
    "ArmReport",
    "CompareRequest",
    "ComparedGroup",
    "ExperimentReport",
    "MeasuredDifference",
    "MeasuredValue",
    "PolicyComparison",
    "PolicyComparisons",
]

MAX_COMPARED = 4
"""Maximum number of policies of one comparison."""

MAX_SAMPLE = 5_000
"""Maximum number of lists of one comparison."""

INTERVAL = about("the two ends of its 95 % interval; null if it cannot be computed")


class MeasuredValue(ResponseBody, kw_only=True):
    """A mean or a share, and its interval."""

    value: Annotated[float | None, about("the value; null if there is nothing to compute it from")]
    interval: Annotated[list[float] | None, INTERVAL]


class MeasuredDifference(ResponseBody, kw_only=True):
    """A difference from the control, with its interval and the p-value of Fisher's randomisation test."""

    value: Annotated[float | None, about("the difference; null if there is nothing to compute it from")]
    interval: Annotated[list[float] | None, INTERVAL]
    p: Annotated[float | None, about("two-sided p-value at this moment; it does not allow for repeated looks")]


class CompareRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """The policies to compare with the lists that were shown."""

    policies: Annotated[
        list[PolicyText],
        Meta(max_length=MAX_COMPARED, description="policies to replay; without any, only recorded lists are compared"),
    ] = []
    max_age: Annotated[
        Annotated[float, Meta(gt=0.0, le=1e9)] | None,
        about("age of the oldest list in seconds; null for all lists that have not expired"),
    ] = None
    lists: Annotated[
        int, Meta(ge=1, le=MAX_SAMPLE, description="maximum number of lists to compare, spread evenly over the log")
    ] = 500


class ComparedGroup(ResponseBody, kw_only=True):
    """The exposure of a group under the lists that were shown and under those of the policy."""

    group: Annotated[str | None, about("the group; null for items without one")]
    shown: Annotated[MeasuredValue, about("share of the exposure of the shown lists")]
    policy: Annotated[MeasuredValue, about("share of the exposure of the lists of the policy")]
    difference: Annotated[MeasuredValue, about("policy minus shown")]


class PolicyComparison(ResponseBody, kw_only=True):
    """The lists of a policy beside those that were shown instead, in the same moments."""

    policy: Annotated[str, about("the policy, with its parameters")]
    source: Annotated[
        Literal["shadow", "replay"],
        about("shadow: its lists were recorded in shadow mode; replay: they were computed from the log"),
    ]
    lists: Annotated[int, about("number of lists compared")]
    queries: Annotated[int, about("number of queries that they belong to")]
    resampled: Annotated[Literal["queries", "lists"], about("unit of the bootstrap of the intervals")]
    differing: Annotated[MeasuredValue, about("share of lists that differ")]
    overlap: Annotated[MeasuredValue, about("share of the items of a list that are in the other one as well")]
    same_rank: Annotated[MeasuredValue, about("share of ranks with the same item")]
    ndcg_shown: Annotated[MeasuredValue, about("NDCG of the shown lists, by the estimates of the time")]
    ndcg: Annotated[MeasuredValue, about("NDCG of the lists of the policy, by the same estimates")]
    ndcg_difference: Annotated[MeasuredValue, about("policy minus shown")]
    unfairness_shown: Annotated[MeasuredValue, about("unfairness that a shown list added, from -1 to 1")]
    unfairness: Annotated[MeasuredValue, about("unfairness that a list of the policy would have added, from -1 to 1")]
    unfairness_difference: Annotated[MeasuredValue, about("policy minus shown")]
    groups: Annotated[list[ComparedGroup], about("exposure by group, the most exposed ones first")]


class ArmGroup(ResponseBody, kw_only=True):
    """The share of a group in the exposure that an arm gave."""

    group: Annotated[str | None, about("the group; null for items without one")]
    exposure: Annotated[MeasuredValue, about("share of the exposure of the lists of the arm")]


class PolicyComparisons(ResponseBody, kw_only=True):
    """Policies beside the lists that were shown, on an even sample of the log."""

    lists: Annotated[int, about("number of lists in the sample")]
    of: Annotated[int, about("number of lists in the log; an estimate unless the sample has all of them")]
    as_of: Annotated[Time, about("when this was computed")]
    policies: Annotated[list[PolicyComparison], about("the policies, those of shadow mode first")]
    arms: Annotated[dict[str, list[ArmGroup]], about("exposure by group in the lists of each arm of the experiment")]


class ArmReport(ResponseBody, kw_only=True):
    """The results of an arm of an experiment. Means are over its lists."""

    name: Annotated[str, about("name of the arm")]
    policy: Annotated[str, about("its policy, with its parameters")]
    share: Annotated[float, about("its share of the sessions")]
    stopped: Annotated[str | None, about("why it was stopped; null while it runs")]
    lists: Annotated[int, about("number of lists that it has shown")]
    clicks: Annotated[int, about("number of clicks on them")]
    clicks_per_list: Annotated[MeasuredValue, about("clicks per list")]
    ndcg: Annotated[MeasuredValue, about("NDCG by the estimates of the time")]
    unfairness: Annotated[MeasuredValue, about("unfairness that a list added, from -1 to 1")]
    differences: Annotated[
        dict[str, MeasuredDifference], about("clicks_per_list, ndcg and unfairness minus those of the control")
    ]
    guard: Annotated[
        dict[str, float],
        about("p-values by guarded measure that hold at any time; the guard stops the arm at its level"),
    ]


class ExperimentReport(ResponseBody, kw_only=True):
    """The results of the present experiment, or of the last one. The control comes first."""

    name: Annotated[str, about("name of the experiment")]
    running: Annotated[bool, about("whether it is in force")]
    since: Annotated[Time, about("when it began")]
    as_of: Annotated[Time, about("when this was computed")]
    arms: Annotated[list[ArmReport], about("the arms, the control first")]
