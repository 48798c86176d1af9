import datetime
import io
import subprocess
import sys
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

from mcfair.data.dataset import Dataset
from mcfair.data.frames import load_table, read_table
from mcfair.errors import DataError

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


@pytest.mark.parametrize("wrong", [5, {"q": [1]}, [1], np.zeros((2, 2)), None, "a.csv"])
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
        (b"", r"a.csv: not a CSV file, or damaged or cut short: .*empty"),
        (b"query,grade\n", r"a.csv: the table holds no rows$"),
        (b"query,grade\n1,2,3\n", r"a.csv: not a CSV file, or damaged or cut short: found more fields"),
        (b"query,grade\n1,2\n1\n", r"a.csv: column 'grade', row 2 of 2: the value is missing$"),
        (b"query,grade\n\xff\xfe,2\n", r"a.csv: not a CSV file, or damaged or cut short: .*utf-?8"),
        (b'query,grade\n"1",2\n"1,2\n', r"a.csv: not a CSV file, or damaged or cut short: "),
        (b"\x00\x01\x02", r"a.csv: no column query \(or qid, query_id, queryid\); got "),
        (b"query;grade\n1;2\n", r"got 'query;grade'; is the separator ';'\? CSV files have commas, TSV files tabs$"),
        (b"q,grade\n1,2\n", r"a.csv: no column query \(or qid, query_id, queryid\); got 'q', 'grade'$"),
        (b"query,g\n1,2\n", r"a.csv: no column grade \(or label, rel, y\) or relevance; got 'query', 'g'$"),
        (b"qid,query_id,grade\n1,1,2\n", r"a.csv: columns 'qid', 'query_id' may all be the query; rename"),
        (b"query,Query,grade\n1,1,2\n", r"a.csv: columns 'query', 'Query' may all be the query; rename"),
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
    for cut in range(0, len(parquet), 7):
        with pytest.raises(DataError, match=r"a.parquet: not a Parquet file, or damaged or cut short: .") as caught:
            load_table(write(tmp_path / "a.parquet", parquet[:cut]))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", [b"", b"junk", b'{"query": 1, "grade": 2}\n{"query": 1, "gra'])
def test_wrong_json_lines_are_refused(tmp_path, text):
    with pytest.raises(DataError, match=r"a.jsonl: not a JSON-lines file, or damaged or cut short: ."):
        load_table(write(tmp_path / "a.jsonl", text))


def test_a_folder_is_no_table():
    with pytest.raises(DataError, match=r"^\.: expected a file that ends in \.csv, "):
        read_table(Path())


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"^cannot read .*a.csv: "):
        load_table(tmp_path / "a.csv")
