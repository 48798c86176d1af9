"""The mechanism of quoted figures: pages name them, and `make figures` writes them from docs/results/*.json.

A page quotes measured figures between two comments, as a block or inside a line:

    <!-- figures: demo-table -->
    …
    <!-- /figures -->

    The floor is <!-- figures: table1-floor -->22.483 (0.733)<!-- /figures -->, …

The name is that of a function in `quoted_figures`; words after it are its arguments. A line must not begin with a
comment that has text after it, because Markdown would take the whole line for HTML.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
RESULTS = DOCS / "results"
MARKED = re.compile(r"<!-- figures: (?P<words>[^\n]*?) -->(?P<text>.*?)<!-- /figures -->", re.DOTALL)

Quote = Callable[..., str]
QUOTES: dict[str, Quote] = {}
"""The functions that write quoted figures, by the name that pages use."""


def quoted(name: str) -> Callable[[Quote], Quote]:
    """Register a function as the source of the quoted figures of a name."""

    def register(function: Quote) -> Quote:
        if name in QUOTES:
            raise ValueError(f"two functions write the figures {name!r}")
        QUOTES[name] = function
        return function

    return register


@cache
def results(name: str) -> dict[str, Any]:
    """Read a results file."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def table_of(name: str, title: str) -> list[dict[str, Any]]:
    """Return the rows of the table of a benchmark whose title begins so."""
    (found,) = (rows for head, rows in results(name)["tables"].items() if head.startswith(title))
    return list(found)


def pages() -> Iterator[Path]:
    """Yield the pages that may quote figures."""
    yield DOCS.parent / "README.md"
    yield from sorted(DOCS.rglob("*.md"))


def written(words: str) -> str:
    """Return the text of the figures that a comment names."""
    name, *arguments = words.split()
    if name not in QUOTES:
        raise ValueError(f"unknown figures {name!r}; available: {', '.join(sorted(QUOTES))}")
    return QUOTES[name](*arguments)


def rewritten(page: str) -> str:
    """Return a page with all figures that it quotes written again.

    Text that begins on a line of its own stays there, with an empty line before the closing comment so that it ends a
    table.
    """

    def write(match: re.Match[str]) -> str:
        text = written(match["words"])
        between = f"\n{text}\n\n" if match["text"].startswith("\n") else text
        return f"<!-- figures: {match['words']} -->{between}<!-- /figures -->"

    return MARKED.sub(write, page)


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(each)} |" for each in lines)
