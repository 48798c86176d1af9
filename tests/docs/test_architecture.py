"""The page on the architecture names every module of every package, once, and nothing that does not exist."""

import re

import pytest
from page_blocks import ROOT

PACKAGE = ROOT / "src" / "mcfair"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
LAYERS = PAGE.split("## Layers")[1].split("## ")[0]
FOLDERS = sorted({path.parent for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"})


def first_cell(folder):
    return f"{folder.relative_to(PACKAGE).as_posix()}/" if folder != PACKAGE else "mcfair"


def test_no_package_is_missing_and_none_is_gone():
    named = set(re.findall(r"^\| `([\w/]+)` \|", LAYERS, flags=re.MULTILINE))
    assert named == {first_cell(folder) for folder in FOLDERS}


@pytest.mark.parametrize("folder", FOLDERS, ids=first_cell)
def test_every_module_is_named_once(folder):
    rows = re.findall(rf"^\| `{first_cell(folder)}` \|(.*)$", LAYERS, flags=re.MULTILINE)
    named = re.findall(r"`(\w+)`", " ".join(rows))
    assert sorted(named) == sorted(path.stem for path in folder.glob("*.py") if path.name != "__init__.py")


def test_the_page_is_short():
    assert len(PAGE.splitlines()) <= 250
