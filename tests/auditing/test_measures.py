"""Every measure against its definition on random logs, and on examples that are computed by hand."""

import math

import numpy as np
import polars as pl
import pytest
from logs import random_log
from naive_audit import corrected, entropy, gini, jain

import mcfair as mf
from mcfair.data.dataset import relevance

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


def test_ndcg_up_to_a_rank_by_hand():
    """Item b has all the merit, and is second in three lists of four and first in one."""
    log = SHOP.with_columns(relevance=pl.when(pl.col("item") == "b").then(1.0).otherwise(0.0))
    first = mf.audit(log, k=1, examination=(1, 0.5), policies=["TopK"], resamples=2)
    close(float(first.values.measures["ndcg"]), 1 / 4)
    assert [each.ndcg for each in first.policies] == [1 / 4, 1]
    assert first.to_dict()["k"] == 1
    close(float(mf.audit(log, k=2, examination=(1, 0.5), resamples=2).values.measures["ndcg"]), (1 + 3 * 0.5) / 4)


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


# --- over time: since the beginning, the figures of the log up to then; alone, those of the period -------------------


def timed_log(seed, days=5, **options):
    slow, table = random_log(seed, P, **options)
    day = pl.col("impression") * days // 40
    return slow, table.with_columns(time=pl.lit("2024-03-0") + (day + 1).cast(pl.String) + "T12:00:00+00:00", day=day)


def squared_disparity(slow, sessions, query):
    """Eq. 8 of some sessions, over all items of the query."""
    items = slow.items(query)
    E = {d: sum(P[j - 1] for q, shown in sessions if q == query for j, e, _ in shown if e == d) for d in items}
    pairs = ((E[x] * slow.merit[query, y] - E[y] * slow.merit[query, x]) ** 2 for x in items for y in items)
    return sum(pairs) / max(len(items) * (len(items) - 1), 1)


@pytest.mark.parametrize("gaps", [False, True])
def test_every_day_by_the_definition(gaps):
    slow, log = timed_log(1, gaps=gaps)
    found = mf.audit(log, resamples=2)
    table = found.over_time
    assert (found.time_unit, table["from"].to_list()) == ("day", [f"2024-03-0{i}" for i in range(1, 6)])
    candidates = log.select("query", "item", "relevance").unique()
    for i, row in enumerate(table.iter_rows(named=True)):
        until = [each for t, each in enumerate(slow.sessions) if t * 5 // 40 <= i]
        today = [each for t, each in enumerate(slow.sessions) if t * 5 // 40 == i]
        assert row["impressions"] == len(today)
        total = sum(squared_disparity(slow, until, q) for q in slow.judged())
        assert row["unfairness"] == pytest.approx(total / len(slow.judged()), rel=1e-12)
        met = [q for q in slow.judged() if any(q == other for other, _ in today)]
        total = sum(squared_disparity(slow, today, q) for q in met)
        assert row["alone_unfairness"] == pytest.approx(total / len(met), rel=1e-12)
        for name, chosen, over in (
            ("floor", pl.col("day") <= i, len(slow.judged())),
            ("alone_floor", pl.col("day") == i, len(met)),
        ):
            part = mf.audit(log.filter(chosen).drop("relevance"), items=candidates, resamples=2)
            expected = float(part.figures.floor[part.figures.judged > 0].sum()) / over
            assert row[name] == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert table["unfairness"][-1] == pytest.approx(found.unfairness, rel=1e-12)
    assert table["floor"][-1] == pytest.approx(found.floor, rel=1e-9, abs=1e-12)


def test_rows_that_are_impressions_and_logs_without_impressions():
    _, log = timed_log(2)
    inferred = mf.audit(log.drop("impression", "time").with_columns(time=pl.col("day")).drop("time"), resamples=2)
    assert inferred.over_time is None
    bandit = log.select(
        timestamp="time", item_id="item", position="rank", click="clicked", propensity_score=pl.lit(0.5)
    )
    found = mf.audit(bandit, merit="uniform", resamples=2)
    assert found.format == "open-bandit"
    assert found.over_time["impressions"].sum() == log.height
    assert found.over_time["unfairness"][-1] == pytest.approx(found.unfairness, rel=1e-12)


def test_rows_without_a_time_belong_to_no_period():
    _, log = timed_log(3)
    holes = log.with_columns(time=pl.when(pl.col("day") != 2).then("time"))
    found = mf.audit(holes, resamples=2)
    assert found.over_time["impressions"].sum() == int(found.counts.visits.sum()) - 8
    assert found.over_time["impressions"][2] == 0
    assert np.isnan(found.over_time["alone_unfairness"][2])


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2024-03-01T12:00:00+02:00", "2024-03-01 10:00:00"),
        ("2024-03-01 12:00:00.25-0530", "2024-03-01 17:30:00.250000"),
        ("2024-03-01T12:00+01", "2024-03-01 11:00:00"),
        ("2024-03-01T12:00:00Z", "2024-03-01 12:00:00"),
        ("2024-03-01", "2024-03-01 00:00:00"),
    ],
)
def test_times_with_an_offset_are_read(text, utc):
    log = pl.DataFrame({"query": ["q"] * 2, "item": ["a", "b"], "rank": [1, 2], "clicked": [1, 0], "time": [text] * 2})
    assert mf.audit(log, resamples=2).counts.period == (utc, utc)


def test_one_wrong_time_does_not_cost_thousands_of_periods():
    rows = {"query": ["q"] * 4, "item": ["a", "b"] * 2, "rank": [1, 2] * 2, "clicked": [1, 0, 0, 1]}
    log = pl.DataFrame(rows | {"time": ["0001-01-01"] * 2 + ["2026-01-01"] * 2})
    found = mf.audit(log, resamples=2)
    assert (found.time_unit, found.over_time.height) == ("year", 2026)
    assert found.over_time["impressions"].to_list() == [1, *[0] * 2024, 1]
    assert found.over_time["unfairness"][-2] == found.over_time["unfairness"][0] > 0
    assert found.over_time["unfairness"][-1] == found.unfairness


@pytest.mark.parametrize("scale", [1, 10**3, 10**6, 10**9])
def test_numbers_are_times_in_any_usual_unit(scale):
    rows = {"query": ["q"] * 2, "item": ["a", "b"], "rank": [1, 2], "clicked": [1, 0]}
    found = mf.audit(pl.DataFrame(rows | {"time": [1_704_100_000 * scale] * 2}), resamples=2)
    assert found.counts.period[0] == "2024-01-01 09:06:40"


def test_rows_without_a_valid_time_are_counted():
    rows = {"query": ["q"] * 2, "item": ["a", "b"], "rank": [1, 2], "clicked": [1, 0]}
    found = mf.audit(pl.DataFrame(rows | {"time": ["31/12/2024 10:00"] * 2}), resamples=2)
    assert found.quality()["rows without a valid time"] == 2
