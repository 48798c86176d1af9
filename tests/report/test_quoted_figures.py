"""Figures on the pages are those of the results files, and every results file names the command that made it."""

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "docs"))

from flow_picture import flow  # noqa: E402
from make_figures import FIGURES  # noqa: E402
from quoted_figures import QUOTES, pages, rewritten, written  # noqa: E402
from quoting import MARKED, RESULTS  # noqa: E402

PAGES = list(pages())
OPENING = re.compile(r"<!-- figures:[^\n]*?-->")


def name_of(page):
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_quoted_figures_are_those_of_the_results(page):
    text = page.read_text(encoding="utf-8")
    assert rewritten(text) == text, "run `make figures`"
    assert len(OPENING.findall(text)) == text.count("<!-- /figures -->") == len(MARKED.findall(text))
    for line in text.splitlines():  # Markdown takes a line that begins with a comment for HTML
        assert not re.match(r"\s*(?:[-*]|\d+\.)?\s*<!-- figures:.*?-->.+", line), line


def test_a_wrong_figure_is_found_and_written_again():
    right = rewritten("The floor is <!-- figures: table1-floor -->?<!-- /figures -->.")
    assert right == f"The floor is <!-- figures: table1-floor -->{written('table1-floor')}<!-- /figures -->."
    assert rewritten(right.replace("22.", "23.")) == right
    block = rewritten("<!-- figures: table1 -->\nold\n<!-- /figures -->\n")
    assert "| MCFair | **22.68** (0.735) |" in block
    assert rewritten(block) == block


def test_all_figures_that_can_be_quoted_are_quoted():
    named = {words.split()[0] for page in PAGES for words, _ in MARKED.findall(page.read_text(encoding="utf-8"))}
    assert named == QUOTES.keys()


def test_unknown_figures_are_refused():
    with pytest.raises(ValueError, match=r"unknown figures 'no-such'; available: .*table1"):
        rewritten("<!-- figures: no-such -->1<!-- /figures -->")


@pytest.mark.parametrize("file", sorted(RESULTS.glob("*.json")), ids=lambda file: file.name)
def test_every_results_file_names_the_command_the_date_and_the_version(file):
    made_with = json.loads(file.read_text(encoding="utf-8"))["made_with"]
    assert re.match(r"(mcfair|python (benchmarks|docs)/\w+\.py)\b", made_with["command"])
    for script in re.findall(r"\w+/\w+\.py", made_with["command"]):
        assert (ROOT / script).exists(), script
    assert re.match(r"\d{4}-\d\d-\d\d", made_with["measured"])
    assert re.fullmatch(r"\d+\.\d+\.\d+", made_with["mcfair"])


def test_every_results_file_is_quoted():
    sources = [each.read_text(encoding="utf-8") for each in (ROOT / "docs").glob("*.py") if each.name != "measure.py"]
    for file in RESULTS.glob("*.json"):
        assert any(re.search(rf'(results|table_of)\("{file.stem}"', each) for each in sources), file.name


# --- pictures --------------------------------------------------------------------------------------------------------


def test_every_picture_is_drawn_by_make_figures_and_small():
    pictures = list((ROOT / "docs" / "figures").iterdir())
    assert {each.name for each in pictures} == {"flow.svg", *(f"{name}.png" for name in FIGURES)}
    for picture in pictures:
        assert picture.stat().st_size < 60_000, picture.name


def test_the_picture_of_the_flow_is_the_one_that_is_drawn():
    assert (ROOT / "docs" / "figures" / "flow.svg").read_text(encoding="utf-8") == flow()


# --- figures that were typed -----------------------------------------------------------------------------------------

QUOTING = [
    *("README.md", "docs/explanation/past-the-paper.md", "docs/explanation/bayesfair.md"),
    *("docs/explanation/guarantees.md", "docs/explanation/scaling.md"),
]
"""Pages that quote most figures: every figure on these is marked, or stands in code because it is a parameter."""

# Code, texts of pictures, addresses, comments, and the usual words of statistics.
NOT_MEASURED = re.compile(
    r"```.*?```|`[^`]*`|!\[[^\]]*\]|\]\([^)]*\)|<!--.*?-->|Python ≥ \d\.\d+|95 % intervals|power of 80 %", re.DOTALL
)
MEASURED = re.compile(
    r"\d[\d,]*\.\d+|(?<![\w.])\.\d+|\d[\d,.]*\s?(?:%|µs|ms|MB|GB|TB|lists/s|events/s|times (?:as|faster))", re.ASCII
)


def typed_figures(text):
    return MEASURED.findall(NOT_MEASURED.sub(" ", MARKED.sub(" ", text)))


@pytest.mark.parametrize("page", QUOTING)
def test_no_measured_figure_is_typed(page):
    assert typed_figures((ROOT / page).read_text(encoding="utf-8")) == [], "quote it from docs/results"


def test_typed_figures_are_found():
    assert typed_figures("It takes 0.15 µs.\n\n1,800 lists/s and 4 % more, at `alpha=0.5`") == [
        "0.15",
        "1,800 lists/s",
        "4 %",
    ]
    assert (
        typed_figures("It takes <!-- figures: speed -->0.15 µs<!-- /figures -->; `0.2`, five seeds, 10,000 steps") == []
    )
