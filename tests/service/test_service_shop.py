"""The simulated shop of the live demonstration, in front of a real service without a network."""

import pytest

import mcfair as mf
from mcfair.service.ranker import Ranker
from mcfair.service.shop import CHANGE_LISTS, FAIR, FIRST, NEW_SELLER, NEWCOMER_LISTS, QUERIES, SELLERS, Shop


@pytest.fixture(scope="module")
def closing_day():
    """Shares of exposure by seller before each change and at the end, what was reported, and the rules at the end."""
    reported, shares = [], {}
    with Ranker("memory:", policy=FIRST) as ranker:
        shop = Shop(ranker, report=reported.append)
        for lists in (NEWCOMER_LISTS, CHANGE_LISTS, 4 * CHANGE_LISTS):
            while shop.lists < lists:
                shop.visit()
            fairness = ranker.fairness()
            assert fairness.visits == lists
            shares[lists] = {each.group: each for each in fairness.groups}
        return shares, reported, ranker.policy().policy, fairness


def test_a_seller_arrives_and_the_policy_changes(closing_day):
    shares, reported, policy, fairness = closing_day
    assert set(shares[NEWCOMER_LISTS]) == set(SELLERS.values())
    assert set(shares[CHANGE_LISTS]) == {*SELLERS.values(), NEW_SELLER}
    assert shares[CHANGE_LISTS][NEW_SELLER].items == fairness.queries == len(QUERIES)
    assert mf.parse_policy(policy) == mf.parse_policy(FAIR)
    assert [NEW_SELLER in reported[0], policy in reported[1], len(reported)] == [True, True, 2]


def test_the_change_brings_shares_of_exposure_closer_to_those_of_merit(closing_day):
    shares, *_ = closing_day
    apart = {
        lists: sum(abs(each.exposure_share - each.merit_share) for each in groups.values())
        for lists, groups in shares.items()
    }
    assert apart[4 * CHANGE_LISTS] < 0.5 * apart[CHANGE_LISTS]


def test_shoppers_click(closing_day):
    *_, fairness = closing_day
    clicks = sum(each.clicks for each in fairness.groups)
    assert 0.2 * fairness.visits < clicks < 5 * fairness.visits


def test_the_same_seed_is_the_same_day():
    days = []
    for seed in (1, 1, 2):
        with Ranker("memory:", policy=FIRST) as ranker:
            shop = Shop(ranker, seed=seed)
            for _ in range(40):
                shop.visit()
            days.append([(each.group, each.exposure, each.clicks) for each in ranker.fairness().groups])
    assert days[0] == days[1] != days[2]
