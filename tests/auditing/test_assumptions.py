"""Examination fitted to logs whose examination is known, and its use elsewhere."""

import dataclasses

import numpy as np
import polars as pl
import pytest
from logs import flat, random_sessions, recorded_run
from naive_audit import pair_ratios

import mcfair as mf
from mcfair.analysis.propensities import fill_pairs, fit_propensities, nearest_falling
from mcfair.auditing.assumptions import rank_counts
from mcfair.auditing.counts import count_log
from mcfair.auditing.readers import open_log
from mcfair.errors import DataError, SettingError

SEVERITIES = (0.5, 1.0, 2.0)


@pytest.fixture(scope="module", params=SEVERITIES, ids=lambda each: f"severity {each}")
def logged(request, tmp_path_factory):
    """A recorded run of random lists with a known severity of position bias."""
    trace = recorded_run(steps=30_000, queries=30, examination=request.param)
    return trace.state.p, trace.save(tmp_path_factory.mktemp("run") / "run")


@pytest.mark.parametrize("method", ["ctr", "harvesting", "em"])
def test_known_examination_is_recovered(logged, method):
    """Within 5 standard errors of a fit on 150,000 rows; benchmarks/audit.py measures the error on 5,000,000."""
    p, log = logged
    found = mf.fit_examination(log, method, resamples=20)
    assert found.method == method
    error = np.maximum((found.high - found.low) / 3.92, 1e-3)
    assert (np.abs(found.p - p) < 5 * error).all()
    assert (np.abs(found.p / p - 1) < 0.1).all()
    assert found.p[0] == found.low[0] == found.high[0] == 1


def test_harvesting_does_not_confuse_relevance_with_examination(tmp_path):
    """Relevant items stand higher, and move only now and then: click rates by rank are wrong, harvesting is right."""
    rng = np.random.default_rng(0)
    p, R = 1 / np.log2(np.arange(2, 5)), np.array([0.8, 0.4, 0.2])
    lists = np.array([[0, 1, 2], [1, 0, 2], [0, 2, 1]])[rng.choice(3, 60_000, p=[0.8, 0.1, 0.1])]
    clicks = rng.random(lists.shape) < R[lists] * p
    log = pl.DataFrame(
        {
            "query": ["q"] * lists.size,
            "item": lists.ravel(),
            "rank": np.tile([1, 2, 3], len(lists)),
            "clicked": clicks.ravel(),
        }
    )
    rates, items, model = (mf.fit_examination(log, method, resamples=3).p for method in ("ctr", "harvesting", "em"))
    assert abs(rates[2] / p[2] - 1) > 0.3
    assert np.abs(items / p - 1).max() < 0.06
    assert np.abs(model / p - 1).max() < 0.06


@pytest.mark.parametrize("seed", range(3))
def test_pairs_of_ranks_agree_with_the_definition(seed):
    cells = rank_counts(count_log(open_log(flat(random_sessions(seed)))))
    pairs = np.zeros((cells.blocks, cells.ranks, cells.ranks))
    fill_pairs(cells.item, cells.rank, cells.n, cells.c, cells.block, pairs)
    table = {(int(d), int(j) + 1): (n, c) for d, j, n, c in zip(cells.item, cells.rank, cells.n, cells.c, strict=True)}
    assert pairs.sum(axis=0) == pytest.approx(pair_ratios(table, cells.ranks), rel=1e-12)


def test_two_ranks_by_hand():
    """Items a and b stood 2 times at rank 1 and once at rank 2: (1·1/3 + 2·1/3) against (1·2/3 + 0)."""
    rows = [("a", 1, 1), ("a", 1, 0), ("a", 2, 1), ("b", 1, 1), ("b", 1, 1), ("b", 2, 0)]
    log = pl.DataFrame(rows, schema=["item", "rank", "clicked"], orient="row").with_columns(query=pl.lit("q"))
    found = mf.fit_examination(log, "harvesting", resamples=3)
    assert found.p[1] == pytest.approx((2 / 3) / (1 / 3 + 2 / 3))


