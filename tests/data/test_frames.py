import datetime
import errno
import gzip
import io
import os
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import naive_data
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from letor_files import write

import mcfair as mf
from mcfair.data import letor
from mcfair.data.dataset import Dataset
from mcfair.data.frames import ROLES, load_table, read_candidates, scan_table, write_table, write_whole
from mcfair.errors import DataError, MCFairWarning, SettingError

ROWS = {
    "q": [3, 1, 3, 1],
    "d": ["a", "a", "b", "c"],
    "g": [0, 2, 1, 0],
    "s": [0.1, 0.2, 0.3, 0.4],
    "p": ["x", None, "x", "y"],
}
COLUMNS = {"query": "q", "item": "d", "grade": "g", "score": "s", "provider": "p"}


def nullable_frame(columns):
    with np.errstate(invalid="ignore"):  # before 3.1, pandas casts infinities to see whether numbers are whole
        return pd.DataFrame(columns).convert_dtypes()


TABLES = {
    "polars": lambda columns: pl.DataFrame(columns, strict=False),
    "polars lazy": lambda columns: pl.DataFrame(columns, strict=False).lazy(),
    "pandas": pd.DataFrame,
    "pandas nullable": nullable_frame,
    "arrow table": pa.table,
    "arrow batch": pa.record_batch,
}
each_library = pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())


@each_library
def test_tables_of_every_library(table):
    data = Dataset.from_frame(table(ROWS), **COLUMNS, name="shop")
    assert repr(data) == "Dataset('shop': 2 queries, 4 items, 2-2 per query, grades 0-2, 3 providers, scores)"
    assert (data.query_ids, data.item_ids) == (["3", "1"], ["a", "b", "a", "c"])
    assert (data.offsets.tolist(), data.y.tolist()) == ([0, 2, 4], [0, 1, 2, 0])
    assert data.scores.tolist() == [0.1, 0.3, 0.2, 0.4]
    assert (data.providers.tolist(), data.provider_names) == ([0, 0, 1, 2], ("x", "", "y"))


def test_an_arrow_stream_is_a_table():
    assert Dataset.from_frame(pa.table(ROWS).to_reader(), **COLUMNS).query_ids == ["3", "1"]


def test_categories_are_text():
    for frame in (pd.DataFrame(ROWS).astype({"p": "category"}), pl.DataFrame(ROWS).cast({"p": pl.Categorical})):
        assert Dataset.from_frame(frame, query="q", grade="g", provider="p").provider_names == ("x", "", "y")


row = st.fixed_dictionaries(
    {"query": st.integers(0, 4), "grade": st.integers(0, 3), "group": st.sampled_from(["a", "b", None])}
)


@given(rows=st.lists(row, min_size=1, max_size=20), library=st.sampled_from(["polars", "pandas", "arrow table"]))
def test_rows_of_a_query_need_not_be_adjacent(rows, library):
    table = {name: [each[name] for each in rows] for name in ("query", "grade", "group")}
    table["item"] = list(range(len(rows)))
    frame = TABLES[library](table) if any(table["group"]) else pl.DataFrame(table)
    data = Dataset.from_frame(frame, query="query", item="item", grade="grade", provider="group")
    expected = naive_data.by_query([each | {"item": i} for i, each in enumerate(rows)])
    assert data.query_ids == list(expected)
    assert data.sizes.tolist() == [len(each) for each in expected.values()]
    flat = [each for query in expected.values() for each in query]
    assert data.y.tolist() == [each["grade"] for each in flat]
    assert data.item_ids == [str(each["item"]) for each in flat]
    assert data.query_providers.tolist() == naive_data.query_groups(
        [each["group"] for each in flat], data.sizes.tolist()
    )


def test_relevance_instead_of_grades():
    data = Dataset.from_frame(pl.DataFrame({"q": [1, 1, 1], "r": [0.0, 0.25, 1.0]}), query="q", relevance="r")
    assert data.R.tolist() == [0.0, 0.25, 1.0]
    assert (data.y.tolist(), data.y_max) == ([0, 1, 1], 1)


def changed(**columns):
    return ROWS | columns


