"""The page on the architecture names every package, and nothing that does not exist."""

import re

from page_blocks import ROOT

PACKAGE = ROOT / "src" / "mcfair"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
LAYERS = PAGE.split("## Layers")[1].split("## ")[0]


def test_no_package_is_missing_and_none_is_gone():
    folders = {path.parent for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"}
    packages = {f"{each.relative_to(PACKAGE).as_posix()}/" if each != PACKAGE else "mcfair" for each in folders}
    assert set(re.findall(r"^\| `([\w/]+)` \|", LAYERS, flags=re.MULTILINE)) == packages


def test_the_modules_that_are_named_exist():
    (row,) = re.findall(r"^\| `mcfair` \|(.*)$", LAYERS, flags=re.MULTILINE)
    for name in re.findall(r"`(\w+)`", row):
        assert (PACKAGE / f"{name}.py").exists(), name
