"""The command `mcfair tune`."""

import json

import pytest
from command_line import refused, run

import mcfair as mf

TUNE = ("tune", "--data", "mq2008-like", "--steps", "300", "--seeds", "1", "--policy")


def test_a_value_that_meets_the_target_is_found():
    found = json.loads(run(*TUNE, "MCFair", "--target", "unfairness <= 1.5 * floor", "--json").stdout)
    assert found["met"]
    assert found["figures"]["unfairness"] <= 1.5 * found["floor"]
    assert mf.parse_policy(found["policy"]).alpha in {row["alpha"] for row in found["runs"]}


def test_a_target_that_no_value_meets_is_reported_with_the_closest():
    none = run(*TUNE, "MMF", "--target", "unfairness <= 0", check=False)
    assert none.returncode == 1
    assert none.stderr.startswith("mcfair: no value of alpha meets 'unfairness <= 0'; MMF")
    assert none.stderr.count("\n") == 1


def test_data_and_setting_have_the_options_of_simulate():
    options = "--k 3 --examination 2 --clicks Cascade --estimator IPS(prior_strength=1) --metric gini --max-items 9"
    done = run(
        *TUNE, "MCFair", "--target", "group_unfairness <= 1e9", "--setting", "online", *options.split(), "--json"
    )
    found = json.loads(done.stdout)
    trace = mf.simulate(
        mf.synthetic("mq2008-like").select(max_items=9), found["policy"], "online", steps=300, k=3, examination=2,
        clicks="Cascade", estimator="IPS(prior_strength=1)", metrics=["gini", "group_unfairness"],
        checkpoints=1,
    )  # fmt: skip
    assert found["figures"] == trace.figures


def test_the_table_shows_the_metric_of_the_target():
    text = run(*TUNE, "MCFair", "--target", "gini <= 1").stdout
    assert "Gini" in text.splitlines()[1]
    assert "above floor" in text.splitlines()[1]
    assert "meets 'gini <= 1'" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("MMF", "--target", "x"), "cannot parse target 'x'"),
        (("MMF", "--target", "gin <= 1"), "target 'gin <= 1': unknown metric 'gin'; did you mean 'gini'?"),
        (("MMF", "--target", "gini <= 1", "--parameter", "alhpa"), "unknown parameter of MMF 'alhpa'; did you mean"),
        (("MMF", "--target", "gini <= 1", "--clicks", "Cascad"), "unknown click model 'Cascad'"),
        (("MMF", "--target", "ndcg@9 >= 0.5"), "ndcg@9: expected a cutoff from 1 to 5, the ranks of the lists"),
    ],
)
def test_bad_input_is_refused_in_one_line(words, message):
    assert message in refused(*TUNE, *words)
