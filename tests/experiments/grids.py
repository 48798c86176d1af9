"""A grid of runs for the tests of execution, and what its results have in common wherever they are computed."""

import pytest

from mcfair.experiments.experiment import Experiment, Series

GRID = Experiment(
    name="grid",
    show="cutoffs",  # the times of a table would take as long as the runs once more
    max_items=9,
    settings=({"mode": "post-processing", "steps": 200}, {"mode": "online", "steps": 300}),
    seeds=2,
    series=(
        Series(policies=("TopK", "MCFair(alpha=[0, 1, 10])", "ILP(alpha=0.1)", "LP(refresh=20)", "PLFair(epochs=2)")),
    ),
)


def figures(results):
    """All tables but that of the times."""
    queries = results.queries.sort("key", "query")
    return results.runs.sort("key"), queries, results.limits.sort("setting", "seed"), results.frontier


def assert_same(one, two, tolerance=0.0):
    for a, b in zip(figures(one), figures(two), strict=True):
        assert a.shape == b.shape
        for column in a.columns:
            if a[column].dtype.is_float():
                assert b[column].is_null().to_list() == a[column].is_null().to_list()
                given, found = a[column].drop_nulls().to_list(), b[column].drop_nulls().to_list()
                assert found == pytest.approx(given, rel=tolerance, abs=tolerance, nan_ok=True)
            else:
                assert b[column].to_list() == a[column].to_list()
