"""The charts of the dashboard: marks stand where the values are, whatever the values and names."""

import datetime
import math
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from mcfair.service.web.dashboard.charts import (
    HEIGHT,
    Moment,
    Pair,
    Quantity,
    bar_mark,
    dumbbell_chart,
    interval_mark,
    line_chart,
    traffic_chart,
)
from mcfair.service.web.dashboard.overview import Period, complete, trend_title
from mcfair.service.web.dashboard.ticks import nice_ticks, time_ticks
from mcfair.service.wire import History, HistoryPoint

START = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)
HOSTILE = "\"'><svg onload=x>&amp;"


def drawings(markup):
    """The wide and the narrow drawing of a chart, parsed; they must be well-formed."""
    root = ElementTree.fromstring(f"<div>{markup}</div>")
    wide, narrow = (each.find("svg") for each in root)
    assert [each.get("class") for each in root] == ["wide-only", "narrow-only"]
    return wide, narrow


def marks(drawing, tag, kind):
    return [each for each in drawing.iter(tag) if each.get("class", "").startswith(kind)]


def places(path):
    """The points of a path of straight lines."""
    return [tuple(map(float, each.split())) for each in path.get("d").strip("MZ").split("L")]


def times(count):
    return [START + i * HOUR for i in range(count)]


def test_lines_are_linear_in_time_and_value():
    values, floor = [0.0, 2.0, 4.0, 8.0], [0.0, 1.0, 1.0, 1.0]
    series = [Quantity("unfairness", values, "main"), Quantity("floor", floor, "reference")]
    for drawing in drawings(line_chart(times(4), series, "label", [Moment(START + HOUR, "version 2")])):
        ((main,), (reference,)) = marks(drawing, "path", "line main"), marks(drawing, "path", "line reference")
        points = places(main)
        steps = [b[0] - a[0] for a, b in pairwise(points)]
        assert max(steps) - min(steps) < 0.11  # places have one decimal
        zero = points[0][1]
        for (_, y), value in zip(points, values, strict=True):
            assert zero - y == pytest.approx((zero - points[-1][1]) * value / 8, abs=0.1)
        assert [y for _, y in places(reference)][1:] == [pytest.approx(zero - (zero - points[-1][1]) / 8, abs=0.1)] * 3
        (moment,) = marks(drawing, "line", "event")
        assert float(moment.get("x1")) == pytest.approx(points[1][0], abs=0.1)
        titles = [each.find("title").text for each in marks(drawing, "rect", "hover")]
        assert titles[3] == "1 Mar, 03:00: unfairness 8.00, floor 1.00"


def test_bars_are_as_high_as_the_counts():
    counts = [0, 10, 20, 40]
    bars, over = Quantity("lists", counts, "light"), Quantity("clicks", [0, 5, 5, 5], "main")
    for drawing in drawings(traffic_chart(times(4), bars, over, 3600.0, "label")):
        heights = [float(each.get("height")) for each in marks(drawing, "rect", "bar light")]
        assert heights == [pytest.approx(heights[-1] * count / 40, abs=0.1) for count in counts]
        (line,) = marks(drawing, "path", "line main")
        middles = [float(each.get("x")) + float(each.get("width")) / 2 for each in marks(drawing, "rect", "bar light")]
        assert [x for x, _ in places(line)] == [pytest.approx(x, abs=0.1) for x in middles]


def test_dumbbells_stand_at_their_shares():
    pairs = [Pair("a", 0.1, 0.3), Pair("b", 0.4, 0.2), Pair("c", 0.0, 0.0)]
    for drawing in drawings(dumbbell_chart(pairs, "label")):
        had = [float(each.get("cx")) for each in marks(drawing, "circle", "had")]
        zero, scale = had[2], (had[0] - had[2]) / 0.3
        assert had[1] == pytest.approx(zero + 0.2 * scale, abs=0.1)
        due = [float(each.get("d")[1:].split()[0]) for each in marks(drawing, "path", "due")]
        assert due == [pytest.approx(zero + pair.due * scale, abs=0.1) for pair in pairs]
        assert [each.text for each in marks(drawing, "text", "gap")] == ["+20.0", "\N{MINUS SIGN}20.0", "0.0"]


