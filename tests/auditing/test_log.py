"""Malformed logs: one clear line or a counted exclusion, never a wrong number."""

import gzip
import os

import polars as pl
import pytest
from logs import flat, random_sessions

import mcfair as mf
from mcfair.auditing.log import TOP_RANK
from mcfair.auditing.page import findings
from mcfair.errors import DataError, MCFairWarning, SettingError


@pytest.fixture(scope="module")
def clean():
    return flat(random_sessions(5))


@pytest.fixture(scope="module")
def right(clean):
    return mf.audit(clean, resamples=2)


def same_numbers(found, right):
    assert found.items().equals(right.items())
    assert (found.unfairness, found.floor) == (right.unfairness, right.floor)
    assert found.counts.visits.tolist() == right.counts.visits.tolist()


def with_rows(clean, *rows):
    """Add rows, given by the columns in which they differ from a good one, as text."""
    good = {"impression": "new", "query": "q0", "item": "q0-i0", "rank": "1", "clicked": "0"}
    return pl.concat(
        [clean.cast(pl.String), pl.DataFrame([good | row for row in rows], schema=dict.fromkeys(good, pl.String))]
    )


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"query": None}, "query missing"),
        ({"query": ""}, "query missing"),
        ({"item": None}, "item missing"),
        ({"rank": None}, "rank missing"),
        ({"rank": "first"}, "rank not a whole number of at least 1"),
        ({"rank": "1.5"}, "rank not a whole number of at least 1"),
        ({"rank": "-1"}, "rank not a whole number of at least 1"),
        ({"rank": "nan"}, "rank not a whole number of at least 1"),
        ({"rank": str(TOP_RANK + 1)}, f"rank above {TOP_RANK}"),
        ({"rank": "1e12"}, f"rank above {TOP_RANK}"),
        ({"clicked": None}, "clicked missing"),
        ({"clicked": "maybe"}, "clicked not 0 or 1"),
        ({"clicked": "-1"}, "clicked not 0 or 1"),
        ({"clicked": "0.5"}, "clicked not 0 or 1"),
    ],
)
def test_rows_that_cannot_be_used_are_counted(clean, right, row, reason):
    found = mf.audit(with_rows(clean, row, row | {"impression": "other"}), resamples=2)
    same_numbers(found, right)
    assert found.counts.excluded == {reason: 2}
    assert found.counts.rows == clean.height + 2
    assert found.quality()["rows left out"] == 2


def test_mixed_types_are_read_as_far_as_they_can_be(clean, right):
    spelled = clean.cast(pl.String).with_columns(
        rank=pl.format(" {}.0 ", "rank"), clicked=pl.col("clicked").replace({"0": "False", "1": "TRUE"})
    )
    same_numbers(mf.audit(spelled, resamples=2), right)


def test_numbers_with_gaps_are_the_same_ids_in_pandas(clean):
    whole = clean.with_columns(item=pl.col("item").hash(1) % 1000)
    holes = whole.to_pandas()
    holes.loc[len(holes)] = [None, "q0", None, 1, 0]
    found = mf.audit(holes, resamples=2)
    assert found.counts.excluded == {"item missing": 1}
    assert found.items().equals(mf.audit(whole, resamples=2).items())


def test_rows_logged_twice_count_once(clean, right):
    found = mf.audit(pl.concat([clean, clean[:7], clean[:3]]), resamples=2)
    same_numbers(found, right)
    assert found.counts.excluded == {"rows logged twice": 10}
    assert found.quality()["duplicates"] == 10


def test_a_click_in_one_of_two_copies_is_a_click():
    log = flat([("q", [(1, "a", 1), (2, "b", 0)])])
    found = mf.audit(pl.concat([log.with_columns(clicked=pl.lit(0, pl.Int64)), log]), resamples=2)
    assert found.counts.C.tolist() == [1, 0]


@pytest.mark.parametrize("item", ["q0-i1", "new item"])
def test_impressions_with_a_repeated_rank_are_left_out(clean, right, item):
    twice = with_rows(clean, {}, {"item": "q0-i2", "rank": "2"}, {"item": item})
    found = mf.audit(twice, resamples=2)
    same_numbers(found, right)
    assert found.counts.excluded == {"rows of impressions with a rank or an item twice": 3}


