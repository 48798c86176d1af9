"""The tests that the page on guarantees names exist."""

import ast
import re

import pytest
from page_blocks import ROOT

NAMED = re.findall(
    r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs" / "explanation" / "guarantees.md").read_text(encoding="utf-8")
)


def test_every_guarantee_names_a_test():
    text = (ROOT / "docs" / "explanation" / "guarantees.md").read_text(encoding="utf-8")
    sections = [each for each in re.split(r"^## ", text, flags=re.MULTILINE)[1:] if not each.startswith("What is not")]
    assert len(sections) > 7
    assert [each.splitlines()[0] for each in sections if not re.search(r"`tests/[\w/]+\.py::\w+`", each)] == []


@pytest.mark.parametrize(("file", "name"), NAMED, ids=[name for _, name in NAMED])
def test_the_test_exists(file, name):
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert name in [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
