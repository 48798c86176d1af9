"""Blocks of shell commands that cannot be executed here (systemd, containers, other machines): they parse, and what
they say to mcfair, make and pip exists."""

import re
import shlex
import subprocess

import pytest
import typer
from page_blocks import ROOT, find_pages, parse_blocks

from mcfair.cli.app import app

COMMAND = re.compile(r"(?:^|[\s/])(?:mcfair|mcfair-\d) ((?:keys|migrate|verify|restore|replay|serve|reproduce)\b.*)$")


def shell_blocks():
    pages = {page: parse_blocks((ROOT / page).read_text(encoding="utf-8")) for page in find_pages()}
    return {f"{page}:{block.line}": block.text for page, blocks in pages.items() for block in blocks
            if block.language == "sh"}  # fmt: skip


def parse_command(words):
    """Parse the words after `mcfair` without running anything; raise what the command line would refuse them with."""
    command = typer.main.get_command(app)
    context = command.make_context("mcfair", list(words))
    while hasattr(command, "commands"):
        name, command, words = command.resolve_command(context, list(words))
        context = command.make_context(name, list(words), parent=context)


def words_of(line):
    """Return the words of a command up to a comment, a pipe or a redirection."""
    words = shlex.split(line, comments=True)
    ends = [i for i, word in enumerate(words) if word in ("|", ">", "&&")]
    return words[: ends[0]] if ends else words


@pytest.mark.parametrize("place", shell_blocks())
def test_a_block_of_shell_commands_is_right(place):
    text = shell_blocks()[place]
    assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    extras = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for line in text.splitlines():
        if given := COMMAND.search(line):
            parse_command(words_of(given[1]))
        if target := re.match(r"make (\w+)", line):
            assert re.search(rf"^{target[1]}:", makefile, re.MULTILINE), line
        for extra in (name for names in re.findall(r"'\.\[([\w,]+)\]'", line) for name in names.split(",")):
            assert re.search(rf"^{extra} = \[", extras, re.MULTILINE), line


def test_wrong_commands_are_found():
    assert sum(bool(COMMAND.search(line)) for text in shell_blocks().values() for line in text.splitlines()) >= 12
    with pytest.raises(Exception, match="No such option"):
        parse_command(["keys", "add", "shop", "--scopes", "rank"])
    with pytest.raises(Exception, match="No such command"):
        parse_command(["keys", "create", "shop"])
    with pytest.raises(Exception, match="Missing parameter: target"):
        parse_command(["migrate", "sqlite:///a.db"])
