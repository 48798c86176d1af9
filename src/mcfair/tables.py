"""Tables and the numbers in them: one table is text in a terminal, HTML on a page, Markdown and LaTeX in files."""

from __future__ import annotations

import dataclasses
import io
import math
import re
import sys
from collections.abc import Sequence
from html import escape as escape_html
from typing import TYPE_CHECKING, TextIO

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "NOISE",
    "NOTHING",
    "Table",
    "format_excess",
    "format_interval",
    "format_number",
    "format_p_value",
    "format_signed",
    "format_spread",
    "latex",
    "markdown",
    "printable",
    "tie",
]

NOTHING = "\N{EN DASH}"
"""Placeholder for a value that does not exist."""

SMALLEST = 1e-6
"""Numbers below this are written with an exponent."""

NOISE = 1e-9
"""A spread or an excess below this share of the mean is rounding error and is written as 0."""

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

STYLES = {"limit": "dim", "base": "bold"}
"""How a terminal shows the rows that stand out."""

LONGEST_WORD = 12
"""Characters that a heading in a terminal may have in a line before it is folded."""


# --- numbers ---------------------------------------------------------------------------------------------------------


def decimal_places(value: float, digits: int) -> int:
    """Return the number of decimals that shows so many significant digits."""
    if not math.isfinite(value) or value == 0:
        return 0
    return max(digits - 1 - math.floor(math.log10(abs(value))), 0)


def format_number(value: float | None, digits: int = 4, *, sign: bool = False) -> str:
    """Format a number to so many significant digits; digits before the decimal point are never dropped.

    Parameters
    ----------
    value
        The number; None, nan and infinite values are shown as a dash.
    digits
        Significant digits.
    sign
        Whether positive numbers get a plus sign.

    Returns
    -------
    str

    Examples
    --------
    >>> format_number(0.00123), format_number(1234567.8), format_number(2.5e-9), format_number(None)
    ('0.001230', '1,234,568', '2.500e-09', '–')
    >>> format_number(0.5, 2, sign=True)
    '+0.50'
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    plus = "+" if sign else ""
    if 0 < abs(value) < SMALLEST:
        return f"{value:{plus}.{digits - 1}e}"
    return f"{value:{plus if value else ''},.{decimal_places(value, digits)}f}"


def format_spread(values: npt.ArrayLike, digits: int = 4) -> str:
    """Format the mean of some values and, in parentheses, their population standard deviation.

    The standard deviation shows at least two significant digits. A single value has no spread and is formatted alone.

    Parameters
    ----------
    values : (n,) array
        For example a metric of each seed.
    digits
        Significant digits of the mean.

    Returns
    -------
    str

    Examples
    --------
    >>> format_spread([22.0, 23.0]), format_spread([0.00123]), format_spread([186.01, 186.016])
    ('22.50 (0.50)', '0.001230', '186.0130 (0.0030)')
    """
    x = np.asarray(values, dtype=np.float64)
    mean, std = float(x.mean()), float(x.std())
    if x.size == 1 or not math.isfinite(std):
        return format_number(mean, digits)
    std = std if std > NOISE * abs(mean) else 0.0
    if 0 < max(abs(mean), std) < SMALLEST:
        return f"{format_number(mean, digits)} ({format_number(std, 2)})"
    places = max(decimal_places(mean, digits) if abs(mean) >= SMALLEST else 0, decimal_places(std, 2))
    return f"{mean:,.{places}f} ({std:,.{places}f})"


def format_interval(low: float, high: float, digits: int = 4) -> str:
    """Format an interval, both ends to the same decimals; a dash if it does not exist.

    Parameters
    ----------
    low, high
        Its ends.
    digits
        Significant digits of the end that is larger in size; the other has three, unless it is far smaller.

    Returns
    -------
    str

    Examples
    --------
    >>> format_interval(-0.5, 12.25), format_interval(6.63, 10.11, 3), format_interval(float("nan"), float("nan"))
    ('-0.500 to 12.250', '6.63 to 10.11', '–')
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        return NOTHING
    smallest, largest = sorted((abs(low), abs(high)))
    if 0 < largest < SMALLEST:
        return f"{low:.{digits - 1}e} to {high:.{digits - 1}e}"
    places = decimal_places(largest, digits)
    places = min(max(places, decimal_places(smallest, 3)), places + 2)
    return f"{low:,.{places}f} to {high:,.{places}f}"


