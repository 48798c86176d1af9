"""Links, anchors, files, public names, modules and equations on the pages exist."""

import importlib
import re
from pathlib import Path

import pytest
from page_blocks import ROOT, parse_blocks

import mcfair as mf

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")])

LONGEST = 300
"""Lines of a page that is written by hand."""


def relative(path):
    return path.relative_to(ROOT).as_posix()


def text_of(path):
    return path.read_text(encoding="utf-8")


def prose(text):
    """Return a page without its blocks, in which a bracket is no link."""
    for block in parse_blocks(text):
        text = text.replace(block.text, "")
    return text


def anchors(text):
    """Return the anchors of the headings of a page, as code hosts and the site derive them."""
    heads = re.findall(r"^#+ (.*)$", prose(text), flags=re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", head) for head in heads]
    return [re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in plain]


def broken_links(path):
    """Return the links of a page that lead nowhere."""
    broken = []
    for target, anchor in re.findall(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)]*))?\)", prose(text_of(path))):
        file = path.parent / target if target else path
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(text_of(file))):
            broken.append(f"{target}#{anchor}" if anchor else target)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_and_paths_exist(page):
    assert broken_links(page) == []
    if page.name == "CHANGELOG.md":
        return  # it tells of files that were
    for path in re.findall(
        r"`((?:tests|benchmarks|docs|deploy)/[\w-]+(?:/[\w-]+)*\.(?:py|md|yml|conf))`", text_of(page)
    ):
        assert (ROOT / path).exists(), path


def test_broken_links_are_noticed(tmp_path):
    page, other = tmp_path / "page.md", tmp_path / "other.md"
    other.write_text("# Title\n\n## A part, `code`\n")
    page.write_text(
        "[a](other.md#a-part-code) [b](other.md#none) [c](gone.md) [d](#here)\n\n# Here\n\n```text\n[e](f)\n```\n"
    )
    assert broken_links(page) == ["other.md#none", "gone.md"]


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_public_names_exist(page):
    for name in set(re.findall(r"\bmf\.(\w+)", text_of(page))):
        assert hasattr(mf, name), name


@pytest.mark.parametrize("page", [page for page in PAGES if relative(page).startswith("docs/")], ids=relative)
def test_pages_are_short(page):
    written = re.sub(r"<!-- generated.*?<!-- /generated -->", "", text_of(page), flags=re.DOTALL)
    assert len(written.splitlines()) <= LONGEST


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_no_merge_is_left_unfinished(page):
    assert not re.search(r"^(<<<<<<<|>>>>>>>) ", text_of(page), flags=re.MULTILINE)


def test_what_is_public_exists():
    assert all(hasattr(mf, name) for name in mf.__all__)
    assert re.fullmatch(r"\d+\.\d+\.\d+", mf.__version__)


# --- equations -------------------------------------------------------------------------------------------------------


def find(path):
    """Find what a dotted path below `mcfair` names: attributes of the longest part of it that is a module."""
    words = path.split(".")
    for length in range(len(words), 0, -1):
        try:
            found = importlib.import_module(".".join(["mcfair", *words[:length]]))
        except ModuleNotFoundError:
            continue
        for name in words[length:]:
            found = getattr(found, name)
        return found
    raise AttributeError(path)


def equation_map():
    """Return the table of equations, on whatever page it is."""
    heading = "## Where each equation is"
    (page,) = [text for text in map(text_of, PAGES) if heading in text]
    return page.split(heading)[1].split("\n## ")[0]


def test_what_the_equation_map_names_exists():
    named = re.findall(r"`([a-z_]+(?:\.\w+)+)`", equation_map())
    assert len(named) > 15
    for path in named:
        find(path)


def test_the_equation_map_is_complete():
    rows = re.findall(r"^\| (\d[^|]*)", equation_map(), flags=re.MULTILINE)
    numbers = set()
    for first, last in re.findall(r"\b(\d+)(?:\u2013(\d+))?", " ".join(rows)):
        numbers |= set(range(int(first), int(last or first) + 1))
    assert numbers >= set(range(1, 30))


def test_pictures_are_small():
    for picture in Path(ROOT / "docs" / "figures").iterdir():
        assert picture.stat().st_size < 60_000, picture.name