@each_library
@pytest.mark.parametrize(
    ("rows", "columns", "message"),
    [
        ({}, {"query": "qq"}, r"^data: unknown column 'qq'; did you mean 'q'\? available: q, d, g, s, p$"),
        ({}, {"item": "x"}, r"^data: unknown column 'x'; available: q, d, g, s, p$"),
        ({}, {"relevance": "s"}, r"^data: expected a column of either grades or relevance, got both$"),
        ({}, {"grade": None}, r"^data: expected a column of either grades or relevance, got neither$"),
        ({"g": [0.0, 1.5, 1.0, 0.0]}, {}, r"column 'g', row 2 of 4: got 1.5, expected a whole number from 0 to 1000$"),
        ({"g": [0, 1, -1, 0]}, {}, r"column 'g', row 3 of 4: got -1, expected a whole number from 0 to 1000$"),
        ({"g": [0, 1, 1, 1001]}, {}, r"column 'g', row 4 of 4: got 1001, expected a whole number from 0 to 1000$"),
        ({"g": [0, None, 1, None]}, {}, r"column 'g', row 2 of 4: the value is missing$"),
        ({"g": [None] * 4}, {}, r"column 'g', row 1 of 4: the value is missing$"),
        ({"g": [0.0, float("inf"), 1.0, 0.0]}, {}, r"column 'g', row 2 of 4: got inf, expected"),
        ({"g": ["0", "x", "1", "2"]}, {}, r"column 'g', row 2 of 4: got 'x', expected a whole number from 0 to 1000$"),
        ({"g": [[0], [1], [2], [0]]}, {}, r"column 'g' has type List\(Int64\), expected numbers$"),
        ({"q": [3, None, 3, 1]}, {}, r"column 'q', row 2 of 4: the value is missing$"),
        ({"q": ["3", "1", "", "1"]}, {}, r"column 'q', row 3 of 4: the value is missing$"),
        ({"q": [3.0, 1.5, 3.0, 1.0]}, {}, r"column 'q', row 2 of 4: got 1.5, expected a whole number$"),
        ({"q": [datetime.date(2020, 1, 1)] * 4}, {}, r"column 'q' has type Date, expected text or whole numbers$"),
        ({"d": ["a", "a", "a", "c"]}, {}, r"column 'd', row 3 of 4: item 'a' occurs twice in query '3'$"),
        ({"d": ["a", None, "b", "c"]}, {}, r"column 'd', row 2 of 4: the value is missing$"),
        ({"s": [0, 0.2, 1.5, 0.4]}, {"grade": None, "relevance": "s"}, r"column 's', row 3 of 4: got 1.5, expected"),
        ({"s": [0.1, float("-inf"), 1.5, 0.4]}, {}, r"column 's', row 2 of 4: got -inf, expected a finite number$"),
        ({"p": [1.0, None, 1.5, 2.0]}, {}, r"column 'p', row 3 of 4: got 1.5, expected a whole number$"),
        ({"p": [True, None, True, False]}, {}, r"column 'p' has type Boolean, expected text or whole numbers$"),
    ],
)  # fmt: skip
def test_wrong_tables_are_refused(table, rows, columns, message):
    chosen = {role: column for role, column in (COLUMNS | columns).items() if column is not None or role == "grade"}
    with pytest.raises(DataError, match=message) as caught:
        Dataset.from_frame(table(ROWS | rows), **chosen)
    assert "\n" not in str(caught.value)


@each_library
def test_not_a_number_is_no_grade(table):
    with pytest.raises(DataError, match=r"column 'g', row 2 of 4: (got nan, expected|the value is missing)"):
        Dataset.from_frame(table(changed(g=[0.0, float("nan"), 1.0, 0.0])), query="q", grade="g")


@each_library
def test_a_table_without_rows_is_refused(table):
    with pytest.raises(DataError, match=r"^data: the table holds no rows$"):
        Dataset.from_frame(table({"q": [], "g": []}), query="q", grade="g")


@pytest.mark.parametrize("wrong", [5, {"q": [1]}, [1], np.zeros((2, 2)), None])
def test_what_is_no_table_is_refused(wrong):
    with pytest.raises(DataError, match=r"^data: expected a pandas, Polars or Arrow table, got \w+$"):
        Dataset.from_frame(wrong, query="q", grade="g")


