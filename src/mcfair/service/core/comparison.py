"""Comparison of policies with the lists that were shown, on an even sample of the log.

A list of another policy comes from shadow mode, in which it was recorded, or from a replay of the logged decision with
that policy: same candidates, same observations until then. Neither changes anything, and neither knows what users would
have clicked.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from itertools import groupby
from typing import Any, Literal, NamedTuple

import numpy as np

from ...analysis.resampling import FEW_CLUSTERS, interval, ratio_of_sums
from ...arrays import FloatArray, IntArray
from ...errors import PolicyError, RequestError
from ..stores import KIND_IMPRESSION, LogEntry, Store
from ..wire import (
    ArmGroup,
    ComparedGroup,
    MeasuredValue,
    PolicyComparison,
    PolicyComparisons,
    check_text,
)
from ..wire.requests import MAX_POLICY
from .experiments import arm_name, figures_of
from .ledger import Ledger
from .records import decode_impression, decode_positions
from .reports import to_datetime
from .repository import LedgerRepository
from .rules import canonical_policy
from .sampling import sample_entries

STEP_FORWARD = 64
"""Log entries over which a ledger is brought forward to the next list, instead of being loaded again."""

MOST_QUERIES = 5_000
"""Queries whose logs are sampled."""

MOST_GROUPS = 50
"""Groups that are reported, those with the most exposure."""

Progress = Callable[[str, int, int], None]
"""Called with a stage, the part of it that is done, and the whole."""

GroupExposure = dict[str | None, float]


class ComparedList(NamedTuple):
    """A list of a policy beside the one that was shown: what differs, and the exposure by group of both."""

    query: int
    figures: tuple[float, ...]
    shown: GroupExposure
    policy: GroupExposure


FIGURES = ("differing", "overlap", "same_rank", "ndcg_shown", "ndcg", "unfairness_shown", "unfairness")
"""The figures of a compared list, in order; `PolicyComparison` documents them."""

DIFFERENCES = {"ndcg_difference": ("ndcg", "ndcg_shown"), "unfairness_difference": ("unfairness", "unfairness_shown")}


def compare(
    store: Store,
    now: int,
    policies: list[str],
    *,
    max_age: float | None = None,
    lists: int = 500,
    progress: Progress = lambda stage, done, total: None,
) -> PolicyComparisons:
    """Compare policies with the lists that were shown.

    Parameters
    ----------
    store
        A reader. A transaction lasts for one list at most, and deleted or compacted lists are left out.
    now
        The time in ms.
    policies
        Policies to replay. Lists of shadow mode are compared without being asked for.
    max_age
        Age of the oldest list, in seconds; all lists that have not expired if left out.
    lists
        Maximum number of lists to compare, spread evenly over the log.
    progress
        Called while it proceeds.

    Returns
    -------
    PolicyComparisons

    Raises
    ------
    RequestError
        If a policy cannot serve.
    """
    texts = canonical_policies(policies)
    since = None if max_age is None else now - round(max_age * 1000)
    replays = LoggedLists(LedgerRepository(store), texts)
    spans, scale = replays.spans(since, progress)
    picks = sample_entries(spans, lists)
    stride = sum(last - first + 1 for _, first, last in spans) / max(1, len(picks))
    for done, (number, seqs) in enumerate(groupby(picks, key=lambda pick: pick[0])):
        replays.read(number, [seq for _, seq in seqs])
        progress("comparing lists, queries", done + 1, len(spans))
    return PolicyComparisons(
        lists=replays.lists,
        of=round(replays.lists * stride * scale),
        as_of=to_datetime(now),
        policies=[
            summarise(policy, source, found)
            for (source, policy), found in sorted(replays.compared.items(), key=lambda each: each[0][0] == "replay")
        ],
        arms={name: arm_groups(found) for name, found in sorted(replays.arms.items())},
    )


def canonical_policies(texts: list[str]) -> list[str]:
    """Return the one text of each policy; raise RequestError if one cannot serve."""
    found = []
    for i, text in enumerate(texts):
        field = f"policies[{i}]"
        check_text(field, text, MAX_POLICY)
        try:
            found.append(canonical_policy(text))
        except PolicyError as error:
            raise RequestError(f"{field}: {error}", field) from error
    return list(dict.fromkeys(found))


class LoggedLists:
    """Lists of the log, each compared with those of other policies in the same moment."""

    def __init__(self, repository: LedgerRepository, policies: list[str]) -> None:
        self.repository, self.store, self.policies = repository, repository.store, policies
        self.lists = 0
        self.compared: dict[tuple[Literal["shadow", "replay"], str], list[ComparedList]] = {}
        self.arms: dict[str, list[tuple[int, GroupExposure]]] = {}

    def spans(self, since: int | None, progress: Progress) -> tuple[list[tuple[int, int, int]], float]:
        """Return the part of each log that is live, and not older than `since`: query, first and last entry.

        Of many queries, every n-th is used, so that a comparison takes the same time in a large store; also returns n.
        """
        numbers = list(self.repository.numbers())
        every = max(1, -(-len(numbers) // MOST_QUERIES))
        used, found = numbers[every // 2 :: every], []
        for done, number in enumerate(used):
            base, _, last = self.store.head(number) or (0, 0, 0)
            first = base + 1 if since is None else self.first_since(number, base, last, since)
            if first <= last:
                found.append((number, first, last))
            progress("finding lists, queries", done + 1, len(used))
        return found, len(numbers) / max(1, len(used))

    def first_since(self, number: int, base: int, last: int, since: int) -> int:
        """Return the first entry of a log that is not older than `since`, by bisection."""

        def time(seq: int) -> int:
            entry = self.store.entry(number, seq)
            return 0 if entry is None else entry.time

        return bisect_left(range(last + 1), since, lo=min(base + 1, last + 1), key=time)

    def read(self, number: int, seqs: list[int]) -> None:
        """Compare those entries of a log that are impressions."""
        ledger: Ledger | None = None
        for seq in seqs:
            with self.store.read_transaction():
                entry = self.store.entry(number, seq)
                if entry is None or entry.kind != KIND_IMPRESSION or self.store.key_of(number) is None:
                    continue
                if self.store.base(number) >= seq:  # compacted meanwhile
                    continue
                self.lists += 1
                made = decode_impression(entry.body)
                if not self.policies and made.policy_list is None and made.assignment is None:
                    continue  # there is nothing to compare it with
                if ledger is None or seq - ledger.seq > STEP_FORWARD:
                    ledger = self.repository.ledger(number, entry)
                for before in self.store.log(number, ledger.seq, seq - 1):
                    self.repository.apply(ledger, before)
                self.add(ledger, entry)

    def add(self, ledger: Ledger, entry: LogEntry) -> None:
        """Add a list, given the ledger as it was before it."""
        repository, version = self.repository, self.repository.version(entry)
        impression, candidates = repository.impression(ledger, entry)
        shown = decode_positions(impression.shown)
        p = ledger.examinations.p(version.examination, impression.ranks)
        groups = [ledger.groups[row] if row < len(ledger.groups) else None for row in candidates.rows.tolist()]

        def exposure(pi: IntArray) -> GroupExposure:
            found: GroupExposure = {}
            for i, weight in zip(pi.tolist(), p.tolist(), strict=True):
                found[groups[i]] = found.get(groups[i], 0.0) + weight
            return found

        arm = arm_name(version.rules.experiment, impression.assignment)
        if arm is not None and version.experiment == repository.in_force.experiment:
            self.arms.setdefault(arm, []).append((ledger.number, exposure(shown)))
        if not version.is_known:
            return  # there are no estimates to compare by
        others: dict[tuple[Literal["shadow", "replay"], str], IntArray] = {}
        if impression.policy_list is not None:
            policy = version.rules.policy if impression.policy is None else impression.policy
            others["shadow", policy] = decode_positions(impression.policy_list)
        ledger.admit(candidates, impression.reused, impression.newcomer_exposure, version, entry.time)
        for text in self.policies:
            changed = repository.with_policy(version, text)
            others["replay", text] = repository.decide(ledger, candidates, changed, entry.time, impression.ranks).pi
        if not others:
            return
        view = ledger.view(candidates, version, entry.time, impression.ranks)
        before = figures_of(view.R, view.E, p, shown)
        for key, pi in others.items():
            after = figures_of(view.R, view.E, p, pi)
            figures = (*agreement(shown, pi), before.ndcg, after.ndcg, before.unfairness, after.unfairness)
            self.compared.setdefault(key, []).append(
                ComparedList(ledger.number, figures, exposure(shown), exposure(pi))
            )


def agreement(shown: IntArray, other: IntArray) -> tuple[float, float, float]:
    """Return whether two lists of one length differ, the share of common items and that of equal ranks.

    Examples
    --------
    >>> agreement(np.array([0, 1, 2, 3]), np.array([0, 2, 1, 4]))
    (1.0, 0.75, 0.25)
    """
    same = shown == other
    return float(not same.all()), np.intersect1d(shown, other).size / shown.size, float(same.mean())


# --- summaries -------------------------------------------------------------------------------------------------------


def measured(value: float, ends: FloatArray) -> MeasuredValue:
    """Return a value with its interval."""
    known = bool(np.isfinite(ends).all())
    return MeasuredValue(
        value=float(value) if np.isfinite(value) else None, interval=[float(end) for end in ends] if known else None
    )


def clusters_of(queries: list[int]) -> tuple[IntArray, Literal["queries", "lists"]]:
    """Return the cluster of each list, counted from 0: its query, or itself where there are too few queries."""
    distinct, cluster = np.unique(queries, return_inverse=True)
    if distinct.size < FEW_CLUSTERS:
        return np.arange(len(queries)), "lists"
    return cluster, "queries"


def by_cluster(cluster: IntArray, values: FloatArray) -> FloatArray:
    """Sum the rows of each cluster."""
    sums = np.zeros((int(cluster.max()) + 1, values.shape[1]))
    np.add.at(sums, cluster, values)
    return sums


def group_shares(
    cluster: IntArray, names: list[str | None], exposures: list[GroupExposure]
) -> tuple[FloatArray, FloatArray]:
    """Compute the shares of groups in the exposure of lists, and those of resamples."""
    values = np.array([[each.get(name, 0.0) for name in names] for each in exposures])
    totals = np.array([[sum(each.values())] for each in exposures])
    return ratio_of_sums(by_cluster(cluster, values), by_cluster(cluster, totals))


def most_exposed(exposures: list[GroupExposure]) -> list[str | None]:
    """Return the groups with the most exposure, those first."""
    totals: GroupExposure = {}
    for each in exposures:
        for name, exposure in each.items():
            totals[name] = totals.get(name, 0.0) + exposure
    return sorted(totals, key=lambda name: -totals[name])[:MOST_GROUPS]


def summarise(policy: str, source: Literal["shadow", "replay"], found: list[ComparedList]) -> PolicyComparison:
    """Return the means over lists and the shares of groups, with intervals."""
    cluster, resampled = clusters_of([each.query for each in found])
    ones = by_cluster(cluster, np.ones((len(found), 1)))
    means, drawn = ratio_of_sums(by_cluster(cluster, np.array([each.figures for each in found])), ones)
    ends = interval(drawn, means)
    fields: dict[str, Any] = {name: measured(means[i], ends[:, i]) for i, name in enumerate(FIGURES)}
    for name, (after, before) in DIFFERENCES.items():
        a, b = FIGURES.index(after), FIGURES.index(before)
        fields[name] = measured(means[a] - means[b], interval(drawn[:, a] - drawn[:, b], means[a] - means[b]))
    names = most_exposed([each.shown for each in found] + [each.policy for each in found])
    shown, shown_drawn = group_shares(cluster, names, [each.shown for each in found])
    other, other_drawn = group_shares(cluster, names, [each.policy for each in found])
    return PolicyComparison(
        policy=policy,
        source=source,
        lists=len(found),
        queries=len({each.query for each in found}),
        resampled=resampled,
        **fields,
        groups=[
            ComparedGroup(
                group=name,
                shown=measured(shown[i], share_interval(shown_drawn[:, i], shown[i])),
                policy=measured(other[i], share_interval(other_drawn[:, i], other[i])),
                difference=measured(
                    other[i] - shown[i], interval(other_drawn[:, i] - shown_drawn[:, i], other[i] - shown[i])
                ),
            )
            for i, name in enumerate(names)
        ],
    )


def share_interval(drawn: FloatArray, share: FloatArray) -> FloatArray:
    """Return the interval of a share, within 0 to 1."""
    return interval(drawn, share, least=0.0, most=1.0)


def arm_groups(found: list[tuple[int, GroupExposure]]) -> list[ArmGroup]:
    """Return the shares of groups in the exposure of the lists of an arm."""
    cluster, _ = clusters_of([query for query, _ in found])
    exposures = [each for _, each in found]
    names = most_exposed(exposures)
    shares, drawn = group_shares(cluster, names, exposures)
    return [
        ArmGroup(group=name, exposure=measured(shares[i], share_interval(drawn[:, i], shares[i])))
        for i, name in enumerate(names)
    ]
