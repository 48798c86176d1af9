"""Where the reads of an application are executed."""

from __future__ import annotations

from ..background.process import ProcessReads, Reads
from ..background.thread import ThreadReads
from ..background.worker import Read
from ..operations import OPERATIONS
from ..ranker import Ranker
from .dashboard.rendering import PAGE_READS

READS = PAGE_READS | {
    name: Read(each.function, {"body": each.decode_as, "options": each.options})
    for name, each in OPERATIONS.items()
    if each.runs == "background"
}
"""Every read by name: operations of the API, and pages."""


def background_of(ranker: Ranker) -> Reads:
    """Return what executes the reads of an application."""
    if ranker.background == "process":
        return ProcessReads(ranker.url, ranker.executor, ranker.intervals)
    return ThreadReads(ranker.worker, ranker.executor, READS)
