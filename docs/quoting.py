"""Values of docs/results/*.json on the pages: `python docs/quoting.py` writes them again, and a test compares them.

A page quotes a value between two comments, in a line or, for a table, on lines of its own:

    The floor is <!-- result: table1 > floor > mean : .3f -->22.483<!-- /result -->, …

    <!-- result: table1 > table : table -->
    …
    <!-- /result -->

The first word is the file, in docs/results unless it names a folder; each further one is a key, the beginning of one,
an index, or a text in the row of a list that is meant. After the colon stands a format of Python, or `table` for a list
of rows. A line must not begin with a comment that has text after it, because Markdown would take the whole line for
HTML.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
RESULTS = DOCS / "results"
MARKED = re.compile(r"<!-- result: (?P<words>[^\n]*?) -->(?P<text>.*?)<!-- /result -->", re.DOTALL)


@cache
def results(name: str) -> Any:
    """Read a results file: one of docs/results, or one of the repository by its path."""
    folder = DOCS.parent if "/" in name else RESULTS
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


def step(value: Any, word: str) -> Any:
    """Return what a word of a path names in an object or a list.

    Raises
    ------
    KeyError
        It names nothing, or more than one thing.
    """
    if isinstance(value, dict):
        found = [word] if word in value else [key for key in value if key.startswith(word)]
    elif word.isdigit():
        found = [int(word)] if int(word) < len(value) else []
    else:
        found = [i for i, row in enumerate(value) if word in (row.values() if isinstance(row, dict) else row)]
    if len(found) != 1:
        raise KeyError(f"{word!r} names {len(found)} values")
    return value[found[0]]


def quoted(words: str) -> str:
    """Return the text of the value that a comment names."""
    path, _, form = words.rpartition(" : ")
    name, *rest = path.split(" > ")
    value = results(name)
    for word in rest:
        value = step(value, word)
    if form == "table":
        head, *rows = value
        return "\n".join(f"| {' | '.join(map(str, each))} |" for each in [head, ["---"] * len(head), *rows])
    return format(value, form).replace("%", " %")


def rewritten(page: str) -> str:
    """Return a page with all values that it quotes written again."""

    def write(match: re.Match[str]) -> str:
        text = quoted(match["words"])
        between = f"\n{text}\n\n" if match["text"].startswith("\n") else text  # an empty line ends a table
        return f"<!-- result: {match['words']} -->{between}<!-- /result -->"

    return MARKED.sub(write, page)


def pages() -> Iterator[Path]:
    """Yield the pages that may quote values."""
    yield DOCS.parent / "README.md"
    yield from sorted(DOCS.rglob("*.md"))


def main() -> None:
    """Write all quoted values again."""
    for page in pages():
        old = page.read_text(encoding="utf-8")
        new = rewritten(old)
        if new != old:
            page.write_text(new, encoding="utf-8")
            print(page, flush=True)


if __name__ == "__main__":
    main()
