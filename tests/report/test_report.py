"""The report: every file is there, has the numbers of the runs, and the page explains what it shows."""

import re
import sys
from dataclasses import replace
from html import unescape

import msgspec
import polars as pl
import pytest
from small_results import CUTOFFS, TABLE, TRADEOFF, cells, column, only, view_of

import mcfair as mf
from mcfair.policies.base import parse_policies
from mcfair.report import write_report
from mcfair.report.sections import points_table
from mcfair.tables import NOTHING, format_spread


@pytest.fixture(scope="module")
def pages(report, odd):
    return [path.read_text(encoding="utf-8") for path in (report, odd)]


@pytest.fixture(scope="module")
def text(pages):
    return re.sub(r"\s+", " ", unescape(pages[0]))


# --- files -----------------------------------------------------------------------------------------------------------


def test_every_file_is_there(report):
    folder = report.parent
    assert sorted(path.name for path in folder.iterdir()) == ["figures", "index.html", "tables"]
    tables = {path.name for path in (folder / "tables").iterdir()}
    for name in ("table1", "table1-details", "table1-tests-unfairness", "table1-tests-ndcg", "fig2-values",
                 "fig3-post-processing-points", "fig3-online-points", "fig3-comparison", "runs", "settings",
                 "about"):  # fmt: skip
        assert {f"{name}.md", f"{name}.tex"} <= tables
    figures = {path.name for path in (folder / "figures").iterdir()}
    assert {"fig2.png", "fig2.pdf", "fig3.png", "fig3.pdf"} <= figures
    for path in folder.rglob("*.*"):
        assert path.stat().st_size > 100, path
    for path in (folder / "figures").iterdir():
        assert path.read_bytes().startswith(b"\x89PNG" if path.suffix == ".png" else b"%PDF")
    for link in re.findall(r'href="([^#"]+)"', report.read_text(encoding="utf-8")):
        assert (folder / link).exists()


def test_equal_results_give_equal_bytes(results, report, tmp_path):
    again = write_report(results, tmp_path)
    for path in sorted(report.parent.rglob("*.*")):
        assert (again.parent / path.relative_to(report.parent)).read_bytes() == path.read_bytes(), path.name


