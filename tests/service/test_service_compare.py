"""Comparison of policies on the log: lists of shadow mode and replays, against a naive recount."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from observing import explained as explained_by
from observing import observed
from serving import serving
from simulated_shop import Shop, experiment
from test_service_experiments import naive_figures
from typer.testing import CliRunner

import mcfair as mf
from mcfair.analysis.resampling import cluster_weights, interval, ratio_of_sums
from mcfair.cli.app import app
from mcfair.errors import RequestError
from mcfair.service.background.worker import COMPARISONS
from mcfair.service.core.comparison import compare
from mcfair.service.core.sampling import sample_entries
from mcfair.service.wire import CompareRequest, RawRankRequest

FAIR = "MCFair(alpha=1, beta=1)"


@pytest.fixture(scope="module")
def shop():
    """Lists of all six items of 25 queries by a fair policy: explanations have the inputs of every candidate."""
    shop = Shop(3, queries=25, k=6, policy=FAIR)
    shop.shown = [shop.visit() for _ in range(200)]
    shop.explained = [explained_by(shop.engine, answer.impression) for answer in shop.shown]
    return shop


def top(explained):
    """The ranking by relevance, ties in the order of the request, and the inputs in that order."""
    items = sorted(explained.items, key=lambda item: int(item.id[1:]))
    R, E = ([getattr(item.inputs, name) for item in items] for name in ("relevance", "exposure"))
    return R, E, sorted(range(len(R)), key=lambda d: -R[d])


def test_replay_with_another_policy_equals_a_naive_recount(shop):
    found = compare(shop.store, shop.clock, ["TopK"], lists=10_000)
    (policy,) = found.policies
    assert (found.lists, found.of, policy.lists, policy.source) == (200, 200, 200, "replay")
    rows, shares = [], np.zeros((2, 2))
    for answer, explained in zip(shop.shown, shop.explained, strict=True):
        R, E, pi = top(explained)
        shown = [int(item.id[1:]) for item in answer.items]
        before, after = (naive_figures(R, E, shop.p.tolist(), each) if any(R) else (1.0, 0.0) for each in (shown, pi))
        same = [a == b for a, b in zip(shown, pi, strict=True)]
        rows.append((not all(same), np.mean(same), before[0], after[0], before[1], after[1]))
        for list_, each in enumerate((shown, pi)):
            for j, d in enumerate(each):
                shares[list_, d % 2] += shop.p[j]
    names = ("differing", "same_rank", "ndcg_shown", "ndcg", "unfairness_shown", "unfairness")
    assert [getattr(policy, name).value for name in names] == pytest.approx(np.mean(rows, axis=0), abs=1e-9)
    assert policy.overlap.value == 1.0  # lists of all items
    shares /= shares.sum(axis=1, keepdims=True)
    for group in policy.groups:
        expected = shares[:, "AB".index(group.group)]
        assert [group.shown.value, group.policy.value] == pytest.approx(expected, abs=1e-9)
        assert group.difference.value == pytest.approx(expected[1] - expected[0], abs=1e-9)


def test_intervals_are_those_of_a_bootstrap_over_queries(shop):
    (policy,) = compare(shop.store, shop.clock, ["TopK"], lists=10_000).policies
    assert (policy.queries, policy.resampled) == (25, "queries")
    low, high = policy.ndcg_difference.interval
    assert 0 < low < policy.ndcg_difference.value < high
    sums = np.zeros((25, 2))
    queries = sorted({each.query_id for each in shop.shown})
    for answer, explained in zip(shop.shown, shop.explained, strict=True):
        _, _, pi = top(explained)
        sums[queries.index(answer.query_id)] += [pi != [int(item.id[1:]) for item in answer.items], 1]
    rng = np.random.default_rng(7)
    drawn = [(each := sums[rng.integers(25, size=25)].sum(axis=0))[0] / each[1] for _ in range(4_000)]
    assert policy.differing.interval == pytest.approx(np.percentile(drawn, [2.5, 97.5]), abs=0.03)


def test_replay_with_the_policy_of_the_lists_finds_no_difference(shop):
    (policy,) = compare(shop.store, shop.clock, [FAIR], lists=10_000).policies
    assert (policy.differing.value, policy.overlap.value, policy.same_rank.value) == (0.0, 1.0, 1.0)
    assert policy.ndcg_difference.interval == policy.unfairness_difference.interval == [0.0, 0.0]


def test_sample_is_bounded_and_spread_evenly(shop):
    found = compare(shop.store, shop.clock, ["TopK"], lists=60)
    assert 20 <= found.lists <= 60
    assert abs(found.of - 200) < 100
    assert found.policies[0].queries >= 15
    whole = compare(shop.store, shop.clock, ["TopK"], lists=10_000).policies[0]
    low, high = found.policies[0].ndcg.interval
    assert low - 0.02 < whole.ndcg.value < high + 0.02


@pytest.mark.parametrize("wanted", [1, 2, 5, 7, 34, 35, 100])
def test_one_entry_is_taken_from_each_of_equal_parts(wanted):
    spans = [(1, 4, 9), (2, 1, 1), (3, 5, 30), (5, 2, 3)]
    entries = [(number, seq) for number, first, last in spans for seq in range(first, last + 1)]
    found = [entries.index(each) for each in sample_entries(spans, wanted)]
    parts = min(wanted, 35)
    assert found == sorted(set(found))
    assert all(any(part * 35 // parts <= place <= (part + 1) * 35 // parts for place in found) for part in range(parts))
    assert sample_entries([], wanted) == []


@pytest.mark.parametrize("wanted", [500, 501, 750, 1_000])
def test_lists_are_as_frequent_in_a_sample_as_in_a_log_in_which_clicks_follow_them(wanted):
    entries = sample_entries([(number, 1, 500) for number in range(12)], wanted)
    lists = sum(seq % 2 for _, seq in entries)
    assert abs(lists / len(entries) - 0.5) < 4 * 0.5 / wanted**0.5
    assert {number for number, seq in entries if seq % 2} == set(range(12))


def test_lists_before_a_time_are_left_out(shop):
    assert compare(shop.store, shop.clock, [], max_age=99.5, lists=10_000).lists == 100
    assert compare(shop.store, shop.clock, [], max_age=0.0001, lists=10_000).lists == 1


def test_lists_of_shadow_mode_are_compared_with_what_was_shown():
    shop = Shop(4, queries=5, policy="TopK")
    for _ in range(40):
        shop.visit()
    for _ in range(30):
        shop.visit(shadow=True)
    for _ in range(10):
        shop.visit(shadow=True, policy="MMF")
    found = compare(shop.store, shop.clock, ["TopK"], lists=10_000)
    assert [(each.source, each.policy.partition("(")[0], each.lists) for each in found.policies] == [
        ("shadow", "TopK", 30),
        ("shadow", "MMF", 10),
        ("replay", "TopK", 80),
    ]
    shadow, _, replay = found.policies
    assert replay.differing.value * 80 >= shadow.differing.value * 30 > 0  # the caller's order is not by relevance
    assert shadow.ndcg.value == 1.0 > shadow.ndcg_shown.value
    assert shadow.resampled == "lists"  # five queries are too few


def test_comparison_changes_nothing_and_skips_what_is_gone():
    shop = Shop(5, queries=4, policy=FAIR, retention=60.0)
    for _ in range(120):
        shop.visit()
    shop.engine.compact_expired()
    shop.engine.delete_query("q0")
    shop.engine.delete_item("i1")
    changes = shop.store.changes
    found = compare(shop.store, shop.clock, ["TopK"], lists=10_000)
    assert shop.store.changes == changes
    assert 20 < found.lists < 60
    assert observed(shop.engine, "q1").visits > 0


def test_exposure_by_group_of_each_arm():
    shop = Shop(6, policy=FAIR, experiment=experiment("TopK"))
    totals = {"control": np.zeros(2), "other": np.zeros(2)}
    for i in range(120):
        answer = shop.visit(f"session {i}")
        for j, item in enumerate(answer.items):
            totals[answer.arm][int(item.id[1:]) % 2] += shop.p[j]
    found = compare(shop.store, shop.clock, [], lists=10_000)
    assert found.policies == []
    for arm, exposure in totals.items():
        shares = {group.group: group.exposure.value for group in found.arms[arm]}
        assert [shares["A"], shares["B"]] == pytest.approx(exposure / exposure.sum(), abs=1e-12)


def test_policies_that_cannot_serve_are_refused():
    with mf.Ranker("memory:", warm=False) as ranker:
        with pytest.raises(RequestError, match=r"policies\[1\]: unknown policy 'TopL'"):
            ranker.compare(["TopK", "TopL"])
        with pytest.raises(RequestError, match="policies: Expected `array` of length <= 4"):
            ranker.compare(["TopK"] * 5)
        assert ranker.compare(["TopK"]).lists == 0


def test_comparison_over_http_and_from_the_client():
    with mf.Ranker("memory:", warm=False, policy=FAIR, experiment=experiment("TopK")) as ranker:
        for i in range(10):
            ranker.click(ranker.rank("q", list("abcd"), k=2, session=f"s{i}").impression, "a")
        with serving(ranker) as http, mf.Client(str(http.base_url)) as client:
            found = client.compare(["TopK", "TopK(beta=0)"], lists=100)
            assert found.policies == ranker.compare(["TopK"], lists=100).policies
            assert found.lists == 10
            assert client.experiment().arms == ranker.experiment().arms
            assert http.post("/v1/compare", json={"lists": 0}).status_code == 400
    assert set(CompareRequest.__struct_fields__) == {"policies", "max_age", "lists"}
    assert RawRankRequest.__struct_fields__[-1] == "session"


def test_comparisons_leave_the_places_of_rankings_free():
    """Each takes seconds and one is computed at a time: those who wait for it must not be many."""
    with mf.Ranker("memory:", warm=False) as ranker, serving(ranker) as http:
        others = ThreadPoolExecutor(COMPARISONS)
        with ranker.worker.comparing():  # a comparison that takes long
            waiting = [others.submit(http.post, "/v1/compare", json={}) for _ in range(COMPARISONS - 1)]
            while ranker.worker.places._value:
                assert not any(each.done() for each in waiting)
                time.sleep(0.001)
            refused, page = http.post("/v1/compare", json={}), http.get("/compare")
            assert [each.status_code for each in (refused, page)] == [503, 503]
            assert refused.headers["retry-after"] == page.headers["retry-after"] == "5"
            assert http.post("/v1/rank", json={"query": "q", "items": [{"id": "a"}], "k": 1}).status_code == 200
        assert {each.result().status_code for each in waiting} == {200}
        others.shutdown()
        assert http.get("/compare").status_code == 200


def test_dashboard_has_a_page_that_compares():
    with mf.Ranker("memory:", warm=False, policy=FAIR, experiment=experiment("TopK")) as ranker:
        items = [{"id": each, "group": "seller <A>" if each in "ab" else "B"} for each in "abcd"]
        for i in range(10):
            ranker.click(ranker.rank("q", items, k=2, session=f"s{i}").impression, "a")
        with serving(ranker) as http:
            plain = http.get("/compare").text
            assert "Experiment test is running" in plain
            assert "No list of the sample was ranked in shadow mode" in plain
            page = http.get("/compare", params={"policy": " TopK "}).text
            for text in (
                "TopK would have shown another list in",
                "10 lists",
                "seller &lt;A&gt;",
                'class="chart"',
                "control",
            ):
                assert text in page, text
            assert "seller <A>" not in page
            wrong = http.get("/compare", params={"policy": "<b>TopL"})
            assert wrong.status_code == 400
            assert "&lt;b&gt;TopL" in wrong.text
            assert "<b>TopL" not in wrong.text
            ranker.executor.submit(
                lambda engine: engine.stop_arm(engine.version.experiment, "other", "is bad")
            ).result()
            assert "other was stopped: it is bad." in http.get("/compare").text
        ranker.reset()
    with mf.Ranker("memory:", warm=False) as ranker, serving(ranker) as http:
        assert "Compare policies" in http.get("/compare").text


# --- the command -----------------------------------------------------------------------------------------------------


def run(*words):
    return CliRunner().invoke(app, ["what-if", *map(str, words)])


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("compare") / "s.db"
    with mf.Ranker(path, warm=False, policy=FAIR, experiment=experiment("TopK")) as ranker:
        for i in range(12):
            items = [{"id": each, "group": "seller" if each in "ab" else None} for each in "abcd"]
            ranker.click(ranker.rank("q", items, k=2, session=f"s{i}").impression, "a")
    return path


def test_compare_prints_tables(path):
    output = run("--store", path, "--policy", "TopK", "--since", "1h").stdout
    assert "12 lists: what TopK(" in output
    for word in ("(replay)", "lists that differ", "exposure of seller", "Experiment test is running", "control"):
        assert word in output, word
    assert "none was ranked in shadow mode" in run("--store", path).stdout


def test_names_in_tables_are_no_markup(tmp_path):
    """Groups come from sellers: theirs must neither end the command nor reach the terminal as commands."""
    groups = ["[/red]", "[bold]:smile:", "\x1b]0;title\x07"]
    arms = [{"name": "[/arm]", "policy": "TopK", "share": 0.5}]
    with mf.Ranker(tmp_path / "s.db", warm=False, experiment={"name": "[/name]", "arms": arms}) as ranker:
        for i in range(6):
            items = [{"id": str(j), "group": group} for j, group in enumerate(groups)]
            ranker.rank("q", items, k=3, session=f"s{i}")
    printed = run("--store", tmp_path / "s.db", "--policy", "TopK")
    assert printed.exit_code == 0
    for name in ("[/red]", "[bold]:smile:", "\\x1b]0;title\\x07", "[/arm]", "[/name]"):
        assert name in printed.stdout
    assert "\x07" not in printed.stdout


def test_compare_prints_json(path):
    found = json.loads(run("--store", path, "--policy", "TopK", "--lists", 5, "--json").stdout)
    assert found["comparison"]["lists"] <= 5
    assert [arm["name"] for arm in found["experiment"]["arms"]] == ["control", "other"]


def test_compare_refuses_what_it_cannot_read(path, tmp_path):
    assert "unknown policy 'TopL'" in str(run("--store", path, "--policy", "TopL").exception)
    assert "does not exist" in str(run("--store", tmp_path / "none.db").exception)
    assert "expected a duration" in str(run("--store", path, "--since", "yesterday").exception)


# --- resampling ------------------------------------------------------------------------------------------------------


def test_weights_of_resamples_come_in_parts_and_add_up(monkeypatch):
    monkeypatch.setattr("mcfair.analysis.resampling.CELLS", 100)
    parts = list(cluster_weights(30, 10, np.random.default_rng(0)))
    assert [part.shape for part in parts] == [(3, 30)] * 3 + [(1, 30)]
    assert (np.concatenate(parts).sum(axis=1) == 30).all()


def test_ratio_without_anything_below_is_nan():
    ratio, drawn = ratio_of_sums(np.ones((3, 1)), np.zeros((3, 1)))
    assert not np.isfinite(ratio).any()
    assert np.isnan(interval(drawn, ratio)).all()
