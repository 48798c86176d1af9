"""Rehearsals: the service's own engine under given rules, on an operator's queries, with simulated users and time."""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import msgspec
import numpy as np

from ..analysis.limits import fairness_floor
from ..arrays import FloatArray, IntArray
from ..data.dataset import Dataset
from ..errors import SettingError
from ..estimators.base import Estimator
from ..metrics.exposure import unfairness
from ..random import ARRIVALS, CLICKS, DATA, draws, uniform, uniforms
from ..simulation.run import fit_moments
from ..users.base import ClickModel
from .core.engine import Engine
from .core.fits import PriorFits
from .core.rules import Rules, change_rules, examination_probabilities
from .stores import Store, open_store
from .wire import Event, Item, RankRequest, RawRankRequest, with_raw_items

LIMITS = (
    ("sessions", 1, 10**8),
    ("k", 1, 10**4),
    ("seed", 0, 2**62),
    ("interval", 0, 10**7),
    ("click_delay", 0, 10**9),
    ("lost_clicks", 0, 1),
    ("newcomers", 0, 1),
    ("drift", 0, 1),
)
"""Least and largest values of the settings of a rehearsal."""

START = 1_700_000_000_000
"""The time at which a rehearsal begins, in ms; any would do, but the same one each time."""

COMPACTION_SESSIONS = 100
"""Sessions between compactions."""


class GroupOutcome(msgspec.Struct, kw_only=True):
    """Received and merited exposure of one group over all queries."""

    group: str
    items: int
    exposure_share: float
    merit_share: float