def test_impressions_with_a_repeated_item_are_left_out(clean, right):
    found = mf.audit(with_rows(clean, {}, {"rank": "2"}), resamples=2)
    same_numbers(found, right)
    assert found.counts.excluded == {"rows of impressions with a rank or an item twice": 2}


def test_ranks_from_0_are_refused_or_understood(clean, right):
    shifted = clean.with_columns(pl.col("rank") - 1)
    zeros = int((shifted["rank"] == 0).sum())
    with pytest.raises(DataError, match=rf"{zeros} rows have rank 0; .* --first-rank 0"):
        mf.audit(shifted)
    same_numbers(mf.audit(shifted, first_rank=0, resamples=2), right)
    found = mf.audit(with_rows(clean, {"rank": "0"}), first_rank=1, resamples=2)
    same_numbers(found, right)
    assert found.counts.excluded == {"rank not a whole number of at least 1": 1}


def test_long_lists_are_counted_exactly():
    shown = [(j, f"i{j}", int(j == 150)) for j in range(1, 200)]
    found = mf.audit(flat([("q", shown), ("q", shown[::-1]), ("q", shown[:70])]), merit="uniform", resamples=2)
    assert found.counts.ranks == 199
    assert [each.size for each in found.counts.patterns] == [199, 70]
    assert found.counts.visits.tolist() == [3]


def test_missing_columns_are_named_with_a_suggestion(clean):
    for column, other in (("rank", "rnk"), ("clicked", "clickd"), ("query", "querry"), ("item", "itm")):
        with pytest.raises(
            DataError, match=rf"no column for the {column} .*did you mean '{other}'.*--column {column}="
        ):
            mf.audit(clean.rename({column: other}))
    with pytest.raises(DataError, match=r"unknown column 'rnk'; did you mean 'rank'"):
        mf.audit(clean, columns={"rank": "rnk"})
    with pytest.raises(DataError, match=r"'position', 'pos' may all be the rank"):
        mf.audit(clean.rename({"rank": "position"}).with_columns(pos="position"))


def test_columns_of_impossible_types_are_named(clean):
    with pytest.raises(DataError, match=r"column for the rank has type Boolean, expected numbers"):
        mf.audit(clean.with_columns(rank=pl.lit(True)))
    with pytest.raises(DataError, match=r"column for the item has type List"):
        mf.audit(clean.with_columns(item=pl.concat_list("item")), format="flat")


def test_propensities_and_relevance_out_of_range_are_counted(clean):
    log = clean.with_columns(propensity=pl.lit(0.5), relevance=pl.lit(0.5))
    wrong = pl.concat([log, log[:2].with_columns(propensity=pl.lit(0.0)), log[:3].with_columns(relevance=pl.lit(1.5))])
    found = mf.audit(wrong, resamples=2)
    assert found.counts.excluded == {
        "propensity not above 0 and at most 1": 2,
        "relevance not from 0 to 1": 3,
    }
    assert found.items().equals(mf.audit(log, resamples=2).items())


def test_groups_that_change_are_counted(clean):
    log = clean.with_columns(group=pl.lit("a"))
    found = mf.audit(
        pl.concat([log, log[:1].with_columns(group=pl.lit("b"), impression=pl.lit(999, pl.Int64))]), resamples=2
    )
    assert found.quality()["items with several groups"] == 1
    assert found.counts.group_names == ("a",)
    assert found.counts.shown.sum() == clean.height + 1


# --- files -----------------------------------------------------------------------------------------------------------


def refused(path, content, message, **options):
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        mf.audit(path, resamples=2, **options)
    assert "\n" not in str(error.value)


def test_empty_files(tmp_path):
    for ending in ("csv", "parquet", "jsonl", "csv.gz", "log"):
        content = gzip.compress(b"") if ending == "csv.gz" else b""
        refused(tmp_path / f"log.{ending}", content, "empty|no rows|damaged")
    refused(tmp_path / "log.csv", b"query,item,rank,clicked\n", "the log holds no rows")


