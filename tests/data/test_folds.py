import dataclasses
import gzip
import pickle
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from letor_files import TOY, rows, sha256, write
from real_data import FOLDS, needs_mq2008

from mcfair.data.catalogue import CATALOGUE, synthetic
from mcfair.data.dataset import Dataset
from mcfair.data.folds import Fold, concatenate, load_fold, load_letor, open_data
from mcfair.data.protocols import PROTOCOLS, find_protocol
from mcfair.errors import DataError, SettingError

FINGERPRINTS = {
    None: ["d3faf1ed83403896", "7f9ced959fd93cf5", "996bee5b93d827ce"],
    "paper": ["9dc27557f00eda3b", "58ad4a5084c27bbb", "d0b7ac28efd2de91"],
    "wsdm23": ["b89b32c30a1cf287", "4deb637eebed14e3", "1b68ffc33b8a4c71"],
}


def test_dataset_of_a_file(tmp_path):
    data = load_letor(write(tmp_path / "Toy" / "Fold1" / "test.txt.gz", gzip.compress(TOY)), epsilon=0.25)
    assert type(data) is Dataset
    assert (data.name, data.y_max, data.query_ids, data.item_ids) == ("Toy/Fold1/test", 2, ["7", "8"], None)
    assert data.protocol == find_protocol("")
    assert data.R.tolist() == pytest.approx([1.0, 0.25, 0.5])


def test_fingerprint_follows_content_and_epsilon(tmp_path):
    path, other = write(tmp_path / "a.txt", TOY), write(tmp_path / "b.txt", TOY.replace(b"0.5", b"0.6"))
    prints = [
        load_letor(path).fingerprint,
        load_letor(path, epsilon=0.25).fingerprint,
        load_letor(path, max_items=1).fingerprint,
        load_letor(other).fingerprint,
    ]
    assert len(set(prints)) == len(prints)
    assert load_letor(path, epsilon=0).fingerprint == load_letor(path, epsilon=0.0).fingerprint
    assert load_letor(write(tmp_path / "c.txt", TOY)).fingerprint == prints[0]
    assert load_letor(path, features=True).fingerprint == prints[0]


# ---------------------------------------------------------------------------------------------------------------------
# Folds


def test_a_fold_is_its_test_part(tmp_path):
    write(tmp_path / "Toy" / "Fold1" / "test.txt", TOY)
    write(tmp_path / "Toy" / "Fold1" / "train.txt", TOY)
    fold = load_letor(tmp_path / "Toy" / "Fold1", features=True)
    assert isinstance(fold, Fold)
    assert type(fold.test) is Dataset
    assert fold.test is fold.test
    assert repr(fold) == (
        "Fold('Toy/Fold1/test': 2 queries, 3 items, 1-2 per query, grades 0-2, 3 features; parts train, test)"
    )
    single = load_letor(tmp_path / "Toy" / "Fold1" / "test.txt", features=True)
    for field in dataclasses.fields(Dataset):
        for other in (fold, fold.test):
            assert np.array_equal(getattr(single, field.name), getattr(other, field.name)), field.name


def test_other_parts_are_read_when_first_used(tmp_path):
    write(tmp_path / "test.txt", TOY)
    write(tmp_path / "Train.txt", b"junk\n")
    write(tmp_path / "VALID.txt.gz", gzip.compress(rows([0, 1], [3])))
    fold = load_fold(tmp_path)
    assert list(fold.files) == ["train", "validation", "test"]
    assert (fold.validation.sizes.tolist(), fold.validation.y_max) == ([2, 1], 3)
    assert fold.validation is fold.validation
    assert type(fold.validation) is Dataset
    with pytest.raises(DataError, match=r"Train.txt, line 1: "):
        _ = fold.train
    write(tmp_path / "Train.txt", TOY)
    assert fold.train.queries == 2


def test_nothing_made_from_a_fold_leads_to_its_other_parts(tmp_path):
    for part in ("train", "vali", "test"):
        write(tmp_path / f"{part}.txt", TOY)
    fold = load_fold(tmp_path)
    made = [
        fold.test, fold.select(), fold.select(max_items=1), fold.take([1]), fold.take([0, 1]), fold.with_relevance(0.2),
        fold.with_providers([1, 1, 2]), fold.hiding_truth(fold.R), fold.pool()[0],
        load_fold(tmp_path, preset="paper").pool()[0], concatenate([fold, fold.take([])], name="x"),
    ]  # fmt: skip
    for data in made:
        assert type(data) is Dataset
        assert not hasattr(data, "train")
        assert not hasattr(data, "folder")