def format_signed(value: float, digits: int = 3) -> str:
    """Format a number with its sign.

    Examples
    --------
    >>> format_signed(0.0123), format_signed(-1234.5), format_signed(0.0)
    ('+0.0123', '-1,234', '0')
    """
    return format_number(value, digits, sign=True)


def format_excess(ratio: float, digits: int = 3) -> str:
    """Format by how much a ratio exceeds 1, in percent and without the percent sign.

    Examples
    --------
    >>> format_excess(1.0542), format_excess(9.6), format_excess(1.0)
    ('5.42', '860', '0')
    """
    excess = ratio - 1
    return format_number(100 * excess if abs(excess) > NOISE else 0.0, digits)


def format_p_value(p: float) -> str:
    """Format a p-value; very small ones as a bound.

    Examples
    --------
    >>> format_p_value(0.00001), format_p_value(0.0123)
    ('< 0.0001', '0.0123')
    """
    return "< 0.0001" if p < 0.0001 else f"{p:.4f}"


# --- text ------------------------------------------------------------------------------------------------------------


def escape(text: str) -> str:
    """Escape text for HTML, as the templates of pages do."""
    return escape_html(visible(text), quote=False).replace('"', "&#34;").replace("'", "&#39;")


def latex(text: str) -> str:
    """Escape text for LaTeX."""
    return printable(" ".join(text.split())).translate(LATEX_TABLE)


def markdown(text: str) -> str:
    """Escape text for a cell of a Markdown table."""
    return re.sub(r"([\\`*_{}\[\]<>&|~#])", r"\\\1", printable(" ".join(text.split())))


def printable(text: str) -> str:
    r"""Return a name with its control characters written out: a terminal would execute them.

    Examples
    --------
    >>> printable("red \x1b[31m")
    'red \\x1b[31m'
    """
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def visible(text: str) -> str:
    """Return text of a page with its control characters written out, except for the white space of a page."""
    if text.isprintable():
        return text
    return "".join(each if each in "\n\N{NO-BREAK SPACE}" else printable(each) for each in text)


