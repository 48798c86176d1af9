"""A table once, written as HTML, Markdown and LaTeX; and numbers as text."""

from __future__ import annotations

import dataclasses
import math
import re
from html import escape

import numpy as np
import numpy.typing as npt

__all__ = ["Table", "interval", "latex", "markdown", "number", "percent", "signed", "spread"]

NOTHING = "\N{EN DASH}"
"""Stands where there is no number."""

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


# --- numbers ---------------------------------------------------------------------------------------------------------


def decimals(value: float, digits: int) -> int:
    """How many decimals give so many significant digits."""
    if not math.isfinite(value) or value == 0:
        return 0
    return min(max(digits - 1 - math.floor(math.log10(abs(value))), 0), 8)


def number(value: float | None, digits: int = 5) -> str:
    """Write a number to so many significant digits; whole ones are never cut."""
    if value is None or not math.isfinite(value):
        return NOTHING
    return f"{value:,.{decimals(value, digits)}f}"


def spread(values: npt.ArrayLike, digits: int = 5) -> str:
    """Write the mean and, in brackets, the population standard deviation, to the same decimals."""
    x = np.asarray(values, dtype=np.float64)
    mean = float(x.mean())
    places = decimals(mean, digits)
    return f"{mean:,.{places}f} ({float(x.std()):,.{places}f})"


def interval(low: float, high: float, digits: int = 5) -> str:
    """Write an interval, both ends to the same decimals."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return NOTHING
    places = decimals(max(abs(low), abs(high)), digits)
    return f"{low:,.{places}f} to {high:,.{places}f}"


def signed(value: float, digits: int = 3) -> str:
    """Write a number with its sign, with at most two decimals."""
    return NOTHING if not math.isfinite(value) else f"{value:+,.{min(decimals(value, digits), 2)}f}"


def percent(ratio: float) -> str:
    """Write a ratio less 1 in percent, without the sign for it."""
    value = 100 * (ratio - 1)
    return NOTHING if not math.isfinite(value) else f"{value:,.{min(decimals(value, 3), 2)}f}"


# --- text ------------------------------------------------------------------------------------------------------------


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
        Of its files.
    caption, columns, rows
        What it says.
    lead, notes
        Sentences above and below.
    texts
        How many columns from the left are text; the others are numbers and stand to the right.
    titles
        What a cell says when pointed at, by row and column.
    marked
        Rows that stand out, and a word for how.
    """

    name: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    lead: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    texts: int = 1
    titles: dict[tuple[int, int], str] = dataclasses.field(default_factory=dict)
    marked: dict[int, str] = dataclasses.field(default_factory=dict)

    def as_markdown(self) -> str:
        """Write it as Markdown."""
        rule = [":--" if i < self.texts else "--:" for i in range(len(self.columns))]
        lines = [f"**{markdown(self.caption)}**", ""]
        for sentence in self.lead:
            lines += [markdown(sentence), ""]
        lines += [self.line(self.columns), "| " + " | ".join(rule) + " |"]
        lines += [self.line(row) for row in self.rows]
        for note in self.notes:
            lines += ["", markdown(note)]
        return "\n".join(lines) + "\n"

    @staticmethod
    def line(cells: tuple[str, ...]) -> str:
        """Write a row of Markdown."""
        return "| " + " | ".join(map(markdown, cells)) + " |"

    def as_latex(self) -> str:
        """Write it as LaTeX, for the package booktabs."""
        align = "".join("l" if i < self.texts else "r" for i in range(len(self.columns)))
        lines = [r"\begin{table}", r"\centering\footnotesize\setlength{\tabcolsep}{3pt}"]
        lines += [rf"\caption{{{latex(' '.join((self.caption + '.', *self.lead)))}}}"]
        lines += [
            rf"\begin{{tabular}}{{{align}}}",
            r"\toprule",
            " & ".join(map(latex, self.columns)) + r" \\",
            r"\midrule",
        ]
        lines += [" & ".join(map(latex, row)) + r" \\" for row in self.rows]
        lines += [r"\bottomrule", r"\end{tabular}"]
        lines += [rf"\par\smallskip {latex(note)}" for note in self.notes]
        return "\n".join([*lines, r"\end{table}"]) + "\n"

    def as_html(self) -> str:
        """Write it as HTML, in a box of its own that scrolls sideways."""
        head = "".join(f'<th scope="col"{self.kind(i)}>{escape(name)}</th>' for i, name in enumerate(self.columns))
        body = []
        for i, row in enumerate(self.rows):
            mark = f' class="{escape(self.marked[i])}"' if i in self.marked else ""
            body.append(f"<tr{mark}>{''.join(self.cell(i, j, text) for j, text in enumerate(row))}</tr>")
        lead, notes = ("".join(f"<p>{escape(text)}</p>\n" for text in texts) for texts in (self.lead, self.notes))
        return (
            f'{lead}<div class="scroll" tabindex="0" role="region" aria-label="{escape(self.caption)}"><table>\n'
            f"<caption>{escape(self.caption)}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n"
            + "\n".join(body)
            + "\n</tbody></table></div>\n"
            + (f'<div class="notes">\n{notes}</div>\n' if notes else "")
        )

    def kind(self, column: int) -> str:
        """Give the class of a column of text."""
        return ' class="text"' if column < self.texts else ""

    def cell(self, i: int, j: int, text: str) -> str:
        """Write a cell of HTML; the first one names its row."""
        title = f' title="{escape(self.titles[i, j])}"' if (i, j) in self.titles else ""
        tag, scope = ("th", ' scope="row"') if j == 0 else ("td", "")
        return f"<{tag}{scope}{self.kind(j)}{title}>{escape(text)}</{tag}>"
