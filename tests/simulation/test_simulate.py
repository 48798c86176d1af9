"""The function `simulate`: its arguments, its checkpoints, and the protocols that data carries."""

import dataclasses
import inspect

import naive
import numpy as np
import pytest

import mcfair as mf
from mcfair import arrays
from mcfair.data.protocols import PROTOCOLS
from mcfair.errors import DataError, MCFairWarning, PartError, PolicyError, SettingError
from mcfair.simulation.run import checkpoint_ends
from mcfair.simulation.setting import SettingOptions, make_setting


@pytest.fixture(scope="module")
def data():
    return mf.synthetic("mq2008-like", seed=0)


# --- arguments -------------------------------------------------------------------------------------------------------


def test_the_signature_lists_every_option():
    parameters = inspect.signature(mf.simulate).parameters
    own = ["data", "policy", "setting", "seed", "checkpoints", "threads", "state", "record", "progress"]
    assert list(parameters) == own + list(SettingOptions.__annotations__)
    assert {field.name for field in dataclasses.fields(mf.Setting)} - {"mode"} == set(SettingOptions.__annotations__)
    assert inspect.Parameter.VAR_KEYWORD not in {each.kind for each in parameters.values()}


def test_an_option_that_is_none_has_its_default(data):
    options = dict.fromkeys(SettingOptions.__annotations__)
    one, other = (mf.simulate(data, "TopK", **each) for each in ({}, options))
    assert one.provenance["setting"] == other.provenance["setting"]


def test_options_change_a_setting(data):
    setting = mf.Setting(mode="online", steps=50, k=3, clicks="Cascade", estimator="IPS")
    trace = mf.simulate(data, "TopK", setting, steps=20)
    assert trace.provenance["setting"] == dataclasses.replace(setting, steps=20).to_dict()


def test_a_setting_is_rebuilt_from_its_table():
    setting = mf.Setting(
        mode="online", examination=[1, 0.6, 0.4], clicks="DBN", estimator="IPS(prior_strength=5)", metrics="gini,ndcg@2"
    )
    assert mf.Setting(**setting.to_dict()) == setting
    assert setting.k == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps = 0 is not allowed: expected a whole number of at least 1"),
        ({"steps": -5}, "steps = -5"),
        ({"steps": 2**31}, "below 2\\*\\*31"),
        ({"k": 0}, "k = 0 is not allowed"),
        ({"gamma": 1.1}, "gamma = 1.1 is not allowed: expected a number from 0 to 1"),
        ({"examination": -1.0}, "examination = -1.0 is not allowed: expected a finite number of at least 0"),
        ({"examination": "steep"}, "examination = 'steep' is not allowed: expected log2, a severity"),
        ({"examination": [0.5, 0.6]}, r"examination = \[0.5, 0.6\] is not allowed: expected probabilities that never"),
        ({"examination": [1.5]}, "examination = 1.5 is not allowed: expected a number from 0 to 1"),
        ({"examination": []}, "the first above 0"),
        ({"examination": [1.0, 0.5], "k": 3}, "k = 3 is not allowed: examination lists 2 ranks"),
        ({"setting": "offline"}, r"unknown mode = 'offline'; did you mean 'online'\?"),
        ({"step": 10}, r"unknown argument of simulate 'step'; did you mean 'steps'\?"),
        ({"seed": -1}, "seed = -1 is not allowed"),
        ({"seed": 2**64}, "expected a whole number from 0 to 2\\*\\*64 - 1"),
        ({"threads": 0}, "threads = 0 is not allowed"),
        ({"preset": "wsdm23"}, r"unknown argument of simulate 'preset'; available: data, policy, setting, seed"),
        ({"click": "Cascade"}, r"unknown argument of simulate 'click'; did you mean 'clicks'\?"),
        ({"setting": {"mode": "online", "step": 3}}, r"unknown option of a setting 'step'; did you mean 'steps'\?"),
    ],
)
def test_a_wrong_setting_is_refused(data, options, message):
    with pytest.raises(SettingError, match=message):
        mf.simulate(data, "TopK", **options)


