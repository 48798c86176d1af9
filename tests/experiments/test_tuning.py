from itertools import pairwise
from typing import Annotated

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from real_data import FOLDS, needs_mq2008

import mcfair as mf
from mcfair import Dataset, PartError, PolicyError, SettingError
from mcfair.experiments.tuning import GRID, between, parse_target, tune, values_to_try


@pytest.fixture(scope="module")
def data():
    return mf.synthetic("mq2008-like", seed=0)


def mean(data, policy, metric, seeds=3, **options):
    return np.mean([mf.simulate(data, policy, seed=s, **options).figures[metric] for s in range(seeds)])


def floor(data, seeds=3, **options):
    traces = [mf.simulate(data, "TopK", seed=seed, **options) for seed in range(seeds)]
    return np.mean([mf.fairness_floor(data, trace.state.visits, trace.state.p).unfairness for trace in traces])


def check_the_record(found, parameter="alpha"):
    values = [value for value, _ in found.runs]
    assert len(set(values)) == len(values)
    assert dict(found.runs)[found.value] == found.figures
    assert getattr(found.policy, parameter) == found.value


# --- what is found ---------------------------------------------------------------------------------------------------


def test_the_floor_of_group_unfairness_bounds_it():
    data = mf.synthetic("marketplace").take(range(5))
    options = {"steps": 400, "k": 3, "seeds": 1, "parameter": "alpha_group", "digits": 1}
    found = tune(data, "TopK", "group_unfairness <= 1.1 * floor", **options)
    trace = mf.simulate(data, found.policy, steps=400, k=3, metrics=["group_unfairness"])
    floor = mf.group_floor(data, trace.state.visits, trace.state.p).unfairness
    assert found.floor_metric == "group_unfairness"
    assert (found.floor, found.figures["group_unfairness"]) == (floor, trace.figures["group_unfairness"])
    assert found.met == (trace.figures["group_unfairness"] <= 1.1 * floor)


def test_the_smallest_value_that_is_fair_enough(data):
    found = tune(data, mf.MCFair(beta=0), "unfairness <= 1.1 * floor", steps=3000)
    check_the_record(found)
    assert found.met
    assert found.target == "unfairness <= 1.1 * floor"
    assert found.floor == pytest.approx(floor(data, steps=3000), rel=1e-12)
    assert found.figures["unfairness"] == pytest.approx(mean(data, found.policy, "unfairness", steps=3000), rel=1e-12)
    assert found.figures["unfairness"] <= 1.1 * found.floor
    assert mean(data, mf.MCFair(beta=0, alpha=0.9 * found.value), "unfairness", steps=3000) > 1.1 * found.floor
    missed = [value for value, figures in found.runs if figures["unfairness"] > 1.1 * found.floor]
    assert max(value for value in missed if value < found.value) >= 0.98 * found.value


@pytest.mark.parametrize(("target", "options"), [("ndcg@5 >= 0.98", {}), ("cndcg@3 >= 195", {"seeds": 2})])
def test_the_largest_value_that_is_effective_enough(data, target, options):
    found = tune(data, "MCFair(beta=0)", target, steps=3000, **options)
    check_the_record(found)
    assert found.met
    metric, bound = target.split(" >= ")
    assert found.figures[metric] >= float(bound)
    beyond = mf.MCFair(beta=0, alpha=1.1 * found.value)
    assert mean(data, beyond, metric, steps=3000, **options) < float(bound)
    assert mean(data, found.policy, metric, steps=3000, **options) == pytest.approx(found.figures[metric], rel=1e-12)


@pytest.mark.parametrize("policy", ["ILP(alpha=0)", "MMF", "FairCo", "MCFair(beta=0, scale=mean)"])
def test_other_policies(data, policy):
    ends = [mean(data, type(mf.parse_policy(policy))(alpha=a), "ndcg@5", steps=500, seeds=1) for a in (0, 1)]
    found = tune(data, policy, f"ndcg@5 >= {np.mean(ends)}", steps=500, seeds=1)
    check_the_record(found)
    assert found.met
    assert type(found.policy).__name__ == policy.split("(")[0]
    if policy[:3] in ("ILP", "MMF"):
        assert 0 < found.value < 1


def test_lp_is_found_where_it_trades_off(data):
    found = tune(data.select(max_items=8), "LP", "ndcg@5 >= 0.99", steps=200, seeds=1, low=0.0001, high=0.1)
    assert found.met
    assert 0.001 <= found.value <= 0.05
    assert sum(0.001 <= value <= 0.05 for value in GRID) >= 4


