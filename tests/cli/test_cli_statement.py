"""The command `mcfair statement`."""

import json
import re

import pytest
from command_line import refused, run

from mcfair.service.ranker import Ranker


@pytest.fixture
def store(tmp_path):
    path = f"sqlite:///{tmp_path / 'shop.db'}"
    with Ranker(path, policy="MCFair(alpha=2, beta=0)", warm=False, fit_interval=0) as ranker:
        for visit in range(12):
            answer = ranker.rank(f"q{visit % 2}", list("abcd"), k=2)
            ranker.click(answer.impression, answer.items[0].id)
    return path


def test_the_page_the_markdown_and_the_data_agree(store, tmp_path):
    out = tmp_path / "statement"
    text = run("statement", "--store", store, "--out", str(out)).stdout
    found = json.loads(run("statement", "--store", store, "--json").stdout)
    page, markdown = (out / "index.html").read_text(), (out / "statement.md").read_text()
    assert text.endswith(f"\n{out / 'index.html'}\n")
    assert found["sampled"] == found["decisions"] == 12
    assert {each["part"] for each in found["parts"]} == {"relevance", "fairness"}
    for written in (page.replace("\N{NO-BREAK SPACE}", " "), markdown, text):
        assert "Measured on 12 of 12 decisions, for 2 queries." in written
        for each in found["parts"]:
            assert f"{100 * each['lists_changed']['value']:.1f} %" in written
    for written in (page, markdown):
        for words in ("Digital Services Act", "no legal advice", "MCFair(alpha=2.0", "Relevance", "Fairness"):
            assert words in written
        assert "Exploration" not in written.replace("exploration and the guard", "")
    assert not re.findall(r"(?:src|href)=\"(?!#|tables/|figures/|data:)", page)


def test_odd_periods_and_empty_stores_are_refused(store, tmp_path):
    assert "expected a date" in refused("statement", "--store", store, "--since", "yesterday")
    assert "after since" in refused("statement", "--store", store, "--since", "2026-02-01", "--until", "2026-01-01")
    assert "no decisions in this period" in refused("statement", "--store", store, "--until", "1999-01-01")
    assert "does not exist" in refused("statement", "--store", f"sqlite:///{tmp_path / 'none.db'}")
