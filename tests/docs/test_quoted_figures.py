"""Values on the pages are those of the results files, and every results file names the command that made it."""

import json
import re
import sys

import pytest
from page_blocks import ROOT

sys.path.insert(0, str(ROOT / "docs"))

import quoting
from flow_picture import flow
from make_figures import FIGURES
from make_screenshots import SCREENSHOTS

PAGES = list(quoting.pages())
OPENING = re.compile(r"<!-- result:[^\n]*?-->")


def name_of(page):
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_quoted_values_are_those_of_the_results(page):
    text = page.read_text(encoding="utf-8")
    assert quoting.rewritten(text) == text, "run `make figures`"
    assert len(OPENING.findall(text)) == text.count("<!-- /result -->") == len(quoting.MARKED.findall(text))
    for line in text.splitlines():  # Markdown takes a line that begins with a comment for HTML
        assert not re.match(r"\s*(?:[-*]|\d+\.)?\s*<!-- result:.*?-->.+", line), line


@pytest.fixture
def example(monkeypatch, tmp_path):
    found = {
        "floor": {"mean": 22.4833, "above": 0.0088},
        "tables": {"Overload: 500 connections": [{"": "calm", "p50, ms": 2.6}, {"": "busy", "p50, ms": 4.4}]},
        "table": [["method", "value"], ["TopK", 1]],
    }
    (tmp_path / "example.json").write_text(json.dumps(found))
    monkeypatch.setattr(quoting, "RESULTS", tmp_path)
    quoting.results.cache_clear()
    yield
    quoting.results.cache_clear()


def test_a_value_is_found_by_its_path_and_written_in_its_format(example):
    assert quoting.quoted("example > floor > mean : .1f") == "22.5"
    assert quoting.quoted("example > floor > above : .1%") == "0.9 %"
    assert quoting.quoted("example > tables > Overload > busy > p50, ms : g") == "4.4"
    assert quoting.quoted("example > tables > Overload > 0 > p50 : .2f") == "2.60"


def test_a_wrong_value_is_written_again_in_a_line_and_as_a_table(example):
    line = "The floor is <!-- result: example > floor > mean : .1f -->?<!-- /result -->."
    assert quoting.rewritten(line) == line.replace("?", "22.5")
    block = quoting.rewritten("<!-- result: example > table : table -->\nold\n<!-- /result -->\n")
    assert "\n| method | value |\n| --- | --- |\n| TopK | 1 |\n\n" in block
    assert quoting.rewritten(block) == block


@pytest.mark.parametrize(
    "words", ["example > roof : g", "example > tables > Overload > p50, ms : g", "example > t : g"]
)
def test_a_path_that_names_nothing_or_two_things_is_refused(example, words):
    with pytest.raises(KeyError, match=r"names [02] values"):
        quoting.quoted(words)


@pytest.mark.parametrize("file", sorted(quoting.RESULTS.glob("*.json")), ids=lambda file: file.name)
def test_every_results_file_names_the_command_the_date_and_the_version(file):
    made_with = json.loads(file.read_text(encoding="utf-8"))["made_with"]
    assert re.match(r"(mcfair|python (benchmarks|docs|studies/\w+)/\w+\.py)\b", made_with["command"])
    for script in re.findall(r"[\w/]+\.py", made_with["command"]):
        assert (ROOT / script).exists(), script
    assert re.match(r"\d{4}-\d\d-\d\d", made_with["measured"])
    assert re.fullmatch(r"\d+\.\d+\.\d+", made_with["mcfair"])


def test_every_results_file_is_used():
    pages = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    scripts = "".join(each.read_text(encoding="utf-8") for each in (ROOT / "docs").glob("*.py"))
    for file in quoting.RESULTS.glob("*.json"):
        assert f"<!-- result: {file.stem} > " in pages or re.search(rf'\b(results|stored)\("{file.stem}"', scripts), (
            file
        )


# --- pictures --------------------------------------------------------------------------------------------------------


def test_every_picture_is_drawn_by_make_figures_and_small():
    pictures = list((ROOT / "docs" / "figures").iterdir())
    assert {each.name for each in pictures} == {"flow.svg", *(f"{name}.png" for name in FIGURES)}
    for picture in pictures:
        assert picture.stat().st_size < 60_000, picture.name


def test_every_screenshot_is_drawn_by_make_screenshots_and_small():
    pictures = {each.relative_to(ROOT / "docs"): each for each in (ROOT / "docs").rglob("*.png")}
    others = {path.as_posix() for path in pictures if path.parts[0] not in ("figures", "gallery")}
    assert others == SCREENSHOTS.keys()
    for name in others:
        assert (ROOT / "docs" / name).stat().st_size < 150_000, name


def test_the_picture_of_the_flow_is_the_one_that_is_drawn():
    assert (ROOT / "docs" / "figures" / "flow.svg").read_text(encoding="utf-8") == flow()
