"""Every format gives the same log: exposure, merit, unfairness and floor of a run whose truth is known."""

import gzip
import json
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from logs import catalogue, impressions, recorded_run, run_table

import mcfair as mf
from mcfair.errors import DataError, SettingError


@pytest.fixture(scope="module")
def trace():
    return recorded_run()


@pytest.fixture(scope="module")
def truth(trace):
    floor = mf.fairness_floor(trace.data, trace.state.visits, trace.state.p)
    order = sorted(range(trace.data.queries), key=lambda q: f"text {trace.data.query_id(q)}")
    E = {
        (f"text {trace.data.query_id(q)}", f"{q}-{i - trace.data.offsets[q]}"): trace.state.E[i]
        for q in order
        for i in range(trace.data.offsets[q], trace.data.offsets[q + 1])
    }
    return {"unfairness": trace.unfairness, "floor": floor.unfairness, "E": E, "clicks": int(trace.state.C.sum())}


def agrees(found, truth, format):
    assert found.format == format
    assert found.unfairness == pytest.approx(truth["unfairness"], rel=1e-9)
    assert found.floor == pytest.approx(truth["floor"], rel=1e-9)
    rows = found.items().select("query", "item", "exposure").iter_rows()
    exposures = {(query, item): exposure for query, item, exposure in rows}
    assert exposures.keys() == truth["E"].keys()
    for key, value in truth["E"].items():
        assert exposures[key] == pytest.approx(value, rel=1e-9)
    assert int(found.counts.clicks.sum()) == truth["clicks"]
    assert found.counts.excluded == {}


def small(log, trace, **options):
    return mf.audit(log, items=catalogue(trace), resamples=3, **options)


def test_recorded_run(trace, tmp_path):
    found = mf.audit(trace.save(tmp_path / "run"), resamples=3)
    floor = mf.fairness_floor(trace.data, trace.state.visits, trace.state.p)
    assert (found.format, found.merit) == ("simulation", "given")
    assert found.unfairness == pytest.approx(trace.unfairness, rel=1e-9)
    assert found.floor == pytest.approx(floor.unfairness, rel=1e-9)
    assert np.sort(found.figures.E) == pytest.approx(np.sort(trace.state.E), rel=1e-9)
    assert np.sort(found.figures.assumed.R).tolist() == np.sort(trace.data.R).tolist()
    sums = dict.fromkeys(found.counts.group_names, 0.0)
    for code, E in zip(trace.data.providers.tolist(), trace.state.E.tolist(), strict=True):
        sums[trace.data.provider_name(code)] += E  # item ids repeat from query to query, groups do not
    assert found.values.groups["exposure"] == pytest.approx(list(sums.values()), rel=1e-9)


def test_recorded_run_with_candidates_that_were_never_shown(tmp_path):
    trace = recorded_run(steps=40, policy="TopK", mode="post-processing")
    assert (trace.state.E == 0).any()
    found = mf.audit(trace.save(tmp_path / "run"), resamples=3)
    visited = trace.state.visits > 0
    assert found.counts.items == trace.data.sizes[visited].sum()
    assert found.unfairness == pytest.approx(trace.unfairness, rel=1e-9)


def test_a_run_without_lists_is_refused(tmp_path):
    data = mf.Dataset(offsets=[0, 3], y=[2, 1, 0])
    folder = mf.simulate(data, "TopK", steps=5).save(tmp_path / "run")
    with pytest.raises(DataError, match=r"no lists; simulate it with --record"):
        mf.audit(folder)


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "tsv", "parquet", "jsonl", "log"])
def test_flat_files(trace, truth, tmp_path, ending):
    table, path = run_table(trace), tmp_path / f"log.{ending}"
    if ending == "parquet":
        table.write_parquet(path)
    elif ending == "jsonl":
        table.write_ndjson(path)
    elif ending == "csv.gz":
        path.write_bytes(gzip.compress(table.write_csv().encode()))
    else:
        table.write_csv(path, separator="\t" if ending == "tsv" else ",")
    agrees(small(path, trace), truth, "flat")


def test_flat_frames(trace, truth):
    table = run_table(trace)
    for log in (table, table.lazy(), table.to_arrow(), table.to_pandas()):
        agrees(small(log, trace), truth, "flat")


def test_a_folder_of_files(trace, truth, tmp_path):
    table = run_table(trace)
    for i in range(3):
        table[i::3].write_parquet(tmp_path / f"part{i}.parquet")
    agrees(small(tmp_path, trace), truth, "flat")


