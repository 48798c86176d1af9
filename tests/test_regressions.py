"""Regression tests for defects found by users who knew only the documentation."""

import json

import numpy as np
import pytest
from command_line import refused

import mcfair as mf
from mcfair.experiments.experiment import parse_experiment
from mcfair.testing import check_part

TOY = mf.Dataset(offsets=[0, 3, 7], y=[2, 1, 0, 0, 1, 2, 0])


class TruthfulNoMore(mf.ClickModel):
    def clicks(self, pi, truth, p, rng):
        truth[:] = 1.0
        return np.ones(pi.size, bool)


class CountsNoMore(mf.Estimator):
    def estimate(self, C, E, F, p):
        F[:] = 0
        return 0.0, 0.0


class ExposedNoMore(mf.Metric):
    def value(self, E, R, groups, visits):
        E[:] = 0.0
        return 0.0


@pytest.mark.parametrize(
    ("option", "part"), [("clicks", TruthfulNoMore()), ("estimator", CountsNoMore()), ("metrics", ExposedNoMore())]
)
def test_plain_parts_cannot_change_what_they_are_given(option, part):
    with pytest.raises(mf.PartError, match="read-only"):
        mf.simulate(TOY, "TopK", "online", steps=5, **{option: [part] if option == "metrics" else part})
    with pytest.raises(AssertionError, match=r"changed|read-only"):
        check_part(part)


@pytest.mark.parametrize("number", [np.float64(2.0), np.float32(2.0), np.int64(2)])
def test_numbers_of_numpy_are_numbers(number):
    assert mf.MCFair(alpha=number) == mf.MCFair(alpha=2.0)
    assert mf.Setting(steps=np.int64(5)).steps == 5
    assert mf.Setting(examination=np.array([1.0, 0.5])).examination == (1.0, 0.5)
    assert mf.TrustBias(positive=np.array([0.9, 0.8])).positive == (0.9, 0.8)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ('series = [{policies = ["MCFair(alpha=[])"]}]', "a list of values is empty"),
        ('show = "tradeoff"\nk_c = []\nseries = [{policies = ["TopK"]}]', "k_c is empty"),
        ("series = [{policies = []}]", "a series has no policies"),
        ('series = [{policies = ["MCFair"]}, {label = "MCFair", policies = ["FairCo"]}]', "are called 'MCFair'"),
    ],
)
def test_experiments_without_meaning_are_refused(lines, reason):
    with pytest.raises(mf.MCFairError, match=reason):
        parse_experiment(lines, "mine.toml")


ONE_SERIES = '[[series]]\nlabel = "ours"\npolicies = ["TopK"]'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            f'show = "pie"\n{ONE_SERIES}',
            r"line 1: unknown show = 'pie'; available: table, .*tradeoff$",
        ),
        (f'preset = "wsdm"\n{ONE_SERIES}', r"line 1: .* available: paper, wsdm23$"),
        (f'settings = [{{mode = "online", steps = 5}}]\nsteps = 3\n{ONE_SERIES}', r"line 2: unknown key 'steps'"),
        (ONE_SERIES.replace("TopK", "TopKK"), r"line 3: unknown policy 'TopKK'; did you mean 'TopK'"),
        (f'settings = ["online", "online"]\n{ONE_SERIES}', "settings has .* twice"),
        (f'data = ["mine", "mine"]\n{ONE_SERIES}', "data has 'mine' twice"),
    ],
)
def test_errors_in_an_experiment_name_the_line_and_what_is_allowed(text, message):
    with pytest.raises(mf.SettingError, match=message):
        parse_experiment(text, "mine.toml")


def test_a_mistake_in_an_experiment_leaves_nothing_behind(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(ONE_SERIES.replace("TopK", "TopKK"))
    assert "mine.toml, line 3: unknown policy 'TopKK'" in refused("run", str(file), "--out", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: mf.open_data("mq2008-like", min_items=-1), mf.SettingError, "min_items = -1 .* at least 0"),
        (lambda: mf.open_data("mq2008-like", max_items=-1), mf.SettingError, "max_items = -1 .* at least 0"),
        (lambda: mf.Dataset(offsets=[0, 1.5, 2], y=[1, 1]), mf.DataError, r"whole numbers .* got \[0. +1.5 2. \]"),
        (lambda: mf.Dataset(offsets=None, y=[1]), mf.DataError, "offsets must be whole numbers .* got None"),
        (lambda: mf.Dataset(offsets=["a"], y=[1]), mf.DataError, "offsets must be whole numbers"),
        (lambda: mf.synthetic(None), mf.DataError, "unknown profile 'None'"),
        (lambda: mf.simulate(TOY, "TopK", state=3), mf.SettingError, "state = 3 .* expected a State"),
    ],
)
def test_wrong_values_are_refused_in_one_line(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_a_plugin_that_exits_is_refused(tmp_path):
    script = tmp_path / "leaves.py"
    script.write_text("import sys\nsys.exit(0)\n")
    assert "leaves.py: SystemExit" in refused("policies", "--plugin", str(script))


def test_a_score_that_is_text_is_refused_in_one_line():
    class Wordy(mf.Policy):
        def score(self, q, rng):
            return "abc"

    with pytest.raises(mf.PolicyError, match=r"Wordy\(\) returned 'abc', expected 3 numbers"):
        mf.simulate(TOY, Wordy(), steps=1, seed=1)


def test_a_plain_list_that_begins_with_minus_one_is_not_taken_for_a_kernel():
    class Negative(mf.Policy):
        def rank(self, q, rng):
            return np.arange(min(q.p.size, q.R.size)) - 1

    with pytest.raises(mf.PolicyError, match="not distinct items"):
        mf.simulate(TOY, Negative(), steps=1)


def test_numbers_of_thousands_of_digits_are_refused():
    with pytest.raises(mf.PolicyError, match="is not allowed"):
        mf.parse_policy(f"MCFair(alpha=0x{'f' * 5000})")


@pytest.mark.parametrize("name", ["name", "ranks", "score", "auto", "cost"])
def test_parameters_do_not_take_the_names_of_the_base(name):
    with pytest.raises(mf.PolicyError, match=f"cannot be called {name}"):
        type("Own", (mf.Policy,), {"__annotations__": {name: float}, name: 1.0})


def test_a_kernel_is_a_function():
    with pytest.raises(mf.PolicyError, match=r"kernel = 1.0 is not allowed: expected a function"):
        type("Own", (mf.Policy,), {"kernel": 1.0})


def test_names_that_do_not_parse_back_are_refused():
    odd = type("with space", (mf.Policy,), {"score": lambda self, q, rng: q.R})
    with pytest.raises(mf.PolicyError, match="must be a Python identifier"):
        mf.register(odd)


def test_data_that_is_no_dataset_is_named():
    with pytest.raises(mf.DataError, match="expected a Dataset, got 'mq2008-like'"):
        mf.simulate("mq2008-like", "TopK")


def test_a_folder_that_is_no_saved_run_is_named(tmp_path):
    folder = mf.simulate(TOY, "TopK", steps=5).save(tmp_path / "run")
    (folder / "run.json").write_text(json.dumps({}))
    with (
        pytest.warns(mf.MCFairWarning, match="has no digests"),
        pytest.raises(mf.TraceError, match="is not a saved run: it lacks 'data'"),
    ):
        mf.Trace.load(folder)


def test_the_number_of_seeds_is_bounded():
    words = ("simulate", "--data", "mq2008-like", "--policy", "TopK", "--seeds", str(10**20))
    assert "Invalid value for '--seeds'" in refused(*words, status=2)
