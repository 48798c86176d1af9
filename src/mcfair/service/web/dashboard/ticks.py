"""Round numbers and times for the axes of charts."""

from __future__ import annotations

import datetime
import math


def nice_ticks(top: float, count: int = 4) -> list[float]:
    """Return round numbers from 0 to at least a given one, about as many as asked for.

    Examples
    --------
    >>> nice_ticks(0.87), nice_ticks(130.0), nice_ticks(0.0)
    ([0.0, 0.25, 0.5, 0.75, 1.0], [0.0, 50.0, 100.0, 150.0], [0.0, 1.0])
    """
    if not top > 0.0:
        return [0.0, 1.0]
    raw = top / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(each * power for each in (1.0, 2.0, 2.5, 5.0, 10.0) if each * power >= raw * (1 - 1e-9))
    return [i * step for i in range(math.ceil(top / step - 1e-9) + 1)]


def format_tick(value: float) -> str:
    """Format a round number for an axis.

    Examples
    --------
    >>> [format_tick(value) for value in (0.0, 0.25, 50.0, 20_000.0)]
    ['0', '0.25', '50', '20,000']
    """
    return f"{value:,.10g}"


HOUR, DAY = 3600.0, 86_400.0
STEPS = (HOUR / 4, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 30 * DAY, 90 * DAY, 365 * DAY)


def time_ticks(first: float, last: float, count: int) -> list[tuple[float, str]]:
    """Return round times between two of them, in seconds, with their labels; at most as many as asked for."""
    step = next((each for each in STEPS if (last - first) / each <= count), STEPS[-1])
    found = []
    tick = math.ceil(first / step) * step
    while tick <= last:
        time = datetime.datetime.fromtimestamp(tick, datetime.UTC)
        found.append((tick, f"{time:%H:%M}" if tick % DAY else f"{time.day} {time:%b}"))
        tick += step
    return found
