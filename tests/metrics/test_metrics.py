"""Metrics as parts of a run: the ones of the package against the oracle, and those of users."""

import itertools
import math

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mcfair as mf
from mcfair.testing import check_part

METRICS = [
    mf.Unfairness(),
    mf.RelativeUnfairness(),
    mf.GroupUnfairness(),
    mf.Gini(),
    mf.NDCG(k=1),
    mf.NDCG(k=5),
    mf.CNDCG(k=3),
    mf.TrueUnfairness(),
    mf.LogNDCG(k=3),
]

NAIVE = {
    "unfairness": lambda E, R, groups, visits: naive.unfairness(E, R),
    "relative_unfairness": lambda E, R, groups, visits: naive.relative_unfairness(E, R, visits),
    "group_unfairness": lambda E, R, groups, visits: naive.group_unfairness(E, R, groups),
    "gini": lambda E, R, groups, visits: naive.gini(E),
    "true_unfairness": lambda E, R, groups, visits: naive.unfairness(E, R),
}


@pytest.mark.parametrize("metric", METRICS, ids=repr)
def test_contract(metric):
    check_part(metric)


def test_every_registered_metric_is_tested():
    assert {type(metric).name() for metric in METRICS} == set(mf.registered(mf.Metric))
    assert {type(metric).name() for metric in METRICS if not metric.per_list} == set(NAIVE)


@st.composite
def queries(draw):
    n = draw(st.integers(1, 15))

    def numbers(elements):
        return draw(st.lists(elements, min_size=n, max_size=n))

    E = np.array(numbers(st.floats(0, 1000, allow_subnormal=False)))
    R = np.array(numbers(st.floats(0, 1, allow_subnormal=False)))
    labels = numbers(st.integers(0, 3))
    groups = np.array([sorted(set(labels), key=labels.index).index(label) for label in labels])
    return E, R, groups, draw(st.integers(1, 500))


@pytest.mark.parametrize("text", NAIVE)
@settings(max_examples=60)
@given(query=queries())
def test_the_value_of_one_query_is_the_definition(text, query):
    E, R, groups, visits = query
    value, expected = mf.parse_metric(text).value(E, R, groups, visits), NAIVE[text](*query)
    margin = max(1e-12 * (E @ E) * (R @ R), np.finfo(float).tiny)  # the definition cancels where the fast form does not
    if text == "group_unfairness":
        margin *= E.size**2
    assert value == pytest.approx(expected, rel=1e-9, abs=margin, nan_ok=True)


@pytest.mark.parametrize(
    ("text", "metric", "label"),
    [
        ("unfairness", mf.Unfairness(), "unfairness"),
        ("relative_unfairness", mf.RelativeUnfairness(), "relative unfairness"),
        ("gini", mf.Gini(), "Gini"),
        ("true_unfairness", mf.TrueUnfairness(), "true unfairness"),
        ("log_ndcg@3", mf.LogNDCG(k=3), "NDCG@3 (log discount)"),
        ("ndcg@5", mf.NDCG(), "NDCG@5"),
        ("ndcg@3", mf.NDCG(k=3), "NDCG@3"),
        (" ndcg@3 ", mf.NDCG(k=3), "NDCG@3"),
        ("ndcg(k=3)", mf.NDCG(k=3), "NDCG@3"),
        ("ndcg", mf.NDCG(k=5), "NDCG@5"),
        ("cndcg@1", mf.CNDCG(k=1), "cNDCG@1"),
        ("group_unfairness", mf.GroupUnfairness(), "group unfairness"),
    ],
)
def test_texts_of_metrics(text, metric, label):
    assert mf.parse_metric(text) == metric
    assert metric.label == label


@pytest.mark.parametrize("metric", METRICS, ids=repr)
def test_the_text_of_a_metric_parses_back(metric):
    assert mf.parse_metric(repr(metric)) == metric
    assert repr(mf.parse_metric(repr(metric))) == repr(metric)


