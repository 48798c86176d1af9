"""The engine: all operations that write, without threads and without a network.

The caller runs operations one at a time, inside a transaction of the store. Every operation reads and decides first and
writes last, so an operation that raises one of our errors has written nothing and the transaction can go on.
"""

from __future__ import annotations

from .compaction import CompactionOperations
from .feedback import FeedbackOperations
from .importing import ImportOperations
from .installing import InstallOperations
from .keys import KeyOperations
from .ranking import RankOperations


class Engine(
    RankOperations,
    FeedbackOperations,
    CompactionOperations,
    ImportOperations,
    KeyOperations,
    InstallOperations,
):
    """Every operation of the service; see `EngineState` for the parameters."""
