"""Write the generated parts of the reference: `make reference`.

Pages of docs/reference are Markdown that is committed, so that they can be read, linked and searched on a code host.
What stands between two comments is rewritten from the code; a test fails if it is not what the code says:

    <!-- generated: policies -->
    …
    <!-- /generated -->

The names are the keys of `SOURCES`. Everything else on these pages is written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from reference_interfaces import (
    api_overview,
    api_page,
    command_list,
    commands,
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

DOCS = Path(__file__).parent
REFERENCE = DOCS / "reference"
MARKED = re.compile(r"<!-- generated: (?P<words>[^\n]*?) -->\n.*?<!-- /generated -->", re.DOTALL)

SOURCES: dict[str, Callable[..., str]] = {
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
    "api": api_page,
}
"""Functions that write what stands between the comments, by the name in the comment; words after `:` are arguments."""


def rewritten(text: str) -> str:
    """Return a page with everything that is generated written again.

    Raises
    ------
    ValueError
        A comment names no source.
    """

    def write(match: re.Match[str]) -> str:
        name, _, argument = match["words"].partition(": ")
        if name not in SOURCES:
            raise ValueError(f"unknown source {name!r}; available: {', '.join(SOURCES)}")
        generated = SOURCES[name](argument) if argument else SOURCES[name]()
        return f"<!-- generated: {match['words']} -->\n\n{generated.strip()}\n\n<!-- /generated -->"

    return MARKED.sub(write, text)


def pages() -> list[Path]:
    """Return the pages of the reference."""
    return sorted(REFERENCE.rglob("*.md"))


if __name__ == "__main__":
    for page in pages():
        text = page.read_text(encoding="utf-8")
        page.write_text(rewritten(text), encoding="utf-8", newline="\n")
