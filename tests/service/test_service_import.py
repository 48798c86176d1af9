"""Importing history: counts of another log enter the ledgers once, and everything stays verifiable."""

import numpy as np
import pytest

import mcfair as mf
from mcfair.errors import RequestError
from mcfair.service.core.verification import replay, verify
from mcfair.service.ranker import Ranker
from mcfair.users.examination import examination

P = examination(10)


def history(query="q", visits=40, part=0, **items):
    """The history of a query; items are given by their cells of rank, impressions and clicks."""
    given = [{"id": name, "counts": cells} for name, cells in items.items()]
    return {"query": query, "visits": visits, "items": given, "part": part}


def statuses(results):
    return [each.status for each in results]


def assert_sound(ranker):
    with ranker.executor.store.reader() as store:
        assert [verify(store), replay(store)[2]] == [[], []]


def counts(ranker):
    """Everything that is counted, by query id."""
    return sorted((each["query"], each["visits"], str(each["items"])) for each in ranker.export() if "visits" in each)


def test_imported_counts_are_what_the_same_lists_would_have_led_to():
    rng = np.random.default_rng(0)
    with Ranker("memory:", policy="RandomK", warm=False) as lived, Ranker("memory:", warm=False) as told:
        cells = {}
        for _ in range(50):
            answer = lived.rank("q", list("abcdef"), k=4)
            for item in answer.items:
                clicked = rng.random() < 0.4
                if clicked:
                    lived.click(answer.impression, item.id)
                cell = cells.setdefault(item.id, {}).setdefault(item.rank, [item.rank, 0, 0])
                cell[1], cell[2] = cell[1] + 1, cell[2] + clicked
        given = {name: list(each.values()) for name, each in cells.items()}
        assert statuses(told.import_history("log", [history(visits=50, **given)])) == ["imported"]
        expected, found = lived.query_state("q"), told.query_state("q")
        figures = [
            {item.id: (item.exposure, item.clicks, item.relevance) for item in each.items} for each in (found, expected)
        ]
        assert figures[0] == figures[1]
        assert (found.visits, found.floor) == (50, pytest.approx(expected.floor))
        lists = [
            [item.id for item in each.rank("q", list("abcdef"), k=4, policy="MCFair").items] for each in (lived, told)
        ]
        assert lists[0] == lists[1]
        assert_sound(told)


def test_a_source_counts_once_in_each_query_even_after_compaction():
    time = [10**12]
    with Ranker("memory:", warm=False, clock=lambda: time[0], retention=60, fit_interval=0) as ranker:
        ranker.rank("q", ["a", "b"], k=2)
        given = [history(a=[[1, 30, 6], [2, 10, 1]], c=[[2, 30, 5]]), history("other", visits=3, a=[[1, 3, 3]])]
        assert statuses(ranker.import_history("monday", given)) == ["imported", "imported"]
        before = counts(ranker)
        assert statuses(ranker.import_history("monday", given)) == ["duplicate", "duplicate"]
        time[0] += 3_600_000
        engine = ranker.executor.engine
        assert ranker.executor.submit(type(engine).compact_expired).result() > 0
        ranker.executor.submit(type(engine).drop_cache).result()
        assert statuses(ranker.import_history("monday", given)) == ["duplicate", "duplicate"]
        assert counts(ranker) == before
        assert_sound(ranker)
        assert statuses(ranker.import_history("tuesday", given[:1])) == ["imported"]
        assert ranker.query_state("q").visits == 81


def test_an_import_in_several_parts_counts_each_once():
    with Ranker("memory:", warm=False) as ranker:
        parts = [history(a=[[1, 5, 1]]), history(visits=0, part=1, b=[[2, 5, 0]])]
        assert statuses(ranker.import_history("s", parts)) == ["imported", "imported"]
        assert statuses(ranker.import_history("s", parts[::-1])) == ["duplicate", "duplicate"]
        state = ranker.query_state("q")
    assert state.visits == 40
    assert {item.id: item.exposure for item in state.items} == {"a": 5.0, "b": 5 * P[1]}


def test_clicks_where_nobody_looks_are_no_evidence():
    with Ranker("memory:", warm=False, examination=[1.0, 0.0]) as ranker:
        ranker.import_history("s", [history(a=[[1, 4, 2], [2, 7, 5], [3, 1, 1]])])
        (item,) = ranker.query_state("q").items
    assert (item.exposure, item.clicks, item.relevance) == (4.0, 2.0, 0.5)


