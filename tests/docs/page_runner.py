"""Run the pages of the documentation: what a reader would copy must do what the page says.

The conventions, which CONTRIBUTING.md repeats in short:

- A page runs in an empty folder of its own. Blocks run in order.
- ```python blocks share one namespace, that of a script: `__main__`. Warnings are printed, as in a script. Those of
  README.md and of the tutorial are typed at a prompt, which also prints the values of expressions, in loops as well.
- ```console blocks are commands without a prompt, one a line. A backslash at the end continues a line, as does an open
  here-document. Each command must exit with 0. Variables that a command sets are seen by the commands and the Python
  blocks that follow. `mcfair` and `python` are those of the tests.
- `COMMAND &` runs until the page ends, or until a line `kill %1` ends the first such command. If the command has a
  `--port`, the next one waits until it accepts connections, and for `mcfair serve` until the service is ready.
- Ports 8000 to 8009 stand for free ports, after `127.0.0.1:`, `localhost:` and `--port`, so that pages can run at the
  same time. `mcfair serve` without `--port` listens on the one that stands for 8000.
- A ```text block directly after a python or console block is its output, stdout and stderr together, without blanks at
  the ends of lines. `…` stands for anything within a line, and a line `…` for any number of lines.
- `<!-- file: NAME -->` before a block of any language has it written to that file, and not run.
- `<!-- not run: REASON -->` before a block has it skipped.
- `<!-- needs: MQ2008 -->` before a block has it skipped where that data is missing; where it is there, the folder of
  the page has a link MQ2008 to it.
- Other languages are read by people alone: see NOT_EXECUTED. A block of any other language fails.
"""

import ast
import contextlib
import difflib
import io
import os
import re
import signal
import socket
import subprocess
import sys
import time
import traceback
import types
import warnings
from pathlib import Path
from unittest import mock

import fork_client
from fork_server import template
from page_blocks import ROOT, check_languages, parse_blocks
from real_data import FOLDS
from service_process import Connection, NoResponseError, free_port

COMMAND_SECONDS = 600.0
"""Timeout of a command: the first one on a machine compiles, and other tests may run beside it."""

DATA = {"MQ2008": FOLDS if (FOLDS / "Fold1" / "test.txt").exists() else None}

PORT = re.compile(r"(?:(?<=127\.0\.0\.1:)|(?<=localhost:)|(?<=--port )|(?<=--port=))800\d\b")

MCFAIR = """#!/bin/sh
if [ "$1" = serve ]; then
  case " $* " in *" --port"*) ;; *) shift; set -- serve --port {port} "$@" ;; esac
fi
exec {python} -I -S {client} {template} -m mcfair "$@"
"""
"""The command `mcfair`, which is forked from a process that imported it, and serves on a free port by default."""


class PageError(Exception):
    """A page does not do what it says."""


