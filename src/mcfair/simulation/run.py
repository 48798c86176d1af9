"""The ranking service simulated: query → relevance → ranking → list → clicks → relevance, millions of times a second.

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
from typing import Annotated, Any, Literal, get_type_hints
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
import numpy.typing as npt

from .._jit import INTERPRET, AnyKernel, compile_seconds
from ..arrays import FloatArray, IntArray
from ..data.dataset import Dataset, concatenate
from ..data.folds import Fold, check_preset
from ..errors import MCFairWarning, PolicyError, SettingError, checked, unknown
from ..metrics.exposure import ideal_dcg, unfairness_per_query
from ..policies.base import (
    GIVEN_UP,
    NOT_A_LIST,
    OK,
    RANK,
    RANK_SIGNATURE,
    SCORE,
    SCORE_SIGNATURE,
    NonNegative,
    Policy,
    Share,
    parse_policy,
    room_for,
)
from ..random import POLICY, PREPARE, Draws, draws
from ..state import Query, State
from ..users.arrivals import Arrivals, arrivals
from ..users.examination import examination
from .loop import Counts, Desk, Log, Rules, Stream, Table, Tally, group, no_rank, no_score, play
from .trace import Trace

__all__ = ["Setting", "simulate"]

Count = Annotated[int, msgspec.Meta(ge=1, lt=2**31, description="a whole number of at least 1 and below 2**31")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """Under which conditions a policy is played.

    Parameters
    ----------
    mode
        "post-processing": relevance is given; "online": it is estimated from the clicks of the run.
    steps
        Steps asked for; by default the paper's 10,000 for post-processing and 100,000 online.
    k_s
        Ranks that users look at.
    severity
        Strength of position bias, 1 for the paper's.
    gamma
        Discount of the cumulative NDCG.
    prior_mean, prior_strength
        Mean m and pseudo-exposure s of the estimate (C + s m)/(E + s); s = 0 is the paper.
    arrivals
        Stream of queries. Under "wsdm23" the last step is not played, as in the released code.

    Examples
    --------
    >>> Setting(mode="online", k_s=3).steps
    100000
    """

    mode: Literal["post-processing", "online"] = "post-processing"
    steps: Count = None  # type: ignore[assignment]  # depends on the mode
    k_s: Count = 5
    severity: NonNegative = 1.0
    gamma: Share = 0.995
    prior_mean: Share = 0.0
    prior_strength: NonNegative = 0.0
    arrivals: Arrivals = "uniform"

    def __post_init__(self) -> None:
        if self.steps is None:
            object.__setattr__(self, "steps", 100_000 if self.mode == "online" else 10_000)
        for name, hint in get_type_hints(type(self), include_extras=True).items():
            object.__setattr__(self, name, checked(name, hint, getattr(self, name), SettingError))
        if self.sessions < 1:
            raise SettingError("steps = 1 leaves nothing to play: the released code never plays the last step")

    @property
    def sessions(self) -> int:
        """Sessions that will be played."""
        return self.steps - 1 if self.arrivals == "wsdm23" else self.steps


# --- a run -----------------------------------------------------------------------------------------------------------

LOOPS: WeakKeyDictionary[AnyKernel, Callable[..., tuple[int, int]]] = WeakKeyDictionary()
"""The compiled loop for each kernel: the types of its arguments are the same in every run."""

NO_ANSWER = (-1, -1)
"""The argument of a call of the loop that begins at the beginning."""

BLOCKS = 64
"""Into how many blocks queries are cut; part of the result, because it fixes the order of sums."""


def simulate(
    data: Dataset | Fold,
    policy: Policy | str,
    setting: Setting | str = "post-processing",
    *,
    seed: int = 0,
    preset: str | None = None,
    checkpoints: int | Sequence[int] = 20,
    threads: int = 1,
    state: State | None = None,
    record: bool = False,
    progress: Callable[[int], None] | None = None,
    **changes: Any,
) -> Trace:
    """Play a policy against simulated users.

    Parameters
    ----------
    data
        The queries; of a fold, its test split.
    policy
        A policy or its text, such as "MCFair(alpha=10)".
    setting
        A `Setting`, or its mode: "post-processing" or "online".
    seed
        Everything drawn is a function of it.
    preset
        "wsdm23": arrivals and sessions as in the code released with the paper, on data loaded with the same preset.
        "paper": queries come from all splits of a fold and the test split is judged.
    checkpoints
        How many, evenly spaced; or after how many sessions, ascending. The end of the run is always one.
    threads
        Threads to use; the result does not depend on it to the bit.
    state
        Where to go on from, such as the `state` of an earlier trace; sessions and draws go on where it stopped.
        Figures cover the sessions of this run.
    record
        Keep every list and click.
    progress
        Called now and then with the number of sessions played since the last call.
    **changes
        Fields of `Setting` to change, such as `steps=1000, k_s=10`.

    Returns
    -------
    Trace

    Examples
    --------
    >>> data = Dataset(offsets=[0, 3], y=[2, 1, 0])
    >>> simulate(data, "TopK", steps=100).ndcg[1]
    1.0
    """
    chosen = parse_policy(policy) if isinstance(policy, str) else policy
    if not isinstance(chosen, Policy):
        raise PolicyError(f"expected a policy or its text, got {policy!r}")
    conditions = make_setting(setting, preset, changes)
    seed = checked("seed", int, seed, SettingError)
    if not 0 <= seed < 2**64:
        raise SettingError(f"seed = {seed} is not allowed: expected a whole number from 0 to 2**64 - 1")
    threads = checked("threads", Count, threads, SettingError)
    table_data, judged = played(data, preset)
    p = examination(min(conditions.k_s, int(table_data.sizes.max())), conditions.severity)
    now = State.empty(table_data, p) if state is None else state.copy(table_data, p)
    ends = checkpoint_ends(checkpoints, conditions.sessions)
    run = Run(table_data, judged, chosen, conditions, seed, now, ends, record)
    seconds = run.play(threads, progress)
    return run.trace(seconds, threads, preset)


def make_setting(setting: Setting | str, preset: str | None, changes: dict[str, Any]) -> Setting:
    """Make one Setting of a mode or setting, a preset and single changes."""
    fields = {field.name for field in dataclasses.fields(Setting)}
    for name in changes:
        if name not in fields:
            raise SettingError(unknown("argument of simulate", name, sorted(fields)))
    check_preset(preset, SettingError)
    if preset == "wsdm23":
        changes = {"arrivals": "wsdm23"} | changes
    if isinstance(setting, Setting):
        return dataclasses.replace(setting, **changes)
    return Setting(mode=setting, **changes)  # type: ignore[arg-type]  # checked by Setting


def played(data: Dataset | Fold, preset: str | None) -> tuple[Dataset, npt.NDArray[np.bool_]]:
    """Return the queries that are played and which of them are judged; those of fewer than two items are left out."""
    if preset == "wsdm23" and data.preset != "wsdm23":
        raise SettingError(
            f"preset wsdm23 reads a LETOR fold or file in its own way: load it with preset='wsdm23'; got {data!r}"
        )
    if isinstance(data, Fold) and preset == "paper":
        parts = [data.train, data.validation, data.test]
        whole = concatenate(parts, name=data.name)
        judged = np.arange(whole.queries) >= whole.queries - data.test.queries
    else:
        whole = data.test if isinstance(data, Fold) else data
        judged = np.ones(whole.queries, bool)
    short = int(np.count_nonzero(whole.sizes < 2))
    if short:
        warnings.warn(
            f"{whole.name}: left out {short} of {whole.queries} queries, which have fewer than two items",
            MCFairWarning, stacklevel=3,
        )  # fmt: skip
        judged = judged[whole.sizes >= 2]
        whole = whole.select(min_items=2)
    return whole, judged


def checkpoint_ends(checkpoints: int | Sequence[int], sessions: int) -> IntArray:
    """After how many sessions figures are taken, ascending, the last after all of them."""
    if isinstance(checkpoints, int | np.integer):
        if checkpoints < 1:
            raise SettingError(f"checkpoints = {checkpoints} is not allowed: expected at least 1")
        count = min(checkpoints, sessions)
        return np.array([sessions * (i + 1) // count for i in range(count)])
    ends = np.array(checkpoints, dtype=np.int64)
    if ends.ndim != 1 or np.any(np.diff(ends) <= 0) or (ends.size and not 1 <= ends[0] <= ends[-1] <= sessions):
        raise SettingError(f"checkpoints {list(checkpoints)} are not ascending sessions from 1 to {sessions}")
    return ends if ends.size and ends[-1] == sessions else np.append(ends, sessions)


class Run:
    """One run: its arrays, made from data, policy and setting, and the calls of the loop."""

    def __init__(
        self, data: Dataset, judged: npt.NDArray[np.bool_], policy: Policy, setting: Setting, seed: int, state: State,
        ends: IntArray, record: bool,
    ) -> None:  # fmt: skip
        self.data, self.policy, self.setting, self.seed, self.state = data, policy, setting, seed, state
        ranks, sessions = state.p.size, setting.sessions
        self.bounds = np.linspace(0, data.queries, min(BLOCKS, data.queries) + 1).astype(np.int64)
        blocks, marks = self.bounds.size - 1, ends.size
        self.rules = Rules(
            state.p, setting.mode == "online", setting.prior_mean, setting.prior_strength, np.uint64(seed),
            policy.ranks, policy.tie_rule,
        )  # fmt: skip
        self.table = Table(
            data.offsets.copy(), data.R.copy(), (data.R if data.scores is None else data.scores).copy(),
            ideal_dcg(data.R, state.p, data.offsets), data.places.copy(), judged.copy(),
        )  # fmt: skip
        self.arrivals = arrivals(setting.arrivals, sessions, data.queries, seed, start=state.sessions)
        self.stream = self._stream(ends)
        self.counts = Counts(state.F, state.C, state.visits, np.zeros(data.queries, np.int64))
        self.tally = Tally(
            np.zeros((blocks, marks, ranks)), np.zeros((blocks, marks, ranks)), np.zeros((blocks, marks)),
            np.zeros((blocks, marks)), np.zeros((blocks, marks), np.int64), np.zeros((data.queries, ranks)),
        )  # fmt: skip
        rows = sessions if record else 0
        self.given_up: list[int] = []  # the query of each session that the kernel left to the policy's `rank`
        self.log = Log(np.full((rows, ranks), -1, np.int32), np.zeros((rows, ranks), np.bool_))

    def _stream(self, ends: IntArray) -> Stream:
        starts = np.zeros(self.data.queries + 1, np.int64)
        when = np.empty(self.arrivals.size, np.int32)
        group(self.arrivals, starts, when)
        ticks, tick_ends = when, ends
        if not self.table.judged.all():
            clock = np.concatenate(([0], np.cumsum(self.table.judged[self.arrivals])))
            ticks, tick_ends = clock[when].astype(np.int32), clock[ends]
        weights = discounts(self.setting.gamma, int(np.diff(ends, prepend=0).max()))
        return Stream(starts, when, ticks, ends, tick_ends, weights)

    def _desk(self) -> Desk:
        n, k = int(self.data.sizes.max()), self.state.p.size
        return Desk(
            np.zeros(n), np.zeros(n), np.zeros(n), room_for(n), np.zeros(k, np.int64), np.zeros(k, np.bool_),
            np.zeros((), np.int64), np.zeros(k), np.zeros(k),
        )  # fmt: skip

    def _phases(self) -> Iterator[tuple[int, int]]:
        fits, sessions = self.policy.fits, self.setting.sessions
        cuts = sorted({sessions * i // fits for i in range(fits + 1)})
        yield from pairwise(cuts)

    def _groups(self, threads: int) -> list[tuple[int, int]]:
        """Ranges of blocks for one call each: enough calls for the threads and for progress to be seen."""
        blocks = self.bounds.size - 1
        calls = min(blocks, max(4 * threads if threads > 1 else 1, self.setting.sessions // 500_000))
        cuts = np.linspace(0, blocks, calls + 1).astype(int).tolist()
        return list(pairwise(cuts))

    def play(self, threads: int, progress: Callable[[int], None] | None) -> float:
        """Play all sessions; return the seconds it took, compilation not counted."""
        compiled = self.policy.kernel is not None and not INTERPRET
        loop = self._compiled_loop() if compiled else partial(play.interpreted, self._score, self._rank)
        threads = threads if compiled else 1  # the interpreter would run one thread at a time anyway
        begun = time.perf_counter()
        with compile_seconds() as compiling:  # of the kernels that the policy calls by itself
            memory = None
            for fit, span in enumerate(self._phases()):
                memory = self._memory(fit, memory)
                groups = self._groups(threads)
                if threads == 1:
                    for blocks in groups:
                        self._call(loop, memory, blocks, span, progress)
                else:
                    with ThreadPoolExecutor(threads) as pool:
                        list(pool.map(lambda blocks: self._call(loop, memory, blocks, span, progress), groups))  # noqa: B023
        return time.perf_counter() - begun - sum(compiling)

    def _arguments(self, memory: Any, desk: Desk) -> tuple[Any, ...]:
        return (
            self.policy.theta, memory, self.rules, self.table, self.stream, self.counts, self.tally, self.log,
            desk, self.bounds,
        )  # fmt: skip

    def _call(
        self, loop: Callable[..., tuple[int, int]], memory: Any, blocks: tuple[int, int], span: tuple[int, int],
        progress: Callable[[int], None] | None,
    ) -> None:  # fmt: skip
        played = self.counts.played[self.bounds[blocks[0]] : self.bounds[blocks[1]]]
        before = int(played.sum())
        desk = self._desk()
        arguments = self._arguments(memory, desk)
        fault, query = loop(*arguments, blocks, span, NO_ANSWER)
        while fault == NOT_A_LIST and desk.pi[0] == GIVEN_UP and type(self.policy).rank is not Policy.rank:
            answer = query, self._answer(query, memory[query], desk)
            blocks = int(np.searchsorted(self.bounds, query, side="right")) - 1, blocks[1]
            fault, query = loop(*arguments, blocks, span, answer)
        if fault != OK:
            what = "a list whose entries are not distinct items" if fault == NOT_A_LIST else "a score that is no number"
            raise PolicyError(f"{self.policy!r} gave {what} for query {self.data.query_id(query)}")
        if progress is not None:
            progress(int(played.sum()) - before)

    def _answer(self, query: int, memory: Any, desk: Desk) -> int:
        """Let the policy's `rank` write the list that its kernel left to it; return the time of the session."""
        items = slice(self.data.offsets[query], self.data.offsets[query + 1])
        n, visit = items.stop - items.start, int(self.counts.visits[query])
        view = Query(
            desk.R[:n], desk.E[:n], self.counts.F[items], self.rules.p, desk.visits, self.rules.prior_strength, memory
        )
        rng = draws(self.seed, POLICY, int(self.data.places[query]), visit)
        self._rank(view, self.policy.theta, rng, desk.pi[: min(n, desk.pi.size)])
        if desk.pi[0] == GIVEN_UP:
            raise PolicyError(f"{self.policy!r} gave up on query {self.data.query_id(query)}")
        self.given_up.append(query)
        return int(self.stream.when[self.stream.starts[query] + self.counts.played[query]])

    def _rank(self, q: Query, theta: FloatArray, rng: Draws, out: IntArray) -> None:
        """Write what the policy's `rank` gives, as a kernel would."""
        pi = np.asarray(self.policy.rank(read_only(q), rng))
        if pi.shape != out.shape or not np.issubdtype(pi.dtype, np.integer):
            raise PolicyError(f"{self.policy!r} gave {pi!r}, expected a list of {out.size} positions")
        out[:] = pi

    def _score(self, q: Query, theta: FloatArray, rng: Draws, out: FloatArray) -> None:
        """Write what the policy's `score` gives, as a kernel would."""
        scores = np.asarray(self.policy.score(read_only(q)), dtype=np.float64)
        if scores.shape != out.shape:
            raise PolicyError(f"{self.policy!r} gave scores of shape {scores.shape} for {out.size} items")
        out[:] = scores

    def _compiled_loop(self) -> Callable[..., tuple[int, int]]:
        kernel = self.policy.kernel
        assert kernel is not None
        if kernel not in LOOPS:
            kernels = (no_score, kernel) if self.policy.ranks else (kernel, no_rank)
            (score, _), (rank, _) = kernels[0].compile(*SCORE), kernels[1].compile(*RANK)
            examples = (*self._arguments(np.zeros((1, 1)), self._desk()), (0, 0), (0, 0), NO_ANSWER)
            _, loop = play.compile(SCORE_SIGNATURE, RANK_SIGNATURE, *examples)
            LOOPS[kernel] = partial(loop, score, rank)
        return LOOPS[kernel]

    def _memory(self, fit: int, before: Any) -> Any:
        made, compiled, queries = None, self.policy.kernel is not None, self.data.queries
        if type(self.policy).prepare is not Policy.prepare:
            seen = self.table.seen
            if self.rules.online:
                seen = self.state.estimate(self.setting.prior_mean, self.setting.prior_strength)
            made = self.policy.prepare(self.data.hiding_truth(seen), self.state, draws(self.seed, PREPARE, visit=fit))
        if made is None:
            nothing = np.zeros((queries, 0)) if compiled else [None] * queries
            return nothing if before is None else before
        if len(made) != queries:
            raise PolicyError(f"{self.policy!r} prepared {len(made)} entries for {queries} queries")
        return np.ascontiguousarray(made, dtype=np.float64) if compiled else made

    def trace(self, seconds: float, threads: int, preset: str | None) -> Trace:
        """Add up the blocks and describe the run."""
        tally, stream, data, setting = self.tally, self.stream, self.data, self.setting
        judged_sessions = np.maximum(stream.tick_ends, 1)
        visited = np.maximum(tally.visited.sum(axis=0), 1)
        cndcg = tally.cndcg.sum(axis=0)
        spans = np.diff(stream.tick_ends, prepend=0)
        for m in range(1, cndcg.shape[0]):
            if spans[m] < stream.weights.size:
                cndcg[m] += stream.weights[spans[m]] * cndcg[m - 1]
        played = self.counts.played
        provenance = {
            "policy": repr(self.policy),
            "setting": dataclasses.asdict(setting),
            "sessions": setting.sessions,
            "seed": self.seed,
            "preset": preset,
            "data": {"name": data.name, "queries": data.queries, "items": data.items, "fingerprint": data.fingerprint},
            "examination": self.state.p.tolist(),
            "given_up": len(self.given_up),
            "sessions_before": self.state.sessions - setting.sessions,
            "seconds": seconds,
            "threads": threads,
            "versions": versions(),
        }  # fmt: skip
        E = self.state.E
        return Trace(
            checkpoints=stream.ends,
            unfairness_at=tally.unfairness.sum(axis=0) / visited,
            relative_unfairness_at=tally.relative.sum(axis=0) / visited,
            cndcg_at=cndcg,
            ndcg_at=np.cumsum(tally.ndcg.sum(axis=0), axis=0) / judged_sessions[:, None],
            query_ids=[data.query_id(q) for q in range(data.queries)],
            query_unfairness=unfairness_per_query(E, data.R, data.offsets),
            query_ndcg=tally.query_ndcg / np.where(self.table.judged & (played > 0), played, np.nan)[:, None],
            query_judged=self.table.judged,
            query_sessions=played,
            state=self.state,
            provenance=provenance,
            lists=self.log.lists if self.log.lists.size else None,
            clicks=self.log.clicks if self.log.lists.size else None,
            arrivals=self.arrivals if self.log.lists.size else None,
        )


@cache
def versions() -> dict[str, str]:
    """Return what the result may depend on."""
    from importlib.metadata import version

    return {"python": platform.python_version(), **{name: version(name) for name in ("mcfair", "numpy", "numba")}}


def read_only(q: Query) -> Query:
    """Return the same view with arrays that cannot be written to."""

    def locked(array: Any) -> Any:
        view = array.view()
        view.flags.writeable = False
        return view

    return q._replace(R=locked(q.R), E=locked(q.E), F=locked(q.F), p=locked(q.p), visits=locked(q.visits))


def discounts(gamma: float, length: int) -> FloatArray:
    """Powers of γ from 0 to length, as far as they are not 0: one table, because compiled powers differ in a bit."""
    if 0.0 < gamma < 1.0:
        length = min(length, int(-746.0 / math.log(gamma)) + 1)
    powers = np.full(length + 1, gamma)
    powers[0] = 1.0
    return np.multiply.accumulate(powers)
