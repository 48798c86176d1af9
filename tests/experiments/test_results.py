import numpy as np
import pytest

import mcfair as mf
from mcfair.experiments.compare import open_experiments, run_experiments
from mcfair.experiments.experiment import Experiment, Series

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
    for text, tables in ((results._repr_html_(), "<table"), (str(results), "┓\n")):
        assert text.count(tables) == 2  # one for each setting
        assert "MCFair(alpha=10.0" in text


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


# --- comparisons -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compared():
    data = {"one": mf.synthetic("mq2008-like"), "two": mf.synthetic("mq2008-like", seed=1)}
    policies = {"base": "FairCo", "ours": ["MCFair(alpha=1)", "MCFair(alpha=1.001)"], "again": "FairCo"}
    return data, mf.compare(data, policies, steps=800, seeds=2)


def values_of(data, policy, metric):
    """Values of queries by hand: means over the seeds that visited them, by dataset and query."""
    found = {}
    for name, each in data.items():
        traces = [mf.simulate(each, policy, steps=800, seed=seed) for seed in (0, 1)]
        for q in range(each.queries):
            seen = [trace.query_values[metric][q] for trace in traces if trace.state.visits[q] > 0]
            if seen:
                found[name, q] = np.mean(seen)
    return found


def test_tests_are_fishers_over_the_queries_of_all_datasets_with_holms_correction(compared):
    data, results = compared
    tests = results.tests(["ndcg@5"])
    base, own = values_of(data, "FairCo", "ndcg@5"), values_of(data, "MCFair(alpha=1)", "ndcg@5")
    row = tests.filter(label="MCFair").row(0, named=True)
    assert (row["queries"], row["against"]) == (len(base), "base")
    assert row["difference"] == pytest.approx(np.mean([own[each] - base[each] for each in base]))
    assert row["p"] == mf.fisher(list(own.values()), list(base.values()))
    assert tests["p_adjusted"].to_list() == mf.holm(tests["p"]).tolist()
    assert dict(tests.select("label", "verdict").rows())["again"] == "identical"
    assert row["verdict"] == "higher"


def test_a_difference_that_is_not_found_is_never_called_equal(compared):
    _, results = compared
    tests = results.tests(against="MCFair(alpha=1.001)", metrics=["relative_unfairness", "ndcg@5"], data="one")
    close = tests.filter(label="MCFair", metric="ndcg@5").row(0, named=True)
    assert close["verdict"] in ("undecided", "identical")
    frame = results.frame(against="MCFair(alpha=1.001)")
    assert frame.filter(label="MCFair(alpha=1.001)")["ndcg@5 verdict"].to_list() == [None]
    assert frame["relative_unfairness"].to_list() == pytest.approx(
        [results.runs.filter(policy=policy)["relative_unfairness"].mean() for policy in frame["policy"]]
    )
    (table,) = results.tables(against="MCFair(alpha=1.001)")
    if close["verdict"] == "undecided":
        assert "a difference of x would be found" in " ".join(table.notes)
        assert " (< 0." in table.as_markdown().replace("\\", "")


def test_what_cannot_be_compared_is_named(compared):
    _, results = compared
    for options, message in (
        ({"against": "MMF"}, "unknown policy to compare with 'MMF'; "),
        ({"metrics": ["cndcg@5"]}, "unknown metric of single queries 'cndcg@5'; did you mean 'ndcg@5'"),
        ({"data": "three"}, "unknown dataset 'three'; "),
    ):
        with pytest.raises(mf.SettingError, match=message):
            results.tests(**options)
