"""Figures in the sentences of the pages that nothing has measured: defaults, limits and arithmetic.

Those that the code has are written from the code, so that a page with an old value fails.
"""

import inspect

import mcfair as mf
from mcfair.auditing.counts import MOST_ROWS
from mcfair.auditing.what_if import MOST_UNSUPPORTED
from mcfair.data.grades import EPSILON
from mcfair.service import wire
from mcfair.service.core.engine_state import LEDGER
from mcfair.service.core.rules import Rules
from mcfair.service.group_commit import GroupCommit
from mcfair.service.stores.sqlite import CHECKPOINT_AT_LATEST, PAGE
from mcfair.simulation.setting import Setting


def default(function, name):
    return inspect.signature(function).parameters[name].default


def percent(share):
    return f"{100 * share:.0f} %"


def milliseconds(name):
    return f"{1000 * default(GroupCommit, name):.0f} ms"


GUARD = mf.parse_policy(Rules().policy).guard
DEADLINE = f"{default(mf.Client, 'rank_deadline'):g}"
GAMMA = f"{Setting().gamma:g}"
LOG = f"{CHECKPOINT_AT_LATEST * PAGE / 1e6:.0f} MB"
ID, QUERY = f"{wire.MAX_ID} bytes", f"{wire.MAX_QUERY:,} bytes"
RERANK_GUARD = "90 %"  # a parameter of the code on these pages

PAGE_CONSTANTS = {
    "docs/how-to/audit.md": [percent(MOST_UNSUPPORTED), f"{MOST_ROWS // 10**6} million rows"],
    "docs/how-to/choose-alpha-and-beta.md": ["95 %"],  # a target that the reader chooses
    "docs/how-to/choose-service-rules.md": [
        *(percent(GUARD), "0.97", "0.03"),  # guards, and what they leave
        *("5 %", "40 %"),  # the candidates of the table
    ],
    "docs/how-to/compare-policies.md": [percent(wire.ArmGuard().level)],
    "docs/how-to/deploy.md": [
        *("300 MB", LOG, milliseconds("loop_seconds"), DEADLINE),
        "1.5",  # a bound that a test checks
    ],
    "docs/how-to/llm-frameworks.md": [ID, QUERY],
    "docs/how-to/other-tools.md": [RERANK_GUARD],
    "docs/how-to/read-the-report.md": ["0 %", GAMMA, "98 %"],  # 196 of 200
    "docs/how-to/run-the-service.md": [ID, QUERY, f"{LEDGER >> 20} MB"],
    "docs/how-to/runbook.md": [
        *("300 MB", DEADLINE, milliseconds("compaction_seconds")),
        *("0.25", "0.1", "1 GB", "80 %"),  # thresholds of alerts
    ],
    "docs/how-to/search-engines.md": ["5 times as"],  # a parameter of the pipeline
    "docs/explanation/floor.md": ["63 %"],  # 1/log2(3)
    "docs/explanation/paper-and-code.md": [f"{EPSILON:g}", "2.58"],  # log2(6)
    "docs/tutorial/first-run.md": [
        *(GAMMA, f"{GAMMA} times as", "0.01"),
        *("13 %", "9 %", "0.013"),  # roundings and a difference of the output on the page
    ],
    "docs/tutorial/own-data.md": [RERANK_GUARD, "45 %", "34 %", "3 %"],  # shares in the example
    "docs/tutorial/own-policy.md": [RERANK_GUARD],
    "docs/tutorial/service.md": [percent(GUARD), DEADLINE],
}
"""The constants by page."""