def test_a_metric_with_a_cutoff_and_other_parameters():
    @mf.register
    class HitRate(mf.Metric):
        k: int = 3
        least: float = 0.5
        per_list = True
        higher_is_better = True

        def value(self, pi, R, p):
            return float(np.any(R[pi[: self.k]] >= self.least))

    assert repr(HitRate()) == "hit_rate@3(least=0.5)"
    assert HitRate(k=2).label == "hit rate@2"
    assert HitRate(k=2, least=0.25).label == "hit rate@2(least=0.25)"
    for metric in (HitRate(), HitRate(k=1, least=0.9)):
        assert mf.parse_metric(repr(metric)) == metric
    check_part(HitRate(k=2))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ndcg@0", r"ndcg: k = 0 is not allowed: expected a whole number of at least 1"),
        ("gini@3", r"unknown parameter of gini 'k'; available: none"),
        ("ndgc@3", r"unknown metric 'ndgc'; did you mean 'ndcg'\? available: "),
        ("ndcg@x", r"cannot parse metric 'ndcg@x': expected Name or Name\(parameter=value, ...\)"),
        ("NDCG@3", r"unknown metric 'NDCG'; did you mean 'ndcg'\?"),
    ],
)
def test_invalid_metrics_are_refused_with_what_is_allowed(text, message):
    with pytest.raises(mf.PartError, match=message):
        mf.parse_metric(text)


# --- in a run --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data():
    plain = mf.synthetic("mq2008-like", seed=0).take(range(9))
    rng = np.random.default_rng(0)
    return plain.with_providers([f"shop {i}" for i in rng.integers(0, 3, plain.items)])


def after(trace, data, sessions):
    """Exposure and visits after so many sessions, from the lists themselves."""
    E, visits, p = np.zeros(data.items), np.zeros(data.queries, int), naive.examination(5)
    F = np.zeros((data.items, 5), int)
    for query, pi in zip(trace.arrivals[:sessions], trace.lists[:sessions], strict=True):
        visits[query] += 1
        for j, d in enumerate(pi[pi >= 0]):
            F[data.offsets[query] + d, j] += 1
    for d in range(data.items):
        E[d] = naive.exposure(F[d], p)
    return E, visits


def by_query(trace, data, sessions, value):
    """The value of every visited query with a relevant item after so many sessions; nan for the others."""
    E, visits = after(trace, data, sessions)
    out = []
    for q, (a, b) in enumerate(itertools.pairwise(data.offsets)):
        counts = visits[q] > 0 and data.R[a:b].max() > 0
        labels = data.providers[a:b].tolist()
        out.append(value(E[a:b], data.R[a:b], labels, int(visits[q])) if counts else math.nan)
    return np.array(out)


@pytest.mark.parametrize("text", NAIVE)
def test_the_mean_over_queries_at_every_checkpoint(data, text):
    trace = mf.simulate(data, "MCFair", "online", steps=300, record=True, metrics=[text], checkpoints=[1, 7, 100])
    for c, value in zip(trace.checkpoints, trace.values[text], strict=True):
        expected = by_query(trace, data, c, NAIVE[text])
        mean = np.nanmean(expected) if not np.isnan(expected).all() else 0.0
        assert value == pytest.approx(mean, rel=1e-9, abs=1e-12)
    assert trace.query_values[text] == pytest.approx(by_query(trace, data, 300, NAIVE[text]), rel=1e-9, nan_ok=True)


def test_metrics_are_given_as_values_texts_or_one_text(data):
    options = {"steps": 50, "seed": 1}
    runs = [
        mf.simulate(data, "TopK", metrics=metrics, **options)
        for metrics in ([mf.Gini(), mf.GroupUnfairness()], ("gini", "group_unfairness"), "gini, group_unfairness")
    ]
    assert len({str(run.values) for run in runs}) == 1
    assert list(runs[0].values)[-2:] == ["gini", "group_unfairness"]
    assert runs[0].provenance["setting"]["metrics"] == ["gini", "group_unfairness"]


def test_groups_reach_the_metric(data):
    """Without groups each item is its own group; one group for all leaves nothing to compare."""
    options = {"steps": 200, "metrics": ["group_unfairness"]}
    plain, grouped, one = (
        mf.simulate(each, "MCFair", **options)
        for each in (mf.synthetic("mq2008-like").take(range(9)), data, data.with_providers(["shop"] * data.items))
    )
    assert np.array_equal(plain.values["group_unfairness"], plain.values["unfairness"])
    assert not np.allclose(grouped.values["group_unfairness"], grouped.values["unfairness"])
    assert np.isnan(one.figures["group_unfairness"])
    assert np.isnan(one.query_values["group_unfairness"]).all()


