"""The clock of the service: wall-clock time that neither jumps nor stops."""

from __future__ import annotations

import time
from collections.abc import Callable


def uptime() -> int:
    """Return the time since the start of the machine in ns, with the time that it was suspended where that is known."""
    source = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic_ns() if source is None else time.clock_gettime_ns(source)


class Clock:
    """A time in ms that follows the wall clock, at no less than half and no more than twice the real speed.

    Expiry, decay and maturation depend on the time. If the wall clock jumps ahead, for instance because a virtual
    machine was resumed or the time was set wrongly, this clock runs at twice the speed until it agrees again: nothing
    expires in less than half of its time. If the wall clock is set back, this clock runs at half the speed: time goes
    on. A new clock starts at the time of the wall clock, so a restart adopts a correction at once.

    The clock has state: calls must not overlap.

    Parameters
    ----------
    wall
        Returns the time of the wall clock in ns.
    steady
        Returns a time in ns that only ever grows, at the real speed.

    Examples
    --------
    >>> seconds = iter([0, 10, 20])
    >>> days = iter([0, 30, 30])
    >>> clock = Clock(lambda: next(days) * 86_400 * 10**9, lambda: next(seconds) * 10**9)
    >>> clock(), clock()
    (20000, 40000)
    """

    def __init__(self, wall: Callable[[], int] = time.time_ns, steady: Callable[[], int] = uptime) -> None:
        self.wall, self.steady = wall, steady
        self.time, self.last = wall(), steady()

    def __call__(self) -> int:
        """Return the time in ms; it never decreases."""
        now = self.steady()
        elapsed = now - self.last
        behind = self.wall() - (self.time + elapsed)
        self.time += elapsed + max(-(elapsed // 2), min(elapsed, behind))
        self.last = now
        return self.time // 1_000_000