def test_online(data):
    found = tune(data, "MCFair", "unfairness <= 2 * floor", setting="online", steps=20_000, seeds=2)
    check_the_record(found)
    assert found.met
    options = {"setting": "online", "steps": 20_000, "seeds": 2}
    assert found.floor == pytest.approx(floor(data, **options), rel=1e-12)
    assert mean(data, found.policy, "unfairness", **options) <= 2 * found.floor
    assert mean(data, mf.MCFair(alpha=0.9 * found.value), "unfairness", **options) > 2 * found.floor


@pytest.mark.parametrize(("target", "value"), [("unfairness <= 1e9", 0.0), ("ndcg@1 >= 0", 1000.0)])
def test_if_every_value_meets_it_the_end_that_is_best_for_the_other_side(data, target, value):
    found = tune(data, "MCFair(beta=0)", target, steps=200)
    assert (found.met, found.value, len(found.runs)) == (True, value, 1)


@pytest.mark.parametrize("target", ["unfairness <= 0.9 * floor", "cndcg@5 >= 200", "relative_unfairness <= -1e-3"])
def test_out_of_reach_is_said_and_the_closest_returned(data, target):
    found = tune(data, "MMF", target, steps=200, seeds=2)
    check_the_record(found)
    assert not found.met
    metric = target.split()[0]
    best = min if "<=" in target else max
    assert found.figures[metric] == best(figures[metric] for _, figures in found.runs)
    assert sorted(value for value, _ in found.runs) == [0, *(value for value in GRID if value <= 1)]
    assert "not met" in repr(found)


def test_a_jump_at_0_is_found_without_end(data):
    # the least weight of fairness orders items of equal relevance by exposure: already far fairer than by index
    found = tune(data, "MCFair(beta=0)", "unfairness <= 60", steps=10_000, seeds=1)
    assert (found.met, found.value) == (True, 1e-6)
    assert len(found.runs) == 9


def test_a_value_between_that_meets_it_is_found_though_both_ends_miss_it():
    class Humped(mf.Policy):
        alpha: Annotated[float, msgspec.Meta(ge=0, le=5)] = 0.0

        def score(self, q, rng):
            return q.R if 1 <= self.alpha <= 2 else -q.R

    data = Dataset(offsets=[0, 3], y=[0, 1, 2])
    found = tune(data, Humped(), "ndcg@1 >= 1", steps=20, seeds=1)
    assert found.met
    assert 1 <= found.value <= 2
    assert tune(data, Humped(), "ndcg@1 >= 1", steps=20, seeds=1, low=3).met is False


def test_other_parameters_and_ranges(data):
    found = tune(data, "MCFair(alpha=1)", "ndcg@5 >= 0.9", parameter="beta", steps=300, seeds=1)
    check_the_record(found, "beta")
    assert found.met
    assert found.policy.alpha == 1
    found = tune(data, "MCFair(beta=0)", "ndcg@5 >= 0.98", steps=300, seeds=1, low=0.01, high=10, digits=1)
    values = [value for value, _ in found.runs]
    assert min(values) >= 0.01
    assert max(values) == 10
    assert all(float(f"{value:.1g}") == value for value in values)


def test_whole_numbers():
    class Late(mf.Policy):
        until: Annotated[int, msgspec.Meta(ge=1, le=200)] = 1

        def score(self, q, rng):
            return q.R if q.visits >= self.until else -q.R

    # while the item of R = 0.1 stands first NDCG@1 is 0.1 instead of 1: 1 - 0.9 until/100 on average
    found = tune(Dataset(offsets=[0, 2], y=[1, 0]), Late(), "ndcg@1 >= 0.9", parameter="until", steps=100, seeds=1)
    check_the_record(found, "until")
    assert found.met
    assert found.value == 11
    assert all(isinstance(value, int) for value, _ in found.runs)
    assert found.runs[0][0] == 200


def test_threads_and_progress_change_nothing(data):
    seen = []
    one = tune(data, "MCFair(beta=0)", "ndcg@5 >= 0.97", steps=500, seeds=2)
    two = tune(data, "MCFair(beta=0)", "ndcg@5 >= 0.97", steps=500, seeds=2, threads=2,
               progress=lambda value, figures: seen.append((value, figures)))  # fmt: skip
    assert one.runs == two.runs == seen


