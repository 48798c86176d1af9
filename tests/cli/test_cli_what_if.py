"""The command `mcfair rehearse`; `mcfair what-if` is tested with the comparison that it shows."""

import json

import numpy as np
import pytest
from command_line import refused, run

import mcfair as mf
from mcfair.service.core.rules import Rules
from mcfair.service.ranker import Ranker
from mcfair.service.stored_queries import posterior, read_queries

TABLE = """query,item,relevance,group
shoes,a,1.0,north
shoes,b,0.9,south
shoes,c,0.1,south
shoes,d,0.0,south
shoes,e,0.0,north
bags,f,0.2,north
bags,g,0.8,
bags,h,0.5,west
"""


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "shop.csv"
    path.write_text(TABLE)
    return str(path)


def outcomes(*words):
    return json.loads(run("rehearse", *words, "--json").stdout)["outcomes"]


def test_present_and_changed_rules_stand_side_by_side(table):
    found = outcomes("--data", table, "--k", "3", "--sessions", "200", "--guard", "0", "--prior-strength", "1")
    present, changed = found["present rules"], found["changed rules"]
    assert present["rules"] == json.loads(json.dumps(rules_dict(Rules())))
    assert mf.parse_policy(changed["rules"]["policy"]).guard == 0
    assert changed["rules"]["prior_strength"] == 1
    assert present["worst_ndcg"] >= 0.9 > changed["worst_ndcg"]
    for each in (present, changed):
        assert each["worst_ndcg"] <= each["ndcg"] <= 1
        assert each["floor"] <= each["unfairness"]
        assert 0 < each["shown"] <= 1
        assert [group["group"] for group in each["groups"]] != []
        assert {group["group"]: group["items"] for group in each["groups"]} == {"north": 3, "south": 3, "west": 1}
    assert changed["shown"] == 1


def rules_dict(rules):
    return {name: getattr(rules, name) for name in rules.__struct_fields__}


def test_the_table_has_a_row_for_each_figure_and_each_changed_rule(table):
    text = run(*("rehearse", "--data", table, "--k", "3", "--sessions", "60", "--policy", "TopK")).stdout
    for words in ("present rules", "changed rules", "TopK", "NDCG of the worst list", "unfairness", "items shown"):
        assert words in text
    assert "exposure of north (merit)" in text
    assert "prior strength" not in text
    assert "prior strength" in run("rehearse", "--data", table, "--sessions", "9", "--prior-strength", "3").stdout


def test_without_a_change_only_the_present_rules_are_rehearsed(table):
    assert list(outcomes("--data", table, "--sessions", "20")) == ["present rules"]


def test_the_seed_decides_everything(table):
    words = ("--data", table, "--sessions", "80", "--policy", "MMF", "--clicks", "Cascade")
    assert outcomes(*words) == outcomes(*words) != outcomes(*words, "--seed", "1")


def test_a_store_is_rehearsed_with_its_queries_estimates_and_rules(tmp_path):
    path = str(tmp_path / "live.db")
    with Ranker(path, policy="TopK", prior_mean=0.2, prior_strength=2, warm=False) as ranker:
        for _ in range(5):
            answer = ranker.rank("shoes", [{"id": "a", "group": "north"}, {"id": "b", "group": "south"}, "c"], k=2)
            ranker.click(answer.impression, "a")
    found = outcomes("--store", path, "--sessions", "50", "--k", "2", "--policy", "MCFair(beta=3, guard=0.8)")
    present, changed = found["present rules"], found["changed rules"]
    assert present["rules"]["policy"].startswith("TopK")
    assert present["rules"]["prior_mean"] == 0.2
    assert changed["shown"] == 1
    assert present["ndcg"] < 1, "the estimates are the truth"
    assert outcomes("--store", path, "--sessions", "50", "--k", "2", "--seed", "1")["present rules"] != present
    with Ranker(path, warm=False) as ranker:
        assert ranker.query_state("shoes").visits == 5


def test_relevance_of_a_store_is_drawn_around_its_estimates(tmp_path):
    """The estimates were once the truth and the priors at the same time, so that every rehearsal had exact priors."""
    path = str(tmp_path / "live.db")
    with Ranker(path, policy="TopK", prior_mean=0.2, prior_strength=2, warm=False) as ranker:
        for _ in range(5):
            ranker.click(ranker.rank("shoes", ["a", "b", "c"], k=2).impression, "a")
        state = ranker.query_state("shoes")
    E, estimates = (np.array([getattr(item, name) for item in state.items]) for name in ("exposure", "relevance"))
    drawn = np.array([read_queries(path, seed)[0].R for seed in range(60)])
    data, visits, rules = read_queries(path)
    np.testing.assert_allclose(data.scores, estimates)
    assert (visits.tolist(), rules.prior_strength) == ([5.0], 2)
    variance = estimates * (1 - estimates) / (E + 2 + 1)  # of a beta distribution with this mean and E + 2 views
    assert (np.abs(drawn.mean(axis=0) - estimates) < 4 * np.sqrt(variance / 60)).all()
    assert (drawn.std(axis=0) > 0).all()


