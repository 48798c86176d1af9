"""Commands as users type them: in a process of their own, or in this one, which starts a second faster."""

import contextlib
import io
import os
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from mcfair.cli.app import main

MCFAIR = [sys.executable, "-m", "mcfair"]
SIMULATE = ("simulate", "--data", "mq2008-like", "--steps", "500")


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


def start(*words, check=True, **environment):
    """Run a command in a process of its own."""
    done = subprocess.run([*MCFAIR, *words], capture_output=True, text=True, env=os.environ | environment)
    if check:
        assert done.returncode == 0, done.stderr
    return done


def run(*words, check=True, **environment):
    """Run a command by the function that the installed command calls; what it changes in this process is undone."""
    out, err = io.StringIO(), io.StringIO()
    modules, path, status = set(sys.modules), list(sys.path), None
    with (
        mock.patch.dict(os.environ, environment),
        mock.patch.object(sys, "argv", ["mcfair", *words]),
        warnings.catch_warnings(),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            status = end.code or 0
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if getattr(sys.modules[name], "__file__", None) and not is_installed(sys.modules[name].__file__):
            del sys.modules[name]  # a plugin
    done = Done(status, out.getvalue(), err.getvalue())
    assert not check or done.returncode == 0, done.stderr
    return done


def is_installed(file):
    return file.startswith((sys.prefix, sys.base_prefix)) or "mcfair" in Path(file).parts


def refused(*words, status=1, **environment):
    """Run a command that must fail with one line and no output; return the line."""
    done = run(*words, check=False, **environment)
    assert done.returncode == status, done
    assert done.stdout == ""
    assert done.stderr.startswith("mcfair: error: ")
    assert done.stderr.count("\n") == 1
    return done.stderr
