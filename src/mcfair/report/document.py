"""The document under construction: sections of blocks that the templates render, and the files beside the page."""

from __future__ import annotations

import dataclasses
import re
from typing import Literal

from ..experiments.results import Results
from .figures import Picture
from .markup import Table

__all__ = ["Block", "Document", "Report", "Section"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Block:
    """One element of a section; the template of its kind renders it."""

    kind: Literal["paragraph", "heading", "list", "table", "figure", "details"]
    text: str = ""
    items: tuple[str, ...] = ()
    table: Table | None = None
    picture: Picture | None = None
    blocks: tuple[Block, ...] = ()


@dataclasses.dataclass(frozen=True)
class Section:
    """A section of the page."""

    anchor: str
    title: str
    blocks: tuple[Block, ...] = ()
    template: str = ""


@dataclasses.dataclass(kw_only=True)
class Document:
    """A page under construction."""

    sections: list[Section] = dataclasses.field(default_factory=list)
    findings: list[str] = dataclasses.field(default_factory=list)
    notes: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    tables: list[Table] = dataclasses.field(default_factory=list)
    pictures: list[Picture] = dataclasses.field(default_factory=list)
    names: set[str] = dataclasses.field(default_factory=set)

    def unique_name(self, *parts: str) -> str:
        """Return a name for files and anchors built from any words, unlike all before it."""
        word = re.sub(r"[^a-z0-9]+", "-", "-".join(part for part in parts if part).lower()).strip("-") or "part"
        chosen, i = word, 2
        while chosen in self.names:
            chosen, i = f"{word}-{i}", i + 1
        self.names.add(chosen)
        return chosen

    def add_table(self, table: Table) -> Block:
        """Register a table for the files beside the page, under a unique name, and return its block."""
        named = dataclasses.replace(table, name=self.unique_name(table.name))
        self.tables.append(named)
        return Block(kind="table", table=named)

    def add_picture(self, picture: Picture, caption: str) -> Block:
        """Register a figure for the files beside the page, and return its block."""
        self.pictures.append(picture)
        return Block(kind="figure", picture=picture, text=caption)

    def as_markdown(self, title: str, introduction: str) -> str:
        """Return the page as Markdown: its introduction, findings, and the sections without figures."""
        lines = [f"# {title}", "", introduction, ""]
        lines += [f"- {each}" for each in self.findings]
        for section in self.sections:
            lines += ["", f"## {section.title}", ""]
            for block in section.blocks:
                lines += [*block_lines(block), ""]
        return "\n".join(lines).rstrip() + "\n"


def block_lines(block: Block) -> list[str]:
    """Return the lines of a block as Markdown."""
    if block.kind == "list":
        return [f"- {each}" for each in block.items]
    if block.table is not None:
        return [block.table.as_markdown().rstrip()]
    return [f"### {block.text}" if block.kind == "heading" else block.text]


@dataclasses.dataclass
class Report(Document):
    """The report of experiments under construction."""

    results: Results
