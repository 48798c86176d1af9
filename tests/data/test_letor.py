import gzip
import hashlib
import subprocess
import sys
from pathlib import Path

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from letor_files import TOY, write
from real_data import FOLDS, needs_mq2008

from mcfair.data import letor
from mcfair.data.folds import load_letor
from mcfair.data.letor import read_letor_file
from mcfair.errors import DataError


def check_same(part, text):
    y, rows, sizes, qids, docids = naive.read_letor(text)
    X = np.zeros((len(y), max((max(row, default=0) for row in rows), default=0)))
    for i, row in enumerate(rows):
        for index, value in row.items():
            X[i, index - 1] = value
    assert part.y.tolist() == y
    assert np.diff(part.offsets).tolist() == sizes
    assert part.query_ids == qids
    assert part.item_ids == docids
    assert part.X.dtype == np.float32
    assert np.array_equal(part.X, X.astype(np.float32))
    assert part.sha256 == hashlib.sha256(text).hexdigest()


@pytest.mark.parametrize(
    "text",
    [
        TOY,
        TOY.rstrip(b"\n"),
        TOY.replace(b"\n", b"\r\n"),
        b"\n# a comment-only line with docid = 9\n  \t\r\n" + TOY + b"\n\n",
        b"  2\tqid:7   1:0.5\t3:1  \n0.000 qid:7\n+1.0 qid:a:b/c 1:-0.3e-1 2:+4 3:.5 4:5. 5:1E3 9:0\n",
        b"1 qid:1 1:2#docid = GX00-1 inc = 1 prob = .8\n0 qid:1 #  docid=GX00-2#b\n0 qid:2 1:1 # x docid = 3",
        b"1 qid:1 1:2 #docid = GX00-1\n0 qid:1 1:1 # no id here\n",
        b"1 qid:1 1:2 #docid = GX00-1\n0 qid:1 1:1 # mydocid = 4\n",
        b"1 qid:12 1:1\n1 qid:1 1:1\n1 qid:2 1:1\n1 qid:21 1:1\n",
        "0 qid:é 1:1 #docid = ü\n".encode(),
        b"0 qid:1 1:0.123456789012345 2:123456789012345 3:1e22 4:1e-22 5:0.000000000000000000001234\n",
    ],
)
@pytest.mark.parametrize("block_size", [1, 7, 64, 2**22])
def test_reader_agrees_with_the_obvious_one(tmp_path, text, block_size):
    check_same(read_letor_file(write(tmp_path / "a.txt", text), features=True, block_size=block_size), text)


letter = st.characters(codec="utf-8", exclude_characters="#", exclude_categories=["Z", "C"])
token = st.text(letter, min_size=1, max_size=6)
value = st.one_of(
    st.integers(-(10**15) + 1, 10**15 - 1).map(str),
    st.decimals(-1000, 1000, places=6).map(str),
    st.builds("{}e{:+}".format, st.integers(-(10**14), 10**14), st.integers(-22, 22)),
)
row = st.tuples(st.integers(0, 4), st.dictionaries(st.integers(1, 30), value, max_size=5))


@settings(deadline=None, max_examples=150)
@given(
    queries=st.dictionaries(token, st.lists(row, min_size=1, max_size=4), min_size=1, max_size=6),
    ending=st.sampled_from(["\n", "\r\n", " \n", "\n\n", " # docid = D7 x\n", "\t#\n#\n"]),
    last=st.booleans(),
    block_size=st.integers(1, 200),
)
def test_round_trip(tmp_path_factory, queries, ending, last, block_size):
    lines = [
        " ".join([str(grade), f"qid:{qid}", *(f"{index}:{features[index]}" for index in sorted(features))])
        for qid, group in queries.items()
        for grade, features in group
    ]
    text = ending.join(lines).encode() + (ending.encode() if last else b"")
    path = write(tmp_path_factory.mktemp("letor") / "a.txt", text)
    check_same(read_letor_file(path, features=True, block_size=block_size), text)