class PageRun:
    """A page while it runs; the context manager ends its background commands."""

    def __init__(self, page, folder):
        self.page, self.folder = page, folder
        self.text = (ROOT / page).read_text(encoding="utf-8")
        self.ports, self.background = {}, []
        self.module = types.ModuleType("__main__")

    def __enter__(self):
        self.undo = contextlib.ExitStack()
        work, tools = self.folder / "work", self.folder / "bin"
        work.mkdir(parents=True)
        tools.mkdir()
        command = tools / "mcfair"
        words = {"python": sys.executable, "client": fork_client.__file__, "template": template()}
        command.write_text(MCFAIR.format(port=self.port("8000"), **words), encoding="utf-8")
        command.chmod(0o755)
        path = os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"]])
        environment = {"PATH": path, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", "MPLBACKEND": "Agg"}
        self.undo.enter_context(mock.patch.dict(os.environ, environment))
        # Not patch.dict, which would also remove the modules that the page imports, and Numba cannot be imported twice.
        self.undo.callback(sys.modules.__setitem__, "__main__", sys.modules["__main__"])
        sys.modules["__main__"] = self.module
        self.undo.enter_context(mock.patch.object(sys, "path", [str(work), *sys.path]))
        self.undo.callback(os.chdir, Path.cwd())
        os.chdir(work)
        # The page with all that is not Python left empty, so that classes of the page have a source.
        self.module.__file__ = str(self.folder / "page.py")
        return self

    def __exit__(self, *_):
        for child in self.background:
            stop(child)
        self.undo.close()
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None)).startswith(str(self.folder)):
                del sys.modules[name]

    # --- blocks ------------------------------------------------------------------------------------------------------

    def run(self):
        """Run all blocks in order and compare their outputs."""
        blocks = parse_blocks(self.text)
        check_languages(self.page, blocks)
        self.write_source(blocks)
        printed = {}
        for block in blocks:
            try:
                if block.language == "text" and block.follows in printed and "file" not in block.comments:
                    compare(block.text, printed[block.follows])
                else:
                    printed |= self.run_block(block)
            except PageError as error:
                raise PageError(f"{self.page}:{block.line}: {error}") from error

    def run_block(self, block):
        """Run or write a block; return its output by its line, or nothing if it was not run."""
        if "not run" in block.comments:
            return {}
        text = PORT.sub(lambda found: str(self.port(found[0])), block.text)
        if needed := block.comments.get("needs"):
            if needed not in DATA:
                raise PageError(f"needs {needed!r}; known: {', '.join(DATA)}")
            if DATA[needed] is None:
                return {}
            Path(needed).unlink(missing_ok=True)
            Path(needed).symlink_to(DATA[needed])
        if name := block.comments.get("file"):
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text(text, encoding="utf-8")
            return {}
        if block.language == "python":
            return {block.line: self.run_python(text, block.line)}
        if block.language == "console":
            return {block.line: "".join(self.run_command(each) for each in split_commands(text))}
        return {}

    def write_source(self, blocks):
        lines = []
        for block in blocks:
            if block.language == "python" and "file" not in block.comments:
                lines += [""] * (block.line - 1 - len(lines)) + block.text.splitlines()
        Path(self.module.__file__).write_text("\n".join(lines), encoding="utf-8")

    def run_python(self, text, line):
        printed = io.StringIO()
        tree = ast.parse("\n" * (line - 1) + text)
        prompt = self.page.startswith(("README", "docs/tutorial/"))
        form, mode = (ast.Interactive(tree.body), "single") if prompt else (tree, "exec")
        code = compile(form, self.module.__file__, mode)
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed), plain_warnings():
            try:
                exec(code, vars(self.module))
            except (Exception, SystemExit) as error:
                raise PageError(f"{printed.getvalue()}{traceback.format_exc()}") from error
        return self.shown(printed.getvalue())

    # --- commands ----------------------------------------------------------------------------------------------------

    def run_command(self, command):
        """Run a command in a shell; return what it printed."""
        if found := re.fullmatch(r"kill %(\d+)", command.partition("  #")[0].strip()):
            stop(self.background[int(found[1]) - 1])
            return ""
        bare = re.sub(r"\s+# .*$", "", command)
        if bare.endswith("&"):
            self.start(bare.removesuffix("&"))
            return ""
        if re.match(r"mcfair (serve|demo --live)\b(?!.*--seconds)", bare):
            raise PageError(f"{command}: runs until it is stopped; it needs an & at the end")
        state = self.folder / "environment"
        script = f"set -a\n{command}\nstatus=$?\nenv -0 > {state}\nexit $status"
        options = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT, "text": True, "start_new_session": True}
        with subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE, **options) as child:
            try:
                printed, _ = child.communicate(timeout=COMMAND_SECONDS)
            except subprocess.TimeoutExpired as error:
                stop(child)
                raise PageError(f"{command}: not finished after {COMMAND_SECONDS:g} s; does it need an &?") from error
        if child.returncode:
            raise PageError(f"{command}: exit status {child.returncode}\n{printed}")
        pairs = (pair.partition("=") for pair in state.read_text().split("\0") if pair)
        own = ("_", "SHLVL", "PWD", "OLDPWD", "status")
        os.environ.update({name: value for name, _, value in pairs if name not in own})
        return self.shown(printed)

    def start(self, command):
        """Start a background command and wait until it accepts connections, if it has a port."""
        log = self.folder / f"background-{len(self.background) + 1}.txt"
        with log.open("w", encoding="utf-8") as written:
            child = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=written,
                start_new_session=True,
            )
        self.background.append(child)
        serves = command.split()[:2] == ["mcfair", "serve"]
        found = re.search(r"--port[ =](\d+)", command)
        port = int(found[1]) if found else self.port("8000") if serves else None
        deadline = time.monotonic() + COMMAND_SECONDS
        while port and not (is_ready(port) if serves else accepts(port)):
            if child.poll() is not None or time.monotonic() > deadline:
                raise PageError(f"{command}: not ready, exit status {child.poll()}\n{log.read_text()}")
            time.sleep(0.02)

    # --- ports -------------------------------------------------------------------------------------------------------

    def port(self, name):
        """Return the free port that stands for a port of the page."""
        if name not in self.ports:
            self.ports[name] = free_port()
        return self.ports[name]

    def shown(self, text):
        """Return a text with the ports of the page instead of the free ones."""
        for name, port in self.ports.items():
            text = re.sub(rf"\b{port}\b", name, text)
        return text


def run_page(page, folder):
    """Run a page, given by its path below the root, in a new folder."""
    with PageRun(page, folder) as running:
        running.run()


@contextlib.contextmanager
def plain_warnings():
    """Handle warnings as Python does for a script, instead of raising them as the tests do."""
    with warnings.catch_warnings():
        warnings.resetwarnings()
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        warnings.simplefilter("ignore", ResourceWarning)
        warnings.showwarning = lambda *shown: sys.stderr.write(warnings.formatwarning(*shown[:4]))
        yield


def split_commands(text):
    """Return the commands of a console block: lines, joined at backslashes and over here-documents."""
    commands, lines = [], iter(text.splitlines())
    for line in lines:
        command = line
        while command.endswith("\\"):
            command += "\n" + next(lines)
        if found := re.search(r"<<-?\s*['\"]?(\w+)['\"]?", command):
            for each in lines:
                command += "\n" + each
                if each.strip() == found[1]:
                    break
        if command.strip() and not command.lstrip().startswith("#"):
            commands.append(command)
    return commands


def compare(expected, printed):
    """Raise PageError unless a page's output matches what was printed."""
    lines = [line.rstrip() for line in printed.rstrip().splitlines()]
    wanted = [line.rstrip() for line in expected.rstrip().splitlines()]
    pattern = ""
    for line in wanted:
        anything = line.strip() == "…"
        pattern += r"(?:[^\n]*\n)*" if anything else r"[^\n]*".join(map(re.escape, line.split("…"))) + r"\n"
    if not re.fullmatch(pattern, "".join(f"{line}\n" for line in lines)):
        difference = "\n".join(difflib.unified_diff(wanted, lines, "the page", "the run", lineterm=""))
        raise PageError(f"another output than the page has:\n{difference}")


def accepts(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


def is_ready(port):
    with contextlib.suppress(NoResponseError), Connection(port, timeout=5) as connection:
        return connection.request("GET", "/readyz").status == 200
    return False


def stop(child):
    """End a command and all that it started."""
    if child.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGTERM)
    try:
        child.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