def test_a_column_of_pandas_is_no_table():
    with pytest.raises(DataError, match=r"^data: cannot convert Series: "):
        Dataset.from_frame(pd.DataFrame(ROWS)["q"], query="q", grade="g")


def test_columns_of_the_same_name_are_refused():
    frame = pd.DataFrame([[1, 2, 3]], columns=["q", "g", "g"])
    with pytest.raises(DataError, match=r"^data: several columns have the name 'g'$"):
        Dataset.from_frame(frame, query="q", grade="g")


def test_a_column_of_objects_is_refused():
    frame = pd.DataFrame({"q": [1, "a", object()], "g": [1, 2, 3]})
    with pytest.raises(DataError, match=r"column 'q' holds values of several types: int, object, str$"):
        Dataset.from_frame(frame, query="q", grade="g")


def test_other_columns_do_not_matter():
    frame = pd.DataFrame({"q": [1], "g": [1], "z": [object()], 5: [1]})
    assert Dataset.from_frame(frame, query="q", grade="g", provider="5").provider_names == ("1",)


def test_pandas_tables_do_not_need_pyarrow():
    code = (
        "import sys\nclass Absent:\n  def find_spec(name, path, target=None):\n"
        "    if name == 'pyarrow': raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Absent)\nimport pandas as pd\nfrom mcfair.data.dataset import Dataset\n"
        "frame = pd.DataFrame({'q': ['x', 'y'], 'g': [0, 1], 'p': ['a', None]})\n"
        "print(Dataset.from_frame(frame, query='q', grade='g', provider='p').provider_names)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "('a', '')\n"


# ---------------------------------------------------------------------------------------------------------------------
# Files


@pytest.mark.parametrize(
    "header",
    ["query,item,grade,score,group", "QID,DocID,Label,Score,Group", " query_id , doc,rel,prediction,Brand"],
)
def test_columns_of_a_file_are_found_by_name(tmp_path, header):
    text = header.encode() + b"\n007,a,1,.5,x\n8,a,2,1e-1,\n007,b,0,3,x\n"
    data = load_table(write(tmp_path / "a.csv", text))
    assert (data.query_ids, data.item_ids, data.y.tolist()) == (["007", "8"], ["a", "b", "a"], [1, 0, 2])
    assert (data.scores.tolist(), data.provider_names) == ([0.5, 3.0, 0.1], ("x", ""))


def test_the_usual_name_wins_over_other_names(tmp_path):
    assert load_table(write(tmp_path / "a.csv", b"qid,query,grade\n1,2,3\n")).query_ids == ["2"]


def test_a_byte_order_mark_and_carriage_returns_are_no_text(tmp_path):
    assert load_table(write(tmp_path / "a.csv", b"\xef\xbb\xbfquery,grade\r\n1,3\r\n")).query_ids == ["1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", r"a.csv: the file is empty$"),
        (b"\xef\xbb\xbf\r\n\n", r"a.csv: the file is empty$"),
        (b"query,grade\n", r"a.csv: the table holds no rows$"),
        (b"query,grade\n1,2,3\n", r"a.csv: not a CSV file, or damaged or cut short: found more fields"),
        (b"query,grade\n1,2\n1\n", r"a.csv: column 'grade', row 2 of 2: the value is missing$"),
        (b"query,grade\n\xff\xfe,2\n", r"a.csv: not a CSV file, or damaged or cut short: .*utf-?8"),
        (b'query,grade\n"1",2\n"1,2\n', r"a.csv: not a CSV file, or damaged or cut short: "),
        (b"\x00\x01\x02", r"a.csv: no column for the query \(such as query, query_id, qid\); name it with "),
        (b"q,grade\n1,2\n", r"a.csv: no column for the query .*--column query=COLUMN; got 'q', 'grade'$"),
        (b"qurey,grade\n1,2\n", r"a.csv: no column for the query .*; did you mean 'qurey'\? name it with --column"),
        (b"query,g\n1,2\n", r"a.csv: no column for the grade \(such as .*; or a column of relevance$"),
        (b"qid,query_id,grade\n1,1,2\n", r"a.csv: columns 'query_id', 'qid' may all be the query; choose one with"),
        (b"query,Query,grade\n1,1,2\n", r"a.csv: columns 'query', 'Query' may all be the query; choose one with"),
        (b"query,query,grade\n1,1,2\n", r"a.csv: columns 'query', 'query_duplicated_0' may all be the query"),
        (b"query,grade,relevance\n1,1,1\n", r"a.csv: expected a column of either grades or relevance, got both$"),
        (b"query,grade\n1,3\n1,x\n", r"a.csv: column 'grade', row 2 of 2: got 'x', expected a whole number"),
        (b"query,item,grade\n1,u,1\n2,u,1\n1,u,1\n", r"a.csv: column 'item', row 3 of 3: item 'u' occurs twice in"),
    ],
)  # fmt: skip
def test_wrong_files_are_refused(tmp_path, text, message):
    with pytest.raises(DataError, match=message) as caught:
        load_table(write(tmp_path / "a.csv", text))
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def parquet():
    content = io.BytesIO()
    pl.DataFrame({"query": [1, 1, 2], "grade": [0, 1, 2]}).write_parquet(content)
    return content.getvalue()


