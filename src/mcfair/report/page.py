"""Pages: sections of text, tables and figures in one file that needs no other, and the tables and figures as files."""

from __future__ import annotations

import base64
import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..errors import needs_extra
from ..tables import Table, tie, visible
from .figures import Picture, draw

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True, kw_only=True)
class Block:
    """One element of a section; the template of its kind renders it."""

    kind: Literal["paragraph", "heading", "list", "table", "figure", "details"]
    text: str = ""
    items: tuple[str, ...] = ()
    table: Table | None = None
    picture: Picture | None = None
    blocks: tuple[Block, ...] = ()


def paragraph(text: str) -> Block:
    """Return a paragraph."""
    return Block(kind="paragraph", text=text)


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

    def section(self, anchor: str, title: str, *blocks: Block | Table | str, template: str = "") -> None:
        """Append a section of paragraphs, tables and other blocks."""
        shown = tuple(
            paragraph(each) if isinstance(each, str) else self.add_table(each) if isinstance(each, Table) else each
            for each in blocks
        )
        self.sections.append(Section(self.unique_name(anchor), title, shown, template))

    def add_details(self, summary: str, *tables: Table) -> Block:
        """Register tables that are shown on demand, and return the block of all of them."""
        return Block(kind="details", text=summary, blocks=tuple(map(self.add_table, tables)))

    def add_picture(self, picture: Picture, caption: str) -> Block:
        """Register a figure for the files beside the page, and return its block."""
        self.pictures.append(picture)
        return Block(kind="figure", picture=picture, text=caption)

    def draw(self, name: str, alt: str, caption: str, figure: Callable[[bool], Figure]) -> Block:
        """Draw the wide and the narrow version of a figure, and return its block.

        Parameters
        ----------
        name
            Stem of its file names, made unique.
        alt, caption
            What it shows, for those who do not see it; and the text below.
        figure
            Draws one version; its argument is whether that is the narrow one.
        """
        return self.add_picture(draw(figure, self.unique_name(name), alt), caption)

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


# --- files -----------------------------------------------------------------------------------------------------------


def check_libraries() -> None:
    """Raise an error that says how to install what pages and figures need, if it is missing."""
    for library in ("jinja2", "matplotlib"):
        needs_extra(library, "report")


def create_folders(target: Path) -> None:
    """Create the folders of a page, so that one that cannot be written or drawn fails before the work."""
    check_libraries()
    for place in ("figures", "tables"):
        (target / place).mkdir(parents=True, exist_ok=True)


def write_document(document: Document, html: str, target: Path) -> Path:
    """Write a page, and its figures and tables as files beside it."""
    for picture in document.pictures:
        (target / "figures" / f"{picture.name}.png").write_bytes(picture.png)
        (target / "figures" / f"{picture.name}.pdf").write_bytes(picture.pdf)
    for table in document.tables:
        (target / "tables" / f"{table.name}.md").write_text(table.as_markdown(), encoding="utf-8", newline="\n")
        (target / "tables" / f"{table.name}.tex").write_text(table.as_latex(), encoding="utf-8", newline="\n")
    page = target / "index.html"
    page.write_text(html, encoding="utf-8", newline="\n")
    return page


def render_template(name: str, **values: Any) -> str:
    """Render a page through its template; CSS and figures are embedded."""
    jinja2 = needs_extra("jinja2", "report")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__, ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=lambda value: visible(value) if type(value) is str else value,  # ids of logs; markup is another type
    )
    environment.filters |= {"data_uri": data_uri, "tie": tie}
    page: str = environment.get_template(f"templates/{name}").render(**values)
    return page


def data_uri(svg: bytes) -> str:
    """Encode an SVG image for the src attribute of an image."""
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"
