"""Tables of commands on terminals of any width."""

import re
import sys

import pytest
from rich.table import Table

from mcfair.cli.render import print_table


def wide_table():
    table = Table(title="shop, 2 seeds")
    table.add_column("policy", overflow="fold")
    for head in ("unfairness", "cNDCG@1", "cNDCG@5", "NDCG@5", "group unfairness"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_row("TopK", "37,233 (2,012)", "200.0 (0.0)", "200.0 (0.0)", "1.000 (0.000)", "3,299,401 (245,406)")
    table.add_row("MCFair[x]", "3,433 (110)", "193.80 (0.15)", "191.84 (0.33)", "0.96049 (0.00091)", "12,843 (410)")
    return table


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 120, 200])
def test_a_terminal_of_any_width_shows_every_policy_and_figure(columns, monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    print_table(wide_table())
    shown = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)
    for text in ("shop, 2 seeds", "TopK", "MCFair[x]", "37,233 (2,012)", "0.96049 (0.00091)", "3,299,401 (245,406)"):
        assert text in shown
    assert all(len(line) <= columns for line in shown.splitlines())
    assert ("┃" in shown) == (columns >= 120)