@pytest.mark.parametrize(
    "text", ["0.12345678901234567890123", "98765432109876543210987", "1e-300", "1.7976931348e308", "1e-999"]
)
def test_longer_numbers_are_close(tmp_path, text):
    part = read_letor_file(write(tmp_path / "a.txt", f"0 qid:1 1:{text} 2:-{text}\n".encode()), features=True)
    expected = min(float(text), float(np.finfo(np.float32).max))  # what float32 cannot hold is cut off, never infinite
    np.testing.assert_allclose(part.X[0], [expected, -expected], rtol=1e-7, atol=1e-45)


def test_features_are_kept_only_if_asked_for(tmp_path):
    path = write(tmp_path / "a.txt", TOY)
    assert load_letor(path).X is None
    assert load_letor(path, features=True).X.tolist() == np.float32([[0.5, 0, 1], [0, 0.1, 0], [0.3, 0, 0]]).tolist()


def test_gzip_is_recognised_by_content(tmp_path):
    packed = write(tmp_path / "packed.txt", gzip.compress(TOY[:20]) + gzip.compress(TOY[20:]))
    plain = write(tmp_path / "plain.gz", TOY)
    assert load_letor(packed).fingerprint == load_letor(plain).fingerprint
    assert load_letor(packed).y.tolist() == load_letor(plain).y.tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"x qid:9 1:1", "grade 'x' is not a whole number from 0 to 1000"),
        (b"1.5 qid:9 1:1", "grade '1.5' is not a whole number"),
        (b"1001 qid:9 1:1", "grade '1001' is not a whole number"),
        (b"nan qid:9 1:1", "grade 'nan' is not a whole number"),
        (b"1e qid:9 1:1", "grade '1e' is not a whole number"),
        (b". qid:9 1:1", "grade '.' is not a whole number"),
        (b"qid:9 1:1", "grade 'qid:9' is not a whole number"),
        (b"-1 qid:9 1:1", "grade '-1' is not a whole number"),
        (b"1", "no qid:ID after the grade"),
        (b"1 # qid:9", "no qid:ID after the grade"),
        (b"1 1:0.5", "no qid:ID after the grade"),
        (b"1 qid: 1:0.5", "no qid:ID after the grade"),
        (b"1 Qid:3 1:0.5", "no qid:ID after the grade"),
        (b"1 qid:9 0:0.5", "'0:0.5' does not begin with a feature's number"),
        (b"1 qid:9 a:0.5", "'a:0.5' does not begin with a feature's number"),
        (b"1 qid:9 -1:0.5", "'-1:0.5' does not begin with a feature's number"),
        (b"1 qid:9 0.5", "'0.5' does not begin with a feature's number"),
        (b"1 qid:9 1:1 17", "'17' does not begin with a feature's number"),
        (b"1 qid:9 1:1 1:2", "'1:2' comes after a feature with the same or a higher number"),
        (b"1 qid:9 3:1 2:2", "'2:2' comes after a feature with the same or a higher number"),
        (b"1 qid:9 1:", "'1:' has no finite number as its value"),
        (b"1 qid:9 1: 2", "'1:' has no finite number as its value"),
        (b"1 qid:9 1:0x1", "'1:0x1' has no finite number as its value"),
        (b"1 qid:9 1:1.2.3", "'1:1.2.3' has no finite number as its value"),
        (b"1 qid:9 1:1e+", "'1:1e+' has no finite number as its value"),
        (b"1 qid:9 1:--1", "'1:--1' has no finite number as its value"),
        (b"1 qid:9 1:1 2:nan 3:1", "'2:nan' has no finite number as its value"),
        (b"1 qid:9 2:NaN", "'2:NaN' has no finite number as its value"),
        (b"1 qid:9 2:-inf", "'2:-inf' has no finite number as its value"),
        (b"1 qid:9 2:Infinity", "'2:Infinity' has no finite number as its value"),
        (b"1 qid:9 2:1e309", "'2:1e309' has no finite number as its value"),
        (b"1 qid:9 2:-1.5e99999999999999999999", "has no finite number as its value"),
        (b"1 qid:9 2:" + b"9" * 400, "has no finite number as its value"),
        (b"\x89PNG\x00\xff", "grade '\ufffdPNG\\x00\ufffd' is not"),
    ],
)
@pytest.mark.parametrize("features", [False, True])
def test_a_wrong_line_is_named(tmp_path, line, reason, features):
    path = write(tmp_path / "a.txt", TOY + b"# comment\r\n\r\n" + line + b"\r\n" + TOY)
    for block_size in (16, 2**22):
        with pytest.raises(DataError) as caught:
            read_letor_file(path, features=features, block_size=block_size)
        message = str(caught.value)
        assert message.startswith(f"{path}, line 6: expected 'GRADE qid:ID FEATURE:VALUE ...', got '")
        assert reason in message
        assert "\n" not in message
        assert len(message) < len(str(path)) + 320


