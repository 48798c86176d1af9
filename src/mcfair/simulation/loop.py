"""The compiled loop over queries and their sessions: rank, evaluate, show, click, count.

What one query learns does not depend on the other queries, so each is simulated to the end before the next and its
state stays in the processor's cache; only the time stamps of its sessions tie it to the common stream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .._jit import kernel
from ..arrays import BoolArray, CountArray, FloatArray, IntArray
from ..estimators.base import BATCH_SIGNATURE, ESTIMATE_SIGNATURE
from ..estimators.ips import ips_estimate
from ..policies.mcfair import gradient_score
from ..policies.selection import OK, RANK_SIGNATURE, SCORE_SIGNATURE, Guard, TopKScratch, list_by_rank, list_by_score
from ..policies.terms import GroupTerm
from ..random import CLICKS, POLICY, TIES, Draws
from ..state import Query, fill_view, observe_clicks, observe_list, update_beliefs
from ..users.base import CLICK_SIGNATURE
from ..users.position_based import position_based_clicks

FOR_POLICY, FOR_TIES, FOR_CLICKS = np.uint64(POLICY), np.uint64(TIES), np.uint64(CLICKS)


class RunConfig(NamedTuple):
    """The fixed parameters of a run; `p` is what exposure assumes, `users_p` how users examine."""

    p: FloatArray
    users_p: FloatArray
    online: bool
    prior_strength: float
    seed: np.uint64
    ties: int
    theta: FloatArray
    click_theta: FloatArray
    estimate_theta: FloatArray


class QueryTable(NamedTuple):
    """The data: `seen` is what the policy sees as R when relevance is given, `judged` marks the queries that count."""

    offsets: IntArray
    R: FloatArray
    seen: FloatArray
    providers: IntArray
    ideal: FloatArray
    places: IntArray
    judged: BoolArray


class Stream(NamedTuple):
    """Sessions grouped by query: those of query q are `when[starts[q]:starts[q + 1]]`, in order of time.

    `ticks` is the clock of the cumulative NDCG: the number of judged sessions before each session. `ends` are the
    checkpoints, `tick_ends` their ticks, and `weights[i]` is gamma to the power i.
    """

    starts: IntArray
    when: CountArray
    ticks: CountArray
    ends: IntArray
    tick_ends: IntArray
    weights: FloatArray


class Counts(NamedTuple):
    """The state, and how many of its sessions each query has played in this run."""

    F: CountArray
    C: CountArray
    visits: IntArray
    played: IntArray


class Accumulators(NamedTuple):
    """Sums by block of queries and checkpoint. Blocks depend on the data alone, so threads change no bit of a sum."""

    cndcg: FloatArray
    ndcg: FloatArray
    query_ndcg: FloatArray


class Snapshots(NamedTuple):
    """Exposure and visits at each checkpoint of a call, for the metrics; the first query, item and checkpoint in it."""

    E: FloatArray
    visits: IntArray
    first_query: int
    first_item: int
    first_mark: int


class Log(NamedTuple):
    """Every list and click, by session; of length 0 if they are not recorded."""

    lists: CountArray
    clicks: BoolArray


class Scratch(NamedTuple):
    """Scratch arrays for one query at a time."""

    R: FloatArray
    uncertainty: FloatArray
    posterior: FloatArray
    E: FloatArray
    scores: FloatArray
    top_k: TopKScratch
    pi: IntArray
    hits: BoolArray
    visits: IntArray
    items: IntArray
    estimates: FloatArray
    ndcg: FloatArray
    cndcg: FloatArray


@kernel
def add_ndcg(
    pi: IntArray,
    R: FloatArray,
    p: FloatArray,
    ideal: FloatArray,
    weight: float,
    ndcg: FloatArray,
    cndcg: FloatArray,
) -> None:
    """Add the NDCG@1..k of a list to two sums, plain and weighted; past the end of the list it stays constant."""
    dcg = 0.0
    value = 0.0
    for j in range(pi.shape[0]):
        dcg += R[pi[j]] * p[j]
        value = dcg / ideal[j] if ideal[j] > 0.0 else 0.0
        ndcg[j] += value
        cndcg[j] += weight * value
    for j in range(pi.shape[0], p.shape[0]):
        ndcg[j] += value
        cndcg[j] += weight * value


@kernel(inline=False)
def record_checkpoint(
    block: int,
    m: int,
    q: int,
    E: FloatArray,
    visits: int,
    first_item: int,
    scratch: Scratch,
    accumulators: Accumulators,
    snapshots: Snapshots,
) -> None:
    """Record one judged query at checkpoint m: flush its sums, copy its exposure and visits."""
    flush(block, m, q, scratch, accumulators)
    mark, offset = m - snapshots.first_mark, first_item - snapshots.first_item
    for d in range(E.shape[0]):
        snapshots.E[mark, offset + d] = E[d]
    snapshots.visits[mark, q - snapshots.first_query] = visits


@kernel(inline=False)
def flush(block: int, m: int, q: int, scratch: Scratch, accumulators: Accumulators) -> None:
    """Add the sums of one query to those of its block at checkpoint m, and reset them."""
    for j in range(scratch.ndcg.shape[0]):
        accumulators.ndcg[block, m, j] += scratch.ndcg[j]
        accumulators.cndcg[block, m, j] += scratch.cndcg[j]
        accumulators.query_ndcg[q, j] += scratch.ndcg[j]
        scratch.ndcg[j] = 0.0
        scratch.cndcg[j] = 0.0


@kernel(allocates=True)
def group_sessions(queries: CountArray, starts: IntArray, when: CountArray) -> None:
    """Sort sessions by query, keeping the order of time: count, add up, place."""
    for t in range(queries.shape[0]):
        starts[queries[t] + 1] += 1
    for q in range(1, starts.shape[0]):
        starts[q] += starts[q - 1]
    free = starts[:-1].copy()
    for t in range(queries.shape[0]):
        when[free[queries[t]]] = t
        free[queries[t]] += 1


# One function: its arrays stay in registers, and a call for every session would cost as much as ranking a short
# query. Its arguments are what a run consists of; each is documented by its class above.
@kernel(driver=True)
def play(
    click: Callable[..., None] | None,
    estimate: Callable[..., None] | None,
    batch: Callable[..., None] | None,
    score: Callable[..., None] | None,
    rank: Callable[..., None] | None,
    inline_users: bool | None,
    inline_score: bool | None,
    group: GroupTerm | None,
    guard: Guard | None,
    memory: FloatArray,
    config: RunConfig,
    table: QueryTable,
    stream: Stream,
    counts: Counts,
    accumulators: Accumulators,
    snapshots: Snapshots,
    log: Log,
    scratch: Scratch,
    bounds: IntArray,
    blocks: tuple[int, int],
    span: tuple[int, int],
    answer: tuple[int, int],
) -> tuple[int, int]:
    """Play the sessions of blocks[0] to blocks[1] that lie between the times span[0] and span[1].

    Returns the verdict on the policy, and for which query; everything before is counted. If the list of that
    session is then written to `scratch.pi`, `answer`, the query and the time, makes the call continue from there.

    A policy has a score or ranks by itself; an estimator has a form for one item or for several. With `inline_score`,
    and with `inline_users` in place of a click model and an estimator, the kernels of the paper's are inlined: calls
    through pointers would make an online session a third slower. What is not given is None: Numba then compiles nothing
    of its branch.
    """
    p, ties, theta, ends, when, room = config.p, config.ties, config.theta, stream.ends, stream.when, scratch.top_k
    clock, ndcg, cndcg, hits = scratch.visits, scratch.ndcg, scratch.cndcg, scratch.hits
    beliefs, estimates = config.estimate_theta, scratch.estimates
    answered, answer_time = answer
    for block in range(blocks[0], blocks[1]):
        for q in range(max(answered, bounds[block]), bounds[block + 1]):
            low, high = table.offsets[q], table.offsets[q + 1]
            n = high - low
            k = min(p.shape[0], n)
            truth, judged, ideal = table.R[low:high], table.judged[q], table.ideal[q]
            F, C = counts.F[low:high], counts.C[low:high]
            R, E, scores, pi = scratch.R[:n], scratch.E[:n], scratch.scores[:n], scratch.pi[:k]
            providers = table.providers[low:high]
            uncertainty, posterior = scratch.uncertainty[:n], scratch.posterior[:n]
            view = Query(R, uncertainty, E, F, p, clock, providers, config.prior_strength, posterior, memory[q])
            fill_view(F, p, table.seen[low:high], E, R, uncertainty)
            if config.online:
                if inline_users is not None:
                    update_beliefs(ips_estimate, None, beliefs, scratch.items[:n], C, view, estimates)
                else:
                    update_beliefs(estimate, batch, beliefs, scratch.items[:n], C, view, estimates)
            place, visits = np.uint64(table.places[q]), counts.visits[q]
            since = answer_time if q == answered else span[0]
            m = 0
            while m < ends.shape[0] and ends[m] <= since:
                m += 1
            at = stream.starts[q] + counts.played[q]
            last = stream.starts[q + 1]
            while at < last and when[at] < span[1]:
                t = when[at]
                while t >= ends[m]:
                    if judged:
                        record_checkpoint(block, m, q, E, visits, low, scratch, accumulators, snapshots)
                    m += 1
                clock[()] = visits
                visit = np.uint64(visits)
                verdict = OK
                if t != answer_time or q != answered:
                    rng = Draws(config.seed, FOR_POLICY, place, visit)
                    tie_rng = Draws(config.seed, FOR_TIES, place, visit)
                    if inline_score is not None:
                        verdict = list_by_score(
                            gradient_score, group, guard, ties, theta, view, rng, tie_rng, room, scores, pi
                        )
                    elif score is not None:
                        verdict = list_by_score(score, group, guard, ties, theta, view, rng, tie_rng, room, scores, pi)
                    elif rank is not None:
                        verdict = list_by_rank(rank, theta, view, rng, pi)
                if verdict != OK:
                    flush(block, m, q, scratch, accumulators)
                    counts.visits[q] = visits
                    counts.played[q] = at - stream.starts[q]
                    return verdict, q
                if judged:
                    age = stream.tick_ends[m] - 1 - stream.ticks[at]
                    weight = stream.weights[age] if age < stream.weights.shape[0] else 0.0
                    add_ndcg(pi, truth, p, ideal, weight, ndcg, cndcg)
                observe_list(pi, F, p, E)
                if config.online:
                    user = Draws(config.seed, FOR_CLICKS, place, visit)
                    if inline_users is not None:
                        position_based_clicks(pi, truth, config.users_p, config.click_theta, user, hits[:k])
                    elif click is not None:
                        click(pi, truth, config.users_p, config.click_theta, user, hits[:k])
                    observe_clicks(pi, hits, C)
                    if inline_users is not None:
                        update_beliefs(ips_estimate, None, beliefs, pi, C, view, estimates)
                    else:
                        update_beliefs(estimate, batch, beliefs, pi, C, view, estimates)
                if log.lists.shape[0] > 0:
                    for j in range(k):
                        log.lists[t, j] = pi[j]
                        log.clicks[t, j] = config.online and hits[j]
                visits += 1
                at += 1
            while m < ends.shape[0] and ends[m] <= span[1]:
                if judged:
                    record_checkpoint(block, m, q, E, visits, low, scratch, accumulators, snapshots)
                m += 1
            if m < ends.shape[0]:  # the span ends between checkpoints, and the next query needs the scratch arrays
                flush(block, m, q, scratch, accumulators)
            counts.visits[q] = visits
            counts.played[q] = at - stream.starts[q]
    return OK, -1


NO_ANSWER = (-1, -1)
"""The argument of a call of the loop that begins at the beginning."""

SIGNATURES = CLICK_SIGNATURE, ESTIMATE_SIGNATURE, BATCH_SIGNATURE, SCORE_SIGNATURE, RANK_SIGNATURE

COMPILED: dict[tuple[bool, ...], Callable[..., tuple[int, int]]] = {}
"""The compiled loops, by which functions are given; the types of the other arguments are the same in every run."""


def compiled_play(functions: tuple[Any, ...], examples: tuple[Any, ...]) -> Callable[..., tuple[int, int]]:
    """Return the loop for any functions, as it takes them: all arguments up to the guard; None what is not given."""
    kind = tuple(each is not None for each in functions)
    if kind not in COMPILED:
        examples_given = *SIGNATURES, True, True, *functions[-2:]
        types = [each if given else None for each, given in zip(examples_given, kind, strict=True)]
        _, COMPILED[kind] = play.compile(*types, *examples, (0, 0), (0, 0), NO_ANSWER)
    return COMPILED[kind]
