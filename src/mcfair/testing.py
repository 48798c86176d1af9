"""The contracts of parts and of stores, as one function each: run them on your own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .arrays import BoolArray, CountArray, FloatArray, IntArray
from .data.dataset import Dataset
from .errors import MCFairError
from .estimators import Estimator
from .metrics import Metric
from .parts import Part, registered
from .policies.base import Policy
from .policies.selection import FALLBACK, choose, dcg, score_terms
from .policies.terms import add_group_term, group_term, group_term_of
from .random import CLICKS, POLICY, draws
from .service.stores.contract import check_store
from .simulation.run import simulate
from .simulation.trace import Trace
from .state import Query
from .users import ClickModel

__all__ = ["check_part", "check_store", "views"]


def views(seed: int = 0) -> Iterator[Query]:
    """Yield views that a policy must handle: one item, fewer items than ranks, nothing seen yet, ties, many items.

    Parameters
    ----------
    seed
        Seed of what is random in them.

    Examples
    --------
    >>> sorted({q.R.size for q in views()})
    [1, 2, 5, 7, 12, 33, 104]
    """
    rng = np.random.default_rng(seed)
    for n, k_s, visits in ((1, 1, 0), (2, 5, 3), (5, 5, 1), (7, 3, 0), (12, 5, 40), (33, 8, 9), (104, 5, 300)):
        p = 1.0 / np.log2(np.arange(2, k_s + 2))
        for relevance in (np.zeros(n), np.full(n, 0.4), rng.choice([0.1, 0.4, 1.0], n), rng.random(n) * 2.6):
            F = np.zeros((n, k_s), np.int32)
            for _ in range(visits):
                shown = rng.permutation(n)[:k_s]
                F[shown, np.arange(shown.size)] += 1
            E = F @ p
            sizes = rng.random(n) * 0.2
            posterior = np.zeros((n, 0, 3))
            if visits % 2:  # two components around R, the likelier one below it
                above, below = np.full(n, 0.3), np.full(n, 0.7)
                columns = ((above, relevance + 0.7 * sizes, sizes), (below, relevance - 0.3 * sizes, sizes))
                posterior = np.ascontiguousarray(np.moveaxis(np.array(columns), 2, 0))
            yield Query(
                R=relevance,
                uncertainty=1.0 / (E + 1.0),
                E=E,
                F=F,
                p=p,
                visits=np.array(visits),
                providers=np.arange(n) // 2,
                prior_strength=float(rng.choice([0.0, 5.0])),
                posterior=posterior,
                memory=np.zeros(0),
            )


def check_part(part: Part) -> None:
    """Check that a policy, click model, estimator or metric keeps the contract of its kind.

    Of every part: its repr parses back to itself if it is registered; it is immutable and hashable; a kernel returns
    the same bits compiled and interpreted; it runs in both settings, with the same result on any number of threads and
    on each run. Of a policy: it returns distinct items for every view, the same for the same view and draws whether it
    is called alone or in a run, and changes nothing in the view; its terms add up to its score; if it has a score, a
    guard keeps its share of the DCG, and a group term is added. Of a click model: its clicks depend on nothing but its
    arguments. Of an estimator: estimates are numbers, items are independent, and a run can be continued; a posterior is
    a mixture whose mean is the estimate; a fit depends on nothing but the counts, and returns such an estimator again.
    Of a metric: its values are numbers or nan.

    Parameters
    ----------
    part
        The part, such as `MCFair(alpha=10.0)`.

    Raises
    ------
    AssertionError
        If the part breaks the contract; the message states how.

    Examples
    --------
    >>> from mcfair import Cascade, MCFair
    >>> check_part(MCFair(alpha=10.0))
    >>> check_part(Cascade(stop=0.5))
    """
    checks: dict[Any, Any] = {Policy: check_policy, ClickModel: check_click_model}
    checks |= {Estimator: check_estimator, Metric: check_metric}
    check_kind = checks.get(getattr(part, "base_of_kind", None))
    assert check_kind is not None, f"{part!r} is not a policy, click model, estimator or metric"
    check_value(part)
    try:
        check_kind(part)
        check_runs(part)
    except MCFairError as error:
        raise AssertionError(str(error)) from error


def check_value(part: Part) -> None:
    """Check that a part is an immutable value whose text identifies it."""
    if registered(part.base_of_kind).get(part.name()) is type(part):
        assert part.parse(repr(part)) == part, f"{part!r} does not parse back to itself"
    fields = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}  # type: ignore[arg-type]
    twin = type(part)(**fields)
    assert twin == part, f"{part!r} does not equal a part with the same parameters"
    assert hash(twin) == hash(part), f"{part!r}: equal parts have different hashes"
    try:
        part.surprise = 1  # type: ignore[attr-defined]
    except AttributeError:
        return
    raise AssertionError(f"{part!r} can be changed")


def unchanged(before: Sequence[Any], after: Sequence[Any]) -> bool:
    """Return whether two sequences of arrays are equal."""
    return all(np.array_equal(old, new) for old, new in zip(before, after, strict=True))


# --- the four kinds --------------------------------------------------------------------------------------------------


def check_policy(policy: Policy) -> None:
    """Check what a policy does with single views; one that prepares is checked by running it alone."""
    if type(policy).prepare is Policy.prepare:
        changes: list[dict[str, Any]] = [{"guard": 0.9}, {"guard": 1.0}, {"alpha_group": 2.0, "guard": 0.9}]
        changed = [] if policy.ranks else [dataclasses.replace(policy, **change) for change in changes]
        for visit, q in enumerate(views()):
            for each in (policy, *changed):
                check_view(each, q, visit)


def check_view(policy: Policy, q: Query, visit: int) -> None:
    """Check what a policy does with one view."""
    n, rng = q.R.size, draws(seed=1, purpose=POLICY, query=2, visit=visit)
    before: list[Any] = [np.copy(part) for part in q]
    pi, scores, weight, _ = choose(policy, q, rng)
    pi_again = policy.rank(q, rng)
    scores_again = None if scores is None else policy.score(q, rng)
    where = f"{policy!r} on a view of {n} items and {q.p.size} ranks"
    assert len(pi) == min(n, q.p.size), f"{where}: a list of {len(pi)}"
    assert len(set(pi.tolist())) == len(pi), f"{where}: an item twice in {pi}"
    assert all(0 <= d < n for d in pi), f"{where}: positions outside the query in {pi}"
    assert np.array_equal(pi, pi_again), f"{where}: two lists for one session"
    assert unchanged(before, list(q)), f"{where}: the view was changed"
    if policy.ranks:
        if policy.kernel is not None:
            out = np.empty(len(pi), np.int64)
            policy.kernel.interpreted(q, policy.theta, rng, out)
            handed_over = out[0] == FALLBACK
            assert handed_over or np.array_equal(out, pi), f"{where}: compiled and interpreted lists differ"
        return
    assert scores is not None
    assert scores_again is not None
    if type(policy).score is not Policy.score:  # a score of one's own is without the group term
        scores_again = scores_again + group_term(policy, q)
    ideal = np.argsort(-q.R, kind="stable")[: len(pi)]
    assert dcg(pi, q.R, q.p) >= policy.guard * dcg(ideal, q.R, q.p), f"{where}: the guard does not keep its share"
    mixed = q.R if weight == np.inf else weight * q.R + scores_again
    assert np.array_equal(scores, mixed), f"{where}: two scores for one session"
    if policy.kernel is not None:
        interpreted = np.empty(n)
        policy.kernel.interpreted(q, policy.theta, rng, interpreted)
        if (group := group_term_of(policy)) is not None:
            sums = np.empty(n), np.empty(n)
            add_group_term.interpreted(q.E, q.R, q.providers, int(q.visits), group, *sums, interpreted)
        assert np.array_equal(scores_again, interpreted), f"{where}: compiled and interpreted scores differ"
    if terms := list(score_terms(policy, q, weight).values()):
        total = sum(terms[1:], start=terms[0])
        assert np.array_equal(total, scores), f"{where}: the terms do not add up to the score"


def check_click_model(model: ClickModel) -> None:
    """Check the clicks on single lists."""
    generator = np.random.default_rng(0)
    for visit, (n, k) in enumerate([(1, 1), (3, 3), (5, 5), (12, 5), (40, 8)] * 4):
        pi, truth = generator.permutation(n)[:k], generator.random(n)
        p = model.examined(1.0 / np.log2(np.arange(2, k + 2)))
        rng = draws(seed=3, purpose=CLICKS, query=1, visit=visit)
        before = pi.copy(), truth.copy(), p.copy()
        hits = model.clicks(pi, truth, p, rng)
        assert unchanged(before, (pi, truth, p)), f"{model!r} on a list of {k}: its arguments were changed"
        where = f"{model!r} on a list of {k}"
        assert hits.shape == (k,), f"{where}: clicks of shape {hits.shape}"
        assert hits.dtype == np.bool_, f"{where}: clicks of type {hits.dtype}"
        assert p.shape == (k,), f"{where}: examined returned shape {p.shape}"
        assert np.array_equal(hits, model.clicks(pi, truth, p, rng)), f"{where}: two answers for one session"
        if model.kernel is not None:
            interpreted: BoolArray = np.zeros(k, np.bool_)
            model.kernel.interpreted(pi, truth, p, model.theta, rng, interpreted)
            assert np.array_equal(hits, interpreted), f"{where}: compiled and interpreted clicks differ"


def check_estimator(estimator: Estimator) -> None:
    """Check the estimates of single items, and if the estimator is pooled its fit and the estimates after it."""
    generator = np.random.default_rng(0)
    F = generator.integers(0, 9, (20, 5)).astype(np.int32)
    F[:3] = 0
    p = 1.0 / np.log2(np.arange(2, 7))
    E = np.array([sum(int(F[d, j]) * p[j] for j in range(5)) for d in range(20)])
    C = np.minimum(generator.integers(0, 5, 20), F.sum(axis=1)).astype(np.int32)
    before = C.copy(), E.copy(), F.copy(), p.copy()
    check_estimates(estimator, C, E, F, p)
    if estimator.pooled:
        fitted = estimator.refit(C, E, F, p)
        assert estimator.refit(C, E, F, p) == fitted, f"{estimator!r}: two fits to the same counts"
        check_value(fitted)
        check_estimates(fitted, C, E, F, p)
        check_estimates(estimator.refit(C[:3], E[:3], F[:3], p), C, E, F, p)  # nothing was shown yet
    assert unchanged(before, (C, E, F, p)), f"{estimator!r}: its arguments were changed"


def check_estimates(estimator: Estimator, C: CountArray, E: FloatArray, F: CountArray, p: FloatArray) -> None:
    """Check the estimates of some items: alone, among others, compiled, interpreted, and beside their posterior."""
    R, uncertainty = estimator.estimates(C, E, F, p)
    posteriors = estimator.posteriors(C, E, F, p)
    for d in range(C.size):
        item = int(C[d]), float(E[d]), F[d], p
        where = f"{estimator!r} for {C[d]} clicks and an exposure of {E[d]:.3f}"
        alone, posterior = estimator.estimate(*item), estimator.posterior(*item)
        assert not np.isnan(alone).any(), f"{where}: {alone} is not a number"
        assert alone == (R[d], uncertainty[d]), f"{where}: alone {alone}, among others {R[d], uncertainty[d]}"
        assert uncertainty[d] >= 0.0, f"{where}: an uncertainty of {uncertainty[d]}"
        assert np.array_equal(posterior, posteriors[d]), f"{where}: another posterior alone than among others"
        if posterior.size:
            weights, means, variances = posterior.T
            assert (weights >= 0.0).all(), f"{where}: weights {weights}"
            assert abs(weights.sum() - 1.0) < 1e-9, f"{where}: weights {weights} do not sum to 1"
            assert (variances >= 0.0).all(), f"{where}: variances {variances}"
            assert (np.diff(means) <= 0.0).all(), f"{where}: means {means} are not in falling order"
            assert abs(weights @ means - R[d]) < 1e-9, f"{where}: {R[d]} is not the mean of the posterior"
        if estimator.kernel is not None:
            out = np.empty(2 + posterior.size)
            estimator.kernel.interpreted(*item, estimator.theta, out)
            same = tuple(out[:2]) == alone and np.array_equal(out[2:], posterior.ravel())
            assert same, f"{where}: compiled and interpreted estimates differ"
    if estimator.batch is not None:
        items = np.arange(C.size)[::-1].copy()
        for batch in (estimator.batch, estimator.batch.interpreted):
            rows = np.empty((C.size, 2 + posteriors[0].size))
            batch(items, C, E, F, p, estimator.theta, rows)
            same = np.array_equal(rows[::-1], estimator.outputs(C, E, F, p))
            assert same, f"{estimator!r}: its batch kernel writes other bits than its kernel"


def check_metric(metric: Metric) -> None:
    """Check the values of single queries or lists."""
    for visit, q in enumerate(views()):
        truth = np.minimum(q.R, 1.0)
        pi: IntArray = np.random.default_rng(visit).permutation(truth.size)[: q.p.size]
        arrays: tuple[Any, ...] = (pi, truth, q.p) if metric.per_list else (q.E, truth, q.providers, int(q.visits) + 1)
        if metric.per_list and getattr(metric, "k", 1) > q.p.size:
            continue
        before = [np.copy(each) for each in arrays]
        value = metric.value(*arrays)
        assert unchanged(before, arrays), f"{metric!r}: its arguments were changed"
        where = f"{metric!r} on a view of {truth.size} items"
        assert isinstance(value, float), f"{where}: {value!r} is not a float"
        assert not np.isinf(value), f"{where}: {value} is infinite"
        if metric.kernel is not None:
            interpreted = metric.kernel.interpreted(*arrays, metric.theta)
            assert np.array_equal(value, interpreted, equal_nan=True), (
                f"{where}: compiled and interpreted values differ"
            )


# --- runs ------------------------------------------------------------------------------------------------------------


def check_runs(part: Part) -> None:
    """Check that a part runs in both settings, with the same result on any number of threads and for every caller."""
    rng = np.random.default_rng(0)
    providers: Any = [f"g{i % 4}" for i in range(29)]
    y, X = rng.integers(0, 3, 29).astype(np.int16), rng.random((29, 4), np.float32)
    data = Dataset(offsets=np.array([0, 2, 9, 29]), y=y, X=X, providers=providers, name="check")
    policy = part if isinstance(part, Policy) else "MCFair"
    named: dict[type[Part], Any] = {ClickModel: {"clicks": part}, Estimator: {"estimator": part}}
    options: Any = (named | {Metric: {"metrics": (part,)}}).get(part.base_of_kind, {})
    for mode in ("post-processing", "online"):
        one, two = (simulate(data, policy, mode, steps=300, threads=n, record=True, **options) for n in (1, 2))
        where = f"{part!r}, {mode}"
        assert np.array_equal(one.lists, two.lists), f"{where}: lists depend on the number of threads"  # type: ignore[arg-type]
        assert np.array_equal(one.clicks, two.clicks), f"{where}: clicks depend on the number of threads"  # type: ignore[arg-type]
        for text, values in one.values.items():
            same = np.array_equal(values, two.values[text], equal_nan=True)
            assert same, f"{where}: {text} depends on the number of threads"
        if isinstance(part, Policy) and type(part).prepare is Policy.prepare:
            check_first_lists(part.in_mode(mode), mode, data, one)
        if isinstance(part, Estimator):
            begun = simulate(data, policy, mode, steps=130, record=True, **options)
            ended = simulate(data, policy, mode, steps=170, record=True, state=begun.state, **options)
            continued: CountArray = np.concatenate((begun.lists, ended.lists))  # type: ignore[arg-type]
            assert np.array_equal(one.lists, continued), f"{where}: a run that is continued shows other lists"  # type: ignore[arg-type]


def check_first_lists(policy: Policy, mode: str, data: Dataset, trace: Trace) -> None:
    """Check that a call outside of a run returns the first list of every query: the same view and draws, one list."""
    assert trace.lists is not None
    p = trace.state.p
    for q in range(data.queries):
        (first,) = np.flatnonzero(trace.arrivals == q)[:1]
        items = slice(data.offsets[q], data.offsets[q + 1])
        n = items.stop - items.start
        E, F, given = np.zeros(n), np.zeros((n, p.size), np.int32), mode == "post-processing"
        nothing = np.zeros(n, np.int32), E, F, p
        estimator = policy.estimator
        R, uncertainty = (data.R[items].copy(), np.zeros(n)) if given else estimator.estimates(*nothing)
        view = Query(
            R=R,
            uncertainty=uncertainty,
            E=E,
            F=F,
            p=p,
            visits=np.array(0),
            providers=data.query_providers[items].copy(),
            prior_strength=float(estimator.prior_strength),
            posterior=np.zeros((n, 0, 3)) if given else estimator.posteriors(*nothing),
            memory=np.zeros(0),
        )
        pi = choose(policy, view, draws(0, POLICY, query=int(data.places[q]), visit=0)).pi
        played = trace.lists[first, : pi.size]
        assert np.array_equal(pi, played), f"{policy!r}, {mode}: a run shows {played}, a single call returns {pi}"
