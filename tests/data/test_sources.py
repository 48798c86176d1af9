import gzip
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from letor_files import TOY, rows, write

from mcfair.data.catalogue import synthetic
from mcfair.data.dataset import Dataset
from mcfair.data.folds import Fold, open_data
from mcfair.data.protocols import PROTOCOLS
from mcfair.errors import DataError, SettingError


def test_open_data_takes_folders_files_profiles_and_names(tmp_path, no_data, monkeypatch):
    write(tmp_path / "fold" / "test.txt", TOY)
    write(tmp_path / "fold" / "train.txt", rows([1, 2]))
    assert open_data(tmp_path / "fold").query_ids == ["7", "8"]
    assert open_data(str(tmp_path / "fold"), split="train").query_ids == ["1"]
    assert open_data(tmp_path / "fold" / "test.txt", features=True, max_items=1).X.tolist() == [
        [np.float32(0.3), 0.0, 0.0]
    ]
    assert open_data("mq2008-like", seed=4).fingerprint == synthetic("mq2008-like", seed=4).fingerprint
    write(tmp_path / "mq2008-like", TOY)
    monkeypatch.chdir(tmp_path)
    assert open_data("mq2008-like").queries == 2


def test_open_data_applies_options_to_profiles():
    data = open_data("mq2008-like", epsilon=0.0, min_items=8, max_items=12)
    assert (data.R.min(), data.R.max()) == (0.0, 1.0)
    assert 8 <= data.sizes.min() <= data.sizes.max() <= 12
    assert (data.protocol.name, data.protocol.min_items, data.protocol.max_items) == ("", 8, 12)
    paper = open_data("mq2008-like", preset="paper")
    assert (paper.queries, paper.protocol) == (83, PROTOCOLS["paper"])
    assert paper.fingerprint == synthetic("mq2008-like").fingerprint
    assert paper.pool()[0] is paper
    with pytest.raises(SettingError, match="epsilon = 2"):
        open_data("mq2008-like", epsilon=2)


@pytest.mark.parametrize("preset", [None, "paper", "wsdm23"])
def test_open_data_returns_a_fold_for_the_test_part_of_a_folder(tmp_path, preset):
    text = rows([1] * 6, [1] * 7, [0] * 8)
    write(tmp_path / "test.txt", text)
    write(tmp_path / "train.txt", TOY)
    fold = open_data(tmp_path, preset=preset)
    assert isinstance(fold, Fold)
    assert fold.protocol.name == (preset or "")
    assert type(open_data(tmp_path / "test.txt", preset=preset)) is Dataset
    train = open_data(tmp_path, split="train")
    assert (type(train), train.query_ids) == (Dataset, ["7", "8"])


def test_a_part_is_opened_without_reading_the_others(tmp_path):
    write(tmp_path / "test.txt", b"junk")
    write(tmp_path / "train.txt", TOY)
    assert open_data(tmp_path, split="train").queries == 2


@pytest.mark.parametrize("name", ["a.csv", "a.CSV", "a.tsv", "a.parquet", "a.jsonl", "a.csv.gz"])
def test_open_data_reads_tables(tmp_path, name):
    table = pl.DataFrame({"query": ["x", "x", "y"], "grade": [0, 2, 1], "group": ["p", None, "p"]})
    path = tmp_path / name
    if name.endswith(".parquet"):
        table.write_parquet(path)
    elif name.endswith(".jsonl"):
        table.write_ndjson(path)
    else:
        text = table.write_csv(separator="\t" if ".tsv" in name else ",").encode()
        path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    data = open_data(path, epsilon=0.0, preset="paper", max_items=2)
    assert (data.query_ids, data.y.tolist(), data.providers.tolist()) == (["x", "y"], [0, 2, 1], [0, 1, 0])
    assert data.R.tolist() == pytest.approx([0, 1, 1 / 3])
    assert (data.protocol.name, data.protocol.max_items) == ("paper", 2)
    assert data.name == f"{tmp_path.parent.name}/{tmp_path.name}/a".removeprefix("/")
    assert open_data(path, min_items=2).query_ids == ["x"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "wsdm23"}, "^preset wsdm23 reads a LETOR fold or file, but '.*a.csv' is a table$"),
        ({"split": "train"}, "a.csv is a table and has no train part$"),
        ({"epsilon": 0.2}, "a.csv: epsilon = 0.2 applies to grades, but the table has a column of relevance$"),
        ({"min_items": 3}, "none of 1 queries is left"),
    ],
)
def test_options_that_do_not_fit_a_table_are_refused(tmp_path, options, message):
    with pytest.raises(DataError, match=message):
        open_data(write(tmp_path / "a.csv", b"query,relevance\n1,0.5\n"), **options)


def test_open_data_reads_side_files(tmp_path):
    write(tmp_path / "a.svm", b"1 1:0.5\n0 1:0.25\n2 2:1\n")
    write(tmp_path / "a.svm.query", b"2\n1\n")
    assert open_data(tmp_path / "a.svm").sizes.tolist() == [2, 1]


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (
            "mq2008-lik",
            {},
            "no such file or folder: mq2008-lik; .*did you mean 'mq2008-like'?.*available: .*mq2008/fold1",
        ),
        ("there/is/nothing", {}, "no such file or folder: there/is/nothing; .*istella-s-like.*mq2008/fold5"),
        ("mq2008-like", {"split": "tset"}, "unknown split 'tset'; did you mean 'test'"),
        ("mq2008-like", {"split": "train"}, "mq2008-like is a built-in profile and has no train part"),
        ("mq2008-like", {"preset": "wsdm"}, "unknown preset 'wsdm'"),
        ("mq2008-like", {"preset": "wsdm23"}, "reads a LETOR fold or file, but 'mq2008-like' is a built-in profile"),
        ("mq2008-like", {"min_items": 99}, "none of 83 queries is left"),
        ("fold", {"preset": "wsdm23", "split": "train"}, "preset wsdm23 evaluates on the test part, but split 'train'"),
        ("fold", {"split": "validation"}, "no validation part"),
        ("fold/test.txt", {"split": "train"}, "fold/test.txt is a single file and has no train part"),
        ("mq2008/fold1", {}, "mq2008/fold1 is not on this machine"),
    ],
)
def test_open_data_refuses(tmp_path, monkeypatch, no_data, source, options, message):
    write(tmp_path / "fold" / "test.txt", TOY)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=message):
        open_data(source, **options)


def test_import_is_light():
    code = "import sys, mcfair.data.folds; print(sorted({'numba', 'polars', 'pandas', 'pyarrow'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