def test_the_text_of_a_wrong_line_is_shortened(tmp_path):
    path = write(
        tmp_path / "a.txt", b"0 qid:1 " + b" ".join(b"%d:0.5" % j for j in range(1, 100)) + b" 100:" + b"z" * 99
    )
    with pytest.raises(DataError) as caught:
        load_letor(path)
    assert "got '0 qid:1 1:0.5 2:0.5 3:0.5 4:0.5 5:0.5 6:0.5 7:0.5 8:0.5 9:0…'" in str(caught.value)
    assert f"'100:{'z' * 55}…' has no finite number as its value" in str(caught.value)


@pytest.mark.parametrize("block_size", [8, 30, 2**22])
def test_a_query_that_comes_back_is_refused(tmp_path, block_size):
    path = write(tmp_path / "a.txt", b"# 1\n0 qid:1 1:1\n0 qid:1 1:1\n0 qid:2 1:1\n0 qid:3 1:1\n0 qid:1 1:1\n")
    with pytest.raises(DataError, match=r"a.txt, line 6: qid 1 comes back"):
        read_letor_file(path, block_size=block_size)


@pytest.mark.parametrize("text", [b"", b"\n\n", b"# nothing\n", gzip.compress(b"", mtime=0)])
def test_a_file_without_rows_is_refused(tmp_path, text):
    with pytest.raises(DataError, match=r"a.txt: holds no rows; expected lines such as"):
        load_letor(write(tmp_path / "a.txt", text))


def test_damaged_gzip_files_are_refused(tmp_path):
    packed = gzip.compress(bytes(TOY) * 50)
    wrong_sum = packed[:-8] + bytes(8)
    for text in (packed[:-9], packed[:20], wrong_sum, packed[:30] + b"junk" + packed[34:], packed + b"junk"):
        with pytest.raises(DataError, match=r"a.gz: the gzip file is damaged or cut short: .") as caught:
            load_letor(write(tmp_path / "a.gz", text))
        assert "\n" not in str(caught.value)


def test_a_file_without_line_ends_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(letor, "LONGEST_LINE", 1000)
    path = write(tmp_path / "a.txt", b"0 qid:1 1:1\n" + bytes(5000))
    with pytest.raises(DataError, match=r"a.txt: a line has more than 1,000 bytes"):
        read_letor_file(path, block_size=100)


def test_a_table_of_features_has_a_widest(tmp_path):
    path = write(tmp_path / "a.txt", b"0 qid:1 1:1 99999999999999999999:1\n")
    assert load_letor(path).y.tolist() == [0]
    with pytest.raises(DataError, match=r"too many to keep"):
        load_letor(path, features=True)


def test_a_path_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"no such file or folder: .*missing.txt"):
        load_letor(tmp_path / "missing.txt")
    with pytest.raises(DataError, match=r"no such file or folder: .*test.txt/x"):
        load_letor(write(tmp_path / "test.txt", TOY) / "x")
    with pytest.raises(DataError, match=r"cannot read .*: File name too long"):
        load_letor(tmp_path / ("x" * 1000))
    (tmp_path / "fold" / "test.txt").mkdir(parents=True)
    with pytest.raises(DataError, match=r"cannot read .*test.txt: Is a directory"):
        _ = load_letor(tmp_path / "fold").test


# ---------------------------------------------------------------------------------------------------------------------
# Rows without qid, and the sizes of the queries in a side file

PLAIN = b"# no qid here\n2 1:0.5 3:1 #docid = u\n\n0 2:0.1 # docid = v\n1 # docid = w\n+3.0 7:1e-2 # docid = x\n"


