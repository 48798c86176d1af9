"""Intervals from resamples: they hold their estimates, and the expected figure in about 95 % of simulated logs."""

import numpy as np
import pytest

from mcfair.analysis.resampling import interval

LOGS, QUERIES, RESAMPLES = 400, 60, 200


def mean(weights, x, y):
    """The mean of a skewed figure over queries."""
    return weights @ x / weights.sum(axis=1)


def ratio(weights, x, y):
    """A ratio of sums over queries, as shares and click rates are."""
    return (weights @ (x * y)) / (weights @ y)


@pytest.mark.parametrize("figure", [mean, ratio])
def test_coverage_over_queries(figure):
    """Queries are exponential: x is a figure, y a size. The expectation of both is 1."""
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(LOGS):
        x, y = rng.exponential(size=(2, QUERIES))
        weights = rng.multinomial(QUERIES, np.full(QUERIES, 1 / QUERIES), RESAMPLES).astype(float)
        estimate = figure(np.ones((1, QUERIES)), x, y)[0]
        low, high = interval(figure(weights, x, y), estimate)
        assert low <= estimate <= high
        held += low <= 1 <= high
    # The standard error of the coverage is 1.1 %; skewed figures of 60 queries cost a few percent.
    assert 0.90 < held / LOGS < 0.98


def test_coverage_of_a_figure_that_noise_raises():
    """The squared distance of equal shares from those of a log: noise alone, whose expectation is known.

    Plain percentiles of resamples, which have that noise twice, hold neither the estimate nor the expectation.
    """
    rng = np.random.default_rng(2)
    items, rows = 80, 1000
    expected = (1 - 1 / items) / rows
    held = plain = 0
    for _ in range(LOGS):
        counts = rng.multinomial(rows, np.full(items, 1 / items))
        estimate = np.square(counts / rows - 1 / items).sum()
        drawn = np.square(rng.multinomial(rows, counts / rows, RESAMPLES) / rows - 1 / items).sum(axis=1)
        low, high = interval(drawn, estimate)
        assert low <= estimate <= high
        held += low <= expected <= high
        plain += np.percentile(drawn, 2.5) <= expected
    assert held / LOGS > 0.94  # resamples vary more than logs do, so that the interval is wide
    assert plain / LOGS < 0.2


def test_figures_have_bounds_and_may_not_exist():
    drawn = np.array([[0.90, np.nan], [0.98, np.nan], [1.0, 1.0]])
    low, high = interval(drawn, np.array([0.99, 1.0]), most=1.0)
    assert high[0] == 1.0
    assert low[0] < 0.99
    assert np.isnan([low[1], high[1]]).all()
    assert interval(np.array([0.0, 0.0, 8.0]), np.array(0.1), least=0.0).tolist()[0] == 0.0
