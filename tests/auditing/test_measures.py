"""Every measure against its definition on random logs, and on examples that are computed by hand."""

import math

import numpy as np
import polars as pl
import pytest
from logs import random_log
from naive_audit import corrected, entropy, gini, jain

import mcfair as mf
from mcfair.data.grades import relevance

P = 1 / np.log2(np.arange(2, 8))

LOGS = [(seed, gaps) for seed in range(3) for gaps in (False, True)]


@pytest.fixture(scope="module", params=LOGS, ids=lambda each: f"seed {each[0]}{', gaps' if each[1] else ''}")
def both(request):
    seed, gaps = request.param
    slow, table = random_log(seed, P, gaps=gaps)
    return slow, mf.audit(table, resamples=5)


def close(value, expected):
    assert value == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_exposure_and_unfairness(both):
    slow, fast = both
    found = {(row["query"], row["item"]): row for row in fast.items().iter_rows(named=True)}
    assert len(found) == sum(len(slow.items(q)) for q in slow.queries)
    for (q, d), row in found.items():
        close(row["exposure"], slow.exposure(q, d))
        assert row["clicks"] == slow.clicks(q, d)
        assert row["merit"] == slow.merit[q, d]
        assert row["group"] == slow.groups[d]
    close(fast.unfairness, slow.mean(slow.unfairness))
    close(fast.values.measures["relative_unfairness"], slow.mean(lambda q: slow.unfairness(q) / slow.visits(q) ** 2))


def test_floor_over_lists_of_different_lengths(both):
    slow, fast = both
    found = dict(fast.queries().select("query", "floor").iter_rows())
    for q in slow.queries:
        assert found[q] == pytest.approx(slow.floor(q), rel=1e-4, abs=1e-6)
    close(fast.floor, np.mean([found[q] for q in slow.judged()]))


def test_inequity_of_attention(both):
    slow, fast = both
    total = sum(slow.iaa(q) for q in slow.judged())
    close(fast.values.measures["iaa"], total)
    close(fast.values.measures["iaa_per_session"], total / sum(slow.visits(q) for q in slow.judged()))


def test_expected_exposure(both):
    slow, fast = both
    for i, name in enumerate(("ee_d", "ee_r", "ee_l")):
        close(fast.values.measures[name], slow.mean(lambda q, i=i: slow.expected(q)[i]))


@pytest.mark.parametrize("measure", [gini, jain, entropy])
def test_inequality_raw_and_corrected(both, measure):
    slow, fast = both
    wide = [q for q in slow.queries if len(slow.items(q)) > 1]
    exposures = {q: [slow.exposure(q, d) for d in slow.items(q)] for q in wide}
    close(fast.values.measures[measure.__name__], slow.mean(lambda q: measure(exposures[q]), wide))
    close(
        fast.values.measures[f"{measure.__name__}_corrected"],
        slow.mean(lambda q: corrected(measure, exposures[q], slow.places(q)), wide),
    )


def test_groups(both):
    slow, fast = both
    for name in ("demographic_parity", "disparate_treatment", "disparate_impact", "impact_ratio"):
        close(fast.values.measures[name], getattr(slow, name)())
    whole, worth = (sum(map(total, slow.names)) for total in (slow.group_exposure, slow.group_merit))
    for row in fast.groups().iter_rows(named=True):
        g = row["group"]
        close(row["exposure"], slow.group_exposure(g))
        close(row["exposure_share"], slow.group_exposure(g) / whole)
        close(row["merit_share"], slow.group_merit(g) / worth)
        close(row["selection_rate"], slow.selected(g) / slow.group_size(g))
        assert row["clicks"] == slow.group_clicks(g)
        assert row["items"] == len({d for q in slow.queries for d in slow.members(q, g)})


@pytest.mark.parametrize("discount", ["log2", "geometric"])
@pytest.mark.parametrize("target", ["population", "merit"])
def test_attention_weighted_fairness(both, discount, target):
    slow, fast = both
    weights = {"log2": lambda rank: 1 / math.log2(max(rank, 2)), "geometric": lambda rank: 0.5 ** (rank - 1)}
    aim = {"population": slow.population, "merit": slow.worth}[target]
    expected = slow.mean(lambda q: slow.awrf(q, weights[discount], aim), slow.queries)
    close(fast.values.measures[f"awrf_{discount}_{target}"], expected)