def test_propensities_correct_click_rates():
    """Rank 2 shows the relevant item four times as often; weighted by propensity, click rates are those of p."""
    rows = [(1, "a", 8, 4, 0.5), (1, "b", 8, 2, 0.5), (2, "a", 16, 4, 0.8), (2, "b", 4, 0, 0.2)]
    log = pl.concat(
        pl.DataFrame({"rank": j, "item": d, "clicked": [1] * c + [0] * (n - c), "propensity": q, "query": "all"})
        for j, d, n, c, q in rows
    )
    found = mf.fit_examination(log, resamples=3)
    assert found.method == "ctr"
    first, second = (4 / 0.5 + 2 / 0.5) / (16 / 0.5), (4 / 0.8 + 0) / (16 / 0.8 + 4 / 0.2)
    assert found.p[1] == pytest.approx(second / first)


def test_the_result_never_rises():
    assert nearest_falling(np.array([1.0, 1.4, 0.25, 0.5, 0.375]), np.ones(5)).tolist() == [1, 1, 0.375, 0.375, 0.375]


def test_logs_that_do_not_determine_examination_are_refused():
    fixed = flat([("q", [(1, "a", 1), (2, "b", 1)])] * 5)
    with pytest.raises(DataError, match=r"no item was seen, with clicks, at more than one rank"):
        mf.fit_examination(fixed)
    with pytest.raises(DataError, match=r"no click at rank 1"):
        mf.fit_examination(fixed.with_columns(clicked=pl.lit(0)), "ctr")
    part = flat([("q", [(1, "a", 1), (2, "b", 1), (3, "c", 1)]), ("q", [(1, "b", 1), (2, "a", 1), (3, "c", 1)])])
    with pytest.raises(DataError, match=r"at rank 3: .* --ranks 2"):
        mf.fit_examination(part)
    assert mf.fit_examination(part, ranks=2, resamples=3).p.size == 2
    with pytest.raises(SettingError, match=r"unknown method 'harvest'; did you mean 'harvesting'"):
        mf.fit_examination(part, "harvest")


def test_the_result_is_accepted_elsewhere(logged):
    _, log = logged
    found = mf.fit_examination(log, resamples=3)
    data = mf.Dataset(offsets=[0, 6], y=[2, 1, 0, 0, 1, 2])
    assert mf.simulate(data, "TopK", steps=5, examination=found.falling).state.p.tolist() == found.falling.tolist()
    audited = mf.audit(log, examination=found.text, resamples=2)
    assert audited.model.p == pytest.approx(found.falling, rel=1e-3)
    fitted = mf.audit(log, examination="fitted", resamples=2)
    assert fitted.model.name == "fitted"
    assert fitted.model.p.tolist() == found.falling.tolist()


def test_resamples_contain_the_estimate():
    counts = count_log(open_log(flat(random_sessions(2, queries=3) * 30)))
    doubled = dataclasses.replace(counts, shown=2 * counts.shown, clicks=2 * counts.clicks)
    a, b = (fit_propensities(rank_counts(each), "ctr", resamples=50) for each in (counts, doubled))
    assert a.p.tolist() == b.p.tolist()


# --- merit -----------------------------------------------------------------------------------------------------------


def test_a_pooled_estimator_is_fitted_to_the_log():
    log = flat(random_sessions(2, queries=3) * 5)
    found, counts = mf.audit(log, merit="Beta", resamples=2), count_log(open_log(log))
    p = found.model.p
    F = np.zeros((counts.items, p.size), np.int32)
    np.add.at(F, (counts.cell_item, counts.cell_rank - 1), counts.shown)
    E, C = F @ p, counts.C.astype(np.int32)
    fitted = mf.Beta().fit(C, E, F, p)
    assert fitted != mf.Beta()
    assert pytest.approx(fitted.estimates(C, E, F, p)[0], rel=1e-12) == found.figures.assumed.R
    assert found.merit == repr(mf.Beta())