def with_qids(text, sizes):
    """Insert the qids 0, 1, … into rows, so that the obvious reader can read them."""
    numbers = iter([q for q, n in enumerate(sizes) for _ in range(n)])
    lines = []
    for line in text.decode().split("\n"):
        grade, _, rest = line.strip().partition(" ")
        lines.append(f"{grade} qid:{next(numbers)} {rest}" if grade and not line.startswith("#") else line)
    return "\n".join(lines).encode()


@pytest.mark.parametrize("block_size", [1, 7, 2**22])
@pytest.mark.parametrize(
    ("name", "side", "sizes", "content"),
    [
        ("a.txt", "a.txt.query", [3, 1], b"3\n1\n"),
        ("a.txt", "a.txt.group", [1, 1, 2], b"1\r\n1\r\n\r\n 2 "),
        ("a.txt.gz", "a.txt.gz.query", [4], b"4"),
        ("a.txt.gz", "a.txt.group", [2, 2], b"2\n2\n"),
    ],
)
def test_sizes_in_a_side_file(tmp_path, name, side, sizes, content, block_size):
    path = write(tmp_path / name, gzip.compress(PLAIN) if name.endswith(".gz") else PLAIN)
    write(tmp_path / side, content)
    part = read_letor_file(path, features=True, block_size=block_size)
    y, rows, expected_sizes, _, docids = naive.read_letor(with_qids(PLAIN, sizes))
    assert part.y.tolist() == y
    assert np.diff(part.offsets).tolist() == expected_sizes == sizes
    assert part.item_ids == docids
    assert part.query_ids is None
    X = np.zeros((4, 7), np.float32)
    for i, row in enumerate(rows):
        for index, value in row.items():
            X[i, index - 1] = value
    assert part.X.tolist() == X.tolist()


def test_queries_of_a_side_file_are_named_by_their_places(tmp_path):
    path = write(tmp_path / "a.txt", PLAIN)
    write(tmp_path / "a.txt.query", b"3\n1\n")
    data = load_letor(path)
    assert [data.query_id(q) for q in range(2)] == ["0", "1"]
    other = write(tmp_path / "b.txt", PLAIN)
    write(tmp_path / "b.txt.query", b"1\n3\n")
    assert data.fingerprint != load_letor(other).fingerprint


@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=6),
    ending=st.sampled_from(["\n", "\r\n", " \n\n", " # x\n"]),
    block_size=st.integers(1, 60),
)
def test_a_side_file_replaces_qids(tmp_path_factory, sizes, ending, block_size):
    folder = tmp_path_factory.mktemp("side")
    grades = [i % 3 for i in range(sum(sizes))]
    numbers = [q for q, n in enumerate(sizes) for _ in range(n)]
    plain = write(folder / "plain.txt", "".join(f"{y} 1:{i}{ending}" for i, y in enumerate(grades)).encode())
    qids = "".join(f"{y} qid:{q} 1:{i}{ending}" for i, (y, q) in enumerate(zip(grades, numbers, strict=True)))
    write(folder / "plain.txt.group", "\n".join(map(str, sizes)).encode())
    with_side = read_letor_file(plain, features=True, block_size=block_size)
    without = read_letor_file(write(folder / "qids.txt", qids.encode()), features=True, block_size=block_size)
    for field in ("offsets", "y", "X"):
        assert np.array_equal(getattr(with_side, field), getattr(without, field))


