"""How much each part of a policy mattered, measured on decisions whose truth is known."""

import numpy as np
import pytest

import mcfair as mf
from mcfair.service.core.importance import measure_importance
from mcfair.service.ranker import Ranker

HOUR = 3_600_000


def shop(policy, lists=60, queries=3, **rules):
    """Return a ranker whose shoppers click by position and relevance, a list a minute, and the impressions."""
    time = [10**12]
    rng = np.random.default_rng(0)
    ranker = Ranker("memory:", policy=policy, warm=False, clock=lambda: time[0], fit_interval=0, **rules)
    impressions = []
    for _ in range(lists):
        time[0] += 60_000
        query = int(rng.integers(queries))
        answer = ranker.rank(f"q{query}", [f"i{d}" for d in range(6)], k=3)
        impressions.append(answer.impression)
        for j, item in enumerate(answer.items):
            if rng.random() < int(item.id[1:]) / 6 / np.log2(j + 2):
                ranker.click(answer.impression, item.id)
    return ranker, impressions, time


def measured(ranker, **options):
    with ranker.executor.store.reader() as reader:
        return measure_importance(reader, **options)


def by_part(found):
    return {each.part: each for each in found.parts}


def test_shares_are_those_of_all_explanations():
    ranker, impressions, _ = shop("MCFair(alpha=2, beta=1, guard=0.8)")
    with ranker:
        found = measured(ranker)
        why = [ranker.explain(each) for each in impressions]
    assert (found.sampled, found.decisions, found.exact, found.queries) == (60, 60, True, 3)
    parts = by_part(found)
    assert parts.keys() == {"relevance", "fairness", "exploration", "guard"}
    for part in ("fairness", "exploration", "guard"):
        moved = [[item.without.get(part, item.rank) != item.rank for item in each.items] for each in why]
        gone = [[item.without.get(part, item.rank) > 3 for item in each.items] for each in why]
        assert parts[part].lists_changed.value == pytest.approx(np.mean([any(each) for each in moved]))
        assert parts[part].places_changed.value == pytest.approx(np.mean(moved))
        assert parts[part].items_replaced.value == pytest.approx(np.mean(gone))
        assert 0 < parts[part].lists_changed.value < 1
        share = parts[part].lists_changed
        assert share.low <= share.value <= share.high
    total = sum(each.places_changed.value for each in found.parts)
    for each in found.parts:
        assert each.relative.value == pytest.approx(each.places_changed.value / total)
    assert [each.relative.value for each in found.parts] == sorted(
        (e.relative.value for e in found.parts), reverse=True
    )


def test_a_part_without_weight_has_no_importance():
    ranker, _, _ = shop("MCFair(alpha=0, beta=1)")
    with ranker:
        assert by_part(measured(ranker)).keys() == {"relevance", "exploration"}
    ranker, _, _ = shop("TopK")
    with ranker:
        (only,) = measured(ranker).parts
    assert only.part == "relevance"
    assert (only.relative.value, only.relative.low, only.relative.high) == (1.0, 1.0, 1.0)


def test_a_part_that_happened_to_change_nothing_may_change_something():
    items = [{"id": name, "prior": prior} for name, prior in [("a", 0.9), ("b", 0.5), ("c", 0.1)]]
    with Ranker("memory:", policy="MCFair(alpha=1e-9, beta=0)", warm=False) as ranker:
        for _ in range(20):
            ranker.rank("q", items, k=2)
        fairness = by_part(measured(ranker))["fairness"]
    assert fairness.decisions == 20
    assert fairness.lists_changed.value == fairness.lists_changed.low == 0.0
    assert fairness.lists_changed.high == pytest.approx(1 - 0.025 ** (1 / 20))


def test_a_log_in_which_lists_and_clicks_alternate_shows_both():
    with Ranker("memory:", policy="TopK", warm=False) as ranker:
        for _ in range(300):
            answer = ranker.rank("q", ["a", "b"], k=1)
            ranker.click(answer.impression, answer.items[0].id)
        found = measured(ranker, sample=100)
    assert found.sampled > 80
    assert found.decisions == pytest.approx(300, rel=0.15)


def test_the_sample_is_bounded_evenly_spread_and_always_the_same():
    ranker, _, _ = shop("MCFair(alpha=2, beta=1)", lists=400)
    with ranker:
        found, again = measured(ranker, sample=50), measured(ranker, sample=50)
        everything = measured(ranker)
    assert found == again
    assert 40 < found.sampled <= 50
    assert not found.exact
    assert found.decisions == pytest.approx(400, rel=0.25)
    assert found.last - found.first > 0.9 * 400 * 60_000
    assert everything.sampled == everything.decisions == 400
    for each in found.parts:
        assert each.lists_changed.low - 0.1 <= by_part(everything)[each.part].lists_changed.value
        assert by_part(everything)[each.part].lists_changed.value <= each.lists_changed.high + 0.1


def test_a_period_has_its_own_decisions_and_rules():
    ranker, _, time = shop("TopK", lists=30, queries=2)
    with ranker:
        change = time[0] = time[0] + HOUR
        ranker.change_policy(policy="MCFair(alpha=5, beta=0)")
        for _ in range(10):
            time[0] += 60_000
            ranker.rank("q0", [f"i{d}" for d in range(6)], k=3)
        before, after = measured(ranker, until=change), measured(ranker, since=change)
        everything = measured(ranker)
    assert (before.decisions, after.decisions, everything.decisions) == (30, 10, 40)
    assert before.last < change < after.first
    assert [each.rules.policy.split("(")[0] for each in before.versions] == ["TopK"]
    assert [each.rules.policy.split("(")[0] for each in after.versions] == ["MCFair"]
    assert len(everything.versions) == 2
    assert "fairness" not in by_part(before)
    assert by_part(after)["fairness"].decisions == 10


class Hidden(mf.Policy):
    """A policy that only one process knows."""

    def score(self, q, rng):
        return -q.R


def test_what_cannot_be_measured_is_counted(registries):
    mf.register(Hidden)
    ranker, _, _ = shop("RandomK", lists=8)
    with ranker:
        ranker.rank("q0", ["i1", "i2"], policy="Hidden")
        ranker.rank("q0", ["i1", "i2"], policy="TopK", shadow=True)
        known = measured(ranker)
        mf.Policy.kind.registry.pop("Hidden")
        found = measured(ranker)
    assert (known.sampled, known.whole, known.unrepeatable, known.shadow) == (9, 9, 0, 1)
    assert (found.sampled, found.whole, found.unrepeatable, found.parts) == (8, 8, 1, [])
    assert found.policies == {"RandomK": 8}