def test_a_parquet_file_cut_short_anywhere_is_refused(tmp_path, parquet):
    assert load_table(write(tmp_path / "a.parquet", parquet)).y.tolist() == [0, 1, 2]
    for cut in range(1, len(parquet), 7):
        with pytest.raises(DataError, match=r"a.parquet: not a Parquet file, or damaged or cut short: .") as caught:
            load_table(write(tmp_path / "a.parquet", parquet[:cut]))
        assert "\n" not in str(caught.value)


def deep(levels):
    return b'{"query": 1, "grade": 2, "more": ' + b"[" * levels + b"]" * levels + b"}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "a.jsonl: the file is empty"),
        (b"junk", "a.jsonl, line 1: not a JSON object, or damaged or cut short: JSON is malformed"),
        (b'\n{"query": 1, "grade": 2}\n{"query": 1, "gra', "a.jsonl, line 3: not a JSON object, or damaged or cut"),
        (b"[1]\n", "a.jsonl, line 1: not a JSON object, or damaged or cut short: Expected `object`, got `array`"),
        (b'{"query": "\\ud800", "grade": 1}', "a.jsonl, line 1: not a JSON object, .*hex escape"),
        (deep(33), "a.jsonl, line 1: a value has more than 32 levels"),
        (deep(10**6), "a.jsonl, line 1: not a JSON object, or damaged or cut short: too deep"),
        (b"".join(b'{"query": 1, "c%d": 1}\n' % i for i in range(10_001)), "line 10000: the lines have more than 10,"),
    ],
)  # fmt: skip
def test_wrong_json_lines_are_refused(tmp_path, text, message):
    with pytest.raises(DataError, match=message) as caught:
        load_table(write(tmp_path / "a.jsonl", text))
    assert "\n" not in str(caught.value)


def test_brackets_in_text_are_no_levels(tmp_path):
    text = b'{"query": "a", "grade": 1, "title": "' + b"[{" * 100 + b'", "more": ' + b"[" * 32 + b"]" * 32 + b"}\n"
    assert load_table(write(tmp_path / "a.jsonl", text)).query_ids == ["a"]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet", "a.txt"])
def test_what_is_no_file_is_refused_at_once(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(DataError, match=f"{name}: expected a file, got a named pipe$"):
        mf.open_data(tmp_path / name)


def test_a_file_that_unpacks_to_one_endless_line_is_refused_before_it_fills_the_memory(tmp_path):
    with gzip.open(tmp_path / "a.csv.gz", "wb", 1) as file:
        file.write(b"query,grade\n")
        for _ in range(40):
            file.write(b"x" * 2**20)
    with pytest.raises(DataError, match=r"a.csv.gz: a line has more than 16,777,216 bytes"):
        load_table(tmp_path / "a.csv.gz")


def test_a_file_that_unpacks_to_many_times_its_size_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(letor, "MOST_UNPACKED", 2**20)
    content = b"query,grade\n" + b"1,1\n" * 2**21
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(content))
    with pytest.raises(DataError, match=r"a.csv.gz: its [\d,]+ bytes unpack to more than [\d,]+; unpack it first"):
        load_table(tmp_path / "a.csv.gz")
    assert len(load_table(write(tmp_path / "a.csv", b"query,grade\n" + b"1,1\n" * 2**19)).y) == 2**19