@pytest.mark.parametrize("values", [[0.0, 0.0], [1e-300, 1e-300], [1e12, 3.0], [5.0, 5.0]], ids=str)
def test_unusual_values_stay_inside(values):
    charts = [
        line_chart(times(2), [Quantity("a", values, "main"), Quantity("b", [0.0, 0.0], "reference")], "label"),
        traffic_chart(times(2), Quantity("a", values, "light"), Quantity("b", [0, 0], "main"), 3600.0, "label"),
    ]
    for drawing in (each for chart in charts for each in drawings(chart)):
        for path in marks(drawing, "path", "line"):
            assert all(0 <= y <= HEIGHT and math.isfinite(x) for x, y in places(path))


def test_names_are_escaped_and_kept_whole_in_titles():
    name = HOSTILE * 4
    for drawing in drawings(dumbbell_chart([Pair(name, 0.5, 0.5)], HOSTILE)):
        assert drawing.get("aria-label") == HOSTILE
        assert [each.text for each in drawing.iter("title")] == [f"{name}: 50.0 % had, 50.0 % due"]
        (shown,) = marks(drawing, "text", "name")
        assert len(shown.text) == 24
    for mark in (bar_mark(2.0), interval_mark(-1.0, 0.5, 7.0)):
        assert ElementTree.fromstring(mark).get("aria-hidden") == "true"


def test_ticks_cover_their_range():
    for top in (1e-9, 0.3, 0.87, 1.0, 7.0, 99.0, 12_345.0):
        ticks = nice_ticks(top)
        assert ticks[0] == 0.0
        assert ticks[-2] < top <= ticks[-1] * (1 + 1e-9)
        assert 2 <= len(ticks) <= 7
    for hours in (1, 24, 168, 672, 8_760):
        found = time_ticks(START.timestamp(), START.timestamp() + 3600 * hours, 7)
        assert 1 <= len(found) <= 8
        assert all(START.timestamp() <= tick <= START.timestamp() + 3600 * hours for tick, _ in found)


def point(hour, lists, unfairness):
    return HistoryPoint(
        start=START + hour * HOUR, resolution="hour", lists=lists, clicks=0, retracted=0, queries=None,
        unfairness=unfairness, floor=None if unfairness is None else 1e-20, version=None, groups=[], others=None,
    )  # fmt: skip


def test_periods_without_a_record_repeat_the_figures_before():
    history = History(points=[point(0, 5, 1.0), point(2, 7, None), point(4, 2, 3.0)], as_of=None)
    periods = complete(history, datetime.timedelta(hours=24))
    assert [each.lists for each in periods] == [5, 0, 7, 0, 2]
    assert [each.unfairness for each in periods] == [1.0, 1.0, 1.0, 1.0, 3.0]
    assert {each.floor for each in periods} == {0.0}  # rounding errors
    assert [each.lists for each in complete(history, 2 * HOUR)] == [0, 2]
    assert complete(History(points=[], as_of=None), HOUR) == []


@pytest.mark.parametrize(
    ("unfairness", "floor", "title"),
    [
        ([4.0, 6.0], [2.0, 2.0], "Unfairness rose from 2.00 to 3.00 times its floor"),
        ([6.0, 4.0], [2.0, 2.0], "Unfairness fell from 3.00 to 2.00 times its floor"),
        ([4.0, 8.0], [2.0, 4.0], "Unfairness keeps to 2.00 times its floor"),
        ([1.0, 9.0, 3.0], [0.0, 0.0, 0.0], "Unfairness has fallen from 9.00 to 3.00"),
        ([1.0, 9.0], [0.0, 0.0], "Unfairness is now 9.00, its floor 0"),
        ([0.0, 0.0], [0.0, 0.0], "Unfairness is now 0, its floor 0"),
    ],
)
def test_title_states_the_trend(unfairness, floor, title):
    periods = [Period(START, 3600.0, 1, 1, u, f) for u, f in zip(unfairness, floor, strict=True)]
    assert trend_title(periods) == title
