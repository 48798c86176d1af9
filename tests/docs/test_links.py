"""Links, anchors, files, public names, modules and equations on the pages exist."""

import importlib
import re
import sys
from functools import cache

import pytest
from page_blocks import ROOT, find_pages, parse_blocks

import mcfair as mf

sys.path.insert(0, str(ROOT / "docs"))
import make_reference

PAGES = sorted(
    [
        *(ROOT / page for page in find_pages()),
        *ROOT.glob("*.md"),
        *ROOT.glob("benchmarks/*.md"),
        *ROOT.glob("studies/**/*.md"),
    ]
)
PAGES = list(dict.fromkeys(PAGES))


def relative(path):
    return path.relative_to(ROOT).as_posix()


@cache
def text_of(path):
    """Return a page as it is on the site: those of the reference with what is generated."""
    text = path.read_text(encoding="utf-8")
    return make_reference.completed(text) if path.parent == make_reference.REFERENCE else text


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


def is_generated(path):
    """Return whether a page is generated as a whole, so that it is on the site alone."""
    folder = make_reference.REFERENCE
    return path.is_relative_to(folder) and path.relative_to(folder).as_posix() in make_reference.api_pages()


def broken_links(path):
    """Return the links of a page that lead nowhere."""
    broken = []
    for target, anchor in re.findall(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)]*))?\)", prose(text_of(path))):
        file = path.parent / target if target else path
        if is_generated(file):
            continue
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
