"""Numbers, times and names as the dashboard writes them."""

from __future__ import annotations

import datetime
import math

NOTHING = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"
LARGE = 10_000
UNITS = ("", " k", " M", " G", " T")


def format_count(value: float) -> str:
    """Format a number of things: in full below 10,000, above with three digits and a unit.

    Examples
    --------
    >>> [format_count(value) for value in (0, 2.5, 9_999, 12_345, 999_999, 1_234_567)]
    ['0', '2.5', '9,999', '12.3 k', '1.00 M', '1.23 M']
    """
    if abs(value) < LARGE:
        return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"
    return scaled(value, 1000.0, UNITS)


def format_bytes(value: float) -> str:
    """Format a size in bytes.

    Examples
    --------
    >>> [format_bytes(value) for value in (0, 999, 123_456, 5_000_000_000)]
    ['0 B', '999 B', '123 kB', '5.00 GB']
    """
    return scaled(value, 1000.0, (" B", " kB", " MB", " GB", " TB"))


def scaled(value: float, step: float, units: tuple[str, ...]) -> str:
    """Format a number to three digits with the unit that suits its size."""
    i = 0
    while abs(value) >= 999.5 and i < len(units) - 1:
        value, i = value / step, i + 1
    places = 0 if i == 0 else max(0, 2 - math.floor(math.log10(max(abs(value), 1.0)) + 1e-9))
    return f"{value:,.{places}f}{units[i]}"


def format_figure(value: float | None) -> str:
    """Format a measured value to three significant digits.

    Examples
    --------
    >>> [format_figure(value) for value in (0.0, 0.012345, 3.14159, 27_182.8, 1.5e-9, None)]
    ['0', '0.0123', '3.14', '27,183', '1.5e-09', '–']
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    if value == 0.0:
        return "0"
    if abs(value) < 1e-4:
        return f"{value:.1e}"
    return f"{value:,.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def format_share(value: float) -> str:
    """Format a share as a percentage.

    Examples
    --------
    >>> [format_share(value) for value in (0.0, 0.0004, 0.0512, 0.51234, 1.0)]
    ['0 %', '< 0.1 %', '5.1 %', '51.2 %', '100 %']
    """
    if value in (0.0, 1.0):
        return f"{100 * value:.0f} %"
    return "< 0.1 %" if 0.0 < value < 0.0005 else f"{100 * value:.1f} %"


def format_points(value: float) -> str:
    """Format a difference of shares in percentage points, with its sign.

    Examples
    --------
    >>> [format_points(value) for value in (0.041, -0.12, 0.0)]
    ['+4.1', '−12.0', '0.0']
    """
    text = f"{100 * abs(value):.1f}"
    return text if text == "0.0" else ("+" if value > 0 else MINUS) + text


def format_ratio(value: float) -> str:
    """Format a ratio, such as the unfairness over its floor.

    Examples
    --------
    >>> [format_ratio(value) for value in (1.0, 1.234, 12.34, 1234.5)]
    ['1.00', '1.23', '12.3', '1,234']
    """
    return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f}"


def format_seconds(value: float | None) -> str:
    """Format a short duration.

    Examples
    --------
    >>> [format_seconds(value) for value in (0.00123, 0.25, 4.0, 90.0, 7_200, 200_000, None)]
    ['1.2 ms', '250 ms', '4.0 s', '1.5 min', '2 h', '2.3 d', '–']
    """
    if value is None:
        return NOTHING
    for limit, unit, size in ((1.0, "ms", 1e-3), (60.0, "s", 1.0), (3600.0, "min", 60.0), (172_800.0, "h", 3600.0)):
        if value < limit:
            number = value / size
            return f"{number:.{1 if number < 10 and unit != 'h' else 0}f} {unit}"
    return f"{value / 86_400:.1f} d"


def format_time(time: datetime.datetime) -> str:
    """Format a time to the minute, in UTC.

    Examples
    --------
    >>> format_time(datetime.datetime(2026, 3, 1, 9, 5, tzinfo=datetime.UTC))
    '1 Mar 2026, 09:05'
    """
    return f"{time.day} {time:%b %Y, %H:%M}"


def plural(count: float, noun: str) -> str:
    """Return a number of things with their noun.

    Examples
    --------
    >>> plural(1, "list"), plural(12_345, "query")
    ('1 list', '12.3 k queries')
    """
    many = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{format_count(count)} {noun if count == 1 else many}"


def tie(text: str) -> str:
    r"""Join percent signs to their numbers, so that no line begins with one.

    Examples
    --------
    >>> tie("5 % of 9 %")
    '5\xa0% of 9\xa0%'
    """
    return text.replace(" %", "\xa0%")


def shorten(text: str, length: int) -> str:
    """Shorten a name to so many characters; the end is kept, because ids often differ there.

    Examples
    --------
    >>> shorten("short", 10), shorten("a-rather-long-identifier-17", 13)
    ('short', 'a-rat…fier-17')
    """
    if len(text) <= length:
        return text
    end = length // 2 + 1
    return f"{text[: length - end - 1]}…{text[-end:]}"