def test_imported_counts_are_mature_at_once_and_decay_from_the_import_on():
    time = [10**12]
    with Ranker("memory:", warm=False, maturation=600, clock=lambda: time[0], fit_interval=0) as ranker:
        ranker.rank("q", ["a", "b"], k=2)
        ranker.import_history("s", [history(a=[[1, 10, 5]])])
        assert {item.id: item.relevance for item in ranker.query_state("q").items} == {"a": 0.5, "b": 0.0}
        assert_sound(ranker)
    with Ranker("memory:", warm=False, half_life=3600, clock=lambda: time[0], fit_interval=0) as ranker:
        ranker.import_history("s", [history(a=[[1, 10, 5]])])
        time[0] += 3_600_000
        (item,) = ranker.query_state("q").items
        assert (item.exposure, item.clicks) == (pytest.approx(5.0), pytest.approx(2.5))


def test_groups_and_deletions():
    with Ranker("memory:", warm=False) as ranker:
        ranker.rank("q", [{"id": "a", "group": "north"}, "b"], k=2)
        given = history(a=[[1, 4, 2]], c=[[2, 4, 0]])
        given["items"][0]["group"], given["items"][1]["group"] = "south", "west"
        ranker.import_history("s", [given])
        assert {item.id: item.group for item in ranker.query_state("q").items} == {"a": "south", "b": None, "c": "west"}
        ranker.delete_item("a")
        assert statuses(ranker.import_history("s", [given])) == ["duplicate"]
        assert {item.id for item in ranker.query_state("q").items} == {"b", "c"}
        assert statuses(ranker.import_history("t", [given])) == ["imported"]
        assert {item.id: item.exposure for item in ranker.query_state("q").items}["a"] == 4.0
        assert_sound(ranker)
        ranker.delete_query("q")
        assert statuses(ranker.import_history("t", [given])) == ["imported"]


def test_what_is_too_large_is_refused_alone_and_changes_nothing():
    with Ranker("memory:", warm=False, max_items=2) as ranker:
        given = [
            history("many", a=[[1, 1, 0]], b=[[1, 1, 0]], c=[[1, 1, 0]]),
            history("few", a=[[1, 2**30, 2**30]]),
            history("ranks", a=[[r, 2**29 + 1, 0] for r in (1, 2)]),
        ]
        results = ranker.import_history("s", given)
        assert statuses(results) == ["refused", "imported", "refused"]
        assert "at most 2 are allowed" in results[0].detail
        assert "more than 1,073,741,824 impressions" in results[2].detail
        assert statuses(ranker.import_history("t", [history("few", a=[[1, 1, 0]])])) == ["refused"]
        assert statuses(ranker.import_history("t", [history("few", b=[[1, 5, 0]])])) == ["imported"]
        assert ranker.usage().queries == 1
        ranker.click(ranker.rank("few", ["a"], k=1).impression, "a")  # an import leaves room for what is ranked
        found = {item.id: (item.exposure, item.clicks) for item in ranker.query_state("few").items}
        assert found == {"a": (2**30 + 1, 2**30 + 1), "b": (5, 0)}
        assert_sound(ranker)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (history(a=[[0, 1, 0]]), "counts"),
        (history(a=[[1001, 1, 0]]), "counts"),
        (history(a=[[1, 1, 2]]), "2 clicks at rank 1, where it was shown 1 times"),
        (history(a=[[1, 1, 0], [1, 2, 0]]), "has a rank twice"),
        (history(a=[[1, -1, 0]]), "counts"),
        (history(), "items"),
        (history(query="x" * 5000, a=[[1, 1, 0]]), "query"),
        ({"query": "q", "visits": 1, "items": [{"id": "a", "counts": [[1, 1, 0]]}] * 2}, "duplicate"),
        (history(**{f"i{d}": [[1000, 1, 0]] for d in range(1001)}), "several parts"),
    ],
)
def test_requests_that_are_not_allowed(given, message):
    with Ranker("memory:", warm=False) as ranker:
        with pytest.raises(RequestError, match=message):
            ranker.import_history("s", [history("good", a=[[1, 1, 1]]), given])
        assert ranker.usage().queries == 0


def test_a_service_with_imported_history_ranks_by_it():
    with Ranker("memory:", policy=mf.TopK(), warm=False) as ranker:
        ranker.import_history("s", [history(a=[[1, 10, 1]], b=[[1, 10, 9]], c=[[1, 10, 5]])])
        assert [item.id for item in ranker.rank("q", ["a", "b", "c"], k=3).items] == ["b", "c", "a"]
