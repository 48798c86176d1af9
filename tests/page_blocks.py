"""The fenced blocks of a Markdown page, and the comments that say how a block is run."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]

EXECUTED = ("python", "console")
NOT_EXECUTED = (
    "sh",
    "yaml",
    "json",
    "ini",
    "toml",
    "csv",
    "text",
    "bibtex",
    "mermaid",
    "promql",
    "dockerfile",
    "nginx",
)
"""Languages of blocks that are read by people alone, unless a comment `file:` has them written to a file."""

MAY_USE_DIRECTIVES = ("docs/index.md", "docs/reference/", "docs/glossary.md", "docs/gallery/index.md")
"""Pages that are read on the site; all others must read well on a code host, too."""

FENCE = re.compile(r"^(?P<indent> *)(?P<marks>`{3,})(?P<language>[^`]*)$")
COMMENT = re.compile(r"^ *<!-- (?P<name>not run|needs|file): (?P<value>.+?) -->$")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, text and the number of the line that follows its fence."""

    language: str
    text: str
    line: int
    comments: dict[str, str]
    follows: int | None = None
    """Line of the block that this one stands directly after, with nothing but empty lines between."""


def find_pages(root=ROOT):
    """Return README.md, CONTRIBUTING.md and the pages below docs/ that are written by hand, by their path."""
    found = [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))]
    paths = [path.relative_to(root).as_posix() for path in found]
    return [path for path in paths if not path.startswith("docs/reference/api/")]  # a build of the site writes those


def parse_blocks(text):
    """Return the blocks of a page in order.

    Raises
    ------
    ValueError
        A fence that is not closed, or a comment for the runner that no block follows.
    """
    blocks, comments, last = [], {}, None
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if fence := FENCE.match(line):
            first, closing = number, fence["marks"]
            while number < len(lines) and lines[number].strip() != closing:
                number += 1
            if number == len(lines):
                raise ValueError(f"line {first}: the fence is not closed")
            indent = len(fence["indent"])
            content = "".join(f"{each[indent:]}\n" for each in lines[first:number])
            blocks.append(Block(fence["language"].strip(), content, first + 1, comments, last))
            number += 1
            last, comments = first + 1, {}
        elif comment := COMMENT.match(line):
            comments = comments | {comment["name"]: comment["value"]}
        elif line.strip():
            if comments:
                raise ValueError(f"line {number}: a block must follow the comment {sorted(comments)}")
            last = None
    if comments:
        raise ValueError(f"line {number}: a block must follow the comment {sorted(comments)}")
    return blocks


def check_languages(page, blocks):
    """Raise ValueError for a block that would be skipped in silence: neither executed nor meant to be read only."""
    for block in blocks:
        if block.language.startswith("{"):
            if not page.startswith(MAY_USE_DIRECTIVES):
                raise ValueError(f"{page}:{block.line}: a directive, which code hosts show as it is: {block.language}")
        elif block.language not in (*EXECUTED, *NOT_EXECUTED):
            allowed = ", ".join((*EXECUTED, *NOT_EXECUTED))
            raise ValueError(f"{page}:{block.line}: a block of {block.language or 'no language'!r}; allowed: {allowed}")
