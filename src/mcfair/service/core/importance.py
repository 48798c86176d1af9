"""How much each part of the policies in force has mattered: measured on a sample of the decisions in the log.

Each decision is repeated on the ledger as it was, with and without each part. The sample is bounded and evenly spread
over all decisions of the period: queries in the order of their numbers, the decisions of each in the order of time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from ...arrays import FloatArray, IntArray
from ...errors import ConflictError
from ..stores import KIND_IMPRESSION, LogEntry, Store, StoreCorruptError
from .decision import Standings, standings
from .records import decode_impression
from .repository import LedgerRepository
from .rules import Version
from .sampling import spread

RESAMPLES = 1_000
PILOT = 200
"""Log entries that are read to learn how many of them are decisions."""

TAIL = 0.025
"""Probability on either side of an interval."""

Progress = Callable[[int, int], None]
"""Called with the number of decisions that are repeated, and of all in the sample."""


@dataclasses.dataclass(frozen=True)
class Measured:
    """A share from 0 to 1, with the ends of its 95 % interval."""

    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class PartImportance:
    """The changes that a part of the policy made; relevance is one of the parts.

    Attributes
    ----------
    part
        Its name.
    decisions
        Decisions of the sample in which it had a weight; a guard counts where it changed the list.
    lists_changed
        Share of lists that would differ without it.
    places_changed
        Mean share of the places of a list that would hold another item without it.
    items_replaced
        Mean share of the items of a list that would not be in it without it.
    relative
        Its share of the sum of `places_changed` over all parts.
    """

    part: str
    decisions: int
    lists_changed: Measured
    places_changed: Measured
    items_replaced: Measured
    relative: Measured


@dataclasses.dataclass(frozen=True, kw_only=True)
class Importance:
    """The importance of all parts over a period.

    Attributes
    ----------
    decisions, exact
        Decisions in the log of the period, and whether they were counted or estimated from the sample.
    sampled, queries, first, last
        Decisions that were repeated, their queries, and the times of the first and the last, in ms.
    whole
        Those whose policy has no parts that can be told apart; they count as changed by no part.
    unrepeatable
        Decisions of the sample that could not be repeated, because their policy is not installed here.
    shadow
        Lists of the sample in shadow mode, which the caller ranked; they are no decisions of the policy.
    policies
        Decisions of the sample by the policy that made them.
    versions
        The versions of the rules that were in force at some time of the period, in order.
    parts
        The parts, the most important first.
    """

    decisions: int
    exact: bool
    sampled: int
    queries: int
    first: int | None
    last: int | None
    whole: int
    unrepeatable: int
    shadow: int
    policies: dict[str, int]
    versions: list[Version]
    parts: list[PartImportance]


def measure_importance(
    store: Store,
    *,
    since: int = 0,
    until: int | None = None,
    sample: int = 1_000,
    progress: Progress = lambda done, total: None,
) -> Importance:
    """Measure how much each part of the policies mattered in the decisions of a period.

    Parameters
    ----------
    store
        A reader of a store; a service may be running.
    since, until
        The period, in ms: from the first, before the second.
    sample
        Maximum number of decisions to repeat.
    progress
        Called after each decision.

    Returns
    -------
    Importance
    """
    repository = LedgerRepository(store)
    found, decisions, exact = sample_decisions(store, repository, since, until, sample)
    sampled = Sample()
    for done, (number, entry) in enumerate(found, start=1):
        sampled.add(repository, number, entry)
        progress(done, len(found))
    versions = list(repository.versions.values())
    ends = [each.since for each in versions[1:]] + [None]
    return Importance(
        decisions=decisions,
        exact=exact,
        sampled=len(sampled.changes),
        queries=len(set(sampled.numbers)),
        first=min(sampled.times, default=None),
        last=max(sampled.times, default=None),
        whole=sampled.whole,
        unrepeatable=sampled.unrepeatable,
        shadow=sampled.shadow,
        policies=dict(sorted(sampled.policies.items(), key=lambda each: -each[1])),
        versions=[
            each
            for each, end in zip(versions, ends, strict=True)
            if (until is None or each.since < until) and (end is None or end > since)
        ],
        parts=sampled.parts(),
    )


# --- the sample ------------------------------------------------------------------------------------------------------


def sample_decisions(
    store: Store, repository: LedgerRepository, since: int, until: int | None, sample: int
) -> tuple[list[tuple[int, LogEntry]], int, bool]:
    """Return decisions that are evenly spread over a period, how many it has, and whether that is exact."""
    spans = [
        (number, first, last)
        for number in repository.numbers()
        for first, last in [span(store, number, since, until)]
        if last > first
    ]
    lengths = np.array([last - first for _, first, last in spans], np.int64)
    total = int(lengths.sum())
    pilot = decisions_at(store, spans, lengths, spread(total, PILOT))
    if total <= PILOT:
        return thinned(pilot, sample), len(pilot), True
    share = max(len(pilot), 1) / PILOT
    places = spread(total, int(1.25 * sample / share) + 20)
    found = decisions_at(store, spans, lengths, places)
    exact = places.size == total
    return thinned(found, sample), len(found) if exact else round(total * len(found) / places.size), exact


def span(store: Store, number: int, since: int, until: int | None) -> tuple[int, int]:
    """Return the sequence numbers, after the first and up to the last, of a query's log entries within a period."""
    head = store.head(number)
    if head is None:
        return 0, 0
    base, _, last = head
    first = base if since <= 0 else before(store, number, base, last, since)
    return first, last if until is None else before(store, number, first, last, until)


