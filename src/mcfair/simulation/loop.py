"""The compiled loop over queries and their sessions: rank, judge, show, click, count.

What one query learns does not depend on the other queries, so each is played to the end before the next, and its state
stays in the processor's cache; only the time stamps of its sessions tie it to the common stream.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .._jit import kernel
from ..arrays import FloatArray, IntArray
from ..metrics.exposure import query_unfairness
from ..policies.base import NOT_A_LIST, OK, Room, is_list, top_k
from ..random import CLICKS, POLICY, TIES, Draws
from ..state import Query, fill_view, observe, observe_clicks

__all__ = ["Counts", "Desk", "Log", "Rules", "Stream", "Table", "Tally", "group", "no_rank", "no_score", "play"]

FOR_POLICY, FOR_TIES, FOR_CLICKS = np.uint64(POLICY), np.uint64(TIES), np.uint64(CLICKS)


class Rules(NamedTuple):
    """What holds for every session."""

    p: FloatArray
    online: bool
    prior_mean: float
    prior_strength: float
    seed: np.uint64
    ranks: bool  # the policy's kernel writes lists, not scores
    ties: int


class Table(NamedTuple):
    """The data: `seen` is what the policy takes for R when relevance is given, `judged` which queries count."""

    offsets: IntArray
    R: FloatArray
    seen: FloatArray
    ideal: FloatArray
    places: IntArray
    judged: npt.NDArray[np.bool_]


class Stream(NamedTuple):
    """Sessions grouped by query: those of query q are `when[starts[q]:starts[q + 1]]`, in order of time.

    `ticks` is the clock of the cumulative NDCG: the number of judged sessions before each session. `ends` are the
    checkpoints, `tick_ends` their ticks, and `weights[i]` is gamma to the power i.
    """

    starts: IntArray
    when: npt.NDArray[np.int32]
    ticks: npt.NDArray[np.int32]
    ends: IntArray
    tick_ends: IntArray
    weights: FloatArray


class Counts(NamedTuple):
    """The state, and how many of its sessions each query has played in this run."""

    F: npt.NDArray[np.int32]
    C: npt.NDArray[np.int32]
    visits: IntArray
    played: IntArray


class Tally(NamedTuple):
    """Sums by block of queries and checkpoint. Blocks depend on the data alone, so threads change no bit of a sum."""

    cndcg: FloatArray
    ndcg: FloatArray
    unfairness: FloatArray
    relative: FloatArray
    visited: IntArray
    query_ndcg: FloatArray


class Log(NamedTuple):
    """Every list and click, by session; of length 0 if nobody asked for them."""

    lists: npt.NDArray[np.int32]
    clicks: npt.NDArray[np.bool_]


class Desk(NamedTuple):
    """Room for one query at a time."""

    R: FloatArray
    E: FloatArray
    scores: FloatArray
    room: Room
    pi: IntArray
    hits: npt.NDArray[np.bool_]
    visits: IntArray
    ndcg: FloatArray
    cndcg: FloatArray


@kernel
def judge(pi, R, p, ideal, weight, ndcg, cndcg):  # type: ignore[no-untyped-def]
    """Add the NDCG@1..k_s of a list to two sums, plain and weighted; past the end of the list it stays."""
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
def settle(block, m, q, E, R, visits, judged, ndcg, cndcg, tally):  # type: ignore[no-untyped-def]
    """Book one query at checkpoint m: hand over its sums since the checkpoint before, add its unfairness."""
    if not judged:
        return
    hand_over(block, m, q, ndcg, cndcg, tally)
    if visits > 0 and is_relevant(R):
        value = query_unfairness(E, R)
        tally.unfairness[block, m] += value
        tally.relative[block, m] += value / (float(visits) * float(visits))
        tally.visited[block, m] += 1


@kernel(inline=False)
def hand_over(block, m, q, ndcg, cndcg, tally):  # type: ignore[no-untyped-def]
    """Add the sums of one query to those of its block at checkpoint m, and begin new ones."""
    for j in range(ndcg.shape[0]):
        tally.ndcg[block, m, j] += ndcg[j]
        tally.cndcg[block, m, j] += cndcg[j]
        tally.query_ndcg[q, j] += ndcg[j]
        ndcg[j] = 0.0
        cndcg[j] = 0.0


@kernel
def is_relevant(R):  # type: ignore[no-untyped-def]
    """Whether any item has any relevance."""
    highest = 0.0
    for d in range(R.shape[0]):
        highest = max(highest, R[d])
    return highest > 0.0


@kernel(allocates=True)
def group(queries, starts, when):  # type: ignore[no-untyped-def]
    """Sort sessions by query, keeping the order of time: count, add up, place."""
    for t in range(queries.shape[0]):
        starts[queries[t] + 1] += 1
    for q in range(1, starts.shape[0]):
        starts[q] += starts[q - 1]
    free = starts[:-1].copy()
    for t in range(queries.shape[0]):
        when[free[queries[t]]] = t
        free[queries[t]] += 1


@kernel
def play(score, rank, theta, memory, rules, table, stream, counts, tally, log, desk, bounds, blocks, span, answer):  # type: ignore[no-untyped-def]
    """Play the sessions of blocks[0] to blocks[1] that lie between the times span[0] and span[1].

    Returns what is wrong with the policy, if anything, and for which query; everything before is booked. If the list
    for that session is then put on the desk, `answer`, the query and the time, makes the call go on from there.
    """
    p, online, prior_mean, prior_strength, seed, ranks, ties = rules
    starts, when, ticks, ends, tick_ends, weights = stream
    lists, clicks = log
    clock, hits, ndcg, cndcg = desk.visits, desk.hits, desk.ndcg, desk.cndcg
    items, short, places, order = desk.room
    begin, until = span
    answered, answer_time = answer
    for block in range(blocks[0], blocks[1]):
        for q in range(max(answered, bounds[block]), bounds[block + 1]):
            low, high = table.offsets[q], table.offsets[q + 1]
            n = high - low
            k = min(p.shape[0], n)
            truth, judged, ideal = table.R[low:high], table.judged[q], table.ideal[q]
            F, C = counts.F[low:high], counts.C[low:high]
            R, E, scores, pi = desk.R[:n], desk.E[:n], desk.scores[:n], desk.pi[:k]
            fill_view(F, C, p, table.seen[low:high], online, prior_mean, prior_strength, E, R)
            view = Query(R, E, F, p, clock, prior_strength, memory[q])
            place, visits = np.uint64(table.places[q]), counts.visits[q]
            since = answer_time if q == answered else begin
            m = 0
            while m < ends.shape[0] and ends[m] <= since:
                m += 1
            at = starts[q] + counts.played[q]
            last = starts[q + 1]
            while at < last and when[at] < until:
                t = when[at]
                while t >= ends[m]:
                    settle(block, m, q, E, truth, visits, judged, ndcg, cndcg, tally)
                    m += 1
                clock[()] = visits
                visit = np.uint64(visits)
                if not ranks:
                    score(view, theta, Draws(seed, FOR_POLICY, place, visit), scores)
                    luck = Draws(seed, FOR_TIES, place, visit)
                    fault = top_k(scores, E, ties, luck, items, short, places, order, pi)
                else:
                    if t != answer_time:
                        rank(view, theta, Draws(seed, FOR_POLICY, place, visit), pi)
                    fault = OK if is_list(pi, n) else NOT_A_LIST
                if fault != OK:
                    hand_over(block, m, q, ndcg, cndcg, tally)
                    counts.visits[q] = visits
                    counts.played[q] = at - starts[q]
                    return fault, q
                if judged:
                    age = tick_ends[m] - 1 - ticks[at]
                    weight = weights[age] if age < weights.shape[0] else 0.0
                    judge(pi, truth, p, ideal, weight, ndcg, cndcg)
                observe(pi, F, p, E)
                if online:
                    user = Draws(seed, FOR_CLICKS, place, visit)
                    observe_clicks(pi, truth, p, user, prior_mean, prior_strength, E, C, R, hits)
                if lists.shape[0] > 0:
                    for j in range(k):
                        lists[t, j] = pi[j]
                        clicks[t, j] = online and hits[j]
                visits += 1
                at += 1
            while m < ends.shape[0] and ends[m] <= until:
                settle(block, m, q, E, truth, visits, judged, ndcg, cndcg, tally)
                m += 1
            if m < ends.shape[0]:  # the span ends between checkpoints, and the next query needs its desk
                hand_over(block, m, q, ndcg, cndcg, tally)
            counts.visits[q] = visits
            counts.played[q] = at - starts[q]
    return OK, -1


@kernel
def no_score(q, theta, rng, out):  # type: ignore[no-untyped-def]
    """Stand where a score kernel could, in a run whose policy writes lists."""


@kernel
def no_rank(q, theta, rng, out):  # type: ignore[no-untyped-def]
    """Stand where a rank kernel could, in a run whose policy writes scores."""
