"""One simulated run: query → relevance → ranking → list → clicks → relevance, millions of times a second.

A session is (query, visit). What one query learns does not depend on the other queries, so a run is a loop over
queries, each with its own sessions in order of time; only their time stamps tie them to the common stream.
"""

from __future__ import annotations

import dataclasses
import math
import platform
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import pairwise
from typing import Any, NamedTuple, Unpack

import numpy as np

from .._jit import INTERPRET, compile_kernel, compile_seconds
from ..arrays import BoolArray, CountArray, FloatArray, IntArray, check_memory
from ..data.dataset import Dataset
from ..errors import DataError, MCFairWarning, PartError, PolicyError, SettingError, checked
from ..estimators import Estimator
from ..estimators.base import BATCH, ESTIMATE, FIGURES
from ..estimators.ips import ips_estimate
from ..metrics.effectiveness import ideal_dcg
from ..options import explicit_options
from ..parts import shortened
from ..policies.base import Policy
from ..policies.mcfair import gradient_score
from ..policies.selection import FALLBACK, OK, fault, guard_of, policy_call, policy_function, top_k_scratch
from ..policies.terms import group_term_of
from ..random import POLICY, PREPARE, draws
from ..state import Query, State
from ..users.arrivals import arrivals
from ..users.base import CLICK
from ..users.position_based import position_based_clicks
from .loop import (
    NO_ANSWER,
    Accumulators,
    Counts,
    Log,
    QueryTable,
    RunConfig,
    Scratch,
    Snapshots,
    Stream,
    compiled_play,
    group_sessions,
    play,
)
from .measure import ExposureRun, ListRun, Sums, measure, users_exposure
from .setting import Count, Setting, SettingOptions, make_setting
from .trace import Trace

BLOCKS = 64
"""Number of blocks that queries are cut into; part of the result, because it fixes the order of sums."""

Progress = Callable[[int], None]


