"""Experiments (A/B tests): the arm of a session, and the figures of a list by which arms are compared."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...arrays import FloatArray, IntArray
from ...metrics.exposure import dots
from ..stores import ArmCounter
from ..wire import CONTROL, OnlineExperiment
from .ids import IdSigner
from .records import Assignment, is_clicked, is_exposed
from .rules import Rules

BUCKETS = 64
"""Buckets of sessions of each arm. Sessions are independent of each other, lists of one session are not: the spread of
an arm's figures is therefore that between its buckets, and no session has to be stored."""

UNIT = 10**9
"""Fixed-point units of the figures of a list: sums of whole numbers do not depend on their order."""


def assign(ids: IdSigner, rules: Rules, session: str | None) -> tuple[int, int] | None:
    """Return the arm of a session, 0 for the control, and its bucket; None without an experiment or a session.

    Both follow from a keyed hash of the name of the experiment and the session, so they are the same on every instance
    and after every restart. The sessions of a stopped arm have none: the control did not show all of their lists.
    """
    experiment = rules.experiment
    if experiment is None or session is None:
        return None
    digest = ids.keyed_hash(f"{len(experiment.name)} {experiment.name}{session}".encode(), 16, b"session")
    point, bucket = int.from_bytes(digest[:8], "big") / 2**64, int.from_bytes(digest[8:], "big") % BUCKETS
    end = 0.0
    for number, arm in enumerate(experiment.arms, start=1):
        end += arm.share
        if point < end:
            return (number, bucket) if arm.stopped is None else None
    return 0, bucket


def arm_policy(rules: Rules, arm: int) -> str | None:
    """Return the policy of an arm; None for the control, which has that of the rules."""
    return None if arm == 0 or rules.experiment is None else rules.experiment.arms[arm - 1].policy


def arm_name(experiment: OnlineExperiment | None, assignment: Assignment | None) -> str | None:
    """Return the name of the arm of an impression, None if it has none."""
    if experiment is None or assignment is None:
        return None
    return CONTROL if assignment.arm == 0 else experiment.arms[assignment.arm - 1].name


class ListFigures(NamedTuple):
    """The figures of a list by the estimates of its time: its NDCG, and the unfairness that it adds."""

    ndcg: float
    unfairness: float

    def fixed(self) -> tuple[int, int]:
        """Return the figures in fixed-point units."""
        return round(self.ndcg * UNIT), round(self.unfairness * UNIT)


def figures_of(R: FloatArray, E: FloatArray, p: FloatArray, pi: IntArray) -> ListFigures:
    """Compute the figures of a list of k ranks, given relevance and exposure of the candidates before it.

    Exposure is fair on the line through R, and unfairness (Eq. 8) is a multiple of the squared distance from it:
    `U = 2/(n(n-1)) |R|² d²`. A list that gives the exposure e adds `(d(E + e) - d(E)) / |e|`, the change of that
    distance relative to its own length: from -1 to 1, below 0 if it makes up for earlier lists. Over all lists the
    changes sum to the distance at the end. So arms that share a ledger share its unfairness out among them, and two
    arms with one policy get the same, whatever their shares of the sessions.

    Parameters
    ----------
    R, E : (candidates,) arrays
    p : (k,) array
        Examination probabilities.
    pi : (k,) array
        The candidates of the list.

    Returns
    -------
    ListFigures

    Examples
    --------
    Two items of equal relevance, of which one was shown three times; either of them is shown next:

    >>> R, E, p = np.array([0.5, 0.5]), np.array([3.0, 0.0]), np.ones(1)
    >>> [round(figures_of(R, E, p, np.array([d])).unfairness, 3) for d in (0, 1)]
    [0.707, -0.707]
    """
    best = float(np.sort(R)[::-1][: pi.size] @ np.sort(p)[::-1])
    ndcg = float(R[pi] @ p) / best if best > 0.0 else 1.0
    e = np.zeros(R.size)
    e[pi] = p
    given = math.sqrt(float(e @ e))
    added = (distance(E + e, R) - distance(E, R)) / given if given > 0.0 else 0.0
    return ListFigures(ndcg, added)


def distance(E: FloatArray, R: FloatArray) -> float:
    """Return the distance of exposure from the line through R; 0 if no item is relevant, as in Eq. 8."""
    er, rr = dots(E, R)
    gap = E - er / rr * R if rr > 0.0 else np.zeros(1)
    return math.sqrt(float(gap @ gap))


def counted(assignment: Assignment, bits: bytes) -> ArmCounter:
    """Return what a list counts for its arm in a feedback state: nothing until a rank of it was shown."""
    if not any(map(is_exposed, bits)):
        return ArmCounter(0, 0, 0, 0)
    return ArmCounter(1, sum(map(is_clicked, bits)), assignment.ndcg, assignment.unfairness)