def tie(text: str) -> str:
    """Keep a number and its percent sign on one line."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%")


# --- tables ----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of text under column names.

    Parameters
    ----------
    caption, columns, rows
        Its content.
    name
        Stem of its file names, for tables that become files.
    lead, notes
        Sentences above and below.
    text_columns
        Number of columns from the left that hold text; the others hold numbers and are aligned to the right.
    tooltips
        Text shown on a page when the pointer is over a cell, by row and column.
    row_classes
        Classes of rows that stand out: "limit" for what no policy can pass, "base" for what others are compared with.

    Examples
    --------
    >>> table = Table(caption="Two runs", columns=("policy", "unfairness"), rows=(("TopK", "44.3"), ("MMF", "27.1")))
    >>> print(table.as_markdown())
    **Two runs**
    <BLANKLINE>
    | policy | unfairness |
    | :-- | --: |
    | TopK | 44.3 |
    | MMF | 27.1 |
    <BLANKLINE>
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    name: str = ""
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
        rows = [f"| {' | '.join(map(markdown, row))} |" for row in (self.columns, *self.rows)]
        lines += [rows[0], f"| {' | '.join(rule)} |", *rows[1:]]
        for note in self.notes:
            lines += ["", markdown(note)]
        return "\n".join(lines) + "\n"

    def as_latex(self) -> str:
        """Return the table as LaTeX, for the package booktabs."""
        align = "".join("l" if i < self.text_columns else "r" for i in range(len(self.columns)))
        rows = [f"{' & '.join(map(latex, row))} \\\\" for row in (self.columns, *self.rows)]
        lines = [r"\begin{table}", r"\centering\footnotesize\setlength{\tabcolsep}{3pt}"]
        lines += [rf"\caption{{{latex(' '.join((self.caption + '.', *self.lead)))}}}"]
        lines += [rf"\begin{{tabular}}{{{align}}}", r"\toprule", rows[0], r"\midrule", *rows[1:]]
        lines += [r"\bottomrule", r"\end{tabular}"]
        lines += [rf"\par\smallskip {latex(note)}" for note in self.notes]
        return "\n".join([*lines, r"\end{table}"]) + "\n"

    def as_html(self, *, files: bool = False) -> str:
        """Return the table as HTML, for the style sheet of the pages of this package.

        Parameters
        ----------
        files
            Whether to link to the same table as Markdown and LaTeX, in `tables/` beside the page.
        """

        def text(sentence: str) -> str:
            return f"<p>{escape(tie(sentence))}</p>"

        def kind(j: int) -> str:
            return ' class="text"' if j < self.text_columns else ""

        def cell(i: int, j: int, value: str) -> str:
            tag, scope = ("th", ' scope="row"') if j == 0 else ("td", "")
            tooltip = f' title="{escape(self.tooltips[i, j])}"' if (i, j) in self.tooltips else ""
            return f"<{tag}{scope}{kind(j)}{tooltip}>{escape(value)}</{tag}>"

        caption = f"caption-{escape(self.name)}"
        lines = [text(each) for each in self.lead]
        lines += [f'<div class="table{" wide" if len(self.columns) > 4 else ""}">']
        lines += [f'<p class="caption" id="{caption}">{escape(self.caption)}</p>']
        lines += ['<p class="hint" aria-hidden="true">Scroll sideways for more columns →</p>']
        lines += [f'<div class="scroll" tabindex="0" role="region" aria-labelledby="{caption}">']
        lines += [f'<table aria-labelledby="{caption}">', "<thead><tr>"]
        lines += [f'<th scope="col"{kind(j)}>{escape(name)}</th>' for j, name in enumerate(self.columns)]
        lines += ["</tr></thead>", "<tbody>"]
        for i, row in enumerate(self.rows):
            css = f' class="{self.row_classes[i]}"' if i in self.row_classes else ""
            lines += [f"<tr{css}>", "".join(cell(i, j, value) for j, value in enumerate(row)), "</tr>"]
        lines += ["</tbody>", "</table>", "</div>", "</div>", '<div class="notes">', *map(text, self.notes)]
        if files:
            links = (f'<a href="tables/{escape(self.name)}.{end}">{form}</a>' for end, form in FILES.items())
            lines += [f'<p class="files">This table as {", ".join(links)}.</p>']
        return "\n".join([*lines, "</div>"])

    _repr_html_ = as_html

    def __str__(self) -> str:
        text = io.StringIO()
        self.print(text)
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())

    def print(self, file: TextIO | None = None) -> None:
        """Print the table as wide as the terminal, and wide enough in a file; row by row if the terminal is too narrow.

        Names in it come from logs and stores: brackets are no markup, and control characters are written out.

        Parameters
        ----------
        file
            Where to; by default to standard output.
        """
        from rich.cells import cell_len
        from rich.console import Console
        from rich.table import Table as Terminal

        width = None if file is None and sys.stdout.isatty() else 160
        console = Console(file=file, width=width, markup=False, emoji=False, highlight=False, force_jupyter=False)
        shown = Terminal(title=printable(self.caption) or None, title_justify="left", title_style="bold")
        heads, *rows = (
            ["\n".join(map(printable, each.split("\n"))) for each in row] for row in (self.columns, *self.rows)
        )
        needed = 1
        for j, (head, *cells) in enumerate(zip(heads, *rows, strict=True)):
            widest = max((cell_len(line) for each in cells for line in each.split("\n")), default=0)
            word = min(max(map(cell_len, head.split()), default=0), LONGEST_WORD)
            least = max(min(widest, 8) if j < self.text_columns else widest, word)
            needed += least + 3
            justify = "left" if j < self.text_columns else "right"
            shown.add_column(head, justify=justify, overflow="fold", min_width=least)  # type: ignore[arg-type]
        for i, row in enumerate(rows):
            shown.add_row(*row, style=STYLES.get(self.row_classes.get(i, "")))
        for sentence in self.lead:
            console.print(sentence)
        if needed <= console.width:
            console.print(shown)
        else:
            print_rows(console, printable(self.caption), heads, rows)
        for sentence in self.notes:
            console.print(sentence)


def print_rows(console: Console, caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a line for each cell, under the name of its row."""
    if caption:
        console.print(caption, style="bold")
    width = max(map(len, heads[1:]), default=0)
    for name, *cells in rows:
        console.print(name, style="bold")
        for head, cell in zip(heads[1:], cells, strict=True):
            console.print(f"  {head:{width}}  {cell}")


FILES = {"md": "Markdown", "tex": "LaTeX"}
"""The files of a table on a page, by their ending."""