class Run:
    """One run: its arrays, built from data, policy and setting, and the calls of the loop.

    Parameters
    ----------
    data
        The queries that sessions are drawn from, each with at least two items.
    judged : (queries,) bool array
        Which of them the figures cover.
    policy, setting, seed
        What is simulated.
    state
        What was observed before; it is updated by the run.
    ends : (checkpoints,) int array
        Numbers of sessions after which figures are recorded.
    record
        Whether to keep every list and click.
    """

    def __init__(
        self,
        data: Dataset,
        judged: BoolArray,
        policy: Policy,
        setting: Setting,
        *,
        seed: int,
        state: State,
        ends: IntArray,
        record: bool,
        visited: CountArray | None = None,
    ) -> None:
        self.data, self.seed, self.record = data, seed, record
        self.policy, self.given_policy = policy.in_mode(setting.mode), policy
        self.setting = setting = setting.for_policy(policy)
        self.estimator, known = setting.estimator_for(policy), state.estimator
        if known is not None and known.same_but_fitted(self.estimator) and setting.mode == "online":
            self.estimator = known
        else:  # what was fitted in another run is not in force in this one, and is out of date after it
            state = dataclasses.replace(state, estimator=None)
        self.state = state
        self.sessions = data.protocol.sessions(setting.steps)
        check_size(data, self.sessions, state.p.size, ends.size, len(setting.metrics), record)
        ranks, p = state.p.size, state.p
        self.bounds = np.linspace(0, data.queries, min(BLOCKS, data.queries) + 1).astype(np.int64)
        blocks, marks = self.bounds.size - 1, ends.size
        self.config = RunConfig(
            p=p,
            users_p=np.ascontiguousarray(setting.clicks.examined(p), dtype=np.float64),
            online=setting.mode == "online",
            prior_strength=float(self.estimator.prior_strength),
            seed=np.uint64(seed),
            ties=self.policy.tie_rule,
            theta=self.policy.theta,
            click_theta=setting.clicks.theta,
            estimate_theta=self.estimator.theta,
        )
        self.table = QueryTable(
            offsets=data.offsets.copy(),
            R=data.R.copy(),
            seen=(data.R if data.scores is None else data.scores).copy(),
            providers=data.query_providers.copy(),
            ideal=ideal_dcg(data.R, p, data.offsets),
            places=data.places.copy(),
            judged=judged.copy(),
        )
        if visited is None:  # otherwise the query of each session is given, such as that of a log
            visited = arrivals(data.protocol.arrivals, self.sessions, data.queries, seed, start=state.sessions)
        self.arrivals = visited
        self.stream = self._stream(ends)
        self.counts = Counts(state.F, state.C, state.visits, np.zeros(data.queries, np.int64))
        sums = (blocks, marks, ranks)
        self.accumulators = Accumulators(np.zeros(sums), np.zeros(sums), np.zeros((data.queries, ranks)))
        self.sums = [Sums(each, blocks, marks, data.queries) for each in setting.measured(ranks)]
        self.gaps: list[float] = []  # of the lists of sessions that the kernel left to `solve`
        lists = record or any(each.metric.needs_lists for each in self.sums)
        shape = (self.sessions if lists else 0, ranks)
        self.log = Log(np.full(shape, -1, np.int32), np.zeros(shape, np.bool_))

    def _stream(self, ends: IntArray) -> Stream:
        starts = np.zeros(self.data.queries + 1, np.int64)
        when = np.empty(self.arrivals.size, np.int32)
        group_sessions(self.arrivals, starts, when)
        ticks, tick_ends = when, ends
        if not self.table.judged.all():
            clock = np.concatenate(([0], np.cumsum(self.table.judged[self.arrivals])))
            ticks, tick_ends = clock[when].astype(np.int32), clock[ends]
        weights = discounts(self.setting.gamma, int(np.diff(ends, prepend=0).max()))
        return Stream(starts, when, ticks, ends, tick_ends, weights)

    def _scratch(self) -> Scratch:
        n, k = int(self.data.sizes.max()), self.state.p.size
        components = self.estimator.posterior_size if self.config.online else 0
        return Scratch(
            R=np.zeros(n),
            uncertainty=np.zeros(n),
            posterior=np.zeros((n, components, 3)),
            E=np.zeros(n),
            scores=np.zeros(n),
            top_k=top_k_scratch(n),
            pi=np.zeros(k, np.int64),
            hits=np.zeros(k, np.bool_),
            visits=np.zeros((), np.int64),
            items=np.arange(n),
            estimates=np.zeros((n, FIGURES + 3 * components)),
            ndcg=np.zeros(k),
            cndcg=np.zeros(k),
        )

    def _snapshots(self, blocks: tuple[int, int], span: tuple[int, int]) -> Snapshots:
        """Allocate snapshots for the checkpoints of one call: little, whatever the size of the run."""
        low, high = int(self.bounds[blocks[0]]), int(self.bounds[blocks[1]])
        ends = self.stream.ends
        first, last = (int(np.searchsorted(ends, time, side="right")) for time in span)
        items = int(self.table.offsets[high] - self.table.offsets[low])
        shape = last - first, high - low
        return Snapshots(
            E=np.zeros((shape[0], items)),
            visits=np.zeros(shape, np.int64),
            first_query=low,
            first_item=int(self.table.offsets[low]),
            first_mark=first,
        )

    def _fit(self) -> None:
        """Fit the estimator to what all queries have observed; a view then has new estimates of all its items."""
        state = self.state
        self.estimator = self.estimator.refit(state.C, state.E, state.F, state.p)
        self.state = dataclasses.replace(state, estimator=self.estimator)
        strength = float(self.estimator.prior_strength)
        self.config = self.config._replace(estimate_theta=self.estimator.theta, prior_strength=strength)

    # --- playing -----------------------------------------------------------------------------------------------------

    def play(self, threads: int, progress: Progress | None) -> float:
        """Play all sessions; return the seconds it took without compilation."""
        _, compiled = self._loop()
        threads = threads if compiled else 1  # the interpreter would run one thread at a time anyway
        begun = time.perf_counter()
        with compile_seconds() as compiling:  # of the kernels that the policy and the estimator call by themselves
            memory = None
            estimator = self.estimator if self.config.online and self.estimator.pooled else None
            before, fitted = self.state.sessions, self.state.estimator is estimator
            for phase in list(phases(self.sessions, self.policy, estimator, self.data.queries, before, fitted)):
                if phase.fit:
                    self._fit()
                if phase.prepare >= 0:
                    memory = self._memory(phase.prepare, memory)
                loop, _ = self._loop()
                one_call = partial(self._call, loop, memory, phase.span, progress)
                # Enough calls for the threads and for progress to be seen.
                blocks = self.bounds.size - 1
                calls = min(blocks, max(4 * threads if threads > 1 else 1, self.sessions // 500_000))
                groups = pairwise(np.linspace(0, blocks, calls + 1).astype(int).tolist())
                if threads == 1:
                    for group in groups:
                        one_call(group)
                else:
                    with ThreadPoolExecutor(threads) as pool:
                        list(pool.map(one_call, groups))
            for sums in self.sums:
                if sums.metric.needs_lists:
                    measure(sums, self._recorded(sums.metric.of_users))
        return time.perf_counter() - begun - sum(compiling)

    def _recorded(self, of_users: bool) -> ExposureRun | ListRun:
        """Return the recorded lists: the exposure that users really gave to them, or the lists themselves."""
        p, table, log, bounds = self.state.p, self.table, self.log, self.bounds
        if not of_users:
            return ListRun(table, self.stream, p, log.lists, bounds, np.zeros(p.size, np.int64))
        given = users_exposure(self.setting.clicks, p, table, log, self.arrivals, self.stream.ends)
        return ExposureRun(table, given, bounds, (0, bounds.size - 1))

    def _arguments(self, memory: Any, snapshots: Snapshots, scratch: Scratch) -> tuple[Any, ...]:
        fixed = self.config, self.table, self.stream, self.counts, self.accumulators
        return memory, *fixed, snapshots, self.log, scratch, self.bounds

    def _loop(self) -> tuple[Callable[..., tuple[int, int]], bool]:
        """Return the loop with the functions of the four parts, and whether it is compiled.

        It is compiled if all parts that it calls have kernels; otherwise it is interpreted, and so are those parts
        that have none.
        """
        clicks, estimator = self.setting.clicks, self.estimator
        group, guard = group_term_of(self.policy), guard_of(self.policy, self.config.p)
        parts = [self.policy, *((clicks, estimator) if self.config.online else ())]
        if INTERPRET or any(each.kernel is None for each in parts):
            plain = clicks.write_clicks, estimator.write_estimate, None, *self._by_kind(policy_call(self.policy))
            return partial(play.interpreted, *plain, None, None, group, guard), False
        examples = self._arguments(np.zeros((1, 1)), self._snapshots((0, 1), (0, 1)), self._scratch())
        click = estimate = batch = score = rank = None
        if self.config.online and not (clicks.kernel is position_based_clicks and estimator.kernel is ips_estimate):
            click = clicks.compiled(*CLICK)[0]
            if estimator.batch is None:
                estimate = estimator.compiled(*ESTIMATE)[0]
            else:
                batch, _ = compile_kernel(estimator.batch, f"estimator {estimator.name()}", PartError, *BATCH)
        if self.policy.kernel is not gradient_score:
            score, rank = self._by_kind(policy_function(self.policy))
        inline_users = True if click is None else None
        inline_score = True if score is None and rank is None else None
        functions = click, estimate, batch, score, rank, inline_users, inline_score, group, guard
        return partial(compiled_play(functions, examples), *functions), True

    def _by_kind(self, function: Any) -> tuple[Any, Any]:
        """Return the score and the rank function of the policy, which has one of the two."""
        return (None, function) if self.policy.ranks else (function, None)

    def _call(
        self,
        loop: Callable[..., tuple[int, int]],
        memory: Any,
        span: tuple[int, int],
        progress: Progress | None,
        blocks: tuple[int, int],
    ) -> None:
        played = self.counts.played[self.bounds[blocks[0]] : self.bounds[blocks[1]]]
        before = int(played.sum())
        scratch, snapshots = self._scratch(), self._snapshots(blocks, span)
        arguments = self._arguments(memory, snapshots, scratch)
        verdict, query = loop(*arguments, blocks, span, NO_ANSWER)
        while verdict == FALLBACK:
            answer = query, self._solve(query, memory[query], scratch)
            rest = int(np.searchsorted(self.bounds, query, side="right")) - 1, blocks[1]
            verdict, query = loop(*arguments, rest, span, answer)
        if verdict != OK:
            raise PolicyError(f"{self.policy!r} returned {fault(verdict)} for query {self.data.query_id(query)}")
        for sums in self.sums:
            if not (sums.metric.per_list or sums.metric.of_users):
                measure(sums, ExposureRun(self.table, snapshots, self.bounds, blocks))
        if progress is not None:
            progress(int(played.sum()) - before)

    def _solve(self, query: int, memory: Any, scratch: Scratch) -> int:
        """Write the list of a session that the kernel left to `solve`; return the time of the session."""
        items = slice(self.data.offsets[query], self.data.offsets[query + 1])
        n, visit = items.stop - items.start, int(self.counts.visits[query])
        view = Query(
            R=scratch.R[:n],
            uncertainty=scratch.uncertainty[:n],
            E=scratch.E[:n],
            F=self.counts.F[items],
            p=self.config.p,
            visits=scratch.visits,
            providers=self.table.providers[items],
            prior_strength=self.config.prior_strength,
            posterior=scratch.posterior[:n],
            memory=memory,
        )
        rng = draws(self.seed, POLICY, int(self.data.places[query]), visit)
        self.gaps.append(self.policy.write_solution(view, rng, scratch.pi[: min(n, scratch.pi.size)]))
        return int(self.stream.when[self.stream.starts[query] + self.counts.played[query]])

    def _memory(self, fit: int, before: Any) -> Any:
        made, compiled, queries = None, self.policy.kernel is not None, self.data.queries
        if type(self.policy).prepare is not Policy.prepare:
            state = self.state
            learnt = self.config.online
            seen = self.estimator.estimates(state.C, state.E, state.F, state.p)[0] if learnt else self.table.seen
            hidden = self.data.hiding_truth(seen)
            rng = draws(self.seed, PREPARE, visit=fit)
            made = self.policy.attempt(self.policy.prepare, hidden, self.state, rng)
        if made is None:
            nothing = np.zeros((queries, 0)) if compiled else [None] * queries
            return nothing if before is None else before
        if len(made) != queries:
            raise PolicyError(f"{self.policy!r} prepared {len(made)} entries for {queries} queries")
        return np.ascontiguousarray(made, dtype=np.float64) if compiled else made

    # --- the result --------------------------------------------------------------------------------------------------

    def _effectiveness(self) -> dict[str, tuple[FloatArray, FloatArray | None]]:
        """Return cNDCG and NDCG by their texts: at the checkpoints, and of each query if a single one has a value."""
        sums, stream = self.accumulators, self.stream
        cndcg = sums.cndcg.sum(axis=0)
        spans = np.diff(stream.tick_ends, prepend=0)
        for m in range(1, cndcg.shape[0]):
            if spans[m] < stream.weights.size:
                cndcg[m] += stream.weights[spans[m]] * cndcg[m - 1]
        ndcg = np.cumsum(sums.ndcg.sum(axis=0), axis=0) / np.maximum(stream.tick_ends, 1)[:, None]
        counted = np.where(self.table.judged & (self.counts.played > 0), self.counts.played, np.nan)
        of_queries = sums.query_ndcg / counted[:, None]
        cutoffs = range(cndcg.shape[1])
        return {
            **{f"cndcg@{j + 1}": (cndcg[:, j].copy(), None) for j in cutoffs},
            **{f"ndcg@{j + 1}": (ndcg[:, j].copy(), of_queries[:, j].copy()) for j in cutoffs},
        }

    def trace(self, seconds: float, threads: int) -> Trace:
        """Add up the blocks and describe the run."""
        effectiveness, data = self._effectiveness(), self.data
        values: dict[str, FloatArray] = {}
        query_values: dict[str, FloatArray] = {}
        for sums in self.sums:
            text, known = repr(sums.metric), sums.metric.summed_while_played
            values[text], of_queries = effectiveness[text] if known else (sums.means(), sums.arrays.latest)
            if of_queries is not None:
                query_values[text] = of_queries
        provenance = {
            "policy": repr(self.given_policy),
            "setting": self.setting.to_dict(),
            "sessions": self.sessions,
            "seed": self.seed,
            "protocol": data.protocol.name,
            "data": {"name": data.name, "queries": data.queries, "items": data.items, "fingerprint": data.fingerprint},
            "examination": self.state.p.tolist(),
            "fitted_estimator": None if self.state.estimator is None else repr(self.state.estimator),
            "fallbacks": len(self.gaps),
            "largest_gap": max(self.gaps, default=0.0),
            "sessions_before": self.state.sessions - self.sessions,
            "seconds": seconds,
            "threads": threads,
            "versions": versions(),
        }
        return Trace(
            checkpoints=self.stream.ends,
            values=values,
            query_values=query_values,
            query_judged=self.table.judged,
            query_sessions=self.counts.played,
            data=data.without_features,
            state=self.state,
            provenance=provenance,
            estimator=self.setting.estimator_for(self.policy),
            lists=self.log.lists if self.record else None,
            clicks=self.log.clicks if self.record else None,
            arrivals=self.arrivals if self.record else None,
        )


def check_size(data: Dataset, sessions: int, ranks: int, marks: int, metrics: int, record: bool) -> None:
    """Raise SettingError if a run would need more memory than there is: an estimate of its largest arrays."""
    stream = sessions * (12 + (5 * ranks if record else 0))
    sums = marks * (BLOCKS * (16 * ranks + 24 * (metrics + 2)) + 8 * (4 * ranks + metrics))
    calls = max(min(BLOCKS, sessions // 500_000), 1)  # snapshots are made for one call at a time
    snapshots = marks * 8 * (data.items // calls + data.queries)
    what = f"a run of {sessions:,} sessions with {marks:,} checkpoints on {data.items:,} items"
    check_memory(stream + sums + snapshots + 100 * data.items, what)


@cache
def versions() -> dict[str, str]:
    """Return the versions that the result may depend on."""
    from importlib.metadata import version

    return {"python": platform.python_version(), **{name: version(name) for name in ("mcfair", "numpy", "numba")}}


def discounts(gamma: float, length: int) -> FloatArray:
    """Return the powers of γ from 0 to length while they are not 0: a table, as compiled powers differ in a bit."""
    if 0.0 < gamma < 1.0:
        length = min(length, int(-746.0 / math.log(gamma)) + 1)
    powers = np.full(length + 1, gamma)
    powers[0] = 1.0
    return np.multiply.accumulate(powers)


# --- the moments at which a run stops to learn from all queries at once: a policy prepares, an estimator is fitted ----


class RunPhase(NamedTuple):
    """The sessions between two moments, and what is done before the first of them.

    `prepare` is the number of the call of the policy's `prepare` that is due, or -1; `fit` whether a fit is.
    """

    span: tuple[int, int]
    prepare: int
    fit: bool


def fit_moments(queries: int, growth: float) -> Iterator[int]:
    """Yield the numbers of sessions at which a pooled estimator is fitted, from the first session ever on.

    They depend on nothing but the number of queries, so that a run that is continued has the same moments.

    Examples
    --------
    >>> moments = fit_moments(queries=100, growth=0.3)
    >>> [next(moments) for _ in range(6)]
    [100, 200, 300, 400, 520, 676]
    """
    moment = queries
    while True:
        yield moment
        moment = max(moment + queries, math.ceil(moment * (1.0 + growth)))


def phases(
    sessions: int, policy: Policy, estimator: Estimator | None, queries: int, before: int, fitted: bool
) -> Iterator[RunPhase]:
    """Yield the phases of a run.

    Parameters
    ----------
    sessions
        Sessions of the run.
    policy
        The policy, which prepares at evenly spaced moments, or also at every fit.
    estimator
        The pooled estimator, None if there is none.
    queries, before
        Number of queries, and of sessions before the run.
    fitted
        Whether the state already has a fit of the estimator. If not, it is fitted at once if it is overdue.
    """
    due: set[int] = set()
    if estimator is not None:
        for moment in fit_moments(queries, estimator.growth):
            if moment >= before + sessions:
                break
            if moment >= before:
                due.add(moment - before)
            elif not fitted:
                due.add(0)
    starts = {sessions * i // policy.fits for i in range(policy.fits)} | (due if policy.prepares_at_fits else set())
    prepares = {start: i for i, start in enumerate(sorted(starts))}
    for span in pairwise(sorted({*prepares, *due, sessions})):
        yield RunPhase(span, prepares.get(span[0], -1), span[0] in due)


# --- simulate ---------------------------------------------------------------------------------------------------------


@explicit_options(Setting, SettingOptions)
def simulate(
    data: Dataset,
    policy: Policy | str,
    setting: Setting | str = "post-processing",
    *,
    seed: int = 0,
    checkpoints: int | Sequence[int] = 20,
    threads: int = 1,
    state: State | None = None,
    record: bool = False,
    progress: Callable[[int], None] | None = None,
    **options: Unpack[SettingOptions],
) -> Trace:
    """Simulate a policy with simulated users.

    The data carries its protocol: data loaded with a preset is simulated by the rules of that preset.

    Parameters
    ----------
    data
        The queries; of a fold, its test part.
    policy
        A policy or its text, such as "MCFair(alpha=10)".
    setting
        A `Setting`, or its mode: "post-processing" or "online".
    seed
        Everything random is a function of it.
    checkpoints
        How many, evenly spaced; or the numbers of sessions after which figures are recorded, ascending. The end of the
        run is always one.
    threads
        Threads to use; they change no bit of the result.
    state
        Where to continue from, such as the `state` of an earlier trace; sessions and draws continue where it stopped.
        Figures cover the sessions of this run.
    record
        Whether to keep every list and click.
    progress
        Called now and then with the number of sessions played since the last call.
    **options
        Fields of `Setting`: steps, k, examination, gamma, clicks, estimator, metrics.

    Returns
    -------
    Trace

    Raises
    ------
    SettingError
        If an option is unknown or a value is not allowed.
    PolicyError
        If the policy fails or returns something that is not a ranking.

    Examples
    --------
    >>> data = Dataset(offsets=[0, 3], y=[2, 1, 0])
    >>> simulate(data, "TopK", steps=100).ndcg[1]
    1.0
    """
    chosen = Policy.of(policy)
    conditions = make_setting(setting, options)
    seed = checked("seed", int, seed, SettingError)
    if not 0 <= seed < 2**64:
        raise SettingError(f"seed = {seed} is not allowed: expected a whole number from 0 to 2**64 - 1")
    threads = checked("threads", Count, threads, SettingError)
    pool, judged = evaluation_pool(data)
    p = conditions.p(int(pool.sizes.max()))
    if not isinstance(state, State | None):
        raise SettingError(f"state = {shortened(state)} is not allowed: expected a State, such as that of a trace")
    now = State.empty(pool, p) if state is None else state.copy(pool, p)
    ends = checkpoint_ends(checkpoints, pool.protocol.sessions(conditions.steps))
    run = Run(pool, judged, chosen, conditions, seed=seed, state=now, ends=ends, record=record)
    seconds = run.play(threads, progress)
    return run.trace(seconds, threads)


def evaluation_pool(data: Dataset) -> tuple[Dataset, BoolArray]:
    """Return the queries that sessions are drawn from, of at least two items each, and which of them are judged."""
    if not isinstance(data, Dataset):
        raise DataError(f"expected a Dataset, got {shortened(data)}; mf.open_data opens files and named data")
    pool, judged = data.pool()
    short = int(np.count_nonzero(pool.sizes < 2))
    if short:
        message = f"{pool.name}: left out {short} of {pool.queries} queries, which have fewer than two items"
        warnings.warn(message, MCFairWarning, stacklevel=3)
        judged = judged[pool.sizes >= 2]
        pool = pool.select(min_items=2)
    return pool, judged


def checkpoint_ends(checkpoints: int | Sequence[int], sessions: int) -> IntArray:
    """Return the numbers of sessions after which figures are recorded, ascending, the last after all of them."""
    if isinstance(checkpoints, int | np.integer):
        if checkpoints < 1:
            raise SettingError(f"checkpoints = {checkpoints} is not allowed: expected at least 1")
        count = min(checkpoints, sessions)
        check_memory(1000.0 * count, f"{count:,} checkpoints")  # before they are listed
        return sessions * np.arange(1, count + 1) // count
    ends = np.array(checkpoints, dtype=np.int64)
    if ends.ndim != 1 or np.any(np.diff(ends) <= 0) or (ends.size and not 1 <= ends[0] <= ends[-1] <= sessions):
        raise SettingError(f"checkpoints {list(checkpoints)} are not ascending sessions from 1 to {sessions}")
    return ends if ends.size and ends[-1] == sessions else np.append(ends, sessions)
