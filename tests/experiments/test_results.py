import numpy as np
import pytest

import mcfair as mf
from mcfair.experiments.execute import run_experiments
from mcfair.experiments.experiment import Experiment, Series
from mcfair.experiments.tasks import open_experiments

SMALL = Experiment(
    name="small",
    settings=({"mode": "post-processing", "steps": 400}, {"mode": "online", "steps": 600}),
    seeds=2,
    series=(Series(policies=("TopK", "MCFair(alpha=[0, 10], beta=0)")), Series(policies=("LP",), mode="online")),
)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return run_experiments([SMALL], tmp_path_factory.mktemp("results"))


def test_tables_hold_the_figures_of_the_runs(results):
    data = open_experiments([SMALL])
    assert results.runs.height == 14
    for setting, policy in {(setting, policy) for _, setting, policy in SMALL.played()}:
        rows = results.of("mq2008-like", setting, policy)
        assert rows["seed"].to_list() == [0, 1]
        for row in rows.iter_rows(named=True):
            trace = mf.simulate(data["mq2008-like"], policy, setting, seed=row["seed"])
            assert row["unfairness"] == trace.unfairness
            assert row["sessions"] == trace.sessions
            assert [row[f"cndcg@{k}"] for k in range(1, 6)] == list(trace.cndcg.values())
            mine = results.queries.filter(key=row["key"])
            assert np.array_equal(mine["unfairness"], trace.query_values["unfairness"], equal_nan=True)
            assert np.array_equal(mine["visits"], trace.state.visits)
    assert set(results.times["policy"]) == {repr(policy) for _, _, policy in SMALL.played()}
    assert results.times["seconds"].min() > 0


def test_no_run_is_below_the_floor_or_past_the_frontier(results):
    assert results.limits.height == 4
    assert results.limits["gap"].max() < 1e-6
    floors = results.runs.join(results.limits, on=["data", "setting", "seed"])
    assert (floors["unfairness"] >= floors["floor"] - 1e-9).all()
    assert results.frontier.height == 4 * 40
    assert results.frontier.filter(point=39)["ndcg"].to_list() == pytest.approx([1.0] * 4)


def test_the_summary_is_mean_and_standard_deviation_over_seeds(results):
    summary = results.summary()
    assert summary.height == 7
    setting = SMALL.conditions[1]
    row = summary.filter(mode="online", policy=repr(mf.TopK())).row(0, named=True)
    values = results.of("mq2008-like", setting, mf.TopK())["unfairness"].to_numpy()
    assert row["seeds"] == 2
    assert row["unfairness"] == pytest.approx(np.mean(values))
    assert row["unfairness std"] == pytest.approx(np.std(values))
    assert not {"key std", "seed", "sessions"} & set(summary.columns)


def test_results_describe_themselves(results):
    assert repr(results) == "Results(small: 14 runs of 4 policies, 2 seed(s))"
    page = results._repr_html_()
    assert page.startswith("<p>Results(small: 14 runs of 4 policies, 2 seed(s))</p>")
    assert page.count("<table") == 1
    assert "MCFair(alpha=10.0" in page


def test_settings_with_different_numbers_of_ranks_share_the_tables(tmp_path):
    mixed = Experiment(
        name="mixed", k_c=(1,), settings=({"steps": 20, "k": 1}, {"steps": 20, "k": 3}), seeds=1,
        series=(Series(policies=("TopK",)),),
    )  # fmt: skip
    results = run_experiments([mixed], tmp_path)
    assert results.runs["ndcg@3"].null_count() == 1
    assert results.runs["ndcg@1"].null_count() == 0
    assert results.queries.columns == [
        *("key", "query", "visits", "unfairness", "relative_unfairness", "ndcg@1", "ndcg@2", "ndcg@3")
    ]