def test_columns_with_other_names_among_a_hundred_more(trace, truth):
    table = run_table(trace).rename({"query": "q_text", "item": "thing", "rank": "slot", "clicked": "hit"})
    extra = table.with_columns(**{f"extra {i}": pl.lit(i) for i in range(100)})
    columns = {"query": "q_text", "item": "thing", "rank": "slot", "clicked": "hit"}
    agrees(small(extra, trace, columns=columns), truth, "flat")


def test_sessions_and_times_identify_impressions(trace, truth):
    table = run_table(trace)
    by_time = table.rename({"impression": "time"})
    agrees(small(by_time, trace), truth, "flat")
    both = table.with_columns(session=pl.col("impression") // 5, time=pl.col("impression") % 5).drop("impression")
    agrees(small(both, trace), truth, "flat")


def test_without_impressions_lists_are_inferred(trace, truth):
    found = small(run_table(trace).drop("impression"), trace)
    agrees(found, truth, "flat")
    assert found.quality()["impressions"] == "inferred"
    assert int(found.counts.visits.sum()) == trace.sessions


@pytest.mark.parametrize("marks", [True, False])
@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_lists(trace, truth, tmp_path, marks, ending):
    rows = []
    for query, items, hits in impressions(trace):
        clicks = hits if marks else [d for d, hit in zip(items, hits, strict=True) if hit]
        rows.append({"query": query, "items": items, "clicks": clicks})
    path = tmp_path / f"lists.{ending}"
    kind = pl.Boolean if marks else pl.String
    schema = {"query": pl.String, "items": pl.List(pl.String), "clicks": pl.List(kind)}
    table = pl.DataFrame(rows, schema=schema)
    table.write_ndjson(path) if ending == "jsonl" else table.write_parquet(path)
    agrees(small(path, trace), truth, "lists")


def test_lists_count_what_does_not_fit():
    log = pl.DataFrame(
        {
            "query": ["q"] * 4,
            "items": [["a", "b"], [], None, ["a", "b"]],
            "clicks": [["a", "z"], ["a"], [], None],
        }
    )
    found = mf.audit(log, resamples=3)
    assert found.quality()["impressions without a list"] == 2
    assert found.quality()["clicks on items that are not in the list"] == 1
    assert (int(found.counts.visits.sum()), int(found.counts.clicks.sum())) == (2, 1)


def ubi_files(trace, folder, *, dotted=False):
    queries, events = [], []
    for t, (query, items, hits) in enumerate(impressions(trace)):
        queries.append(
            {
                "query_id": f"id {t}",
                "user_query": query,
                "query_response_hit_ids": items,
                "timestamp": 1_700_000_000 + t,
            }
        )
        for rank, (item, hit) in enumerate(zip(items, hits, strict=True), start=1):
            if hit:
                attributes = {"object": {"object_id": item}, "position": {"ordinal": rank}}
                where = (
                    {"event_attributes.object.object_id": item, "event_attributes.position.ordinal": rank}
                    if dotted
                    else {"event_attributes": attributes}
                )
                events.append({"action_name": "click", "query_id": f"id {t}"} | where)
        events.append({"action_name": "view", "query_id": f"id {t}"} | ({} if dotted else {"event_attributes": None}))
    for name, rows in (("queries", queries), ("events", events)):
        (folder / f"ubi_{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return queries, events


@pytest.mark.parametrize("dotted", [False, True])
def test_user_behavior_insights(trace, truth, tmp_path, dotted):
    ubi_files(trace, tmp_path, dotted=dotted)
    found = small(tmp_path, trace)
    agrees(found, truth, "ubi")
    assert found.quality()["clicks without a list"] == 0
    assert found.counts.period is not None


def test_user_behavior_insights_counts_clicks_without_lists(trace, tmp_path):
    queries, events = ubi_files(trace, tmp_path)
    click = {"action_name": "click", "event_attributes": {"object": {"object_id": "0-0"}, "position": {"ordinal": 9}}}
    events += [click | {"query_id": "nowhere"}, next(e for e in events if e["action_name"] == "click")]
    queries += [queries[0], {"query_id": "empty", "user_query": "x", "query_response_hit_ids": [], "timestamp": 1}]
    for name, rows in (("queries", queries), ("events", events)):
        (tmp_path / f"ubi_{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = small(tmp_path, trace)
    assert found.unfairness == pytest.approx(trace.unfairness, rel=1e-9)  # none of these changes a count
    quality = found.quality()
    assert quality["clicks without a list"] == 1
    assert quality["impressions without a list"] == 1
    assert quality["impressions logged twice"] == 1


def test_metarank(trace, truth, tmp_path):
    lines = [{"event": "item", "item": "0-0", "timestamp": "1", "fields": [{"name": "price", "value": 2.5}]}]
    for t, (query, items, hits) in enumerate(impressions(trace)):
        lines.append(
            {
                "event": "ranking",
                "id": f"r{t}",
                "timestamp": str(1_700_000_000_000 + t),
                "user": "u",
                "fields": [{"name": "query", "value": query}, {"name": "source", "value": ["a", "b"]}],
                "items": [{"id": item, "fields": [{"name": "relevancy", "value": 1.5}]} for item in items],
            }
        )
        lines += [
            {"event": "interaction", "id": f"i{t}", "ranking": f"r{t}", "item": item, "type": "click", "fields": []}
            for item, hit in zip(items, hits, strict=True)
            if hit
        ]
    lines.append({"event": "interaction", "id": "x", "ranking": "r0", "item": "0-0", "type": "purchase"})
    lines.append({"event": "interaction", "id": "y", "ranking": "nowhere", "item": "0-0", "type": "click"})
    path = tmp_path / "events.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = small(path, trace)
    agrees(found, truth, "metarank")
    assert found.quality()["clicks without a list"] == 1
    text = path.read_text()
    for wrong, error in (
        ('{"event": ', rf"line {len(lines) + 1}: not a JSON object"),
        ('{"event": "ranking", "items": 3}', "not events of Metarank"),
    ):
        path.write_text(f"{text}{wrong}\n")
        with pytest.raises(DataError, match=error):
            mf.audit(path)


def test_store_of_the_service(tmp_path):
    """The audit of a store has the exposure and the clicks that the service itself reports."""
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    with mf.Ranker(url, policy="MCFair") as ranker:
        items = [{"id": f"item {i}", "group": f"shop {i % 2}"} for i in range(6)]
        for step in range(30):
            ranked = ranker.rank("lamp", items, k=4)
            hits = [each.id for each in ranked.items[: 1 + step % 2]]
            ranker.feedback([{"impression": ranked.impression, "item": item} for item in hits])
        reported = {each.id: each for each in ranker.query_state("lamp").items}
    found = mf.audit(url, resamples=3)
    assert (found.format, found.counts.rows, int(found.counts.visits.sum())) == ("store", 120, 30)
    for row in found.items().iter_rows(named=True):
        assert row["exposure"] == pytest.approx(reported[row["item"]].exposure, rel=1e-9)
        assert row["clicks"] == reported[row["item"]].clicks
    assert found.counts.group_names == ("shop 0", "shop 1")
    assert mf.audit(tmp_path / "shop.db", resamples=3).format == "store"


def test_open_bandit(tmp_path):
    rows = ["timestamp,item_id,position,click,propensity_score"]
    rows += [f"2019-11-24 00:00:{i:02d}.762830+00:00,{i % 4},{i % 3 + 1},{int(i % 5 == 0)},0.25" for i in range(60)]
    path = tmp_path / "all.csv"
    path.write_text("\n".join(rows) + "\n")
    found = mf.audit(path, merit="uniform", resamples=20)
    assert (found.format, found.counts.queries, int(found.counts.visits.sum())) == ("open-bandit", 1, 60)
    assert found.counts.period == ("2019-11-24 00:00:00.762830", "2019-11-24 00:00:59.762830")
    assert found.values.measures["ips_ctr"] == pytest.approx(12 / 60)  # propensities are all the same
    # Each page has one place, at rank 1, 2 or 3: the floor shares them all among the items.
    assert found.floor == pytest.approx(0, abs=1e-9)
    assert mf.audit(path, format="open-bandit", resamples=3).counts.rows == 60


def test_unknown_formats_and_roles_are_refused(tmp_path):
    with pytest.raises(SettingError, match=r"unknown format 'flt'; did you mean 'flat'"):
        mf.audit(tmp_path, format="flt")
    with pytest.raises(SettingError, match=r"unknown role of a column 'qery'; did you mean 'query'"):
        mf.audit(tmp_path, columns={"qery": "q"})
    with pytest.raises(DataError, match=r"no such file or folder"):
        mf.audit(tmp_path / "missing.csv")
    with pytest.raises(DataError, match=r"expected a recorded run .* got no such file"):
        mf.audit(tmp_path)


def test_an_audit_of_a_file_imports_no_service(tmp_path):
    rows = {"query": ["q"] * 2, "item": ["a", "b"], "rank": [1, 2], "clicked": [1, 0]}
    pl.DataFrame(rows).write_csv(tmp_path / "clicks.csv")
    code = (
        "import sys; from mcfair.cli.app import main\n"
        "sys.argv = ['mcfair', 'audit', 'clicks.csv', '--resamples', '2']\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "print(*(name for name in sys.modules if name.startswith('mcfair.service')))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == ""
    assert (tmp_path / "mcfair-audit" / "index.html").exists()