def test_the_setting_is_that_of_simulate(data):
    found = tune(data, "MCFair(beta=0)", "ndcg@3 >= 0.98", setting=mf.Setting(steps=400), k=3, examination=2, seeds=1)
    assert list(found.figures) == [
        "unfairness",
        "relative_unfairness",
        *(f"{m}@{k}" for m in ("cndcg", "ndcg") for k in (1, 2, 3)),
    ]
    trace = mf.simulate(data, found.policy, steps=400, k=3, examination=2)
    assert found.figures["ndcg@3"] == pytest.approx(trace.ndcg[3], rel=1e-12)
    text = repr(found)
    assert text.startswith(f"Tuning({found.policy!r}, ndcg@3 >= 0.98 met: unfairness ")
    assert text.endswith(f", NDCG@3 {trace.ndcg[3]:.4g}; {len(found.runs)} values tried)")


def test_a_tuning_describes_itself_in_a_notebook(data):
    found = tune(data, "MCFair(beta=0)", "ndcg@5 >= 0.98", steps=200, seeds=1)
    page = found._repr_html_()
    assert page.startswith("<p>Tuning(MCFair(")
    assert "ndcg@5 &gt;= 0.98 met" in page
    assert page.count("<tr") == 1 + len(found.runs)
    assert f'<tr class="base">\n<th scope="row" class="text">{found.value:g}</th>' in page


def test_data_by_name_and_by_path(data, tmp_path):
    options = {"steps": 100, "seeds": 1}
    found = tune("mq2008-like", "MMF", "ndcg@5 >= 0.9", **options)
    assert found.runs == tune(data, "MMF", "ndcg@5 >= 0.9", **options).runs
    file = tmp_path / "some.txt"
    file.write_text("".join(f"{grade} qid:{query} 1:0.5\n" for query in range(4) for grade in (0, 1, 2, 0)))
    loaded = mf.load_letor(file)
    for source in (file, str(file)):
        assert (
            tune(source, "MMF", "ndcg@3 >= 0.5", **options).runs == tune(loaded, "MMF", "ndcg@3 >= 0.5", **options).runs
        )
    with pytest.raises(mf.DataError, match="no such file or folder: nowhere"):
        tune("nowhere", "MMF", "ndcg@3 >= 0.5")


def test_short_queries_are_left_out_with_the_warning_of_simulate():
    data = Dataset(offsets=[0, 1, 4], y=[1, 0, 1, 2])
    with pytest.warns(mf.MCFairWarning, match="left out 1 of 2 queries"):
        found = tune(data, "MMF", "ndcg@3 >= 0.5", steps=50, seeds=1)
    assert found.met
    with (
        pytest.warns(mf.MCFairWarning, match="left out 1 of 2 queries"),
        pytest.raises(SettingError, match="ndcg@4: expected a cutoff from 1 to 3, the ranks of the lists"),
    ):
        tune(data, "MMF", "ndcg@4 >= 0.5", steps=50)


# --- targets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "metric", "number", "of_floor"),
    [
        ("unfairness <= 1.1 * floor", "unfairness", 1.1, True),
        ("unfairness<=2*floor", "unfairness", 2.0, True),
        ("  unfairness <= 25 ", "unfairness", 25.0, False),
        ("relative_unfairness <= 1e-2", "relative_unfairness", 0.01, False),
        ("ndcg@5 >= .98", "ndcg@5", 0.98, False),
        ("cndcg@1 >= 190.", "cndcg@1", 190.0, False),
    ],
)
def test_targets_are_read(text, metric, number, of_floor):
    target = parse_target(text)
    assert (repr(target.metric), target.number, target.of_floor) == (metric, number, of_floor)
    assert target.metric.higher_is_better == (">=" in text)
    figures = {metric: number * (2.0 if of_floor else 1.0)}
    assert target.missed_by(figures, floor=2.0) == 0
    worse = -1.0 if target.metric.higher_is_better else 1.0
    assert target.missed_by({metric: figures[metric] + worse}, floor=2.0) == pytest.approx(1.0)