def test_without_a_prior_the_first_distribution_is_uniform():
    a, b = posterior(np.array([0.0, 4.0]), np.array([0.0, 0.25]), np.zeros(2))
    assert (a.tolist(), b.tolist()) == ([1, 2], [1, 4])


def test_time_passes_in_a_rehearsal(table):
    """Of clicks that arrive after a day on average, few count within the hours that the sessions take."""
    words = ("--data", table, "--sessions", "150", "--k", "3", "--no-priors", "--policy", "TopK(beta=1)")
    at_once, late = (outcomes(*words, "--click-delay", delay)["changed rules"] for delay in ("0s", "1d"))
    assert late["ndcg"] < at_once["ndcg"]
    decayed = outcomes(*words, "--half-life", "10m")["changed rules"]
    assert decayed["ndcg"] != at_once["ndcg"]


def test_newcomers_join_after_half_of_the_sessions(table):
    words = ("--data", table, "--sessions", "200", "--k", "3", "--newcomers", "0.4", "--no-priors")
    zero, fair = (outcomes(*words, "--newcomer-exposure", rule) for rule in ("zero", "fair"))
    assert list(zero) == ["present rules"]
    assert fair["changed rules"]["groups"] != zero["present rules"]["groups"]


def test_a_prior_column_is_sent_and_stands_in_for_relevance(tmp_path):
    both, alone = tmp_path / "both.csv", tmp_path / "alone.csv"
    both.write_text("query,item,relevance,prior\nq,a,0.0,0.9\nq,b,0.9,0.0\nq,c,0.1,0.1\n")
    alone.write_text("query,item,prior\nq,a,0.0\nq,b,0.9\nq,c,0.1\n")
    words = ("--sessions", "30", "--k", "1", "--policy", "TopK")
    assert outcomes("--data", str(both), *words)["changed rules"]["worst_ndcg"] == 0
    assert outcomes("--data", str(alone), *words)["changed rules"]["worst_ndcg"] == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "name either a table with --data or a store with --store"),
        (("--data", "none.csv"), "no such file or folder: none.csv"),
        (("--store", "none.db"), "does not exist"),
        (("--data", "mq2008-like", "--policy", "MMF", "--guard", "0.9"), "MMF: guard = 0.9 is not allowed"),
        (("--data", "mq2008-like", "--policy", "ILP"), "ILP cannot serve"),
        (("--data", "mq2008-like", "--sessions", "0"), "sessions = 0 is not allowed: expected a number from 1 to"),
        (("--data", "mq2008-like", "--click-delay", "soon"), "click-delay = 'soon' is not allowed"),
        (("--data", "mq2008-like", "--click-delay", "9" * 400), "is not allowed: expected a duration"),
        (("--data", "mq2008-like", "--interval", "999d"), "interval = 86313600.0 is not allowed: expected a number"),
        (("--data", "mq2008-like", "--newcomers", "nan"), "newcomers = nan is not allowed"),
        (
            ("--data", "mq2008-like", "--lost-clicks", "1.5"),
            "lost_clicks = 1.5 is not allowed: expected a number from 0",
        ),
        (("--data", "mq2008-like", "--drift", "-1"), "drift = -1.0 is not allowed"),
        (("--data", "mq2008-like", "--k", "0"), "k = 0 is not allowed"),
        (("--data", "mq2008-like", "--seed", "-1"), "seed = -1 is not allowed"),
        (("--data", "mq2008-like", "--clicks", "Cascad"), "unknown click model 'Cascad'"),
        (("--data", "mq2008-like", "--half-life", "1m", "--maturation", "1h"), "must not exceed half_life"),
    ],
)
def test_bad_input_is_refused_in_one_line(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in refused("rehearse", *words)


def test_scores_that_are_no_probabilities_cannot_be_priors(tmp_path):
    path = tmp_path / "scored.csv"
    path.write_text("query,item,grade,score\nq,a,1,7.5\nq,b,0,-1\n")
    assert "range from -1 to 7.5 and cannot be priors" in refused("rehearse", "--data", str(path))
    assert outcomes("--data", str(path), "--sessions", "5", "--no-priors")["present rules"]["clicks"] >= 0
