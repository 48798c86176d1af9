"""CITATION.cff is what tools that read it expect, and names the version of the package."""

import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
PAPER = CITATION["preferred-citation"]


def test_the_required_keys_are_there():
    assert CITATION["cff-version"] == "1.2.0"
    assert CITATION.keys() >= {"message", "title", "authors"}  # required by the format
    assert PAPER.keys() >= {"type", "title", "authors"}


def test_the_version_and_the_licence_are_those_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert CITATION["version"] == project["version"]
    assert CITATION["license"] == project["license"]
    assert CITATION["keywords"] == project["keywords"]


def test_the_readme_cites_the_same_paper():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    names = " and ".join(f"{each['family-names']}, {each['given-names']}" for each in PAPER["authors"])
    pages = f"{PAPER['start']}--{PAPER['end']}"
    for figure in (names, PAPER["title"], str(PAPER["year"]), pages, PAPER["doi"]):
        assert f"{{{figure}}}" in readme, figure
