"""Compilation of what ranks, before it ranks: at the start, and in a thread while only those wait who asked for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from ..errors import MCFairError, UnavailableError
from ..policies.selection import policy_call
from .core.engine import Engine
from .core.explanations import explain
from .core.reports import find_query, query_state
from .core.rules import Kernels, NotCompiledError, Rules, Version
from .stores import SQLiteStore
from .wire import Event, Item, RankRequest, with_raw_items
from .work_items import WorkItem, resolve_all

COMMON = ("MCFair", "MMF", "FairCo", "TopK")
"""Policies that are compiled at the start, whatever the rules."""

MAX_WAITING = 256
"""Maximum number of operations that wait for something to be compiled."""

RETRY_AFTER = 5.0
"""When an operation that was refused may be tried again, in seconds."""


def warm_up(rules: Rules, policies: Sequence[str]) -> set[Kernels]:
    """Compile or load every kernel that a request may need under some rules, with each of some policies."""
    scratch = Engine(SQLiteStore(None), lambda stored: rules)
    try:
        for policy in dict.fromkeys(policies):
            for n in (3, 40):
                request = RankRequest(query="warm", items=[Item(str(i)) for i in range(n)], k=2, policy=policy)
                answer = scratch.rank(with_raw_items(request))
                scratch.feedback([Event(impression=str(answer.impression), item=answer.items[0].id)])
                with scratch.store.read_transaction():
                    explain(scratch.store, str(answer.impression))
        with scratch.store.read_transaction():
            query_state(*find_query(scratch.store, "warm"), scratch.now())
        return {scratch.repository.with_policy(scratch.version, policy).kernels for policy in policies}
    finally:
        scratch.store.close()


class Compiler:
    """Compile what operations need that the engine has refused for it; then queue them again.

    Parameters
    ----------
    queue
        Queues an operation; it raises UnavailableError if there is no room, or the service is stopping.
    """

    def __init__(self, queue: Callable[[WorkItem], None]) -> None:
        self.queue = queue
        self.places = threading.BoundedSemaphore(MAX_WAITING)
        self.thread = ThreadPoolExecutor(1, "mcfair-compile")

    def add(self, item: WorkItem, error: NotCompiledError) -> None:
        """Compile what an operation needs, and queue it again."""
        if not self.places.acquire(blocking=False):
            item.error = UnavailableError("other policies are being compiled, and nothing was changed", RETRY_AFTER)
            resolve_all([item])
        else:
            self.thread.submit(self.compile, item, error)

    def compile(self, item: WorkItem, error: NotCompiledError) -> None:
        """Compile, unless that was done for an earlier operation."""
        try:
            if error.version.kernels not in error.compiled:
                compile_version(error.version)
                error.compiled.add(error.version.kernels)
            item.error = None
            self.queue(item)
        except Exception as failure:
            item.error = failure
            resolve_all([item])
        finally:
            self.places.release()

    def close(self) -> None:
        """Compile nothing more; what waits is refused once the executor takes no more operations."""
        self.thread.shutdown(wait=False)


def compile_version(version: Version) -> None:
    """Compile the policy of a version of the rules, and everything else that ranking under these rules needs.

    A kernel that does not compile is an error; one that fails on the data used here may not fail on other data.
    """
    policy_call(version.policy)
    with suppress(MCFairError):
        warm_up(version.rules, [version.rules.policy])
