"""Figures on the pages are those of the results files, and every results file names the command that made it."""

import json
import re
import sys
from pathlib import Path

import pytest
from page_constants import PAGE_CONSTANTS

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "docs"))

from flow_picture import flow  # noqa: E402
from make_figures import FIGURES  # noqa: E402
from make_screenshots import SCREENSHOTS  # noqa: E402
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


def test_every_screenshot_is_drawn_by_make_screenshots_and_small():
    pictures = {each.relative_to(ROOT / "docs"): each for each in (ROOT / "docs").rglob("*.png")}
    others = {path.as_posix() for path in pictures if path.parts[0] not in ("figures", "gallery")}
    assert others == SCREENSHOTS.keys()
    for name in others:
        assert (ROOT / "docs" / name).stat().st_size < 150_000, name


def test_the_picture_of_the_flow_is_the_one_that_is_drawn():
    assert (ROOT / "docs" / "figures" / "flow.svg").read_text(encoding="utf-8") == flow()


# --- figures that were typed -----------------------------------------------------------------------------------------

FOLDERS = ("how-to", "explanation", "tutorial")
PROSE = [each for each in PAGES if each.name == "README.md" or each.parent.name in FOLDERS]

# Code, texts of pictures, addresses, comments, the usual words of statistics, and versions.
NOT_MEASURED = re.compile(
    r"```.*?```|`[^`]*`|!\[[^\]]*\]|\]\([^)]*\)|<!--.*?-->|95 % (?:bootstrap|intervals?)|hold 95 %|power of 80 %|"
    r"p < 0\.\d+|\d+(?:\.\d+){2,}|HTTP/\d\.\d|"
    r"(?:Python|NumPy|LETOR|OpenSearch|Elasticsearch|From|haystack-ai|cohere)(?: ≥)?(?:,? (?:to |and )?\d+(?:\.\d+)+)+",
    re.DOTALL,
)
MEASURED = re.compile(
    r"\d[\d,]*(?:\.\d+)?\s?(?:%|µs|ms|s of CPU|MB|GB|TB|bytes|lists/s|events/s|times (?:as|faster))|"
    r"\d[\d,]*\.\d+|(?<![\w.])\.\d+",
    re.ASCII,
)
BLOCK, NUMBER = re.compile(r"```.*?```", re.DOTALL), re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?")


def typed_figures(text):
    """Return the figures in sentences that are neither marked nor, with a decimal point, in a block of the page.

    Blocks are run, and an output that has changed is found there.
    """
    shown = [float(each.replace(",", "")) for block in BLOCK.findall(text) for each in NUMBER.findall(block)]
    found = MEASURED.findall(NOT_MEASURED.sub(" ", MARKED.sub(" ", text)))
    return [each for each in found if not is_rounded(each, shown)]


def is_rounded(figure, numbers):
    """Return whether a figure has a decimal point and is one of some numbers, rounded to its digits."""
    text = re.match(r"[\d,.]+", figure)[0].replace(",", "")
    digits = len(text.partition(".")[2])
    return digits > 0 and text in {f"{each:.{digits}f}" for each in numbers}


@pytest.mark.parametrize("page", PROSE, ids=name_of)
def test_no_measured_figure_is_typed(page):
    typed, constants = set(typed_figures(page.read_text(encoding="utf-8"))), set(PAGE_CONSTANTS.get(name_of(page), ()))
    assert typed - constants == set(), "quote it from docs/results, or add it to tests/page_constants.py"
    assert constants - typed == set(), "remove it from tests/page_constants.py"


def test_typed_figures_are_found():
    assert typed_figures("It takes 0.15 µs.\n\n1,800 lists/s and 4 % more, at `alpha=0.5`, with Python 3.11") == [
        *("0.15 µs", "1,800 lists/s", "4 %"),
    ]
    assert (
        typed_figures("It takes <!-- figures: speed -->0.15 µs<!-- /figures -->; `0.2`, five seeds, 10,000 steps") == []
    )


def test_figures_of_a_block_may_be_written_about():
    page = "```text\nNDCG 0.9114, 13.1 %\n```\n\n"
    assert typed_figures(f"{page}It is 0.911, and 13.1 % of it.") == []
    assert typed_figures(f"{page}It is 0.912, and 13 % of it.") == ["0.912", "13 %"]