def before(store: Store, number: int, low: int, high: int, time: int) -> int:
    """Return the last sequence number above `low` whose entry is earlier than a time, else `low`, by bisection."""
    while low < high:
        middle = (low + high + 1) // 2
        entry = store.entry(number, middle)
        if entry is None or entry.time < time:  # what is missing was compacted meanwhile, as the oldest
            low = middle
        else:
            high = middle - 1
    return low


def decisions_at(
    store: Store, spans: list[tuple[int, int, int]], lengths: IntArray, places: IntArray
) -> list[tuple[int, LogEntry]]:
    """Return the decisions among the log entries at some places of all spans together."""
    ends = np.cumsum(lengths)
    found = []
    for place in places.tolist():
        at = int(np.searchsorted(ends, place, side="right"))
        number, first, _ = spans[at]
        entry = store.entry(number, first + 1 + place - int(ends[at] - lengths[at]))
        if entry is not None and entry.kind == KIND_IMPRESSION:
            found.append((number, entry))
    return found


def thinned(found: list[tuple[int, LogEntry]], most: int) -> list[tuple[int, LogEntry]]:
    """Return at most so many entries, evenly spread."""
    return [found[i] for i in spread(len(found), most).tolist()]


# --- what parts change -----------------------------------------------------------------------------------------------


class Sample:
    """The decisions that were repeated, and what each part changed in them."""

    def __init__(self) -> None:
        self.changes: list[dict[str, tuple[float, float, float]]] = []
        self.numbers: list[int] = []
        self.times: list[int] = []
        self.policies: dict[str, int] = {}
        self.whole = self.unrepeatable = self.shadow = 0

    def add(self, repository: LedgerRepository, number: int, entry: LogEntry) -> None:
        """Repeat a decision and compare it with those without each part; lists in shadow mode are left out.

        Those were ranked by the caller.
        """
        if decode_impression(entry.body).policy_list is not None:
            self.shadow += 1
            return
        try:
            ledger = repository.ledger(number, entry)
            decision, _, version = repository.repeat_decision(ledger, entry)
        except ConflictError:
            self.unrepeatable += 1
            return
        except StoreCorruptError:
            if repository.store.key_of(number) is None:
                return  # deleted meanwhile
            raise
        found = standings(version.policy, decision, ledger.draws(version.rules.seed))
        self.changes.append(changes(found, decision.pi))
        self.numbers.append(number)
        self.times.append(entry.time)
        self.whole += not found.without
        label = version.policy.label
        self.policies[label] = self.policies.get(label, 0) + 1

    def parts(self) -> list[PartImportance]:
        """Return the importance of each part that had a weight, the most important first."""
        names = sorted({part for each in self.changes for part in each})
        if not names:
            return []
        table = np.array([[each.get(part, (0.0, 0.0, 0.0)) for part in names] for each in self.changes])
        weighted = [sum(part in each for each in self.changes) for part in names]
        means = np.concatenate([table.mean(axis=0)[None], resampled(table, np.array(self.numbers))])
        places = means[:, :, 1]
        total = places.sum(axis=1, keepdims=True)
        relative = np.divide(places, total, out=np.zeros_like(places), where=total > 0.0)
        found = [
            PartImportance(
                part=part,
                decisions=weighted[i],
                lists_changed=measured(means[:, i, 0], weighted[i], len(table)),
                places_changed=measured(means[:, i, 1], weighted[i], len(table)),
                items_replaced=measured(means[:, i, 2], weighted[i], len(table)),
                relative=measured(relative[:, i]),
            )
            for i, part in enumerate(names)
        ]
        return sorted(found, key=lambda each: (-each.relative.value, each.part))


def changes(found: Standings, pi: IntArray) -> dict[str, tuple[float, float, float]]:
    """Return for each part whether the list differs without it, the share of its places, and of items not in it."""
    k = pi.size
    result = {}
    for part, ranks in found.without.items():
        without = ranks[pi]  # of the items of the list
        moved = without != np.arange(1, k + 1)
        gone = (without == 0) | (without > k)
        result[part] = float(moved.any()), float(moved.mean()), float(gone.mean())
    return result


def resampled(table: FloatArray, numbers: IntArray) -> FloatArray:
    """Return means over resamples of the queries; of the decisions if there is only one query."""
    _, codes = np.unique(numbers, return_inverse=True)
    if codes.max() == 0:
        codes = np.arange(len(table))
    clusters = int(codes.max()) + 1
    sums = np.zeros((clusters, *table.shape[1:]))
    np.add.at(sums, codes, table)
    sizes = np.bincount(codes, minlength=clusters).astype(np.float64)
    rng = np.random.default_rng(0)
    means = np.empty((RESAMPLES, *table.shape[1:]))
    for i in range(RESAMPLES):
        times = np.bincount(rng.integers(0, clusters, clusters), minlength=clusters).astype(np.float64)
        means[i] = np.tensordot(times, sums, 1) / (times @ sizes)
    return means


def measured(values: FloatArray, weighted: int = 0, n: int = 0) -> Measured:
    """Return the first value with the interval of the others.

    A part that had a weight and changed nothing in n decisions may change some: resamples cannot show that, so the
    interval then reaches to the largest share that n decisions without a change leave possible.
    """
    low, high = np.quantile(values[1:], [TAIL, 1.0 - TAIL])
    if weighted and values[0] == 0.0:
        high = 1.0 - TAIL ** (1.0 / n)
    return Measured(float(values[0]), float(min(low, values[0])), float(max(high, values[0])))