def test_the_wsdm23_protocol_needs_two_steps(data):
    released = dataclasses.replace(data, protocol=PROTOCOLS["wsdm23"])
    with pytest.raises(SettingError, match="steps = 1 leaves nothing to play: the released code never plays the last"):
        mf.simulate(released, "TopK", steps=1)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"policy": 3}, PolicyError, "expected a policy or its text, got 3"),
        ({"clicks": 3}, PartError, "expected a click model or its text, got 3"),
        ({"estimator": mf.TopK()}, PartError, r"expected an? estimator or its text, got TopK\("),
        ({"metrics": [None]}, PartError, "expected a metric or its text, got None"),
        ({"clicks": "Casade"}, PartError, r"unknown click model 'Casade'; did you mean 'Cascade'\?"),
        ({"metrics": "gni"}, PartError, r"unknown metric 'gni'; did you mean 'gini'\?"),
    ],
)
def test_what_is_not_a_part_is_refused(data, options, error, message):
    with pytest.raises(error, match=message):
        mf.simulate(data, **{"policy": "TopK", **options})


def test_examination_is_a_severity_or_the_probability_of_each_rank(data):
    by_severity = mf.simulate(data, "TopK", steps=50, k=4, examination=2)
    by_text, by_list = (
        mf.simulate(data, "TopK", steps=50, examination=each)
        for each in ("1,0.25,0.125,0.0625", [1, 0.25, 0.125, 0.0625])
    )
    assert by_severity.state.p == pytest.approx(naive.examination(4, 2.0))
    assert by_text.state.p.tolist() == by_list.state.p.tolist() == [1, 0.25, 0.125, 0.0625]


def test_checkpoints_are_evenly_spaced_and_end_with_the_run():
    assert checkpoint_ends(20, 9_999).tolist()[-2:] == [9_499, 9_999]
    assert len(checkpoint_ends(20, 9_999)) == 20
    assert checkpoint_ends(20, 3).tolist() == [1, 2, 3]
    for wrong in (0, [5, 5], [0, 3], [3, 2], [11]):
        with pytest.raises(SettingError, match="checkpoints"):
            checkpoint_ends(wrong, 10)


def test_queries_of_one_item_are_left_out_with_one_warning():
    data = mf.Dataset(offsets=[0, 1, 4, 4, 6], y=[1, 0, 1, 2, 0, 1], name="short")
    with pytest.warns(MCFairWarning, match="short: left out 2 of 4 queries, which have fewer than two items") as caught:
        trace = mf.simulate(data, "MCFair", steps=50)
    assert len(caught) == 1
    assert trace.queries()["query"].to_list() == ["1", "3"]
    with pytest.warns(MCFairWarning), pytest.raises(DataError, match="none of 1 queries is left"):
        mf.simulate(data.take([0]), "MCFair", steps=50)


def test_more_ranks_than_items_are_cut_to_the_longest_query():
    data = mf.Dataset(offsets=[0, 2, 5], y=[1, 0, 1, 2, 0])
    trace = mf.simulate(data, "MCFair", "online", steps=100, k=1000)
    assert list(trace.cndcg) == [1, 2, 3]
    assert trace.state.F.shape == (5, 3)


def test_queries_without_relevance_count_for_nothing():
    data = mf.Dataset(offsets=[0, 3, 6], y=[0, 0, 0, 0, 1, 2], R=[0, 0, 0, 0.0, 0.5, 1.0])
    trace = mf.simulate(data, "TopK", steps=200)
    assert trace.unfairness == pytest.approx(trace.query_values["unfairness"][1])
    assert [trace.query_values[f"ndcg@{k}"][0] for k in (1, 2, 3)] == [0.0, 0.0, 0.0]


# --- protocols -------------------------------------------------------------------------------------------------------


@pytest.fixture
def fold(tmp_path):
    rng = np.random.default_rng(0)

    def text(queries, first):
        rows = []
        for q in range(queries):
            rows += [f"{rng.integers(0, 3)} qid:{first + q} 1:0.5" for _ in range(rng.integers(2, 12))]
            rows[-1] = f"2 qid:{first + q} 1:0.5"
        return "\n".join(rows) + "\n"

    for name, queries, first in (("train", 12, 0), ("vali", 5, 100), ("test", 9, 200)):
        (tmp_path / f"{name}.txt").write_text(text(queries, first))
    return tmp_path


