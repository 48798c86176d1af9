"""Charts as inline SVG, drawn on the server: they need no script, follow the colours of the page, and can be printed.

Every chart is drawn twice, for a wide and a narrow window, because text in a picture that shrinks cannot be read; the
stylesheet shows one of the two. Marks have titles, which browsers show under the pointer. Colours are classes of the
stylesheet, so that one drawing serves light and dark.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup, escape

from .formatting import format_count, format_figure, format_points, format_share, shorten
from .ticks import format_tick, nice_ticks, time_ticks

FULL, WIDE, NARROW = 1120, 560, 320
"""Widths of drawings: for the whole page, for half of it, and for a phone. Text is readable at about this size."""

HEIGHT = 220
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 14, 26
"""Margins around the marks of a chart over time, for the labels of its axes."""

ROW, PAD = 30, 30
"""Height of a row of a dumbbell chart, and of its axis."""


class Quantity(NamedTuple):
    """A quantity over time: its name, its values, and the class of its marks."""

    name: str
    values: Sequence[float]
    kind: str


class Moment(NamedTuple):
    """A moment that a chart over time marks, such as a change of the policy."""

    time: datetime.datetime
    text: str


class Pair(NamedTuple):
    """A row of a dumbbell chart: a name, the share that is due and the share that was had."""

    name: str
    due: float
    had: float


def element(tag: str, *children: Markup | str, **attributes: object) -> Markup:
    """Build an element; texts and values are escaped, and numbers are written with at most one decimal."""
    parts = [f"<{tag}"]
    for name, value in attributes.items():
        text = f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else escape(value)
        parts.append(f' {name.rstrip("_").replace("_", "-")}="{text}"')
    return Markup("".join([*parts, ">", *map(escape, children), f"</{tag}>"]))


def both_widths(draw: Callable[[int], Markup], wide: int = WIDE) -> Markup:
    """Draw a chart for wide and for narrow windows."""
    return element("div", draw(wide), class_="wide-only") + element("div", draw(NARROW), class_="narrow-only")


def picture(width: int, height: float, label: str, *children: Markup) -> Markup:
    """Build the SVG element of a chart; the label says what it shows to those who cannot see it."""
    return element("svg", *children, class_="chart", viewBox=f"0 0 {width} {height:g}", role="img", aria_label=label)


# --- axes ------------------------------------------------------------------------------------------------------------


class Plane:
    """The coordinates of a chart over time: seconds to the right, a quantity from 0 upwards."""

    def __init__(self, width: int, first: float, last: float, ticks: list[float]) -> None:
        self.width, self.first, self.last = width, first, max(last, first + 1.0)
        self.ticks = ticks

    def x(self, time: float) -> float:
        """Return the horizontal place of a time."""
        return LEFT + (self.width - LEFT - RIGHT) * (time - self.first) / (self.last - self.first)

    def y(self, value: float) -> float:
        """Return the vertical place of a value."""
        return TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - value / self.ticks[-1])

    def axes(self, label: Callable[[float], str]) -> Markup:
        """Draw the grid and the labels of both axes."""
        marks = []
        for tick in self.ticks:
            y = self.y(tick)
            marks.append(element("line", class_="grid-line", x1=LEFT, x2=self.width - RIGHT, y1=y, y2=y))
            marks.append(element("text", label(tick), class_="tick end", x=LEFT - 7, y=y + 4))
        for time, text in time_ticks(self.first, self.last, 4 if self.width == NARROW else 7):
            marks.append(element("text", text, class_="tick middle", x=self.x(time), y=HEIGHT - 7))
        return Markup("").join(marks)


# --- charts over time ------------------------------------------------------------------------------------------------


def line_chart(
    times: Sequence[datetime.datetime], series: Sequence[Quantity], label: str, events: Sequence[Moment] = ()
) -> Markup:
    """Draw quantities over time as lines; the space between the first two is tinted.

    Parameters
    ----------
    times
        When the values were taken, ascending.
    series
        The quantities, the one that matters first.
    label
        The chart in one sentence.
    events
        Moments to mark by a vertical line.

    Returns
    -------
    Markup
    """
    at = [time.timestamp() for time in times]
    ticks = nice_ticks(max(value for each in series for value in each.values))

    def draw(width: int) -> Markup:
        plane = Plane(width, at[0], at[-1], ticks)
        marks = [plane.axes(format_tick)]
        if len(series) > 1:
            marks.append(band(plane, at, series[0].values, series[1].values))
        marks += [event_mark(plane, each) for each in events if at[0] <= each.time.timestamp() <= at[-1]]
        marks += [line(plane, at, each) for each in reversed(series)]
        marks.append(hover_columns(plane, times, series, format_figure))
        return picture(width, HEIGHT, label, *marks)

    return both_widths(draw)


def line(plane: Plane, at: Sequence[float], series: Quantity) -> Markup:
    """Draw a line through values, and a dot at the last one."""
    points = [(plane.x(time), plane.y(value)) for time, value in zip(at, series.values, strict=True)]
    dot = element("circle", class_=f"dot {series.kind}", cx=points[-1][0], cy=points[-1][1], r=3.5)
    return element("path", class_=f"line {series.kind}", d=path_through(points)) + dot


def band(plane: Plane, at: Sequence[float], upper: Sequence[float], lower: Sequence[float]) -> Markup:
    """Tint the space between two lines."""
    there = [(plane.x(time), plane.y(value)) for time, value in zip(at, upper, strict=True)]
    back = [(plane.x(time), plane.y(value)) for time, value in zip(at, lower, strict=True)]
    return element("path", class_="band", d=path_through([*there, *reversed(back)]) + "Z")


def path_through(points: Sequence[tuple[float, float]]) -> str:
    """Return the description of a path through points."""
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def event_mark(plane: Plane, event: Moment) -> Markup:
    """Mark a moment by a vertical line with a title."""
    x = plane.x(event.time.timestamp())
    mark = element("line", class_="event", x1=x, x2=x, y1=TOP, y2=HEIGHT - BOTTOM)
    return element(
        "g", element("title", event.text), mark, element("path", class_="flag", d=f"M{x:.1f} {TOP}l7 4l-7 4z")
    )


def hover_columns(
    plane: Plane, times: Sequence[datetime.datetime], series: Sequence[Quantity], form: Callable[[float], str]
) -> Markup:
    """Draw a column for every time, with the values as its title; the stylesheet shows it under a pointer only."""
    width = (plane.width - LEFT - RIGHT) / max(1, len(times) - 1)
    columns = []
    for i, time in enumerate(times):
        values = ", ".join(f"{each.name} {form(each.values[i])}" for each in series)
        title = element("title", f"{time.day} {time:%b, %H:%M}: {values}")
        x = plane.x(time.timestamp()) - width / 2
        columns.append(
            element("rect", title, class_="hover", x=x, y=TOP, width=max(width, 1.0), height=HEIGHT - TOP - BOTTOM)
        )
    return Markup("").join(columns)


def traffic_chart(
    times: Sequence[datetime.datetime], bars: Quantity, over: Quantity, seconds: float, label: str
) -> Markup:
    """Draw two counts of periods: one as bars, the other as a line in front of them.

    Parameters
    ----------
    times
        When each period begins, ascending.
    bars, over
        The counts.
    seconds
        Length of each period.
    label
        The chart in one sentence.

    Returns
    -------
    Markup
    """
    begin = [time.timestamp() for time in times]
    middle = [time + seconds / 2 for time in begin]
    ticks = nice_ticks(max(*bars.values, *over.values))

    def draw(width: int) -> Markup:
        plane = Plane(width, begin[0], begin[-1] + seconds, ticks)
        step = plane.x(begin[0] + seconds) - plane.x(begin[0])
        marks = [plane.axes(format_tick)]
        for time, value in zip(begin, bars.values, strict=True):
            y = plane.y(value)
            size = {"width": 0.84 * step, "height": HEIGHT - BOTTOM - y}
            marks.append(element("rect", class_=f"bar {bars.kind}", x=plane.x(time) + 0.08 * step, y=y, **size))
        marks.append(line(plane, middle, over))
        columns = Plane(width, begin[0] - seconds / 2, begin[-1] + seconds / 2, ticks)
        marks.append(hover_columns(columns, times, [bars, over], format_count))
        return picture(width, HEIGHT, label, *marks)

    return both_widths(draw)


# --- shares ----------------------------------------------------------------------------------------------------------


def dumbbell_chart(pairs: Sequence[Pair], label: str, words: tuple[str, str] = ("had", "due")) -> Markup:
    """Draw the share that is due (a hollow diamond) and the share that was had (a dot), one row for each name.

    Parameters
    ----------
    pairs
        The rows, from the top.
    label
        The chart in one sentence.
    words
        What the dot and the diamond are called under the pointer.

    Returns
    -------
    Markup
    """
    top = max((max(each.due, each.had) for each in pairs), default=1.0)

    def draw(width: int) -> Markup:
        narrow = width == NARROW
        row = ROW + 14 if narrow else ROW
        left, right = (12, 12) if narrow else (190, 64)
        ticks = nice_ticks(top, 3 if narrow else 5)
        height = row * len(pairs) + PAD

        def x(share: float) -> float:
            return left + (width - left - right) * share / ticks[-1]

        marks = []
        for tick in ticks:
            marks.append(element("line", class_="grid-line", x1=x(tick), x2=x(tick), y1=4, y2=height - PAD + 4))
            kind = "tick end" if narrow and tick == ticks[-1] else "tick middle" if tick or not narrow else "tick"
            marks.append(element("text", f"{100 * tick:g} %", class_=kind, x=x(tick), y=height - 9))
        for i, each in enumerate(pairs):
            y = row * i + (row - 10 if narrow else row / 2)
            place = {"x": left if narrow else left - 12, "y": y - 14 if narrow else y + 4}
            name = element("text", shorten(each.name, 24), class_="name" if narrow else "name end", **place)
            gap = element(
                "text", format_points(each.had - each.due), class_="gap end", x=width - 4, y=y - 14 if narrow else y + 4
            )
            title = f"{each.name}: {format_share(each.had)} {words[0]}, {format_share(each.due)} {words[1]}"
            due, had = x(each.due), x(each.had)
            marks.append(
                element(
                    "g",
                    element("title", title),
                    element("rect", class_="hover", x=0, y=row * i, width=width, height=row),
                    name,
                    element("line", class_="join", x1=due, x2=had, y1=y, y2=y),
                    element("path", class_="due", d=f"M{due:.1f} {y - 6:g}l6 6l-6 6l-6 -6z"),
                    element("circle", class_="had", cx=had, cy=y, r=5.5),
                    gap,
                )
            )
        return picture(width, height, label, *marks)

    return both_widths(draw, FULL)


def interval_mark(low: float, value: float, high: float) -> Markup:
    """Draw an estimate between 0 and 1 with its interval, as small as a word.

    Examples
    --------
    >>> "interval" in interval_mark(0.1, 0.2, 0.4)
    True
    """
    width, middle = 96.0, 8.0

    def x(share: float) -> float:
        return 4.0 + (width - 8.0) * min(max(share, 0.0), 1.0)

    marks: list[Any] = [
        element("line", class_="rail", x1=x(0.0), x2=x(1.0), y1=middle, y2=middle),
        element("line", class_="interval", x1=x(low), x2=x(high), y1=middle, y2=middle),
        element("circle", class_="had", cx=x(value), cy=middle, r=4.0),
    ]
    return element("svg", *marks, class_="mark", viewBox=f"0 0 {width:g} 16", aria_hidden="true")


def bar_mark(share: float) -> Markup:
    """Draw a share of the largest value as a bar, as small as a word.

    Examples
    --------
    >>> "rect" in bar_mark(0.5)
    True
    """
    bar = element(
        "rect", class_="bar main", x=0, y=3, width=max(96.0 * min(max(share, 0.0), 1.0), 1.0), height=10, rx=2
    )
    return element("svg", bar, class_="mark", viewBox="0 0 96 16", aria_hidden="true")
