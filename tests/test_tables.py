"""One table in a terminal of any width, on a page, and in files; and the numbers in it."""

import re
import subprocess
import sys

import numpy as np
import pytest

from mcfair.tables import (
    NOTHING,
    Table,
    format_excess,
    format_interval,
    format_number,
    format_signed,
    format_spread,
    latex,
    markdown,
)

WIDE = Table(
    name="shop",
    caption="shop, 2 seeds",
    columns=("policy", "unfairness", "cNDCG@1", "cNDCG@5", "NDCG@5", "group unfairness"),
    rows=(
        ("TopK", "37,233 (2,012)", "200.0 (0.0)", "200.0 (0.0)", "1.000 (0.000)", "3,299,401 (245,406)"),
        ("MCFair[x]", "3,433 (110)", "193.80 (0.15)", "191.84 (0.33)", "0.96049 (0.00091)", "12,843 (410)"),
    ),
    lead=("Before.",),
    notes=("After 5 %.",),
    tooltips={(1, 1): 'a "difference"'},
    row_classes={0: "limit"},
)


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 120, 200])
def test_a_terminal_of_any_width_shows_every_policy_and_figure(columns, monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    WIDE.print()
    shown = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)
    for row in WIDE.rows:
        assert all(cell in shown for cell in row)
    assert all(text in shown for text in ("shop, 2 seeds", "Before.", "After 5 %."))
    assert all(len(line) <= columns for line in shown.splitlines())
    assert ("┃" in shown) == (columns >= 120)


def test_long_headings_are_folded_and_figures_are_not(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    head = "difference from MCFair(alpha=1000.0, beta=100.0, scale=mean) of the mean"
    Table(caption="", columns=("policy", head), rows=(("TopK", "1,234.5678 (0.0012)"),)).print()
    shown = capsys.readouterr().out
    assert "┃" in shown
    assert "1,234.5678 (0.0012)" in shown


@pytest.mark.parametrize("columns", ["20", "160"])
def test_a_terminal_does_not_obey_names(columns, monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", columns)
    evil = "shop\x1b[2J\rX"
    Table(caption=evil, columns=(evil, "b"), rows=((evil, "one\ntwo"), ("[bold]x", ":smile:"))).print()
    shown = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)
    assert "\x1b" not in shown
    assert "\r" not in shown
    assert ":smile:" in shown
    assert "two" in shown


def test_an_empty_table_has_its_headings(capsys):
    Table(caption="none", columns=("policy", "unfairness"), rows=()).print()
    assert "unfairness" in capsys.readouterr().out


def test_a_page_has_every_cell_escaped():
    table = Table(name="t&t", caption="a < b", columns=("x", "y"), rows=(("<b>", "1"),), tooltips={(0, 1): 'say "x"'})
    html = table.as_html(files=True)
    assert '<th scope="row" class="text">&lt;b&gt;</th>' in html
    assert '<td title="say &#34;x&#34;">1</td>' in html
    assert 'href="tables/t&amp;t.md"' in html
    assert "a &lt; b" in html
    assert "href" not in table._repr_html_()
    assert '<tr class="limit">' in WIDE.as_html()
    assert "After 5\N{NO-BREAK SPACE}%." in WIDE.as_html()


def test_markdown_and_latex_are_escaped():
    assert latex(r"50 % & a_b {x} \ β < 1") == r"50 \% \& a\_b \{x\} \textbackslash{} $\beta$ \textless{} 1"
    assert markdown("a|b_c") == r"a\|b\_c"
    table = Table(name="t", caption="c", columns=("x",), rows=(("1",),))
    assert table.as_markdown() == "**c**\n\n| x |\n| :-- |\n| 1 |\n"
    assert "x \\\\\n\\midrule\n1 \\\\\n\\bottomrule" in table.as_latex()


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (format_number(1234567.8), "1,234,568"),
        (format_number(0.00012345), "0.0001234"),
        (format_number(0.00123, 3), "0.00123"),
        (format_number(3.21e-11), "3.210e-11"),
        (format_number(0.0), "0"),
        (format_number(float("nan")), NOTHING),
        (format_number(None), NOTHING),
        (format_signed(0.00123), "+0.00123"),
        (format_signed(-1e-9), "-1.00e-09"),
        (format_excess(1.0000123), "0.00123"),
        (format_excess(1 + 1e-15), "0"),
        (format_interval(-0.00123, 0.0456, 3), "-0.00123 to 0.04560"),
        (format_interval(1e-5, 5.0, 3), "0.0000 to 5.0000"),
        (format_interval(-2e-9, 1e-9, 3), "-2.00e-09 to 1.00e-09"),
        (format_spread([22.0, 23.0]), "22.50 (0.50)"),
        (format_spread([0.00123, 0.00123]), "0.001230 (0.000000)"),
        (format_spread([0.00123]), "0.001230"),
        (format_spread([214.4, 222.2]), "218.3 (3.9)"),
        (format_spread([200.0, 200.0 + 1e-12]), "200.0 (0.0)"),
        (format_spread([-1.0, 1.0]), "0.0 (1.0)"),
        (format_spread([1e-8, 3e-8]), "2.000e-08 (1.0e-08)"),
        (format_spread([np.nan, np.nan]), NOTHING),
    ],
)
def test_numbers(shown, expected):
    assert shown == expected


def test_a_table_needs_no_heavy_library():
    heavy = ("matplotlib", "polars", "jinja2", "numba", "scipy", "rich")
    code = f"import sys, mcfair.tables; sys.exit(' '.join(n for n in {heavy} if n in sys.modules) or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stderr.strip(), done.returncode) == ("", 0)