def test_preset_paper_simulates_all_parts_and_judges_the_test_part(fold):
    loaded = mf.load_letor(fold, preset="paper")
    trace = mf.simulate(loaded, "MCFair", "online", steps=2000, record=True)
    assert trace.sessions == 2000
    assert trace.data.queries == 26
    assert trace.query_judged.tolist() == [False] * 17 + [True] * 9
    judged = trace.arrivals >= 17
    data = [loaded.train, loaded.validation, loaded.test]
    R = np.concatenate([each.R for each in data])
    offsets = trace.state.offsets
    values = [
        naive.ndcg([d for d in pi if d >= 0], R[offsets[q] : offsets[q + 1]], naive.examination(5))
        for pi, q in zip(trace.lists[judged], trace.arrivals[judged], strict=True)
    ]
    seen = np.cumsum(judged)[trace.checkpoints - 1]
    for k in range(1, 6):
        assert mf.cndcg(values)[seen - 1, k - 1] == pytest.approx(trace.values[f"cndcg@{k}"])
        assert np.isnan(trace.query_values[f"ndcg@{k}"][:17]).all()
        assert not np.isnan(trace.query_values[f"ndcg@{k}"][17:]).any()
    assert trace.unfairness == pytest.approx(trace.query_values["unfairness"][17:].mean())
    assert trace.provenance["protocol"] == "paper"
    single = mf.simulate(loaded.test, "MCFair", steps=100)
    assert single.query_judged.all()


def test_preset_wsdm23_simulates_all_but_the_last_step_in_the_released_order(fold):
    loaded = mf.load_letor(fold, preset="wsdm23")
    trace = mf.simulate(loaded, "TopK", steps=500, seed=1, record=True)
    assert trace.sessions == 499
    assert trace.arrivals.tolist() == naive.released_arrivals(1, loaded.test.queries, 499)
    assert trace.provenance["protocol"] == "wsdm23"
    few = loaded.take(range(4))  # a selection is simulated by the same protocol
    assert mf.simulate(few, "TopK", steps=50, record=True).arrivals.tolist() == naive.released_arrivals(0, 4, 49)


def test_progress_reports_every_session_once(data):
    reported = []
    mf.simulate(data, "TopK", steps=5000, threads=2, progress=reported.append)
    assert sum(reported) == 5000
    assert len(reported) > 2


@pytest.mark.parametrize("options", [{"checkpoints": 10**7}, {"steps": 2**31 - 1, "record": True, "k": 100}])
def test_a_run_that_cannot_be_held_is_refused_with_an_estimate(monkeypatch, options):
    monkeypatch.setattr(arrays, "memory", lambda: 2.0**33)
    data = mf.synthetic("istella-s-like").take(range(600))
    with pytest.raises(SettingError, match=r"(a run of .*|checkpoints would )need about [\d,.]+ GiB of memory"):
        mf.simulate(data, "TopK", **({"steps": 10**7} | options))


def test_much_memory_is_said_before_it_is_taken(monkeypatch, data):
    monkeypatch.setattr(arrays, "MUCH", 2**24)
    with pytest.warns(mf.MCFairWarning, match=r"a run of 5,000 sessions .* needs about 0\.\d GiB of memory"):
        mf.simulate(data.take(range(9)), "TopK", steps=5000, checkpoints=5000)


def test_a_signature_shows_every_option_with_its_default():
    """The options of a setting are declared once, in its fields."""
    fields = {field.name: field.default for field in dataclasses.fields(mf.Setting)}
    shown = {name: each.default for name, each in inspect.signature(mf.simulate).parameters.items()}
    assert {name: shown[name] for name in fields if name != "mode"} == {n: d for n, d in fields.items() if n != "mode"}


def test_examination_has_one_language(data):
    p = mf.simulate(data, "TopK", steps=10, k=3, examination="rbp(0.5)").state.p
    assert p.tolist() == [1.0, 0.5, 0.25]
    setting = mf.Setting(examination="RBP(0.50)")
    assert setting.to_dict()["examination"] == "rbp(0.5)"
    assert make_setting(setting.to_dict(), {}) == setting
    assert mf.Setting(examination="log2") == mf.Setting()
