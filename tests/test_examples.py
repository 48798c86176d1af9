"""The examples in docstrings print what stands below them."""

import doctest
import importlib
from pathlib import Path

import pytest

import mcfair as mf

PACKAGE = Path(mf.__file__).parent
WITH_EXAMPLES = sorted(
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_examples_are_right(module):
    assert doctest.testmod(importlib.import_module(module)).failed == 0