def test_a_target_may_bound_any_registered_metric_in_its_own_direction(data):
    @mf.register
    class ShareShown(mf.Metric):
        least: Annotated[float, msgspec.Meta(ge=0)] = 0.0
        higher_is_better = True

        def value(self, E, R, groups, visits):
            return np.mean(self.least < E)

    target = parse_target("share_shown(least=0.5) >= 0.25")
    assert (target.metric, target.number) == (ShareShown(least=0.5), 0.25)
    found = tune(data, "MCFair(beta=0)", "share_shown(least=0.5) >= 0.75", steps=200, seeds=1, low=0.1, high=1)
    assert found.metric == "share_shown(least=0.5)"
    trace = mf.simulate(data, found.policy, steps=200, metrics=["share_shown(least=0.5)"])
    assert found.figures[found.metric] == trace.figures[found.metric]
    with pytest.raises(SettingError, match="bounds share_shown from the wrong side: more share_shown is better"):
        parse_target("share_shown <= 0.5")
    assert parse_target("group_unfairness<=2").metric == mf.GroupUnfairness()
    assert parse_target("ndcg >= 0.9").metric == mf.NDCG()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot parse target '': expected a metric, <= or >=, and a number, such as 'ndcg@5 >= 0.98'"),
        ("unfairness < 25", "cannot parse target 'unfairness < 25'"),
        ("unfairness = 25", "cannot parse target"),
        ("unfairness <= ", "cannot parse target"),
        ("unfairness <= floor", "cannot parse target .* or 'unfairness <= 1.1 \\* floor'"),
        ("unfairness <= 1.1 + floor", "cannot parse target"),
        ("unfairness <= 1.1 * ceiling", "cannot parse target"),
        ("unfairness <= 25 ndcg@5 >= 1", "cannot parse target"),
        ("unfairness <= nan", "cannot parse target"),
        (25, "cannot parse target 25"),
        ("unfairnes <= 25", "target 'unfairnes <= 25': unknown metric 'unfairnes'; did you mean 'unfairness'"),
        ("NDCG@5 >= 0.9", "unknown metric 'NDCG'; did you mean 'ndcg'\\? available: unfairness, "),
        ("ndcg@6 >= 0.9", "ndcg@6: expected a cutoff from 1 to 5, the ranks of the lists"),
        ("ndcg@0 >= 0.9", "ndcg: k = 0 is not allowed: expected a whole number of at least 1"),
        ("unfairness >= 25", "bounds unfairness from the wrong side: less unfairness is better, use <="),
        ("cndcg@3 <= 25", "bounds cndcg@3 from the wrong side: more cndcg@3 is better, use >="),
        ("ndcg@3 >= 0.9 * floor", "no floor of ndcg@3 is known, only of unfairness and group_unfairness; use a number"),
        ("relative_unfairness <= 2 * floor", "no floor of relative_unfairness is known"),
        ("unfairness <= 1e999", "expected a finite number, got 1e999"),
    ],
)  # fmt: skip
def test_other_targets_are_refused_with_what_was_wrong(data, text, message):
    with pytest.raises(SettingError, match=message):
        tune(data, "MMF", text)


# --- values ----------------------------------------------------------------------------------------------------------


def test_the_grid_lies_within_the_bounds_of_the_parameter():
    assert values_to_try(mf.MCFair(), "alpha", None, None) == [0, *GRID]
    assert values_to_try(mf.LP(), "alpha", None, None) == [0, *GRID]
    assert values_to_try(mf.PLFair(), "alpha", None, None) == [0, *(value for value in GRID if value <= 1)]
    assert values_to_try(mf.LP(), "refresh", None, None) == [1, 3, 10, 30, 100, 300, 1000]
    assert values_to_try(mf.MMF(), "alpha", 0.2, None) == [0.2, 0.3, 1]
    assert values_to_try(mf.MCFair(), "alpha", 2, 5000) == [2, 3, 10, 30, 100, 300, 1000, 5000]
    assert max(b / a for a, b in pairwise(GRID)) < 3.4


def test_the_grid_of_parameters_with_unusual_bounds():
    class Odd(mf.Policy):
        free: float = 1.0
        above: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.5
        both: Annotated[float, msgspec.Meta(ge=-1, le=0.05)] = 0.0
        far: Annotated[float, "no bound", msgspec.Meta(gt=5000)] = 6000.0

        def score(self, q, rng):
            return q.R

    assert values_to_try(Odd(), "free", None, None) == [0, *GRID]
    assert values_to_try(Odd(), "free", -4, -2) == [-4, -2]
    assert values_to_try(Odd(), "above", None, None) == [value for value in GRID if value < 1]
    assert values_to_try(Odd(), "both", None, None) == [-1, 0, *(value for value in GRID if value < 0.05), 0.05]
    assert values_to_try(Odd(), "far", 6000, 7000) == [6000, 7000]
    with pytest.raises(SettingError, match=r"low = 6000.0 and high = nan: expected finite numbers"):
        values_to_try(Odd(), "far", 6000, None)
    with pytest.raises(SettingError, match=r"low = 0.0 and high = inf: expected finite numbers, low below high"):
        values_to_try(Odd(), "free", None, float("inf"))


