"""Frontiers of policies against figures computed by hand, and against slow versions on a fine grid."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcfair.analysis.frontiers import blend_at, effectiveness_at, hypervolume, pareto, unfairness_at
from mcfair.errors import DataError

# Unfairness 2, 4 and 8 with effectiveness 0.80, 0.90 and 0.95; the others are beaten by one of these.
X = np.array([8.0, 5.0, 2.0, 4.0, 3.0])
Y = np.array([0.95, 0.90, 0.80, 0.90, 0.79])


def test_points_that_are_beaten_do_not_count():
    assert pareto(X, Y).tolist() == [2, 3, 0]
    assert pareto([1.0, 1.0, 1.0], [3.0, 5.0, 5.0]).tolist() == [1]


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (2.0, 0.80),
        (3.0, 0.85),  # half-way from 2 to 4
        (4.0, 0.90),
        (5.0, 0.9125),  # a quarter of the way from 4 to 8
        (8.0, 0.95),
        (100.0, 0.95),  # more unfairness buys nothing more
    ],
)
def test_effectiveness_at_matched_unfairness(level, expected):
    assert effectiveness_at(X, Y, level) == pytest.approx(expected)


def test_a_level_that_is_not_reached_is_never_extrapolated():
    assert math.isnan(effectiveness_at(X, Y, 1.99))
    assert blend_at(X, Y, 1.99) is None
    assert math.isnan(unfairness_at(X, Y, 0.951))


@pytest.mark.parametrize(("level", "expected"), [(0.5, 2.0), (0.80, 2.0), (0.85, 3.0), (0.9125, 5.0), (0.95, 8.0)])
def test_unfairness_at_matched_effectiveness(level, expected):
    assert unfairness_at(X, Y, level) == pytest.approx(expected)


def test_other_values_of_the_points_are_interpolated_with_the_same_weights():
    place = blend_at(X, Y, 5.0)
    assert place == (3, 0, 0.25)
    queries = np.array([[80.0, 8.0], [0.0, 0.0], [0.0, 0.0], [40.0, 4.0], [0.0, 0.0]])
    assert place.of(queries).tolist() == [50.0, 5.0]


@pytest.mark.parametrize(
    ("low", "high", "least", "area"),
    [
        (2.0, 8.0, 0.0, 2 * 0.85 + 4 * 0.925),
        (1.0, 2.0, 0.0, 0.0),  # never reached
        (0.0, 3.0, 0.8, 0.5 * 0.05),  # from 2 to 3, a triangle
        (2.0, 8.0, 0.9, 4 * 0.025),  # below 0.9 until 4
        (2.0, 8.0, 0.85, 0.5 * 0.05 + 4 * 0.075),  # the line crosses 0.85 at 3
        (8.0, 10.0, 0.9, 2 * 0.05),  # constant beyond the last point
        (2.0, 8.0, 0.96, 0.0),
    ],
)
def test_hypervolume(low, high, least, area):
    assert hypervolume(X, Y, low, high, least) == pytest.approx(area, abs=1e-12)


def test_hypervolume_of_a_single_point_is_a_rectangle():
    assert hypervolume([1.25], [0.95], 1.0, 2.0, 0.9) == pytest.approx(0.75 * 0.05)


POINTS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=8)


def slow_effectiveness(points, level):
    """The best of all pairs of points, mixed such that their unfairness is at most the level."""
    best = -math.inf
    frontier = [a for a in points if not any(b != a and b[0] <= a[0] and b[1] >= a[1] for b in points)]
    frontier.sort()
    for (u, e), (v, f) in itertools.pairwise(frontier):
        if u <= level < v:
            best = max(best, e + (f - e) * (level - u) / (v - u))
    return max([best, *(e for u, e in frontier if u <= level)])


@settings(max_examples=40, deadline=None)
@given(points=POINTS, level=st.integers(0, 45), least=st.integers(0, 40))
def test_against_slow_versions(points, level, least):
    points = sorted(set(points))
    x, y = (np.array(column, float) for column in zip(*points, strict=True))
    slow = slow_effectiveness(points, level)
    fast = effectiveness_at(x, y, level)
    assert (math.isnan(fast) and slow == -math.inf) or fast == pytest.approx(slow)
    lowest = unfairness_at(x, y, least)
    if not math.isnan(lowest):  # the two are inverse to each other
        assert effectiveness_at(x, y, lowest) >= least - 1e-9
    grid = np.linspace(5, 35, 601)
    heights = [max(slow_effectiveness(points, at) - least, 0.0) for at in grid]
    jump = 40 * 30 / 600  # a frontier may begin between two places of the grid
    area = sum((a + b) / 2 * 0.05 for a, b in itertools.pairwise(heights))  # 600 steps from 5 to 35
    assert hypervolume(x, y, 5, 35, least) == pytest.approx(area, abs=jump)


def test_what_is_refused():
    for x, y in (([], []), ([1.0], [1.0, 2.0]), ([math.nan], [1.0])):
        with pytest.raises(DataError, match="expected finite values of at least one point"):
            pareto(x, y)
    with pytest.raises(DataError, match="low below high"):
        hypervolume([1.0], [1.0], 2.0, 2.0, 0.0)