def test_a_folder_that_cannot_be_written(results, tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(mf.MCFairError, match="cannot write the report to"):
        write_report(only(results, CUTOFFS), tmp_path / "taken")


@pytest.mark.parametrize("library", ["matplotlib", "jinja2"])
def test_a_missing_library_is_named_before_the_work(results, tmp_path, monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(mf.MCFairError, match=rf'{library}, which is not installed: pip install "mcfair\[report\]"'):
        write_report(only(results, CUTOFFS), tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_markdown_has_the_numbers_of_the_runs(results, report):
    rows = cells(report.parent / "tables" / "table1.md")
    runs = results.of("mq2008-like", TABLE.conditions[0], parse_policies("FairCo(alpha=1000)")[0])
    u = runs["unfairness"].to_numpy()
    floor = view_of(results).limits["floor"].to_numpy()
    mean, std = re.fullmatch(r"([\d.,]+) \(([\d.]+)\)†?‡?", column(rows, "unfairness (std)")["FairCo"]).groups()
    assert float(mean) == pytest.approx(u.mean(), rel=1e-3)
    assert float(std) == pytest.approx(u.std(), abs=10.0 ** -len(std.split(".")[1]))
    above = 100 * (u.mean() / floor.mean() - 1)
    assert float(column(rows, "above the floor, %")["FairCo"]) == pytest.approx(above, rel=1e-2)
    assert float(column(rows, "cNDCG@5")["FairCo"]) == pytest.approx(runs["cndcg@5"].mean(), rel=1e-3)
    assert column(rows, "s per 1,000 lists")["FairCo"] == "0.250"
    assert rows[1][0] == "floor (lowest possible)"
    assert float(rows[1][1].split()[0]) == pytest.approx(floor.mean(), rel=1e-3)
    groups = float(column(rows, "group unfairness")["floor (lowest possible)"].split()[0])
    assert groups == pytest.approx(floor.mean(), rel=1e-3)  # the data has no groups: every item is its own
    details = cells(report.parent / "tables" / "table1-details.md")
    low, high = map(float, column(details, "unfairness, 95 % interval")["FairCo"].split(" to "))
    assert low < u.mean() < high
    assert low + high == pytest.approx(2 * u.mean(), rel=1e-3)
    assert float(column(details, "cNDCG@3")["FairCo"]) == pytest.approx(runs["cndcg@3"].mean(), rel=1e-3)
    assert column(details, "policy")["FairCo"] == "FairCo(alpha=1000.0)"
    points = cells(report.parent / "tables" / "fig3-online-points.md")
    assert len(points) == 1 + 1 + 4 + 4
    values = cells(report.parent / "tables" / "fig2-values.md")
    assert float(column(values, "cNDCG@5 (std)")["TopK"].split()[0]) == pytest.approx(200, rel=1e-3)


def test_latex_is_escaped(report, odd):
    for folder in (report.parent, odd.parent):
        for path in (folder / "tables").glob("*.tex"):
            text = path.read_text(encoding="utf-8")
            assert text.count(r"\toprule") == text.count(r"\bottomrule") == 1
            columns = len(re.search(r"\\begin\{tabular\}\{(\w+)\}", text)[1])
            body = text.split(r"\toprule")[1].split(r"\bottomrule")[0]
            for line in body.splitlines():
                if line.endswith(r"\\"):
                    assert len(re.findall(r"(?<!\\)&", line)) == columns - 1
            assert not re.search(r"(?<!\\)[%#_]", text)
            assert not re.search(r"[βα†‡<>]", text)


# --- the page --------------------------------------------------------------------------------------------------------


def test_the_page_fetches_nothing(pages):
    for page in pages:
        assert "<script" not in page
        assert not re.search(r"https?://|@import|url\(", re.sub(r"base64,[\w+/=]+", "", page))
        sources = re.findall(r'(?:src|srcset)="([^"]*)"', page)
        assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
        assert "default-src 'none'; img-src data:; style-src 'unsafe-inline'" in page
        assert '<meta name="viewport"' in page
        assert all(re.findall(r'<img [^>]*alt="([^"]+)"', page))
        assert page.count("<source ") == 3 * page.count("<img ") > 0


def test_the_page_is_whole(pages):
    tags = ("section", "table", "tr", "td", "th", "p", "li", "ul", "dl", "dt", "dd", "details", "figure", "picture",
            "div", "main", "h2", "h3")  # fmt: skip
    for page in pages:
        for tag in tags:
            assert len(re.findall(rf"<{tag}[ >]", page)) == page.count(f"</{tag}>"), tag
        anchors = re.findall(r'id="([^"]+)"', page)
        assert len(anchors) == len(set(anchors))
        assert set(re.findall(r'href="#([^"]+)"', page)) <= set(anchors)
        assert set(re.findall(r'aria-labelledby="([^"]+)"', page)) <= set(anchors)
        assert page.count("<h1>") == 1


def test_the_page_says_what_was_run(results, text):
    assert f"{results.runs.height:,} runs (2 seeds each)" in text
    assert f"{results.runs['sessions'].sum():,} sessions" in text
    assert "mcfair reproduce --out 'a & b'" in text
    assert "Table 1: fairness" in text
    unreachable, queries = max(view_of(results).limits.select("unreachable", "queries").rows())
    assert f"For {unreachable} of {queries} queries no sequence of lists" in text
    assert 0 < unreachable < queries
    assert "Differences from the paper" in text
    assert "<strong>FairCo.</strong> It has its reasons." in text


def test_the_page_names_click_model_estimator_and_metrics_of_every_setting(report, text):
    rows = cells(report.parent / "tables" / "settings.md")
    assert rows == [
        ["setting", "click model", "estimator", "further metrics", "examination", "ranks"],
        ["table1, post-processing", NOTHING, NOTHING, "Gini, group unfairness, cNDCG@5", "severity 1", "5"],
        ["fig2, post-processing", NOTHING, NOTHING, "Gini, group unfairness, cNDCG@5", "severity 1", "5"],
        ["fig3, post-processing", NOTHING, NOTHING, "none", "severity 1", "5"],
        ["fig3, online", "PositionBased", "IPS", "none", "severity 1", "5"],
    ]
    head = text.split("<main>")[0]
    assert "<dt>PositionBased</dt> <dd>Click" in head
    assert re.search(r"<dt>Gini</dt> <dd>[^<]+\. Lower is better\.</dd>", head)
    assert re.search(r"<dt>cNDCG@5</dt> <dd>[^<]+\. Higher is better\.</dd>", head)


def test_every_term_is_explained_before_the_first_table(text):
    head = text.split("<main>")[0]
    assert "mean squared disparity of exposure per merit between pairs of items" in head
    assert "<strong>Lower is fairer</strong>" in head
    assert "unfairness grows with the length of a run" in head
    assert "“floor (lowest possible)” in tables. It is rarely zero" in head
    assert re.search(r"With . = 0.995 the weights sum to at most 1/\(1 . .\) = 200, so a run of perfect lists", head)
    assert "<dt>Post-processing</dt> <dd>Relevance is given" in head
    assert "<dt>Online</dt> <dd>Relevance is learnt from clicks" in head
    assert "<dt>FairCo</dt> <dd>Rank by relevance plus" in head


def test_terms_follow_the_settings(results, written):
    """Other discounts end elsewhere, and a setting that is not there is not explained."""
    experiment = msgspec.structs.replace(TABLE, settings=({"gamma": 0.9}, {"gamma": 1.0}))
    page = re.sub(r"\s+", " ", written(replace(results, experiments=(experiment,))))
    assert re.search(r"With . = 0.9 the weights sum to at most 1/\(1 . .\) = 10", page)
    assert re.search(r"With . = 1 nothing is discounted, so a run of perfect lists ends at its number of", page)
    assert "<dt>Online</dt>" not in page
    assert "There are no runs on mq2008-like." in page


# --- the paper's figures ---------------------------------------------------------------------------------------------


def test_deviations_are_hidden_where_the_papers_figures_do_not_apply(report, text):
    assert "The paper's figures are for another data set or longer runs; deviations are not shown." in text
    rows = cells(report.parent / "tables" / "table1.md")
    assert not any("deviation" in name for name in rows[0])
    assert column(rows, "paper: unfairness (std)")["FairCo"] == "30 (0.5)"
    assert column(cells(report.parent / "tables" / "table1-details.md"), "paper: s per 1,000 lists")["TopK"] == "0.5"


def test_deviations_are_shown_where_they_apply(results, tmp_path, written):
    page = written(only(results, TABLE, as_published=True))
    rows, details = (cells(tmp_path / "tables" / f"{name}.md") for name in ("table1", "table1-details"))
    u = view_of(results).curves[0].points[0].mean("unfairness")
    assert float(column(rows, "deviation in the paper's std")["TopK"]) == pytest.approx((u - 100) / 2, abs=0.51)
    assert float(column(details, "deviation, %")["TopK"]) == pytest.approx(u - 100, abs=0.51)
    assert column(rows, "deviation in the paper's std")["MCFair again"] == NOTHING
    assert "another data set" not in page
    # What is far from the paper shows its note, or that there is none; what is near shows no distance.
    text = (tmp_path / "tables" / "table1.md").read_text(encoding="utf-8")
    assert re.search(r"of the paper's standard deviations (above|below) its mean. It has its reasons.", text)
    assert re.search(r"of the paper's standard deviations (above|below) its mean. No reason is recorded.", text)
    assert len(re.findall(r"its mean\.", text)) == 2
    assert "1 of 3 methods are within one of the paper's standard deviations" in page


# --- any metric ------------------------------------------------------------------------------------------------------


def test_named_metrics_have_columns(results, report, tmp_path, written):
    rows = cells(report.parent / "tables" / "table1.md")
    assert rows[0][-2:] == ["Gini", "group unfairness"]  # cNDCG@5 is there already
    setting = TABLE.conditions[0]
    for label, metric in (("Gini", "gini"), ("group unfairness", "group_unfairness")):
        for method, policy in (("TopK", "TopK"), ("FairCo", "FairCo(alpha=1000)")):
            values = results.of("mq2008-like", setting, mf.parse_policy(policy))[metric]
            assert column(rows, label)[method] == format_spread(values)
    written(only(replace(results, runs=results.runs.drop("gini")), TABLE))
    rows = cells(tmp_path / "tables" / "table1.md")
    assert column(rows, "Gini")["TopK"] == NOTHING
    named = only(results, TRADEOFF, metrics=TABLE.metrics, settings=({},))  # the runs of the table as a trade-off
    points = points_table(view_of(named), "points", "All points")
    assert list(points.columns[-2:]) == ["Gini (std)", "group unfairness (std)"]


# --- edges -----------------------------------------------------------------------------------------------------------


def test_odd_experiments(odd):
    page = odd.read_text(encoding="utf-8")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "_β &amp; &lt;b&gt;" in page
    assert "Differences from the paper" not in page
    names = {file.name for file in (odd.parent / "tables").iterdir()}
    assert {"b-odd-b-100-points.md", "alone.md", "alone-mq2008-like-values.md"} <= names
    points = cells(odd.parent / "tables" / "b-odd-b-100-points.md")
    assert [row[0] for row in points[1:]] == ["_β & <b>", "_β & <b>", "100 % | $a_b$ 漢"]


def test_one_seed_has_no_spread(odd):
    rows = cells(odd.parent / "tables" / "alone.md")
    assert rows[0] == ["method", "unfairness", "above the floor, %", "cNDCG@1", "cNDCG@5"]
    assert re.fullmatch(r"[\d.]+", column(rows, "unfairness")["TopK"])
    for path in (odd.parent / "tables").glob("*.md"):
        assert not re.search(r"\(0\.?0*\)", path.read_text(encoding="utf-8")), path.name
    assert "There is one seed, so the spread over seeds is unknown." in odd.read_text(encoding="utf-8")
    details = cells(odd.parent / "tables" / "alone-details.md")
    assert not any("interval" in name for name in details[0])


def test_several_policies_of_a_series_have_rows_of_their_own(results, tmp_path, written):
    experiment = msgspec.structs.replace(TRADEOFF, show="table", name="mine", compare_with="")
    page = written(replace(results, experiments=(experiment,)))
    rows = cells(tmp_path / "tables" / "mine-online.md")
    names = [row[0] for row in rows[2:]]
    assert names[:2] == ["TopK", "FairCo(alpha=0.0)"]
    assert len(set(names)) == len(names) == 9
    lowest, second = sorted(names, key=lambda name: float(column(rows, "unfairness (std)")[name].split()[0]))[:2]
    assert re.search(rf"{re.escape(lowest)} has the lowest mean unfairness, .*; {re.escape(second)} is next", page)


def test_no_runs_and_no_limits(results, tmp_path, written):
    """Results cut short are still shown."""
    empty = replace(results, experiments=(TABLE, msgspec.structs.replace(CUTOFFS, data=("elsewhere",))),
                    limits=pl.DataFrame(), frontier=pl.DataFrame(), times=results.times.clear())  # fmt: skip
    assert "There are no runs on elsewhere." in written(empty)
    rows = cells(tmp_path / "tables" / "table1.md")
    assert rows[1][0] == "TopK"
    assert "above the floor, %" not in rows[0]