def test_a_packed_file_that_is_cut_short_is_refused(tmp_path):
    whole = gzip.compress(b"query,grade\n1,1\n")
    assert load_table(write(tmp_path / "a.csv.gz", whole)).queries == 1
    with pytest.raises(DataError, match=r"a.csv.gz: the gzip file is damaged or cut short"):
        load_table(write(tmp_path / "a.csv.gz", whole[:-9]))


def test_a_table_of_very_many_columns_is_refused(tmp_path):
    header = b"query,grade," + b",".join(b"c%d" % i for i in range(10_000))
    with pytest.raises(DataError, match=r"a.csv: has 10,002 columns, expected at most 10,000$"):
        load_table(write(tmp_path / "a.csv", header + b"\n"))


def test_a_very_long_id_is_refused_and_a_long_other_text_is_not(tmp_path):
    rows = b"query,item,grade,title\na,x,1," + b"t" * 10_001 + b"\n"
    assert load_table(write(tmp_path / "a.csv", rows)).item_ids == ["x"]
    with pytest.raises(DataError, match=r"column 'item', row 1 of 1: got 'x{78}…, expected at most 10,000 bytes$"):
        load_table(write(tmp_path / "a.csv", rows.replace(b",x,", b"," + b"x" * 10_001 + b",")))


def test_control_characters_in_ids_are_counted_and_said(tmp_path):
    rows = b"query,item,grade,seller\na\x07,x\x00,1,s\na\x07,y\x1b,0,s\n"
    with pytest.warns(MCFairWarning) as seen:
        data = load_table(write(tmp_path / "a.csv", rows))
    assert data.item_ids == ["x\0", "y\x1b"]
    assert [str(each.message).split(": ", 1)[1] for each in seen] == [
        r"column 'query': 1 id has control characters, such as 'a\x07'",
        r"column 'item': 2 ids have control characters, such as 'x\x00'",
    ]


@pytest.mark.filterwarnings("ignore:.*control characters")  # the tab
@pytest.mark.parametrize(
    ("name", "mark", "shown"),
    [("a.csv", ";", True), ("a.csv", "\t", True), ("a.csv", ",", False), ("a.tsv", "\t", False), ("a.tsv", ",", True)],
)
def test_the_separator_is_guessed_and_shown(tmp_path, name, mark, shown):
    file = write(tmp_path / name, f'query{mark}item{mark}grade\n007{mark}"a{mark}b"{mark}1\n'.encode())
    with pytest.warns(MCFairWarning, match=re.escape(f"read with the separator {mark!r}")) if shown else nullcontext():
        assert load_table(file).item_ids == [f"a{mark}b"]
    words = {";": "semicolon", "\t": "tab", "|": "pipe", ",": "comma"}
    for chosen in (mark, words[mark]):
        assert load_table(file, separator=chosen).item_ids == [f"a{mark}b"]  # without a warning


def test_a_header_in_quotes_suggests_no_separator(tmp_path):
    file = write(tmp_path / "a.csv", b'query,grade,"a;b;c;d"\n1,2,3\n')
    assert load_table(file).y.tolist() == [2]


@pytest.mark.parametrize("separator", ["", ";;", "ß", '"', "\n"])
def test_a_separator_is_one_character(tmp_path, separator):
    with pytest.raises(SettingError, match=r"separator = .* is not allowed: expected one character, or comma, "):
        load_table(write(tmp_path / "a.csv", b"query,grade\n1,2\n"), separator=separator)


def test_columns_can_be_named(tmp_path):
    file = write(tmp_path / "a.csv", b"search,sku_code,stars,query,Seller\na,x,2,1,s\n")
    data = mf.open_data(file, columns={"query": "search", "item": "sku_code", "grade": "stars"})
    assert (data.query_ids, data.item_ids, data.y.tolist(), data.provider_names) == (["a"], ["x"], [2], ("s",))
    with pytest.raises(SettingError, match="unknown role of a column 'qurey'; did you mean 'query'"):
        mf.open_data(file, columns={"qurey": "search"})
    with pytest.raises(DataError, match=r"a.csv: unknown column 'stairs'; did you mean 'stars'"):
        mf.open_data(file, columns={"grade": "stairs"})