def test_a_side_file_of_rows_with_qids_is_not_used(tmp_path):
    path = write(tmp_path / "a.txt", b"# 1\n" + TOY)
    before = read_letor_file(path)
    write(tmp_path / "a.txt.query", b"junk")
    assert read_letor_file(path).sha256 == before.sha256
    assert read_letor_file(path, block_size=1).query_ids == ["7", "8"]


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (b"3\n2\n", r"a.txt has 4 rows without a qid, but the sizes in a.txt.query add up to 5$"),
        (b"3\n", r"a.txt has 4 rows without a qid, but the sizes in a.txt.query add up to 3$"),
        (b"", r"a.txt has 4 rows without a qid, but the sizes in a.txt.query add up to 0$"),
        (b"3\nx\n", r"a.txt.query, line 2: expected the number of rows of a query, got 'x'$"),
        (b"3\n\n1.0\n", r"a.txt.query, line 3: expected the number of rows of a query, got '1.0'$"),
        (b"4\n0\n", r"a.txt.query, line 2: expected the number of rows of a query, got '0'$"),
        (b"5\n-1\n", r"a.txt.query, line 2: expected the number of rows of a query, got '-1'$"),
        (b"9" * 5000, r"a.txt.query, line 1: expected the number of rows of a query, got '9+…'$"),
        (b"\x1f\x8bjunk", r"a.txt.query: the gzip file is damaged"),
    ],
)
def test_wrong_side_files_are_refused(tmp_path, sizes, message):
    path = write(tmp_path / "a.txt", PLAIN)
    write(tmp_path / "a.txt.query", sizes)
    with pytest.raises(DataError, match=message) as caught:
        read_letor_file(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("block_size", [4, 2**22])
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"1 qid:3 1:1", "'qid:3' does not begin with a feature's number"),
        (b"1 q:3", "'q:3' does not begin with a feature's number"),
        (b"1 0:3", "'0:3' does not begin with a feature's number"),
        (b"1 2:1 1:3", "'1:3' comes after a feature with the same or a higher number"),
        (b"1 1:x", "'1:x' has no finite number as its value"),
        (b"1.5 1:1", "grade '1.5' is not a whole number"),
    ],
)
def test_a_wrong_line_without_qid_is_named(tmp_path, line, reason, block_size):
    path = write(tmp_path / "a.txt", PLAIN + line + b"\n")
    write(tmp_path / "a.txt.query", b"5\n")
    with pytest.raises(DataError) as caught:
        read_letor_file(path, block_size=block_size)
    assert str(caught.value).startswith(f"{path}, line 7: expected 'GRADE FEATURE:VALUE ...', got '")
    assert reason in str(caught.value)


def test_the_error_for_rows_without_qid_mentions_the_side_files(tmp_path):
    path = write(tmp_path / "a.txt", PLAIN)
    with pytest.raises(DataError) as caught:
        read_letor_file(path)
    assert str(caught.value) == (
        f"{path}, line 2: expected 'GRADE qid:ID FEATURE:VALUE ...', got '2 1:0.5 3:1 #docid = u': no qid:ID after the "
        "grade, and no side file FILE.query or FILE.group that lists the number of rows of each query"
    )


def test_a_row_without_qid_among_rows_with_one_is_refused(tmp_path):
    path = write(tmp_path / "a.txt", TOY + PLAIN)
    write(tmp_path / "a.txt.query", b"7\n")
    with pytest.raises(DataError, match=r"a.txt, line 5: .*: no qid:ID after the grade$"):
        read_letor_file(path)


@needs_mq2008
def test_mq2008_agrees_with_the_obvious_reader():
    path = FOLDS / "Fold1" / "test.txt"
    check_same(read_letor_file(path, features=True, block_size=100_000), path.read_bytes())


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from Linux's /proc")
def test_memory_stays_far_below_the_size_of_the_file(tmp_path):
    """Labels of 40 MB of text: what is kept is a hundredth of it, and the rest is a few blocks at a time.

    A file of a fifth of that is read first, so that what Polars and the allocator keep for themselves does not count.
    """
    first, path, features = (
        tmp_path / "first.txt",
        tmp_path / "large.txt",
        " ".join(f"{i}:0.{i:06d}" for i in range(1, 221)),
    )
    for each, queries in ((first, 30), (path, 150)):
        with each.open("w") as file:
            for q in range(queries):
                file.writelines(f"{i % 5} qid:{q} {features}\n" for i in range(100))
    size = path.stat().st_size
    code = (
        "import re, sys\nfrom pathlib import Path\nfrom mcfair.data.letor import read_letor_file\n"
        "def peak(): return int(re.search(r'VmHWM:\\s+(\\d+) kB', Path('/proc/self/status').read_text())[1]) * 1024\n"
        "first, large = map(Path, sys.argv[1:])\nread_letor_file(first, block_size=2**19)\nbefore = peak()\n"
        "part = read_letor_file(large, block_size=2**19)\nprint(len(part.y), peak() - before)\n"
    )
    words = [sys.executable, "-c", code, str(first), str(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    rows, grown = map(int, done.stdout.split())
    assert rows == 15_000
    assert size > 35_000_000
    assert grown < size / 3
