"""The part of the contract of stores on the totals of arms."""

from __future__ import annotations

from .arms import ArmCounter, StoredArm
from .store import KIND_IMPRESSION, LogEntry, Store


def check_arms(store: Store) -> None:
    """Check that the totals of arms are added up with the transaction that causes them, and only then."""
    one, some = ArmCounter(1, 0, 7, -3), ArmCounter(0, 2, 0, 0)
    store.begin()
    p, q = store.add_query(b"p"), store.add_query(b"q")
    for number in (p, q):
        store.append(number, LogEntry(1, 1, KIND_IMPRESSION, 1, 1, b"", None))
        store.add_to_arm(number, (4, 1, 9), one)
    store.add_to_arm(q, (4, 1, 9), some)
    store.add_to_arm(q, (4, 0, 3), one)
    store.add_to_arm(q, (5, 0, 3), one)
    store.commit()
    expected = [StoredArm(0, 3, one), StoredArm(1, 9, ArmCounter(2, 2, 14, -6))]
    assert store.arm_totals(4) == expected, "the totals of arms are not the sums of what was added"
    store.begin()
    store.add_to_arm(p, (4, 1, 9), one)
    store.rollback()
    assert store.arm_totals(4) == expected, "a transaction that was rolled back changes the totals of arms"
    store.begin()
    store.add_to_arm(p, (4, 1, 9), ArmCounter(-1, -1, -7, 3))
    store.delete_arm_totals(4)
    store.commit()
    expected[1] = StoredArm(1, 9, ArmCounter(1, 1, 7, -3))
    assert store.arm_totals(4) == expected, "what is taken back from the totals of arms is not subtracted"
    assert store.arm_totals(5) == [], "the totals of another experiment are not deleted"
