"""Output of commands: JSON and progress bars. Data goes to stdout, progress and notes to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any


def encoded(value: Any) -> str:
    """Return plain data as indented JSON."""
    import msgspec

    return msgspec.json.format(msgspec.json.encode(value)).decode() + "\n"


@contextmanager
def progress(total: int) -> Iterator[Callable[[int], None] | None]:
    """Show a bar on stderr while sessions are played; nothing if stderr is not a terminal."""
    with bar() as shown:
        if shown is None:
            yield None
            return
        task = shown.add_task("compiling or loading compiled code", total=total)
        yield lambda played: shown.update(task, advance=played, description="sessions")


@contextmanager
def stages() -> Iterator[Callable[[str, int, int], None]]:
    """Show on stderr the stage at hand and how far it is; nothing if stderr is not a terminal."""
    with bar() as shown:
        tasks: dict[str, Any] = {}

        def report(stage: str, done: int, total: int) -> None:
            if shown is None:
                return
            if stage not in tasks:
                tasks[stage] = shown.add_task(stage, total=total)
            shown.update(tasks[stage], completed=done)

        yield report


@contextmanager
def bar() -> Iterator[Any]:
    """Yield a progress bar on stderr, or None if stderr is not a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    # What is printed meanwhile goes above the bar on a terminal, and stays what it is in a file.
    with Progress(*columns, console=console, transient=True, redirect_stdout=sys.stdout.isatty()) as shown:
        yield shown


@contextmanager
def status(text: str) -> Iterator[Callable[[str], None]]:
    """Show on stderr what is being done; yield a function that changes the text. Nothing without a terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    with console.status(text) if console.is_terminal else nullcontext() as spinner:
        yield lambda changed: None if spinner is None else spinner.update(changed)


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def about_this_machine() -> dict[str, str]:
    """Return what the runs were made with."""
    import platform

    from ..simulation.run import versions

    return {
        "command": " ".join(["mcfair", *sys.argv[1:]]),
        "machine": f"{platform.system()} {platform.machine()}, {processors()} processors",
        **versions(),
    }
