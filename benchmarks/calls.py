"""How many of the package's own functions a command calls once everything is loaded and compiled.

    python benchmarks/calls.py audit|simulate|table1          # two numbers
    python benchmarks/calls.py audit --list                   # and the functions, file by file

A command is given to the command line in this process twice, with the output in a new folder each time; the functions
of the second time are counted, in all threads. A function counts once, however often it is called. The first number is
of functions that have a name, the second includes lambdas and, before Python 3.12, comprehensions. Compiled kernels and
templates are not counted.
"""

import argparse
import contextlib
import io
import os
import sys
import tempfile
import threading
from pathlib import Path
from unittest import mock

import polars as pl

import mcfair
from mcfair.cli.app import main

PACKAGE = str(Path(mcfair.__file__).parent) + os.sep

COMMANDS = {
    "audit": ("audit", "clicks.csv"),
    "simulate": ("simulate", "--data", "mq2008-like", "--policy", "MCFair", "--steps", "1000"),
    "table1": ("reproduce", "table1", "--data", "mq2008-like", "--quick", "--jobs", "1"),
}


def write_clicks(path):
    """Write a small log: two sellers, three queries, a list a day."""
    rows = [
        {
            "impression": number,
            "time": f"2024-01-{1 + number % 28:02d} 12:00:00",
            "query": f"query {number % 3}",
            "item": f"item {(number + rank) % 5}",
            "rank": rank,
            "clicked": int((number * 7 + rank) % 4 == 0),
            "group": "large" if (number + rank) % 5 < 3 else "small",
        }
        for number in range(60)
        for rank in range(1, 4)
    ]
    pl.DataFrame(rows).write_csv(path)


def run(words):
    """Run a command in a new folder; what it prints is dropped."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as out:
        os.chdir(folder)
        try:
            write_clicks("clicks.csv")
            with mock.patch.object(sys, "argv", ["mcfair", *words]):
                main()
        except SystemExit as end:
            if end.code:
                raise SystemExit(f"{out.getvalue()}the command failed: {end.code}") from None
        finally:
            os.chdir(before)


def called(words):
    """Return the functions that a command calls the second time, as file and name."""
    found = set()

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and code.co_filename.endswith(".py"):
            found.add(code)

    run(words)
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        run(words)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return sorted((each.co_filename.removeprefix(PACKAGE), each.co_firstlineno, each.co_qualname) for each in found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--list", action="store_true", help="print the functions as well")
    given = parser.parse_args()
    functions = called(COMMANDS[given.command])
    if given.list:
        print(*(f"{file}:{line} {name}" for file, line, name in functions), sep="\n")
    named = [name for _, _, name in functions if not name.endswith(">")]
    print(f"{len(named)} functions, {len(functions)} with lambdas and comprehensions")