def test_files_that_are_cut_short(tmp_path, clean):
    text = clean.write_csv().encode()
    refused(tmp_path / "log.csv.gz", gzip.compress(text)[:-12], "damaged or cut short")
    clean.write_parquet(tmp_path / "whole.parquet")
    whole = (tmp_path / "whole.parquet").read_bytes()
    for length in (3, len(whole) // 2, len(whole) - 5):
        refused(tmp_path / "log.parquet", whole[:length], "damaged|cut short")
    refused(tmp_path / "log.jsonl", clean.write_ndjson().encode()[:-20], "damaged|cut short")


def test_a_csv_file_whose_last_line_is_cut_short(tmp_path, clean):
    """A line without all of its columns is no row with other values."""
    text = clean.write_csv().encode().rstrip()
    path = tmp_path / "log.csv"
    path.write_bytes(text[: text.rindex(b",")])
    found = mf.audit(path, resamples=2)
    assert found.counts.excluded == {"clicked missing": 1}


def test_a_damaged_page_of_parquet(tmp_path, clean):
    """The footer is whole, so that the columns are known, but the data are not."""
    path = tmp_path / "log.parquet"
    clean.write_parquet(path)
    content = bytearray(path.read_bytes())
    content[4:200] = bytes(196)
    refused(path, bytes(content), "damaged|cut short|not a Parquet")


def test_files_whose_columns_differ(tmp_path, clean, right):
    """A column that only some files have is missing in the others; one of two types is refused by its name."""
    half = clean.height // 2
    folder = tmp_path / "logs"
    folder.mkdir()
    clean[:half].with_columns(extra=pl.lit(1)).write_parquet(folder / "0.parquet")
    clean[half:].write_parquet(folder / "1.parquet")
    same_numbers(mf.audit(folder, resamples=2), right)
    clean[half:].with_columns(pl.col("rank").cast(pl.String)).write_parquet(folder / "1.parquet")
    with pytest.raises(DataError, match=r"column 'rank' has type Int64 in 0.parquet and String in 1.parquet"):
        mf.audit(folder, resamples=2)


def test_json_lines_with_several_types(tmp_path, right, clean):
    path = tmp_path / "log.jsonl"
    lines = clean.write_ndjson().splitlines()
    lines[0] = lines[0].replace('"rank":1', '"rank":"1"')
    assert '"rank":"1"' in lines[0]
    path.write_text("\n".join(lines))
    same_numbers(mf.audit(path, resamples=2), right)


def test_clicks_without_lists_count_nowhere(clean, right):
    """Rows of clicks whose impression is unknown have no rank."""
    found = mf.audit(with_rows(clean, {"rank": None, "clicked": "1"}, {"rank": "", "clicked": "1"}), resamples=2)
    same_numbers(found, right)
    assert sum(found.counts.excluded.values()) == 2


def test_files_of_another_kind(tmp_path):
    refused(tmp_path / "picture.png", b"\x89PNG\r\n\x1a\n\0\0\0", "got a binary file")
    refused(tmp_path / "log.parquet", b"query,item\n1,2\n", "damaged|cut short|not a Parquet")
    refused(
        tmp_path / "log.csv", b"query,item,rank,clicked\na,b,x,1\na,b,y,1\n", r"none of 2 rows can be used; of 2: rank"
    )
    refused(tmp_path / "log.csv", b"query,item,rank,clicked\na,b,1,1,7,8\n", "damaged|cut short")


def test_item_tables_that_do_not_fit(clean):
    good = pl.DataFrame({"item": ["q0-i0"], "group": ["a"]})
    assert mf.audit(clean, items=good, resamples=2).counts.group_names == ("a", "unknown")
    for table, message in (
        (good.rename({"item": "thing"}), "expected columns item and group"),
        (good.rename({"group": "colour"}), "expected columns item and group"),
        (good.with_columns(relevance=pl.lit(0.5)), "there is no column query"),
        (good.with_columns(query=pl.lit("q0"), relevance=pl.lit(2.0)), "expected a number from 0 to 1"),
        (pl.concat([good, good]).with_columns(query=pl.lit("q0")), "item .* occurs twice in query 'q0'"),
    ):
        with pytest.raises(DataError, match=message):
            mf.audit(clean, items=table, resamples=2)


def test_rows_without_an_impression_are_no_list(clean, right):
    nameless = with_rows(clean, {"impression": None}, {"impression": ""}, {"impression": None, "item": "q0-i1"})
    found = mf.audit(nameless, resamples=2)
    same_numbers(found, right)
    assert found.counts.excluded == {"impression missing": 3}


def test_a_list_with_too_few_marks_leaves_the_meaning_of_the_others(tmp_path):
    rows = [("q", ["a", "b"], [1, 0]), ("q", ["b", "a"], [0, 1]), ("q", ["a", "b"], [0])]
    found = mf.audit(pl.DataFrame(rows, schema=["query", "items", "clicks"], orient="row"), resamples=2)
    assert int(found.counts.clicks.sum()) == 2
    assert found.quality()["impressions whose columns differ in length"] == 1


@pytest.mark.parametrize("name", ["none.csv", "."])
def test_a_table_of_items_that_is_no_file_is_one_line(clean, tmp_path, name):
    with pytest.raises(DataError, match="there is no such file"):
        mf.audit(clean, items=tmp_path / name)


def test_the_table_of_items_prefers_the_usual_names_and_whole_grades(clean):
    items = clean.select("query", "item").unique().with_columns(query_id=pl.lit("x"), grade=pl.lit(1.5))
    with pytest.raises(DataError, match="expected a whole number"):
        mf.audit(clean, items=items)
    found = mf.audit(clean, items=items.with_columns(pl.col("grade").floor()), resamples=2)
    assert found.quality()["items without merit in the table of items"] == 0


def test_a_persistence_that_is_no_number_is_one_line(clean):
    with pytest.raises(SettingError, match=r"examination = .* is not allowed: expected fitted, log2"):
        mf.audit(clean, examination="rbp(1.2.3)")


def test_a_column_that_occurs_twice_is_not_chosen_from(clean):
    twice = clean.to_pandas().rename(columns={"impression": "clicked"})
    with pytest.raises(DataError, match="several columns have the name 'clicked'"):
        mf.audit(twice)


def test_a_negative_seed_is_one_line(clean):
    with pytest.raises(SettingError, match="seed = -1 is not allowed"):
        mf.audit(clean, seed=-1)


# --- impressions, clicks and columns that are not what they seem -----------------------------------------------------


def test_a_time_alone_does_not_identify_a_list(clean):
    """A column `date` would make one list of all impressions of a query on a day, with every rank repeated."""
    log = clean.drop("impression")
    dated = log.with_columns(date=pl.lit("2024-03-01"))
    right, found = mf.audit(log, resamples=2), mf.audit(dated, resamples=2)
    assert found.counts.excluded == {}
    assert found.quality()["impressions"] == "inferred"
    assert any("--column impression=date" in note for note in found.notes)
    same_numbers(found, right)
    last = found.over_time.row(-1, named=True)
    assert (last["unfairness"], last["floor"]) == pytest.approx((found.unfairness, found.floor), rel=1e-12)


def test_much_that_is_left_out_is_said_first(clean, tmp_path):
    strange = clean.with_columns(rank=pl.when(pl.col("impression") % 2 == 0).then(pl.lit(5000)).otherwise("rank"))
    found = mf.audit(strange, resamples=2)
    (warning,) = found.warnings
    assert warning.startswith(f"{sum(found.counts.excluded.values())} of {clean.height} rows (")
    assert f"rank above {TOP_RANK}" in warning
    assert findings(found)[0] == f"Warning: {warning}."
    assert found.to_dict()["warnings"] == [warning]
    assert "Warning: " in mf.write_audit(found, tmp_path).read_text(encoding="utf-8")
    others = [clean.with_columns(pl.col("impression") + 1000 * i) for i in range(1, 6)]
    assert mf.audit(pl.concat([strange, *others]), resamples=2).warnings == ()


def test_a_log_of_which_nothing_is_left_is_an_error():
    twice = pl.DataFrame({"impression": [1] * 3, "query": ["q"] * 3, "item": ["a", "b", "c"], "rank": [1, 2, 2]})
    with pytest.raises(DataError, match=r"none of 3 rows can be used; of 3: .* a rank or an item twice"):
        mf.audit(twice.with_columns(clicked=1), resamples=2)


def test_an_empty_click_is_left_out_with_a_warning_or_no_click(clean, right):
    empty = clean.with_columns(clicked=pl.when(pl.col("clicked") == 1).then(1))
    (*_, warning) = mf.audit(empty, resamples=2).warnings
    assert "--missing-click 0" in warning
    found = mf.audit(empty, missing_click="0", resamples=2)
    assert found.warnings == ()
    same_numbers(found, right)
    with pytest.raises(SettingError, match="missing_click = 'no' is not allowed: expected 0 or exclude"):
        mf.audit(empty, missing_click="no")


def test_rows_that_are_left_out_for_their_clicks_are_named(clean):
    lost = with_rows(clean, *[{"rank": None, "clicked": "1"}] * 30)
    (*_, warning) = mf.audit(lost, resamples=2).warnings
    assert warning.startswith("What was left out depends on clicks: 100 % of the rows with rank missing are clicked")


@pytest.mark.parametrize("mark", [";", "|", "\t"])
def test_the_separator_is_guessed_and_shown_or_given(clean, right, tmp_path, mark):
    path = tmp_path / "log.csv"
    clean.write_csv(path, separator=mark)
    with pytest.warns(MCFairWarning, match="guessed from its first line"):
        same_numbers(mf.audit(path, resamples=2), right)
    same_numbers(mf.audit(path, separator=mark, resamples=2), right)
    with pytest.raises(DataError, match="no column for the query"):
        mf.audit(path, separator=",")
    with pytest.raises(SettingError, match="expected one character"):
        mf.audit(path, separator="::")


def test_names_of_columns_of_other_commands_are_known(clean, right):
    same_numbers(mf.audit(clean.rename({"item": "docno", "query": "qid"}), resamples=2), right)


def test_a_log_without_clicks_needs_merit(clean, tmp_path):
    log = clean.drop("clicked")
    with pytest.raises(DataError, match=r"no column for the clicked .*; without clicks, merit must be given"):
        mf.audit(log)
    with pytest.raises(DataError, match="no column for the clicked"):
        mf.fit_examination(log)
    stated = clean.with_columns(relevance=pl.col("item").hash(3) % 5 / 4)
    found, other = (mf.audit(each, resamples=2, policies=["TopK"]) for each in (stated.drop("clicked"), stated))
    same = {name: value for name, value in other.values.measures.items() if name in found.values.measures}
    assert found.values.measures == same
    assert other.values.measures.keys() - same.keys() == {"ctr", "clicks_per_impression", "clicks_per_exposure"}
    assert "none logged" in mf.write_audit(found, tmp_path).read_text(encoding="utf-8")


def test_ids_with_control_characters_are_counted(clean):
    odd = clean.with_columns(item=pl.when(pl.col("item") == "q0-i0").then(pl.lit("a\x1bb")).otherwise("item"))
    assert mf.audit(odd, resamples=2).quality()["ids with control characters"] == 1
    assert "ids with control characters" not in mf.audit(clean, resamples=2).quality()


def test_a_pipe_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "log.csv")
    with pytest.raises(DataError, match="expected a file or a folder, got a device or a pipe"):
        mf.audit(tmp_path / "log.csv")


