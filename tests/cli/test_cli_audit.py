"""The commands audit and examination, as users type them."""

import json

import polars as pl
import pytest
from command_line import refused, run
from service_process import ServerProcess

from mcfair.tables import NOTHING

LOG = pl.DataFrame(
    {
        "t": [1, 1, 2, 2, 3, 3, 4, 4],
        "q_text": ["lamp"] * 8,
        "item": ["a", "b", "a", "b", "a", "b", "b", "a"],
        "rank": [1, 2] * 4,
        "clicked": [1, 0, 0, 1, 1, 0, 1, 1],
        "seller": ["large", "small", "large", "small", "large", "small", "small", "large"],
    }
)
COLUMNS = ("--column", "query=q_text", "--column", "impression=t")
KEYS = {
    *("rows", "impressions", "queries", "items", "clicks", "exposure_model", "merit", "unfairness", "floor"),
    *("groups", "measures", "quality", "excluded"),
}


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("logs") / "shop log.csv"
    LOG.write_csv(path)
    return str(path)


def test_json_has_the_promised_keys(log, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("audit", log, *COLUMNS, "--json", "--resamples", "50", "--examination", "1,0.5", "--merit", "uniform")
    found = json.loads(done.stdout)
    assert found.keys() >= KEYS
    assert (found["rows"], found["impressions"], found["queries"], found["items"], found["clicks"]) == (8, 4, 1, 2, 5)
    assert (found["exposure_model"], found["merit"], found["unfairness"], found["floor"]) == (
        "given",
        "uniform",
        1.0,
        0.0,
    )
    large, small = found["groups"]
    assert (large["group"], large["items"], large["exposure"], large["clicks"]) == ("large", 1, 3.5, 3)
    assert (small["exposure_share"], small["merit_share"]) == (2.5 / 6, 0.5)
    low, high = small["exposure_share_interval"]
    assert low <= small["exposure_share"] <= high
    assert found["excluded"] == {}
    assert not list(tmp_path.iterdir())  # a page only if --out asks for one


def test_summary_and_page(log, tmp_path):
    done = run(
        "audit",
        log,
        *COLUMNS,
        "--out",
        str(tmp_path / "page"),
        "--resamples",
        "5",
        "--target",
        "small=0.5",
        "--target",
        "large=0.5",
    )
    assert "read as flat" in done.stdout
    assert "small" in done.stdout
    assert done.stdout.rstrip().endswith(str(tmp_path / "page" / "index.html"))
    page = (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    assert "mcfair audit &#39;" in page  # the command, quoted for a shell
    measures = pl.read_csv(tmp_path / "page" / "tables" / "measures.csv")["measure"].to_list()
    assert "awrf_log2_given" in measures


def test_the_page_is_written_by_default(log, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("audit", log, *COLUMNS, "--resamples", "2")
    assert (tmp_path / "mcfair-audit" / "index.html").is_file()


def test_excluded_rows_are_named(log, tmp_path):
    path = tmp_path / "twice.csv"
    pl.concat([LOG, LOG[:1]]).write_csv(path)
    done = run("audit", str(path), *COLUMNS, "--out", str(tmp_path / "page"), "--resamples", "2")
    assert "left out: 1 rows (rows logged twice)" in done.stdout


def test_examination(log, tmp_path):
    picture = tmp_path / "figures" / "p.png"
    done = run("examination", log, *COLUMNS, "--method", "ctr", "--out", str(picture), "--resamples", "5")
    assert "It assumes:" in done.stdout
    assert "Lists were random" in done.stdout
    assert "--examination 1,0.6667" in done.stdout  # 2 of 4 clicks at rank 2, 3 of 4 at rank 1
    assert picture.read_bytes()[:4] == b"\x89PNG"
    found = json.loads(run("examination", log, *COLUMNS, "--method", "ctr", "--json", "--resamples", "5").stdout)
    assert found["examination"] == "1,0.6667"
    assert [each["p"] for each in found["ranks"]] == pytest.approx([1, 2 / 3])
    again = run("audit", log, *COLUMNS, "--json", "--resamples", "2", "--examination", found["examination"])
    assert json.loads(again.stdout)["examination"] == [1, 0.6667]


def test_simulate_and_serve_accept_what_examination_prints(log, tmp_path):
    text = json.loads(run("examination", log, *COLUMNS, "--method", "ctr", "--json", "--resamples", "2").stdout)[
        "examination"
    ]
    words = ("simulate", "--data", "mq2008-like", "--policy", "TopK", "--steps", "50", "--json", "--examination", text)
    assert json.loads(run(*words).stdout)["runs"][0]["sessions"] == 50
    with ServerProcess(tmp_path / "shop.db", "--examination", text).ready() as server:
        assert f"examination [{text.replace(',', '.0, ', 1)}]" in server.text


def test_what_is_wrong_is_one_line(log, tmp_path):
    assert "no column for the query" in refused("audit", log)
    assert "did you mean 'q_text'" in refused("audit", log, "--column", "query=q_txt")
    assert "expected ROLE=COLUMN" in refused("audit", log, "--column", "q_text")
    assert "no such file" in refused("audit", str(tmp_path / "missing.csv"))
    assert "examination = 'log3' is not allowed: expected fitted, log2" in refused("audit", log, *COLUMNS, "--examination", "log3")
    assert "the log has no column relevance or grade" in refused("audit", log, *COLUMNS, "--merit", "given")
    assert "unknown estimator 'ISP'; did you mean 'IPS'" in refused("audit", log, *COLUMNS, "--merit", "ISP")
    assert "unknown policy 'Topk5'" in refused("audit", log, *COLUMNS, "--policy", "Topk5")
    assert "unknown group 'smal'; did you mean 'small'" in refused("audit", log, *COLUMNS, "--target", "smal=1")
    assert "expected 0 or 1" in refused("audit", log, *COLUMNS, "--first-rank", "2")
    assert "unknown method 'guess'" in refused("examination", log, *COLUMNS, "--method", "guess")


def test_control_characters_of_a_log_do_not_reach_the_terminal(tmp_path):
    LOG.with_columns(group=pl.col("seller") + "\x1b[31m").rename({"q_text": "query", "t": "impression"}).write_csv(
        tmp_path / "log.csv"
    )
    done = run("audit", str(tmp_path / "log.csv"), "--resamples", "20", "--out", str(tmp_path / "page"))
    assert "\x1b" not in done.stdout
    assert "small\\x1b[31m" in done.stdout


def test_a_group_without_merit_has_no_ratio(log, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    LOG.with_columns(clicked=(pl.col("seller") == "large").cast(int)).write_csv("one.csv")
    done = run("audit", "one.csv", *COLUMNS, "--resamples", "2")
    assert "nan" not in done.stdout
    assert "Only one group has merit" in done.stdout
    assert "served least" not in done.stdout
    assert NOTHING in done.stdout
