"""A table of text cells, written as Markdown and LaTeX; the page renders the same table through its template."""

from __future__ import annotations

import dataclasses
import re

__all__ = ["Table", "latex", "markdown"]

LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}",
    "†": r"$^\dagger$", "‡": r"$^\ddagger$", "\N{EN DASH}": "--", "\N{MINUS SIGN}": "$-$", "±": r"$\pm$",
    "\N{MULTIPLICATION SIGN}": r"$\times$", "·": r"$\cdot$", "∝": r"$\propto$", "≤": r"$\leq$", "≥": r"$\geq$",
    "∞": r"$\infty$", "…": r"\ldots{}", "\N{GREEK SMALL LETTER ALPHA}": r"$\alpha$", "β": r"$\beta$",
    "\N{GREEK SMALL LETTER GAMMA}": r"$\gamma$", "ε": r"$\varepsilon$", "λ": r"$\lambda$", "Δ": r"$\Delta$",
}  # fmt: skip
LATEX_TABLE = str.maketrans(LATEX)


def latex(text: str) -> str:
    """Escape text for LaTeX."""
    return " ".join(text.split()).translate(LATEX_TABLE)


def markdown(text: str) -> str:
    """Escape text for a cell of a Markdown table."""
    return re.sub(r"([\\`*_{}\[\]<>&|~#])", r"\\\1", " ".join(text.split()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of text under column names.

    Parameters
    ----------
    name
        Stem of its file names.
    caption, columns, rows
        Its content.
    lead, notes
        Sentences above and below.
    text_columns
        Number of columns from the left that hold text; the others hold numbers and are aligned to the right.
    tooltips
        Text shown when the pointer is over a cell, by row and column.
    row_classes
        CSS classes of rows that stand out.
    """

    name: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    lead: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    text_columns: int = 1
    tooltips: dict[tuple[int, int], str] = dataclasses.field(default_factory=dict)
    row_classes: dict[int, str] = dataclasses.field(default_factory=dict)

    def as_markdown(self) -> str:
        """Return the table as Markdown."""
        rule = [":--" if i < self.text_columns else "--:" for i in range(len(self.columns))]
        lines = [f"**{markdown(self.caption)}**", ""]
        for sentence in self.lead:
            lines += [markdown(sentence), ""]
        lines += [markdown_row(self.columns), "| " + " | ".join(rule) + " |"]
        lines += [markdown_row(row) for row in self.rows]
        for note in self.notes:
            lines += ["", markdown(note)]
        return "\n".join(lines) + "\n"

    def as_latex(self) -> str:
        """Return the table as LaTeX, for the package booktabs."""
        align = "".join("l" if i < self.text_columns else "r" for i in range(len(self.columns)))
        lines = [r"\begin{table}", r"\centering\footnotesize\setlength{\tabcolsep}{3pt}"]
        lines += [rf"\caption{{{latex(' '.join((self.caption + '.', *self.lead)))}}}"]
        lines += [rf"\begin{{tabular}}{{{align}}}", r"\toprule", latex_row(self.columns), r"\midrule"]
        lines += [latex_row(row) for row in self.rows]
        lines += [r"\bottomrule", r"\end{tabular}"]
        lines += [rf"\par\smallskip {latex(note)}" for note in self.notes]
        return "\n".join([*lines, r"\end{table}"]) + "\n"


def markdown_row(cells: tuple[str, ...]) -> str:
    """Join cells to a row of Markdown."""
    return "| " + " | ".join(map(markdown, cells)) + " |"


def latex_row(cells: tuple[str, ...]) -> str:
    """Join cells to a row of LaTeX."""
    return " & ".join(map(latex, cells)) + r" \\"
