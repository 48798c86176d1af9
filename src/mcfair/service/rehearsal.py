"""Rehearsals: the service's own ranker under given rules, on an operator's queries, with simulated users and time."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from scipy.special import betaincinv

from ..analysis.limits import fairness_floor
from ..arrays import FloatArray, IntArray
from ..data.dataset import Dataset
from ..errors import SettingError, StoreError
from ..estimators.base import Estimator
from ..metrics.exposure import unfairness
from ..random import ARRIVALS, CLICKS, DATA, draws, uniforms
from ..simulation.moments import fit_moments
from ..users.base import ClickModel
from .core.engine import Engine
from .core.ledger import Ledger
from .core.reports import observed_state
from .core.repository import LedgerRepository
from .core.rules import Rules, examination_probabilities
from .ranker import Ranker
from .stores import describe, open_reader

__all__ = ["GroupOutcome", "Outcome", "Rehearsal", "read_queries"]

LIMITS = (
    ("sessions", 1, 10**8),
    ("k", 1, 10**4),
    ("seed", 0, 2**62),
    ("interval", 0, 10**7),
    ("delay", 0, 10**9),
    ("newcomers", 0, 1),
)
"""Least and largest values of the settings of a rehearsal."""

START = 1_700_000_000_000
"""The time at which a rehearsal begins, in ms; any would do, but the same one each time."""


class GroupOutcome(msgspec.Struct, kw_only=True):
    """Received and merited exposure of one group over all queries."""

    group: str
    items: int
    exposure_share: float
    merit_share: float


class Outcome(msgspec.Struct, kw_only=True):
    """The figures of a rehearsal under one set of rules, by the true relevance of the simulated users.

    `worst_list` is the session, from 1, of the list with the lowest NDCG. NDCG is None if no item is relevant, `floor`
    if the examination probabilities rise somewhere. `shown` is the share of the items that were shown at least once,
    `shown_after` the session after which all of them had been.
    """

    rules: Rules
    ndcg: float | None
    worst_ndcg: float | None
    worst_list: int | None
    unfairness: float
    floor: float | None
    shown: float
    shown_after: int | None
    clicks: int
    groups: list[GroupOutcome]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """Queries, users and time of a rehearsal.

    Parameters
    ----------
    data
        The queries; users click by R. Priors are the scores if there are any, else R.
    weights : (queries,) array
        How often each query is asked, in any unit.
    clicks
        The click model.
    sessions
        Number of lists.
    k
        Length of a list.
    seed
        Seed of arrivals and clicks.
    interval, delay
        Seconds between sessions, and from a list to its clicks.
    newcomers
        Share of the items of each query, the last ones, that become candidates after half of the sessions.
    priors
        Whether the application sends priors.

    Raises
    ------
    SettingError
        If a number is not allowed, or the scores cannot be priors.
    """

    data: Dataset
    weights: FloatArray
    clicks: ClickModel
    sessions: int = 2_000
    k: int = 10
    seed: int = 0
    interval: float = 60.0
    delay: float = 0.0
    newcomers: float = 0.0
    priors: bool = True

    def __post_init__(self) -> None:
        for name, least, most in LIMITS:
            if not least <= getattr(self, name) <= most:
                allowed = f"expected a number from {least} to {most:,}"
                raise SettingError(f"{name} = {getattr(self, name)} is not allowed: {allowed}")
        sent = self.sent_priors
        if self.priors and not ((sent >= 0.0) & (sent <= 1.0)).all():
            raise SettingError(
                f"the scores of {self.data.name} range from {sent.min():g} to {sent.max():g} and cannot be priors: "
                "expected numbers from 0 to 1, or --no-priors"
            )

    @property
    def sent_priors(self) -> FloatArray:
        """The prior of each item."""
        return self.data.R if self.data.scores is None else self.data.scores

    def play(self, rules: Rules, progress: Callable[[int], None] | None = None) -> Outcome:
        """Play all sessions under some rules.

        Parameters
        ----------
        rules
            The rules of the service.
        progress
            Called with 1 after every session.

        Returns
        -------
        Outcome
            The figures.

        Raises
        ------
        RequestError
            If a rule is not allowed, or the queries exceed the limits of a request.
        """
        now = [START]
        settings = msgspec.structs.asdict(rules)
        with Ranker("memory:", clock=lambda: now[0], fit_interval=0.0, summary_interval=0.0, **settings) as ranker:
            return Stage(self, rules, ranker, now).play(progress)


class Stage:
    """The state of a rehearsal while it is played."""

    def __init__(self, rehearsal: Rehearsal, rules: Rules, ranker: Ranker, now: list[int]) -> None:
        self.rehearsal, self.rules, self.ranker, self.now = rehearsal, rules, ranker, now
        data = rehearsal.data
        self.p = examination_probabilities(rules.examination, min(rehearsal.k, int(data.sizes.max())))
        self.users_p = np.ascontiguousarray(rehearsal.clicks.examined(self.p), dtype=np.float64)
        self.E, self.shown = np.zeros(data.items), np.zeros(data.items, np.bool_)
        self.visits = np.zeros(data.queries, np.int64)
        self.clicks = self.newest = 0  # newest: the last session in which an item was shown for the first time
        self.pending: deque[tuple[int, list[dict[str, Any]]]] = deque()
        self.requests = [self.candidates(q) for q in range(data.queries)]
        # As the simulator does, and not by the clock of this machine: a rehearsal can be repeated.
        self.fit_moments = fit_moments(data.queries, Estimator.growth)
        self.next_fit = next(self.fit_moments)

    def candidates(self, q: int) -> list[dict[str, Any]]:
        """Return the items of a query as the application sends them; an id is the position in the query."""
        data, priors = self.rehearsal.data, self.rehearsal.sent_priors
        items: list[dict[str, Any]] = []
        for i in range(int(data.offsets[q]), int(data.offsets[q + 1])):
            item: dict[str, Any] = {"id": str(i - int(data.offsets[q]))}
            if self.rehearsal.priors:
                item["prior"] = float(priors[i])
            if data.groups is not None and (label := data.group_names[int(data.groups[i])]):
                item["group"] = label
            items.append(item)
        return items

    def play(self, progress: Callable[[int], None] | None) -> Outcome:
        """Play all sessions and return the figures."""
        rehearsal = self.rehearsal
        at = np.cumsum(rehearsal.weights / rehearsal.weights.sum())
        draw = uniforms(draws(rehearsal.seed, ARRIVALS), rehearsal.sessions)
        stream = np.minimum(np.searchsorted(at, draw, side="right"), at.size - 1)
        values = np.empty(rehearsal.sessions)
        for t, q in enumerate(stream.tolist()):
            self.now[0] = START + round(1000 * rehearsal.interval * t)
            self.deliver()
            values[t] = self.session(t, q)
            if progress is not None:
                progress(1)
        return self.outcome(values)

    def deliver(self) -> None:
        """Report the clicks that are due."""
        while self.pending and self.pending[0][0] <= self.now[0]:
            self.ranker.feedback(self.pending.popleft()[1])

    def session(self, t: int, q: int) -> float:
        """Rank a query and let a user click; return the NDCG of the list, nan if no candidate is relevant."""
        rehearsal, data = self.rehearsal, self.rehearsal.data
        first, n = int(data.offsets[q]), int(data.sizes[q])
        if t < rehearsal.sessions // 2:
            n = max(1, n - int(rehearsal.newcomers * n))
        if t == self.next_fit:
            self.ranker.executor.submit(Engine.fit).result()
            self.next_fit = next(self.fit_moments)
        answer = self.ranker.rank(data.query_id(q), self.requests[q][:n], k=rehearsal.k)
        pi: IntArray = np.array([int(item.id) for item in answer.items])
        truth, p = data.R[first : first + n], self.p[: pi.size]
        user = draws(rehearsal.seed, CLICKS, int(data.places[q]), int(self.visits[q]))
        hits = rehearsal.clicks.clicks(pi, truth, self.users_p, user)
        events = [{"impression": answer.impression, "item": str(d)} for d in pi[hits].tolist()]
        if events:
            self.pending.append((self.now[0] + round(1000 * rehearsal.delay), events))
            if rehearsal.delay == 0:
                self.deliver()
        self.clicks += len(events)
        self.visits[q] += 1
        self.E[first + pi] += p
        if not self.shown[first + pi].all():
            self.newest = t + 1
        self.shown[first + pi] = True
        ideal = float(np.sort(truth)[::-1][: pi.size] @ p)
        return float(truth[pi] @ p) / ideal if ideal > 0 else np.nan

    def outcome(self, values: FloatArray) -> Outcome:
        """Compute the figures after the last session."""
        data, visited = self.rehearsal.data, np.flatnonzero(self.visits)
        rows = [slice(int(data.offsets[q]), int(data.offsets[q + 1])) for q in visited]
        judged = np.flatnonzero(~np.isnan(values))
        worst = int(judged[np.argmin(values[judged])]) if judged.size else None
        falling = bool((np.diff(self.p) <= 0).all())
        return Outcome(
            rules=self.rules,
            ndcg=float(values[judged].mean()) if judged.size else None,
            worst_ndcg=None if worst is None else float(values[worst]),
            worst_list=None if worst is None else worst + 1,
            unfairness=float(np.mean([unfairness(self.E[each], data.R[each]) for each in rows])),
            floor=float(fairness_floor(data, self.visits, self.p).unfairness) if falling else None,
            shown=float(self.shown.mean()),
            shown_after=self.newest if self.shown.all() else None,
            clicks=self.clicks,
            groups=self.groups(rows),
        )

    def groups(self, rows: list[slice]) -> list[GroupOutcome]:
        """Compute received and merited exposure by group, the largest first; none if the items have no groups."""
        data = self.rehearsal.data
        if data.groups is None:
            return []
        exposure, merit, items = (np.zeros(len(data.group_names)) for _ in range(3))
        for each in rows:
            R, had = data.R[each], float(self.E[each].sum())
            due = R * (had / R.sum()) if R.sum() > 0 else np.zeros(R.size)
            np.add.at(exposure, data.groups[each], self.E[each])
            np.add.at(merit, data.groups[each], due)
            np.add.at(items, data.groups[each], 1)
        total = max(float(self.E.sum()), 1e-300)
        found = [
            GroupOutcome(
                group=name,
                items=int(items[code]),
                exposure_share=float(exposure[code]) / total,
                merit_share=float(merit[code]) / total,
            )
            for code, name in enumerate(data.group_names)
            if name and items[code]
        ]
        return sorted(found, key=lambda each: -each.exposure_share)


def read_queries(store: str, seed: int = 0) -> tuple[Dataset, FloatArray, Rules]:
    """Read the queries of a store: items and groups, relevance, visits, and the rules in force.

    The true relevance is not known. It is drawn from its posterior distribution given the clicks of the store, and the
    estimates are the priors: the application then knows as much as it would after this store, and not the truth.

    Parameters
    ----------
    store
        Where the store is, as `Ranker` takes it; a server may be running.
    seed
        Seed of the draw.

    Returns
    -------
    data
        The queries by their ids; R is drawn, the scores are the estimates, at most 1.
    visits : (queries,) array
        Visits of each query.
    rules
        The rules in force.

    Raises
    ------
    StoreError
        If the store cannot be read or has no queries.
    """
    found: list[tuple[Ledger, IntArray, FloatArray, FloatArray]] = []
    with open_reader(store) as reader:
        repository = LedgerRepository(reader)
        version = repository.in_force
        for ledger in repository.all_ledgers():
            rows, E, R, _ = observed_state(ledger, version, ledger.time)
            if ledger.visits and rows.size:
                prior = np.where(np.isnan(ledger.priors[rows]), version.rules.prior_mean is not None, True)
                found.append((ledger, rows, np.minimum(R, 1.0), posterior(E, R, prior * version.rules.prior_strength)))
    if not found:
        raise StoreError(f"{describe(store)} has no queries that were ranked: rehearse on a table with --data")
    estimates, shapes = (np.concatenate(each, axis=-1) for each in list(zip(*found, strict=True))[2:])
    R = betaincinv(*shapes, uniforms(draws(seed, DATA), estimates.size))
    groups = [ledger.groups[row] for ledger, rows, *_ in found for row in rows.tolist()]
    data = Dataset(
        offsets=np.cumsum([0, *(rows.size for _, rows, *_ in found)]),
        y=R > 0,
        y_max=1,
        R=R,
        scores=estimates,
        groups=groups if any(groups) else None,
        query_ids=[ledger.key.hex() for ledger, *_ in found],
        name=describe(store),
    )
    return data, np.array([float(ledger.visits) for ledger, *_ in found]), version.rules


def posterior(E: FloatArray, R: FloatArray, strength: FloatArray) -> FloatArray:
    """Return the parameters a and b of the beta distribution of each relevance, as two rows.

    An estimate R = (C + s·m)/(E + s) is the mean of Beta(C + s·m, E - C + s·(1 - m)). Without a prior, s = 0, the
    distribution before the first view is uniform.
    """
    views = E + strength
    hits = np.minimum(R, 1.0) * views + (strength == 0.0)
    return np.maximum([hits, views + 2.0 * (strength == 0.0) - hits], 1e-3)
