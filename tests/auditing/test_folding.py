"""Sums over batches are those over all rows."""

import polars as pl
import pytest
from logs import random_log

import mcfair as mf
from mcfair.auditing import counting, folding


@pytest.mark.parametrize("gaps", [False, True])
def test_batches_change_no_number(monkeypatch, gaps):
    _, log = random_log(4, [1.0, 0.5], gaps=gaps)
    log = log.with_columns(propensity=pl.lit(0.5))
    whole = mf.audit(log, resamples=2)
    for name, value in (("SLICE", 3), ("BATCH", 7), ("MOST_SUMS", 11)):
        monkeypatch.setattr(folding, name, value)
    monkeypatch.setattr(counting, "CHECKED_ROWS", 0)  # lists are not searched for items that occur twice
    apart = mf.audit(log.sample(fraction=1, shuffle=True, seed=1), resamples=2)
    assert apart.items().equals(whole.items())
    assert apart.queries().equals(whole.queries())
    assert apart.ranks().equals(whole.ranks())
    assert apart.quality() == whole.quality() | {"lists searched for repeated items": False}


def test_a_rank_that_repeats_is_found_in_large_logs_too(monkeypatch):
    monkeypatch.setattr(counting, "CHECKED_ROWS", 0)
    log = pl.DataFrame(
        {
            "impression": [1, 1, 2, 2],
            "query": ["q"] * 4,
            "item": ["a", "b", "a", "b"],
            "rank": [1, 2, 1, 1],
            "clicked": [0, 1, 0, 1],
        }
    )
    found = mf.audit(log, resamples=2)
    assert found.counts.excluded == {"rows of impressions with a rank or an item twice": 2}
    assert found.counts.C.tolist() == [0, 1]
