"""Blocks of a how-to page, run or read by the tests of what the page is about."""

import re
from pathlib import Path

from page_blocks import parse_blocks

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
ADDRESS = "http://127.0.0.1:8000"
"""Address of the service on the pages."""


def sections(name):
    """Return the text of each section of a page by its heading."""
    _, *parts = re.split(r"^## (.+)\n", (PAGES / name).read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def blocks(text, language):
    """Return the fenced blocks of a language."""
    return [block.text for block in parse_blocks(text) if block.language == language]
