"""Counters that are added up for the arms of an experiment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

ArmKey = tuple[int, int, int]
"""An experiment, an arm of it, and the bucket of sessions of the arm."""


class ArmCounter(NamedTuple):
    """Whole numbers that are added up for an arm: lists, clicks, and sums over the lists in fixed-point units."""

    lists: int
    clicks: int
    ndcg: int
    unfairness: int

    def plus(self, other: ArmCounter) -> ArmCounter:
        """Return the sum of two counters."""
        return ArmCounter(*(a + b for a, b in zip(self, other, strict=True)))

    def minus(self, other: ArmCounter) -> ArmCounter:
        """Return the difference of two counters."""
        return ArmCounter(*(a - b for a, b in zip(self, other, strict=True)))


class StoredArm(NamedTuple):
    """The totals of one bucket of an arm."""

    arm: int
    bucket: int
    totals: ArmCounter

    @classmethod
    def of(cls, row: Sequence[int]) -> StoredArm:
        """Build it from a row: experiment, arm, bucket, and the totals."""
        return cls(row[1], row[2], ArmCounter(*row[3:]))


class ArmTotals(Protocol):
    """The part of a `Store` that adds up the totals of arms."""

    def add_to_arm(self, number: int, key: ArmKey, amounts: ArmCounter) -> None:
        """Add to the totals of an arm because of a write to a query; if the query loses, nothing is added."""

    def arm_totals(self, experiment: int) -> list[StoredArm]:
        """Return the totals of an experiment, ordered by arm and bucket."""

    def delete_arm_totals(self, kept: int) -> None:
        """Delete the totals of every experiment but one."""