def test_a_fold_can_be_pickled(tmp_path):
    for part in ("train", "test"):
        write(tmp_path / f"{part}.txt", TOY)
    fold = pickle.loads(pickle.dumps(load_fold(tmp_path)))
    assert (fold.fingerprint, fold.train.queries) == (load_fold(tmp_path).fingerprint, 2)


@pytest.mark.parametrize("name", ["vali", "valid", "validation"])
def test_names_of_the_validation_part(tmp_path, name):
    write(tmp_path / f"{name}.txt", TOY)
    write(tmp_path / "test.txt", TOY)
    assert load_fold(tmp_path).validation.name.endswith(f"/{name}")


def test_a_missing_part(tmp_path):
    write(tmp_path / "Fold1" / "train.txt", TOY)
    with pytest.raises(DataError, match=r"no test part \(test.txt or test.txt.gz\) in .*Fold1$"):
        load_fold(tmp_path / "Fold1")
    write(tmp_path / "Fold1" / "test.txt", TOY)
    with pytest.raises(DataError, match=r"no test part .*; did you mean .*Fold1?"):
        load_fold(tmp_path)
    fold = load_fold(tmp_path / "Fold1")
    assert list(fold.files) == ["train", "test"]
    with pytest.raises(DataError, match=r"no validation part .*vali.txt.* in .*Fold1"):
        _ = fold.validation


def test_a_folder_that_does_not_exist(tmp_path):
    with pytest.raises(DataError, match=r"no such file or folder: .*nowhere"):
        load_fold(tmp_path / "nowhere")


def test_wrong_options_are_refused_before_anything_is_read(tmp_path):
    write(tmp_path / "test.txt", b"junk")
    with pytest.raises(DataError, match=r"unknown preset 'wsdm32'; did you mean 'wsdm23'"):
        load_letor(tmp_path, preset="wsdm32")
    with pytest.raises(SettingError, match=r"epsilon = 2"):
        load_letor(tmp_path, epsilon=2)


# ---------------------------------------------------------------------------------------------------------------------
# Protocols

# n: 7 without a relevant item, 5, 6, 19, 20, 21, and a last one that would pass every filter
QUERIES = rows([0] * 7, [1] * 5, [1] * 6, [0] * 18 + [2], [1] * 20, [1] * 21, [1] * 8)


@pytest.mark.parametrize(
    ("known", "options", "test", "train"),
    [
        (True, {}, [7, 5, 6, 19, 20, 21, 8], [7, 5, 6, 19, 20, 21, 8]),
        (True, {"min_items": 6, "max_items": 19}, [7, 6, 19, 8], [7, 6, 19, 8]),
        (True, {"preset": "wsdm23"}, [6, 19], [7, 6, 19]),
        (False, {"preset": "wsdm23"}, [6, 19, 20, 21], [7, 6, 19, 20, 21]),
        (True, {"preset": "wsdm23", "max_items": 20}, [6, 19, 20], [7, 6, 19, 20]),
        (True, {"preset": "wsdm23", "min_items": 0}, [5, 6, 19], [7, 5, 6, 19]),
        (True, {"preset": "paper"}, [7, 5, 6, 19, 20, 8], [7, 5, 6, 19, 20, 8]),
        (False, {"preset": "paper"}, [7, 5, 6, 19, 20, 21, 8], [7, 5, 6, 19, 20, 21, 8]),
        (True, {"preset": "paper", "min_items": 6, "max_items": 30}, [7, 6, 19, 20, 21, 8], [7, 6, 19, 20, 21, 8]),
    ],
)
def test_presets(tmp_path, monkeypatch, known, options, test, train):
    if known:  # recognised by the test part alone: the train part differs
        bounds = CATALOGUE["mq2008/fold1"].bounds
        entry = dataclasses.replace(CATALOGUE["mq2008/fold2"], sums={"test": sha256(QUERIES)}, bounds=bounds)
        monkeypatch.setitem(CATALOGUE, "any/name", entry)
    write(tmp_path / "test.txt", QUERIES)
    write(tmp_path / "train.txt", QUERIES + b"\n")
    fold = load_fold(tmp_path, **options)
    single = load_letor(tmp_path / "test.txt", **options)
    assert fold.train.sizes.tolist() == train
    assert fold.sizes.tolist() == fold.test.sizes.tolist() == single.sizes.tolist() == test
    assert fold.catalogue == ("any/name" if known else "")
    assert single.fingerprint == fold.test.fingerprint == fold.fingerprint
    preset = options.get("preset", "")
    bounds = {"paper": (0, 20), "wsdm23": (6, 19)} if known else {"paper": (0, None), "wsdm23": (6, None)}
    low, high = bounds.get(preset, (0, None))
    expected = dataclasses.replace(
        find_protocol(preset), min_items=options.get("min_items", low), max_items=options.get("max_items", high)
    )
    assert fold.protocol == fold.test.protocol == fold.train.protocol == single.protocol == expected