class Coverage(mf.Metric):
    """Share of items shown at all; nan for queries of more than ten items."""

    longest: int = 10

    def value(self, E, R, groups, visits):
        return np.count_nonzero(E) / E.size if E.size <= self.longest else math.nan


@mf.kernel
def coverage_value(E, R, groups, visits, theta):
    shown = 0
    for d in range(E.shape[0]):
        shown += 1 if E[d] > 0.0 else 0
    return shown / E.shape[0] if E.shape[0] <= theta[0] else np.nan


class CompiledCoverage(mf.Metric):
    longest: int = 10

    kernel = coverage_value


class Depth(mf.Metric):
    """Examination of the first rank with a relevant item; nan for a list without one."""

    per_list = True
    least: float = 0.4

    def value(self, pi, R, p):
        for j, d in enumerate(pi):
            if R[d] >= self.least:
                return p[j]
        return math.nan


@mf.kernel
def depth_value(pi, R, p, theta):
    for j in range(pi.shape[0]):
        if R[pi[j]] >= theta[0]:
            return p[j]
    return np.nan


class CompiledDepth(mf.Metric):
    per_list = True
    least: float = 0.4

    kernel = depth_value


@pytest.mark.parametrize("pair", [(Coverage(), CompiledCoverage()), (Depth(), CompiledDepth())], ids=repr)
@pytest.mark.parametrize("threads", [1, 2])
def test_plain_and_compiled_metrics_of_a_user_agree_to_the_bit(data, pair, threads):
    for metric in pair:
        check_part(metric)
    trace = mf.simulate(data, "RandomK", steps=400, metrics=pair, threads=threads, checkpoints=[1, 30])
    (plain, compiled), (of_queries, of_queries_too) = (
        [each[repr(metric)] for metric in pair] for each in (trace.values, trace.query_values)
    )
    assert plain.tolist() == compiled.tolist()
    assert np.array_equal(of_queries, of_queries_too, equal_nan=True)


def test_nan_leaves_a_query_out(data):
    trace = mf.simulate(data, "RandomK", steps=60, record=True, metrics=[Coverage()])
    assert (data.sizes <= 10).any()
    assert (data.sizes > 10).any()
    expected = by_query(trace, data, 60, lambda E, R, groups, visits: Coverage().value(E, R, groups, visits))
    assert np.array_equal(np.isnan(expected), data.sizes > 10)
    assert trace.figures["coverage(longest=10)"] == pytest.approx(np.nanmean(expected))
    assert trace.query_values["coverage(longest=10)"] == pytest.approx(expected, nan_ok=True)


def test_nan_leaves_a_list_out(data):
    trace = mf.simulate(data, "RandomK", steps=500, record=True, metrics=[Depth()], checkpoints=[100])
    p = naive.examination(5)
    values = []
    for q, pi in zip(trace.arrivals, trace.lists, strict=True):
        values.append(Depth().value(pi, data.R[data.offsets[q] : data.offsets[q + 1]], p))
    assert 0 < np.isnan(values).sum() < 500
    expected = [np.nanmean(values[:100]), np.nanmean(values)]
    assert trace.values["depth(least=0.4)"] == pytest.approx(expected, rel=1e-12)
    of_queries = [np.nanmean([v for v, a in zip(values, trace.arrivals, strict=True) if a == q]) for q in range(9)]
    assert trace.query_values["depth(least=0.4)"] == pytest.approx(of_queries, rel=1e-12)


def test_lists_for_a_metric_are_not_kept_unless_asked_for(data):
    assert mf.simulate(data, "TopK", steps=10, metrics=[Depth()]).lists is None


def test_metrics_do_not_cover_queries_that_are_not_judged(tmp_path):
    rows = "\n".join(f"{y} qid:{q} 1:0.5" for q in range(3) for y in (0, 1, 2))
    for name in ("train", "vali", "test"):
        (tmp_path / f"{name}.txt").write_text(rows + "\n")
    trace = mf.simulate(
        mf.load_letor(tmp_path, preset="paper"), "RandomK", steps=200, metrics=[mf.Gini(), Depth(), CompiledDepth()]
    )
    for text in ("gini", "depth(least=0.4)", "compiled_depth(least=0.4)", "ndcg@1"):
        assert np.isnan(trace.query_values[text]).tolist() == [True] * 6 + [False] * 3
    assert trace.figures["depth(least=0.4)"] == trace.figures["compiled_depth(least=0.4)"]