def test_one_table_of_names_serves_every_command(tmp_path):
    """`rank` knew docno, and other commands did not."""
    for role in ("query", "item", "grade", "provider"):
        for name in ROLES[role]:
            usual = {"query": "query", "item": "item", "grade": "grade", "provider": "provider"} | {role: name}
            table = pl.DataFrame(
                {usual["query"]: ["q"], usual["item"]: ["x"], usual["grade"]: [1], usual["provider"]: ["p"]}
            )
            table.write_csv(tmp_path / "a.csv")
            data = load_table(tmp_path / "a.csv")
            assert (data.query_ids, data.item_ids, data.y.tolist(), data.provider_names) == (["q"], ["x"], [1], ("p",))
            assert read_candidates(table).row(0) == ("q", "x", 1.0, "p")


def test_candidates_are_ranked_by_their_score_if_they_have_one():
    table = pl.DataFrame(
        {"query": ["q"] * 2, "item": ["x", "y"], "relevance": [0.9, 0.1], "score": [0.2, 0.8], "prior": 0.5}
    )
    assert read_candidates(table)["relevance"].to_list() == [0.2, 0.8]
    assert read_candidates(table.drop("score"))["relevance"].to_list() == [0.9, 0.1]
    assert read_candidates(table.drop("score", "relevance"))["relevance"].to_list() == [0.5, 0.5]


def test_pandas_columns_are_not_converted_value_by_value(monkeypatch):
    rows = 200_000
    queries, providers = pd.Series(np.arange(rows) // 10).astype(str), pd.Categorical(["a", "b"] * (rows // 2))
    table = pd.DataFrame({"q": queries, "d": np.arange(rows), "g": np.zeros(rows), "p": providers})
    monkeypatch.setattr(pd.Series, "tolist", lambda self: pytest.fail("a column became a list"))
    data = Dataset.from_frame(table, query="q", item="d", grade="g", provider="p")
    assert (data.queries, data.items, data.provider_names) == (rows // 10, rows, ("a", "b"))


def test_text_that_is_no_unicode_is_refused():
    table = pd.DataFrame({"q": ["a\ud800", "b"], "g": [0, 1]}, dtype=object)
    with pytest.raises(DataError, match=r"column 'q' holds text that is no Unicode: 'a.ud800'$"):
        Dataset.from_frame(table, query="q", grade="g")
    with pytest.raises(DataError, match=r"data: ids must be Unicode text, got '.ud800' in one$"):
        Dataset(offsets=[0, 1], y=[0], query_ids=["a\ud800"])


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    table, file = pl.DataFrame({"a": [1]}), tmp_path / "a.csv"
    file.write_text("before")
    with pytest.raises(DataError, match=r"^cannot write .*a.csv: No space left on device$"):
        write_whole(file, lambda draft: (draft.write_text("half"), full_disk()))
    assert (file.read_text(), [*tmp_path.iterdir()]) == ("before", [file])
    write_table(table, file)
    assert (file.read_text(), [*tmp_path.iterdir()]) == ("a\n1\n", [file])
    with pytest.raises(DataError, match=r"^cannot write .*: No such file or directory"):
        write_table(table, tmp_path / "nowhere" / "a.parquet")


def full_disk():
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_folder_is_no_table():
    with pytest.raises(DataError, match=r"^\.: expected a file that ends in \.csv, "):
        scan_table(Path())


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"^cannot read .*a.csv: "):
        load_table(tmp_path / "a.csv")


@pytest.mark.parametrize("name", ["asin", "article_id"])
def test_items_are_not_numbered_where_a_column_names_them(tmp_path, name):
    (tmp_path / "shop.csv").write_text(f"query,{name},relevance\nq,a,0.5\nq,b,0.2\n")
    assert list(mf.open_data(tmp_path / "shop.csv").item_ids) == ["a", "b"]