def test_wsdm23_drops_the_last_query_of_the_file_not_of_what_is_left(tmp_path):
    path = write(tmp_path / "a.txt", rows([1] * 6, [1] * 7, [0] * 8))
    assert load_letor(path, preset="wsdm23").query_ids == ["1", "2"]
    with pytest.raises(DataError, match=r"none of 3 queries is left"):
        load_letor(path, preset="wsdm23", min_items=8)


@pytest.mark.parametrize("preset", [None, "wsdm23"])
def test_the_pool_of_a_fold_is_its_test_part(tmp_path, preset):
    write(tmp_path / "test.txt", rows([1] * 6, [1] * 7, [0] * 8))
    fold = load_fold(tmp_path, preset=preset)
    queries, evaluated = fold.pool()
    assert queries is fold.test
    assert evaluated.tolist() == [True] * fold.queries


def test_the_pool_of_the_papers_protocol_is_all_parts(tmp_path):
    write(tmp_path / "Toy" / "F" / "test.txt", rows([1, 0], first=7))
    write(tmp_path / "Toy" / "F" / "train.txt", rows([0], [1, 2], first=1))
    write(tmp_path / "Toy" / "F" / "vali.txt", rows([0, 0, 1], first=4))
    fold = load_fold(tmp_path / "Toy" / "F", preset="paper")
    queries, evaluated = fold.pool()
    assert queries.query_ids == ["1", "2", "4", "7"]
    assert queries.y.tolist() == [0, 1, 2, 0, 0, 1, 1, 0]
    assert queries.places.tolist() == [0, 1, 2, 3]
    assert (queries.name, queries.protocol.name) == ("Toy/F", "paper")
    assert evaluated.tolist() == [False, False, False, True]
    assert evaluated.dtype == np.bool_
    parts = [fold.train, fold.validation, fold.test]
    assert queries.fingerprint == sha256("".join(part.fingerprint for part in parts).encode())


def test_parts_whose_query_ids_clash_can_be_pooled(tmp_path):
    for part in ("train", "vali", "test"):
        write(tmp_path / "T" / "F" / f"{part}.txt", rows([0, 1]))
    assert load_fold(tmp_path / "T" / "F", preset="paper").pool()[0].query_ids == [
        "T/F/train/1", "T/F/vali/1", "T/F/test/1",
    ]  # fmt: skip


def test_a_pool_needs_its_parts(tmp_path):
    write(tmp_path / "test.txt", TOY)
    fold = load_fold(tmp_path, preset="paper")
    with pytest.raises(DataError, match="no train part"):
        fold.pool()
    single = load_letor(tmp_path / "test.txt", preset="paper")
    assert single.protocol == PROTOCOLS["paper"]
    assert single.pool()[0] is single


@pytest.mark.parametrize(("preset", "reads"), [(None, 1), ("wsdm23", 1)])
def test_recognising_data_does_not_read_the_file_again(tmp_path, monkeypatch, preset, reads):
    path, opened = write(tmp_path / "test.txt", rows([1] * 6, [1] * 7, [0] * 8)), []
    original = type(path).open

    def counting(self, *arguments, **options):
        opened.append(self.name)
        return original(self, *arguments, **options)

    monkeypatch.setattr(type(path), "open", counting)
    load_fold(tmp_path, preset=preset)
    assert opened == ["test.txt"] * reads


@needs_mq2008
@pytest.mark.parametrize("preset", [None, "paper", "wsdm23"])
def test_mq2008_fingerprints_never_change(preset):
    fold = load_fold(FOLDS / "Fold1", preset=preset)
    assert [part.fingerprint[:16] for part in (fold.train, fold.validation, fold.test)] == FINGERPRINTS[preset]


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