def test_effectiveness(both):
    slow, fast = both
    rows = [each for _, shown in slow.sessions for each in shown]
    clicks = sum(hit for _, _, hit in rows)
    close(fast.values.measures["ctr"], clicks / len(rows))
    close(fast.values.measures["clicks_per_impression"], clicks / len(slow.sessions))
    close(fast.values.measures["clicks_per_exposure"], clicks / sum(slow.weight(rank) for rank, _, _ in rows))
    sessions = sum(slow.visits(q) for q in slow.judged())
    close(fast.values.measures["ndcg"], sum(slow.visits(q) * slow.ndcg(q) for q in slow.judged()) / sessions)
    for row in fast.ranks().iter_rows(named=True):
        here = [hit for rank, _, hit in rows if rank == row["rank"]]
        assert (row["shown"], row["clicks"]) == (len(here), sum(here))


def test_worst_queries_come_first(both):
    _, fast = both
    distances = fast.queries()["distance"].to_list()
    assert distances == sorted(distances, reverse=True)
    differences = fast.items()["difference"].to_list()
    assert differences == sorted(differences)


# --- by hand: the example of docs/reference/log-formats.md ------------------------------------------------------------

SHOP = pl.DataFrame(
    {
        "impression": [1, 1, 2, 2, 3, 3, 4, 4],
        "query": ["lamp"] * 8,
        "item": ["a", "b", "a", "b", "a", "b", "b", "a"],
        "rank": [1, 2] * 4,
        "clicked": [1, 0, 0, 1, 1, 0, 0, 0],
        "group": ["large", "small", "large", "small", "large", "small", "small", "large"],
    }
)


def test_two_items_of_equal_merit_by_hand():
    """With exposure 1 and 0.5 the items have 3.5 and 2.5; they should have 3 each."""
    found = mf.audit(SHOP, merit="uniform", examination=(1, 0.5), resamples=5)
    values = {name: float(value) for name, value in found.values.measures.items()}
    assert found.figures.E.tolist() == [3.5, 2.5]
    close(found.unfairness, (3.5 - 2.5) ** 2 * 2 / 2)
    assert found.floor == 0
    close(values["iaa"], abs(3.5 / 1.5 - 2) + abs(2.5 / 1.5 - 2))
    close(values["ee_l"], (3.5 / 4 - 0.75) ** 2 + (2.5 / 4 - 0.75) ** 2)
    close(values["demographic_parity"], 2.5 / 3.5)
    close(values["disparate_treatment"], 2.5 / 3.5)
    close(values["disparate_impact"], 1 / 2)
    close(values["gini"], 1 / (2 * 6))
    close(values["gini_corrected"], (1 / 12) / (2 / 12))  # the same list every time gives 4 and 2
    close(values["jain"], 36 / (2 * (3.5**2 + 2.5**2)))
    close(values["iaa_per_session"], 2 * (1 / 3) / 4)
    close(values["relative_unfairness"], 1 / 16)
    close(values["group_unfairness"], 1)
    close(values["awrf_log2_merit"], 1)
    close(values["impact_ratio"], 1)
    close(values["clicks_per_impression"], 3 / 4)
    close(values["ndcg"], 1)
    close(values["ctr"], 3 / 8)
    close(values["clicks_per_exposure"], 3 / 6)
    assert found.groups()["exposure_share"].to_list() == [3.5 / 6, 2.5 / 6]


def test_merit_from_clicks_by_hand():
    """IPS divides 2 clicks by an exposure of 3.5, and 1 click by 2.5."""
    found = mf.audit(SHOP, examination=(1, 0.5), resamples=5)
    assert found.merit == "IPS(prior_mean=0.0, prior_strength=0.0)"
    assert found.figures.assumed.R.tolist() == [2 / 3.5, 1 / 2.5]