def test_files_that_no_log_can_be(tmp_path):
    refused(tmp_path / "deep.jsonl", b'{"query":' + b"[" * 10_000 + b"]" * 10_000 + b"}", "damaged|levels")
    refused(tmp_path / "wide.csv", b"a," * 20_000 + b"a\n", "20,001 columns, expected at most 10,000")
    refused(tmp_path / "bomb.csv.gz", gzip.compress(b"a\n" + b"x" * (1 << 26)), "a line has more than 16,777,216 bytes")


def test_lists_that_the_times_of_rows_tear_apart_are_warned_of():
    rows = [(f"s{i}", "q", item, rank, 1) for i in range(50) for rank, item in enumerate("abc", start=1)]
    log = pl.DataFrame(rows, ["session", "query", "item", "rank", "clicked"], orient="row")
    of_lists = log.with_columns(time=1_760_000_000 + 60 * (pl.int_range(pl.len()) // 3))
    of_rows = log.with_columns(time=1_760_000_000 + pl.int_range(pl.len()))
    assert mf.audit(log, resamples=2).warnings == mf.audit(of_lists, resamples=2).warnings == ()
    (warning,) = mf.audit(of_rows, resamples=2).warnings
    assert warning.startswith("100 of 150 impressions, which a session and a time identify, lack ranks: ")
    named = of_rows.with_columns(impression=pl.col("session"))
    assert mf.audit(named, resamples=2).warnings == ()