class Outcome(msgspec.Struct, kw_only=True):
    """The figures of a rehearsal under one set of rules, by the true relevance of the simulated users.

    `worst_list` is the session, from 1, of the list with the lowest NDCG. NDCG is None if no item is relevant, `floor`
    if the examination probabilities rise somewhere. The merit of an item, by which unfairness and its floor are
    measured, is its mean relevance over the visits of its query, 0 while it is not a candidate. `shown` is the share of
    the items that were shown at least once, `shown_after` the session after which all of them had been. `clicks` counts
    the clicks that reached the service.
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
    interval
        Seconds between sessions.
    click_delay
        Mean of the seconds from a list to each of its clicks, which are exponentially distributed; 0 is at once.
    lost_clicks
        Share of the clicks that are never reported.
    newcomers
        Share of the items of each query, the last ones, that become candidates after half of the sessions.
    drift
        Share of the items of each query whose relevance changes: in the course of the sessions it moves, in a straight
        line, to the relevance that another one of them began with. Priors stay as they were.
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
    click_delay: float = 0.0
    lost_clicks: float = 0.0
    newcomers: float = 0.0
    drift: float = 0.0
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
        changed = change_rules(Rules(), None, msgspec.structs.asdict(rules))
        with closing(open_store("memory:")) as store:
            return Stage(self, changed, store).play(progress)


class Stage:
    """The state of a rehearsal while it is played.

    The engine is called directly. Its executor would hand every operation to another thread, and compact when the wall
    clock says so.
    """

    def __init__(self, rehearsal: Rehearsal, rules: Rules, store: Store) -> None:
        self.rehearsal, self.rules, self.store, self.now = rehearsal, rules, store, START
        data = rehearsal.data
        with self.transaction():
            self.engine = Engine(store, lambda _: rules, clock=lambda: self.now)
        self.p = examination_probabilities(rules.examination, min(rehearsal.k, int(data.sizes.max())))
        self.users_p = np.ascontiguousarray(rehearsal.clicks.examined(self.p), dtype=np.float64)
        self.R_end = drifted(data, rehearsal.drift, rehearsal.seed)
        self.E, self.merit, self.shown = np.zeros(data.items), np.zeros(data.items), np.zeros(data.items, np.bool_)
        self.visits = np.zeros(data.queries, np.int64)
        self.clicks = self.newest = 0  # newest: the last session in which an item was shown for the first time
        self.pending: list[tuple[int, int, Event]] = []  # a heap of clicks, by the time they are due
        self.numbers = itertools.count()  # clicks that are due at the same time keep their order
        self.requests: dict[tuple[int, int], RawRankRequest] = {}
        # As the simulator does, and not by the clock of this machine: a rehearsal can be repeated.
        self.fit_moments = fit_moments(data.queries, Estimator.growth)
        self.next_fit, self.fits = next(self.fit_moments), PriorFits()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit what the block writes; a rehearsal ends with the first error."""
        self.store.begin(exclusive=True)
        yield
        self.store.commit()

    def request(self, q: int, n: int) -> RawRankRequest:
        """Return the request for the first n items of a query; the id of an item is its position in the query."""
        if (q, n) not in self.requests:
            data, priors = self.rehearsal.data, self.rehearsal.sent_priors
            first = int(data.offsets[q])
            items = [
                Item(
                    id=str(i - first),
                    prior=float(priors[i]) if self.rehearsal.priors else None,
                    group=None if data.providers is None else data.provider_names[int(data.providers[i])] or None,
                )
                for i in range(first, first + n)
            ]
            request = RankRequest(query=data.query_id(q), items=items, k=self.rehearsal.k)
            self.requests[q, n] = with_raw_items(request)
        return self.requests[q, n]

    def play(self, progress: Callable[[int], None] | None) -> Outcome:
        """Play all sessions and return the figures."""
        rehearsal = self.rehearsal
        at = np.cumsum(rehearsal.weights / rehearsal.weights.sum())
        draw = uniforms(draws(rehearsal.seed, ARRIVALS), rehearsal.sessions)
        stream = np.minimum(np.searchsorted(at, draw, side="right"), at.size - 1)
        values = np.empty(rehearsal.sessions)
        for t, q in enumerate(stream.tolist()):
            self.now = START + round(1000 * rehearsal.interval * t)
            with self.transaction():
                self.deliver()
                values[t] = self.session(t, q)
                if t % COMPACTION_SESSIONS == 0:
                    self.engine.compact_expired()
            if progress is not None:
                progress(1)
        return self.outcome(values)

    def deliver(self) -> None:
        """Report the clicks that are due."""
        due = []
        while self.pending and self.pending[0][0] <= self.now:
            due.append(heapq.heappop(self.pending)[-1])
        if due:
            self.engine.feedback(due)
            self.clicks += len(due)

    def session(self, t: int, q: int) -> float:
        """Rank a query and let a user click; return the NDCG of the list, nan if no candidate is relevant."""
        rehearsal, data = self.rehearsal, self.rehearsal.data
        first, n = int(data.offsets[q]), int(data.sizes[q])
        if t < rehearsal.sessions // 2:
            n = max(1, n - int(rehearsal.newcomers * n))
        if t == self.next_fit:
            self.fits.step(self.store, self.now, lambda prior: self.engine.set_prior(*msgspec.structs.astuple(prior)))
            self.next_fit = next(self.fit_moments)
        answer = self.engine.rank(self.request(q, n))
        pi: IntArray = np.array([int(item.id) for item in answer.items])
        rows, p = slice(first, first + n), self.p[: pi.size]
        truth = data.R[rows] + (self.R_end[rows] - data.R[rows]) * (t / max(rehearsal.sessions - 1, 1))
        user = draws(rehearsal.seed, CLICKS, int(data.places[q]), int(self.visits[q]))
        hits = rehearsal.clicks.clicks(pi, truth, self.users_p, user)
        self.report(q, answer.impression, pi[hits].tolist())
        self.visits[q] += 1
        self.merit[rows] += truth
        self.E[first + pi] += p
        if not self.shown[first + pi].all():
            self.newest = t + 1
        self.shown[first + pi] = True
        ideal = float(np.sort(truth)[::-1][: pi.size] @ p)
        return float(truth[pi] @ p) / ideal if ideal > 0 else np.nan

    def report(self, q: int, impression: str | None, clicked: list[int]) -> None:
        """Schedule the clicks on a list, but for those that are lost.

        Whether and when a click arrives depends on the visit and the item, as the click itself does, so that rules are
        compared with the same users.
        """
        rehearsal, n = self.rehearsal, int(self.rehearsal.data.sizes[q])
        # No visit has number 0 here: those draws are the arrivals of users.
        rng = draws(rehearsal.seed, ARRIVALS, int(rehearsal.data.places[q]), int(self.visits[q]) + 1)
        for d in clicked:
            if uniform(rng, d) >= rehearsal.lost_clicks:
                late = -rehearsal.click_delay * math.log1p(-uniform(rng, n + d))
                event = Event(impression=str(impression), item=str(d))
                heapq.heappush(self.pending, (self.now + round(1000 * late), next(self.numbers), event))
        if rehearsal.click_delay == 0:
            self.deliver()

    def outcome(self, values: FloatArray) -> Outcome:
        """Compute the figures after the last session."""
        data, visited = self.rehearsal.data, np.flatnonzero(self.visits)
        rows = [slice(int(data.offsets[q]), int(data.offsets[q + 1])) for q in visited]
        R = np.minimum(self.merit / np.repeat(np.maximum(self.visits, 1), data.sizes), 1.0)
        merited = Dataset(offsets=data.offsets, y=np.zeros(data.items), R=R)
        judged = np.flatnonzero(~np.isnan(values))
        worst = int(judged[np.argmin(values[judged])]) if judged.size else None
        falling = bool((np.diff(self.p) <= 0).all())
        return Outcome(
            rules=self.rules,
            ndcg=float(values[judged].mean()) if judged.size else None,
            worst_ndcg=None if worst is None else float(values[worst]),
            worst_list=None if worst is None else worst + 1,
            unfairness=float(np.mean([unfairness(self.E[each], R[each]) for each in rows])),
            floor=float(fairness_floor(merited, self.visits, self.p).unfairness) if falling else None,
            shown=float(self.shown.mean()),
            shown_after=self.newest if self.shown.all() else None,
            clicks=self.clicks,
            groups=self.groups(rows, R),
        )

    def groups(self, rows: list[slice], relevance: FloatArray) -> list[GroupOutcome]:
        """Compute received and merited exposure by group, the largest first; none if the items have no groups."""
        data = self.rehearsal.data
        if data.providers is None:
            return []
        exposure, merit, items = (np.zeros(len(data.provider_names)) for _ in range(3))
        for each in rows:
            R, had = relevance[each], float(self.E[each].sum())
            due = R * (had / R.sum()) if R.sum() > 0 else np.zeros(R.size)
            np.add.at(exposure, data.providers[each], self.E[each])
            np.add.at(merit, data.providers[each], due)
            np.add.at(items, data.providers[each], 1)
        total = max(float(self.E.sum()), 1e-300)
        found = [
            GroupOutcome(
                group=name,
                items=int(items[code]),
                exposure_share=float(exposure[code]) / total,
                merit_share=float(merit[code]) / total,
            )
            for code, name in enumerate(data.provider_names)
            if name and items[code]
        ]
        return sorted(found, key=lambda each: -each.exposure_share)


def drifted(data: Dataset, share: float, seed: int) -> FloatArray:
    """Return the relevance of each item at the end: a share of the items of each query has that of another of them."""
    R = data.R.copy()
    for q in range(data.queries):
        first, n = int(data.offsets[q]), int(data.sizes[q])
        order = np.argsort(uniforms(draws(seed, DATA, int(data.places[q]), 1), n), kind="stable")
        moving = first + order[: round(share * n)]
        R[moving] = data.R[np.roll(moving, 1)]
    return R
