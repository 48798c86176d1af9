"""The function that simulates a policy."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Unpack

import numpy as np

from ..arrays import BoolArray, IntArray
from ..data.dataset import Dataset
from ..errors import DataError, MCFairWarning, SettingError, checked
from ..parts import shortened
from ..policies.base import Policy, as_policy
from ..state import State
from .run import Run
from .setting import Count, Setting, SettingOptions, make_setting
from .signatures import explicit_options
from .trace import Trace

__all__ = ["simulate"]


@explicit_options(SettingOptions)
def simulate(
    data: Dataset,
    policy: Policy | str,
    setting: Setting | str = "post-processing",
    *,
    seed: int = 0,
    checkpoints: int | Sequence[int] = 20,
    threads: int = 1,
    state: State | None = None,
    record: bool = False,
    progress: Callable[[int], None] | None = None,
    **options: Unpack[SettingOptions],
) -> Trace:
    """Simulate a policy with simulated users.

    The data carries its protocol: data loaded with a preset is simulated by the rules of that preset.

    Parameters
    ----------
    data
        The queries; of a fold, its test part.
    policy
        A policy or its text, such as "MCFair(alpha=10)".
    setting
        A `Setting`, or its mode: "post-processing" or "online".
    seed
        Everything random is a function of it.
    checkpoints
        How many, evenly spaced; or the numbers of sessions after which figures are recorded, ascending. The end of the
        run is always one.
    threads
        Threads to use; they change no bit of the result.
    state
        Where to continue from, such as the `state` of an earlier trace; sessions and draws continue where it stopped.
        Figures cover the sessions of this run.
    record
        Whether to keep every list and click.
    progress
        Called now and then with the number of sessions played since the last call.
    **options
        Fields of `Setting`: steps, k, examination, gamma, clicks, estimator, metrics.

    Returns
    -------
    Trace

    Raises
    ------
    SettingError
        If an option is unknown or a value is not allowed.
    PolicyError
        If the policy fails or returns something that is not a ranking.

    Examples
    --------
    >>> data = Dataset(offsets=[0, 3], y=[2, 1, 0])
    >>> simulate(data, "TopK", steps=100).ndcg[1]
    1.0
    """
    chosen = as_policy(policy)
    conditions = make_setting(setting, options)
    seed = checked("seed", int, seed, SettingError)
    if not 0 <= seed < 2**64:
        raise SettingError(f"seed = {seed} is not allowed: expected a whole number from 0 to 2**64 - 1")
    threads = checked("threads", Count, threads, SettingError)
    pool, judged = evaluation_pool(data)
    p = conditions.p(int(pool.sizes.max()))
    if not isinstance(state, State | None):
        raise SettingError(f"state = {shortened(state)} is not allowed: expected a State, such as that of a trace")
    now = State.empty(pool, p) if state is None else state.copy(pool, p)
    ends = checkpoint_ends(checkpoints, pool.protocol.sessions(conditions.steps))
    run = Run(pool, judged, chosen, conditions, seed=seed, state=now, ends=ends, record=record)
    seconds = run.play(threads, progress)
    return run.trace(seconds, threads)


def evaluation_pool(data: Dataset) -> tuple[Dataset, BoolArray]:
    """Return the queries that sessions are drawn from, of at least two items each, and which of them are judged."""
    if not isinstance(data, Dataset):
        raise DataError(f"expected a Dataset, got {shortened(data)}; mf.open_data opens files and named data")
    pool, judged = data.pool()
    short = int(np.count_nonzero(pool.sizes < 2))
    if short:
        message = f"{pool.name}: left out {short} of {pool.queries} queries, which have fewer than two items"
        warnings.warn(message, MCFairWarning, stacklevel=3)
        judged = judged[pool.sizes >= 2]
        pool = pool.select(min_items=2)
    return pool, judged


def checkpoint_ends(checkpoints: int | Sequence[int], sessions: int) -> IntArray:
    """Return the numbers of sessions after which figures are recorded, ascending, the last after all of them."""
    if isinstance(checkpoints, int | np.integer):
        if checkpoints < 1:
            raise SettingError(f"checkpoints = {checkpoints} is not allowed: expected at least 1")
        count = min(checkpoints, sessions)
        return np.array([sessions * (i + 1) // count for i in range(count)])
    ends = np.array(checkpoints, dtype=np.int64)
    if ends.ndim != 1 or np.any(np.diff(ends) <= 0) or (ends.size and not 1 <= ends[0] <= ends[-1] <= sessions):
        raise SettingError(f"checkpoints {list(checkpoints)} are not ascending sessions from 1 to {sessions}")
    return ends if ends.size and ends[-1] == sessions else np.append(ends, sessions)
