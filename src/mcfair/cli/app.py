"""The command line: parse, call the library, render."""

from __future__ import annotations

import io
import os
import sys
import warnings
from contextlib import suppress
from typing import Annotated, Any

import typer

from ..errors import MCFairError, MCFairWarning, renamed
from . import audit, experiments, parts, stores
from .rank import rank
from .serve import keys, serve
from .simulate import simulate
from .statement import statement
from .what_if import rehearse, what_if

USAGE_ERROR = 2
"""Exit status of a command line that cannot be parsed, by convention."""

RENAMED = {"--k-s": "--k", "--delay": "--click-delay"}
"""Old names of options, accepted for one release and shown in no help."""

app = typer.Typer(
    help="Fair ranking while relevance is still being learnt: simulate, compare, tune and serve ranking policies.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # the pretty help takes a quarter of a second to import
)


def show_version(wanted: bool) -> None:
    """Print the version and exit."""
    if wanted:
        from importlib.metadata import version

        print(f"mcfair {version('mcfair')}")
        raise typer.Exit


@app.callback()
def root(
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback when something fails.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=show_version, is_eager=True)
    ] = False,
) -> None:
    """Declare the options of every command."""


app.command()(simulate)
app.command()(experiments.compare)
app.command()(rank)
app.command()(experiments.tune)
app.command()(rehearse)
app.command("audit")(audit.audit_log)
app.command("examination")(audit.examination)
app.command()(experiments.reproduce)
app.command("run")(experiments.run_file)
app.command(hidden=True, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(
    experiments.leaderboard
)
app.command()(experiments.demo)
for base in parts.PART_KINDS:
    app.command(base.kind.plural)(parts.list_parts(base))
app.command("datasets")(parts.list_datasets)
app.command()(serve)
app.command("what-if")(what_if)
for each in (stores.verify, stores.replay, stores.backup):
    app.command()(each)
app.command("restore")(stores.restore_backup)
app.command()(stores.migrate)
app.command("import")(stores.import_log)
app.command()(statement)
app.add_typer(keys, name="keys")


def main() -> None:
    """Run the command line: one line for an error, a traceback only with --debug; usage errors exit with 2."""
    debug = "--debug" in sys.argv
    if debug:  # accepted after the command as well as before it
        sys.argv = [sys.argv[0], "--debug", *(word for word in sys.argv[1:] if word != "--debug")]
    if isinstance(raw := getattr(sys.stdout, "buffer", None), io.RawIOBase):  # Python -u drops what a full disk refuses
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(raw), sys.stdout.encoding, line_buffering=True)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Greek letters shows question marks, not an error
    warnings.simplefilter("once", MCFairWarning)
    warnings.showwarning = show_warning
    for i, word in enumerate(sys.argv):
        name, equals, value = word.partition("=")
        if name in RENAMED:
            renamed(name, RENAMED[name])
            sys.argv[i] = RENAMED[name] + equals + value
    if "compare" in sys.argv[1:3] and any(word.partition("=")[0] == "--store" for word in sys.argv):
        renamed("mcfair compare --store", "mcfair what-if --store")
        sys.argv[sys.argv.index("compare")] = "what-if"
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()  # now, and not at exit, where a full disk would be a traceback
        if code == 130:  # how the command-line parser reports Ctrl-C
            raise KeyboardInterrupt
    except (KeyboardInterrupt, typer.Abort):
        sys.stderr.write("mcfair: interrupted\n")
        raise SystemExit(130) from None
    except BrokenPipeError:
        discard_output()
        raise SystemExit(1) from None
    except Exception as error:
        usage = getattr(error, "format_message", None)  # what the command-line parser raises has one
        if isinstance(error, OSError):
            discard_output()
        if debug or not (usage or isinstance(error, MCFairError | OSError)):
            raise
        if type(error).__name__ == "NoArgsIsHelpError":  # the help, asked for by saying nothing
            print(usage() if usage else error)
            raise SystemExit(0) from None
        message = usage() if usage else str(error)
        if isinstance(error, OSError):  # what reads or writes a file says which by itself; this is mostly the output
            message = f"cannot write: {error.strerror or error}" if error.filename is None else message
        sys.stderr.write(f"mcfair: error: {' '.join(message.split())}\n")
        raise SystemExit(USAGE_ERROR if usage else 1) from None
    raise SystemExit(code if isinstance(code, int) else 0)


def discard_output() -> None:
    """Lead what could not be written to nowhere, or the flush at exit would fail again."""
    with suppress(OSError):
        sys.stdout.flush()
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """Print a warning as one line."""
    sys.stderr.write(f"mcfair: note: {message}\n")