def test_impact_ratio_flags_groups_below_four_fifths():
    found = mf.audit(SHOP, merit="uniform", top=1, resamples=5)
    rows = {row["group"]: row for row in found.groups().iter_rows(named=True)}
    assert (rows["large"]["selection_rate"], rows["small"]["selection_rate"]) == (3 / 4, 1 / 4)
    close(rows["small"]["impact_ratio"], 1 / 3)
    assert (rows["large"]["flagged"], rows["small"]["flagged"]) == (False, True)


def test_given_target_of_attention():
    found = mf.audit(SHOP, merit="uniform", target={"large": 3.5, "small": 2.5}, examination=(1, 0.5), resamples=5)
    # TREC's discount is 1 at ranks 1 and 2, so that both groups have half of the attention.
    a, b = np.array([0.5, 0.5]), np.array([3.5, 2.5]) / 6
    m = (a + b) / 2
    expected = 1 - ((a * np.log2(a / m)).sum() + (b * np.log2(b / m)).sum()) / 2
    close(float(found.values.measures["awrf_log2_given"]), expected)


def test_groups_without_merit_are_left_out_of_treatment():
    log = SHOP.with_columns(relevance=pl.when(pl.col("group") == "large").then(1.0).otherwise(0.0))
    found = mf.audit(log, resamples=5)
    assert np.isnan(found.values.measures["disparate_treatment"])  # one group is left
    assert found.groups()["merit_share"].to_list() == [1.0, 0.0]
    assert found.to_dict()["measures"]["disparate_treatment"]["value"] is None


def test_unknown_is_a_group_of_its_own():
    log = SHOP.with_columns(group=pl.when(pl.col("item") == "a").then(pl.lit("large")))
    found = mf.audit(log, merit="uniform", resamples=5)
    assert found.counts.group_names == ("large", "unknown")
    assert found.quality()["items without a group"] == 1


def test_grades_become_relevance():
    log = SHOP.with_columns(grade=pl.when(pl.col("item") == "a").then(2).otherwise(1))
    found = mf.audit(log, resamples=5)
    assert found.merit == "given"
    assert found.figures.assumed.R.tolist() == relevance([2, 1], 2).tolist()


# --- intervals -------------------------------------------------------------------------------------------------------


def test_intervals_resample_queries_as_they_are():
    """The unfairness of a resample is the mean over its queries: the interval is that of such means."""
    _, table = random_log(0, P)
    many = pl.concat([table.with_columns(pl.format("{}/{}", "query", pl.lit(i)).alias("query")) for i in range(6)])
    found = mf.audit(many, resamples=400, seed=1)
    assert found.resampled == "queries"
    values = found.figures.unfairness[found.figures.judged > 0]
    rng = np.random.default_rng(2)
    means = [rng.choice(values, values.size).mean() for _ in range(4000)]
    low, high = found.intervals.measures["unfairness"]
    spread = np.std(means)
    assert low == pytest.approx(np.percentile(means, 2.5), abs=0.5 * spread)
    assert high == pytest.approx(np.percentile(means, 97.5), abs=0.5 * spread)
    assert low < found.unfairness < high


def test_few_queries_resample_sessions():
    rng = np.random.default_rng(0)
    items = rng.integers(0, 2, 4000)
    log = pl.DataFrame(
        {
            "query": ["q"] * 4000,
            "item": items,
            "rank": [1] * 4000,
            "clicked": rng.random(4000) < 0.3,
            "impression": range(4000),
        }
    ).with_columns(group=pl.col("item"))
    found = mf.audit(log, merit="uniform", resamples=300)
    assert found.resampled == "sessions"
    share = found.values.groups["exposure_share"][0]
    low, high = found.intervals.groups["exposure_share"][:, 0]
    error = math.sqrt(share * (1 - share) / 4000)  # of a binomial share
    assert low == pytest.approx(share - 1.96 * error, abs=0.4 * error)
    assert high == pytest.approx(share + 1.96 * error, abs=0.4 * error)


def test_equal_seeds_have_equal_intervals():
    _, table = random_log(1, P)
    a, b = (mf.audit(table, resamples=20, seed=3).to_dict() for _ in range(2))
    assert a == b