@given(st.one_of(st.just(0.0), st.floats(0.01, 999)), st.floats(0.01, 1000), st.integers(1, 5), st.booleans())
def test_halving_comes_to_an_end_where_values_have_so_many_digits(a, b, digits, down):
    low, high = min(a, b), max(a, b)
    halvings = 0
    while low < (middle := between(low, high, 0.01, digits)) < high:
        low, high = (low, middle) if down else (middle, high)
        halvings += 1
    assert halvings <= 4 * digits + 15
    assert high - low <= 2 * 10.0 ** (1 - digits) * max(high, 0.01)


@pytest.mark.parametrize(
    ("policy", "options", "error", "message"),
    [
        ("MCFair", {"parameter": "alhpa"}, PolicyError, "unknown parameter of MCFair 'alhpa'; did you mean 'alpha'\\?"),
        ("TopK", {}, PolicyError, "unknown parameter of TopK 'alpha'; did you mean 'alpha_group'\\? available: beta"),
        ("RandomK", {}, PolicyError, "unknown parameter of RandomK 'alpha'; available: none"),
        ("MCFair", {"parameter": "ties"}, PolicyError, "MCFair: ties is not a number and cannot be tuned; numbers: al"),
        ("Nobody", {}, PolicyError, "unknown policy 'Nobody'"),
        (7, {}, PolicyError, "expected a policy or its text, got 7"),
        ("MMF", {"low": -1}, SettingError, "MMF: low = -1 is not allowed: expected a number from 0 to 1"),
        ("MMF", {"high": 2}, SettingError, "MMF: high = 2 is not allowed: expected a number from 0 to 1"),
        ("MMF", {"low": 0.5, "high": 0.5}, SettingError, "low = 0.5 and high = 0.5: expected finite numbers, low"),
        ("MMF", {"seeds": 0}, SettingError, "seeds = 0 is not allowed: expected a number of seeds of at least 1"),
        ("MMF", {"digits": 0}, SettingError, "digits = 0 is not allowed: expected a whole number from 1 to 9"),
        ("MMF", {"setting": "offline"}, SettingError, "unknown mode = 'offline'"),
        ("MMF", {"clicks": "Cascad"}, PartError, "unknown click model 'Cascad'; did you mean 'Cascade'\\?"),
        ("MMF", {"stepz": 5}, SettingError, "unknown argument of tune 'stepz'; did you mean 'steps'\\?"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_with_what_was_wrong(data, policy, options, error, message):
    with pytest.raises(error, match=message):
        tune(data, policy, "ndcg@5 >= 0.9", **options)


# --- real data -------------------------------------------------------------------------------------------------------


@needs_mq2008
def test_fairness_within_a_tenth_of_the_floor_on_mq2008():
    fold = mf.load_letor(FOLDS / "Fold1", preset="wsdm23")
    found = tune(fold, "MCFair(beta=0)", "unfairness <= 1.1 * floor", seeds=5)
    assert found.met
    assert found.floor == pytest.approx(22.4825, abs=5e-5)  # Table 1's
    assert mean(fold, mf.MCFair(beta=0, alpha=0.9 * found.value), "unfairness", seeds=5) > 1.1 * found.floor


@needs_mq2008
def test_with_all_splits_played_the_floor_is_that_of_the_test_split():
    fold = mf.load_fold(FOLDS / "Fold1", preset="paper", min_items=6, max_items=19)
    found = tune(fold, "MCFair(beta=0)", "unfairness <= 1.2 * floor", steps=30_000, seeds=1)
    assert found.met
    trace = mf.simulate(fold, found.policy, steps=30_000)
    visits = trace.state.visits[trace.query_judged]
    assert found.floor == pytest.approx(mf.fairness_floor(fold.test, visits, trace.state.p).unfairness, rel=1e-12)
    assert found.floor <= trace.unfairness == pytest.approx(found.figures["unfairness"], rel=1e-12)
