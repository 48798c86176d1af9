"""The page of an audit: complete, harmless, and as wide as its window; the tables beside it."""

import json
import re
from html import unescape

import polars as pl
import pytest
from logs import catalogue, recorded_run, run_table

import mcfair as mf
from mcfair.errors import DataError
from mcfair.tables import format_number


@pytest.fixture(scope="module")
def audited():
    trace = recorded_run(steps=800)
    known = (
        catalogue(trace)
        .drop("relevance")
        .with_columns(
            group=pl.when(pl.col("group") == "shop 1").then(pl.lit("<b>shop</b> & 'Söhne' $x$")).otherwise("group")
        )
    )
    timed = run_table(trace).with_columns(time=1_760_000_000 + 3600 * pl.col("impression"))
    return mf.audit(timed, items=known, policies=["TopK", "MCFair(alpha=10)"], resamples=20)


@pytest.fixture(scope="module")
def page(audited, tmp_path_factory):
    return mf.write_audit(
        audited, tmp_path_factory.mktemp("audit") / "deep" / "er", command="mcfair audit 'my log.csv'"
    )


def text_of(page):
    return " ".join(
        unescape(re.sub(r"<[^>]+>", " ", page.read_text(encoding="utf-8"))).replace("\N{NO-BREAK SPACE}", " ").split()
    )


def test_the_page_states_assumptions_results_and_provenance(audited, page):
    text = text_of(page)
    for needed in (
        *("At a glance", "What was read", "Who gets the exposure?", "Where is it least fair?", "What if?"),
        *("Is it getting better?", "Since the beginning: all impressions up to the end of the day", "Alone: only the"),
        *("Does it depend on the assumptions?", "All measures", "How to reproduce this page", "1/log2(rank + 1)"),
        *("estimated from the clicks by IPS", "mcfair audit 'my log.csv'", "An estimate, not a measurement"),
        "2025-10-09",
    ):
        assert needed in text, needed
    for name in ("unfairness", "floor"):
        assert format_number(getattr(audited, name)) in text


def test_labels_of_the_log_are_no_markup(page):
    html = page.read_text(encoding="utf-8")
    assert "<b>shop" not in html
    assert "&lt;b&gt;shop&lt;/b&gt; &amp; &#39;Söhne&#39; $x$" in html
    assert "<script" not in html
    assert not re.search(r"""(src|href)=["']https?:""", html)


def test_every_file_that_the_page_links_to_exists(page):
    links = set(re.findall(r'href="([^"#]+)"', page.read_text(encoding="utf-8")))
    assert len(links) > 20
    assert not [link for link in links if not (page.parent / link).is_file()]


def test_tables_are_written_as_csv_and_parquet(audited, page):
    tables = audited.tables()
    known = {"groups", "measures", "ranks", "queries", "items", "sensitivity", "quality", "policies", "over_time"}
    assert set(tables) == known
    for name, table in tables.items():
        assert pl.read_parquet(page.parent / "tables" / f"{name}.parquet").equals(table)
        assert pl.read_csv(page.parent / "tables" / f"{name}.csv").columns == table.columns


def test_equal_audits_are_equal_bytes(audited, page, tmp_path):
    again = mf.write_audit(audited, tmp_path, command="mcfair audit 'my log.csv'")
    assert again.read_bytes() == page.read_bytes()


def test_the_plain_data_is_that_of_the_page(audited):
    found = json.loads(json.dumps(audited.to_dict(), allow_nan=False))
    assert found["unfairness"] == audited.unfairness
    assert len(found["sensitivity"]) >= 3
    assert [each["policy"] for each in found["policies"]] == ["as logged", repr(mf.TopK()), repr(mf.MCFair(alpha=10.0))]
    share = found["groups"][0]
    assert share["exposure_share_interval"][0] <= share["exposure_share"] <= share["exposure_share_interval"][1]


def test_a_log_without_groups_and_clicks(tmp_path):
    log = pl.DataFrame({"query": ["q"] * 2, "item": ["a", "b"], "rank": [1, 2], "clicked": [0, 0]})
    text = text_of(mf.write_audit(mf.audit(log, resamples=2), tmp_path))
    assert "No item has merit" in text
    assert "The log has no groups" in text


def test_a_folder_that_cannot_be_written(audited, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot write the audit to"):
        mf.write_audit(audited, tmp_path / "file")


def test_no_text_of_a_table_is_a_formula(tmp_path):
    ids = ["=1+1", "+a", "-b", "@c", "\td", "\re", "\uff1df", "plain"]
    log = pl.DataFrame({"query": ["q"] * 8, "item": ids, "rank": range(1, 9), "clicked": [1, 0, 0, 0, 0, 0, 0, 1]})
    page = mf.write_audit(mf.audit(log, resamples=2), tmp_path)
    items = pl.read_csv(page.parent / "tables" / "items.csv")
    assert sorted(items["item"]) == sorted(["plain", *("'" + each for each in ids[:-1])])
    assert items["difference"].min() < 0
    assert pl.read_parquet(page.parent / "tables" / "items.parquet")["item"].sort().to_list() == sorted(ids)


def test_control_characters_of_ids_are_written_out(tmp_path):
    ids = [f"{mark}{character}x" for mark, character in zip("abcd", "\0\x1b\a\u202e", strict=True)]
    log = pl.DataFrame({"query": ids, "item": ids, "group": ids, "rank": 1, "clicked": [1, 0, 0, 1]})
    page = mf.write_audit(mf.audit(log, resamples=2), tmp_path, command="mcfair audit '\x1b.csv'")
    for file in (page, *(page.parent / "tables").glob("*.md"), *(page.parent / "tables").glob("*.tex")):
        assert not re.search("[\0\x1b\a\u202e]", file.read_text(encoding="utf-8")), file
    assert r"b\x1bx" in page.read_text(encoding="utf-8")
    assert pl.read_csv(page.parent / "tables" / "items.csv")["item"].sort().to_list() == ids


def test_the_page_has_no_backticks(tmp_path):
    log = pl.DataFrame({"query": ["q"] * 2, "item": ["a", "b"], "rank": [1, 2], "clicked": [1, 0]})
    assert "`" not in text_of(mf.write_audit(mf.audit(log, resamples=2), tmp_path))
