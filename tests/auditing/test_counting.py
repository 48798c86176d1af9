"""Counting in batches, buckets and files on disk: the same numbers whatever the division, equal to plain counts."""

from collections import Counter

import numpy as np
import polars as pl
import pytest
from logs import flat, random_log, random_sessions

import mcfair as mf
from mcfair.auditing import counting, reading, row_buckets
from mcfair.auditing.cells import tally
from mcfair.auditing.encoding import KeyCodes, grouped_rows
from mcfair.auditing.periods import Periods


@pytest.mark.parametrize("gaps", [False, True])
def test_batches_and_files_change_no_number(monkeypatch, gaps):
    _, log = random_log(4, [1.0, 0.5], gaps=gaps)
    log = log.with_columns(propensity=pl.lit(0.5), time=3600 * pl.col("impression"))
    whole = mf.audit(log, resamples=2)
    monkeypatch.setattr(reading, "SLICE", 3)
    monkeypatch.setattr(row_buckets, "MOST_HELD", 200)  # bytes, then rows go to disk
    apart = mf.audit(log.sample(fraction=1, shuffle=True, seed=1), resamples=2)
    assert apart.items().equals(whole.items())
    assert apart.queries().equals(whole.queries())
    assert apart.ranks().equals(whole.ranks())
    assert apart.quality() == whole.quality()


@pytest.mark.parametrize("held", [200, 1 << 28])
def test_a_query_that_is_most_of_the_log_is_counted_in_pieces(monkeypatch, held):
    """Whole impressions are in one piece, so that rows logged twice are found, and counts of pieces are added."""
    _, log = random_log(5, [1.0, 0.5])
    log = log.with_columns(query=pl.lit("home"), propensity=1 / (pl.col("rank") + 1), time=3600 * pl.col("impression"))
    log = pl.concat([log, log[:4]])
    whole = mf.audit(log, resamples=2)
    assert whole.counts.excluded == {"rows logged twice": 4}
    monkeypatch.setattr(counting, "LARGE_BUCKET", 10)
    monkeypatch.setattr(row_buckets, "MOST_HELD", held)
    monkeypatch.setattr(row_buckets, "SLICE", 7)
    monkeypatch.setattr(reading, "SLICE", 30)
    pieces = mf.audit(log, resamples=2)
    assert pieces.counts.excluded == whole.counts.excluded
    assert pieces.counts.shown.tolist() == whole.counts.shown.tolist()
    assert pieces.counts.weight == pytest.approx(whole.counts.weight, rel=1e-12)
    assert pieces.items().equals(whole.items())
    assert pieces.over_time.equals(whole.over_time)
    assert pieces.unfairness == whole.unfairness


@pytest.mark.parametrize("gaps", [False, True])
def test_counts_are_those_of_every_row(gaps):
    sessions = random_sessions(3, gaps=gaps)
    counts = mf.audit(flat(sessions), resamples=2).counts
    slow = Counter((q, d, j, tuple(r for r, _, _ in shown)) for q, shown in sessions for j, d, _ in shown)
    hits = Counter((q, d, j) for q, shown in sessions for j, d, c in shown if c)
    query = counts.query_ids.to_list()
    found, clicked = {}, Counter()
    for item, rank, pattern, n, c in zip(
        counts.cell_item, counts.cell_rank, counts.cell_pattern, counts.shown, counts.clicks, strict=True
    ):
        q, d = query[counts.item_query[item]], counts.item_ids[int(item)]
        found[q, d, int(rank), tuple(counts.patterns[pattern].tolist())] = n
        clicked[q, d, int(rank)] += int(c)
    assert found == slow
    assert +clicked == hits
    places = Counter((q, i, j) for q, shown in sessions for i, (j, _, _) in enumerate(shown))
    slots = Counter()
    for q, i, j, n in zip(counts.slot_query, counts.slot_place, counts.slot_rank, counts.slot_count, strict=True):
        slots[query[q], int(i), int(j)] += int(n)
    assert slots == places


def test_codes_are_kept_when_the_table_grows():
    keys = np.random.default_rng(0).integers(-(1 << 62), 1 << 62, 3000)
    codes, seen = KeyCodes(1), {}
    for part in np.array_split(np.concatenate((keys, keys[::-1])), 7):
        numbers, fresh = codes.encode(part)
        new = [i for i, key in enumerate(part.tolist()) if seen.setdefault(key, len(seen)) == len(seen) - 1]
        assert numbers.tolist() == [seen[key] for key in part.tolist()]
        assert set(fresh.tolist()) <= set(new)
    assert codes.size == len(seen) == 3000


def test_rows_are_grouped_in_their_order():
    codes = np.random.default_rng(1).integers(0, 5, 40)
    order, starts = grouped_rows(codes, 6)
    assert order.tolist() == np.argsort(codes, kind="stable").tolist()
    assert starts.tolist() == [int((codes < code).sum()) for code in range(7)]


@pytest.mark.parametrize("large", [10, 10**6])
def test_tallies_are_plain_counts(large):
    """A small table is addressed directly, a large one is sorted; rows with a negative number do not count."""
    rng = np.random.default_rng(2)
    a, b, values = rng.integers(0, 4, 50), rng.integers(-1, 6, 50) * (large // 10), rng.random(50)
    cells = tally((a, b), (4, large), values)
    slow = Counter((int(x), int(y)) for x, y in zip(a, b, strict=True) if y >= 0)
    assert dict(zip(zip(*(each.tolist() for each in cells.at), strict=True), cells.count.tolist(), strict=True)) == slow
    assert list(slow) != sorted(slow) or len(slow) > 1
    for x, y, total in zip(*(each.tolist() for each in cells.at), cells.sums[0], strict=True):
        assert total == pytest.approx(values[(a == x) & (b == y)].sum(), rel=1e-12)


@pytest.mark.parametrize(
    ("end", "unit", "periods", "last"),
    [
        ("2024-01-02T05:10", "hour", 24 + 2, "2024-01-02 05:00"),
        ("2024-02-10T00:00", "day", 41, "2024-02-10"),
        ("2024-12-31T00:00", "week", 53, "2024-12-30"),
        ("2034-12-31T00:00", "year", 11, "2034-01-01"),
    ],
)
def test_periods_follow_the_length_of_the_log(end, unit, periods, last):
    first, final = np.datetime64("2024-01-01T04:30").item(), np.datetime64(end).item()
    found = Periods.of(first, final)
    assert (found.unit, len(found), found.labels()[-1]) == (unit, periods, last)
    hours = np.array([first, final], "M8[h]").astype(np.int64)
    assert found.index(hours).tolist() == [0, periods - 1]
