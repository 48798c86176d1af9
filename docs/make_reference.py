"""The generated reference: `docs/conf.py` puts it into the site, `make reference` writes it as Markdown.

Pages of docs/reference hold what is written by hand. A comment on a line of its own stands for what is generated from
the code, by a function of `SOURCES`:

    <!-- generated: policies -->

Nothing generated is kept in the repository. `make docs` builds the site; `make reference` writes the complete pages to
build/reference, for those who read Markdown.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

from reference_interfaces import (
    GROUPS,
    api_overview,
    api_page,
    command_list,
    commands,
    group_names,
    http_operations,
    http_overview,
    http_types,
)
from reference_tables import (
    experiment_keys,
    log_columns,
    measures,
    parts,
    rule_table,
    series_keys,
    serve_options,
    service_metrics,
    setting_keys,
)

import mcfair as mf

REFERENCE = Path(__file__).parent / "reference"
TARGET = Path(__file__).parents[1] / "build" / "reference"
MARKED = re.compile(r"^<!-- generated: (?P<name>.*?) -->$", re.MULTILINE)

SOURCES: dict[str, Callable[[], str]] = {
    "policies": lambda: parts(mf.Policy),
    "click models": lambda: parts(mf.ClickModel),
    "estimators": lambda: parts(mf.Estimator),
    "metrics": lambda: parts(mf.Metric),
    "experiment keys": experiment_keys,
    "series keys": series_keys,
    "setting keys": setting_keys,
    "rules": rule_table,
    "options of serve": serve_options,
    "service metrics": service_metrics,
    "log columns": log_columns,
    "measures": measures,
    "command list": command_list,
    "commands": commands,
    "http overview": http_overview,
    "http operations": http_operations,
    "http types": http_types,
    "api overview": api_overview,
}
"""The functions that write what a comment stands for, by the name in the comment."""


def completed(text: str) -> str:
    """Return a page with what its comments stand for.

    Raises
    ------
    ValueError
        A comment names no source.
    """

    def write(match: re.Match[str]) -> str:
        if match["name"] not in SOURCES:
            raise ValueError(f"unknown source {match['name']!r}; available: {', '.join(SOURCES)}")
        return SOURCES[match["name"]]().strip()

    return MARKED.sub(write, text)


def pages() -> dict[str, str]:
    """Return all pages of the reference, complete, by their path below docs/reference."""
    written = {path.name: completed(path.read_text(encoding="utf-8")) for path in sorted(REFERENCE.glob("*.md"))}
    return written | api_pages()


def api_pages() -> dict[str, str]:
    """Return the pages of the Python API, which are generated as a whole; Sphinx renders the docstrings."""
    groups = {group: title for group, (title, _, _) in GROUPS.items() if group_names(group)}
    return {f"api/{group}.md": f"# {title}\n\n{api_page(group)}\n" for group, title in groups.items()}


def write_pages(pages: dict[str, str], folder: Path) -> None:
    """Write pages below a folder, leaving those that have not changed alone: Sphinx reads only what is new."""
    for name, text in pages.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    shutil.rmtree(TARGET, ignore_errors=True)
    write_pages(pages(), TARGET)
    print(f"reference written to {TARGET}")
