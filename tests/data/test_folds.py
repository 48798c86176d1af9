from __future__ import annotations

import gzip
import hashlib
import subprocess
import sys

import numpy as np
import pytest
from letor_files import TOY, write
from real_data import FOLDS, needs_mq2008

from mcfair.data import folds as datasets
from mcfair.data import letor
from mcfair.data.dataset import Dataset
from mcfair.data.folds import (
    CATALOGUE,
    PROFILES,
    Entry,
    Fold,
    available,
    load_letor,
    locate,
    open_data,
    synthetic,
)
from mcfair.errors import DataError, SettingError

HASHES = {
    "mq2008-like": "add1f488f5839c6d90ac699ab067d3aa6244cc11c19150d7001fe090feab1165",
    "istella-s-like": "76da40255bea94f328ae6b9e2a2f2b4f6b63a5c2fa50ad71ff135ffe4684e06c",
}


def rows(*queries):
    """Write a file with these lists of grades, the queries called 1, 2, …"""
    return "".join(f"{y} qid:{q} 1:{i}\n" for q, grades in enumerate(queries, 1) for i, y in enumerate(grades)).encode()


def sha256(text):
    return hashlib.sha256(text).hexdigest()


@pytest.fixture
def no_data(monkeypatch, tmp_path):
    """A machine on which nothing is installed; gives the folder that MCFAIR_DATA names and the user's data folder."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MCFAIR_DATA", str(tmp_path / "named"))
    return tmp_path / "named", tmp_path / "home" / "mcfair"


@pytest.fixture
def toy_entry(monkeypatch):
    entry = Entry(description="toy", source="Toy 1.0", licence="free", folder="Toy/Fold1", sums={"test": sha256(TOY)})
    monkeypatch.setitem(CATALOGUE, "toy/fold1", entry)
    return entry


def test_dataset_of_a_file(tmp_path):
    data = load_letor(write(tmp_path / "Toy" / "Fold1" / "test.txt.gz", gzip.compress(TOY)), epsilon=0.25)
    assert isinstance(data, Dataset)
    assert (data.name, data.y_max, data.query_ids, data.item_ids, data.preset) == (
        "Toy/Fold1/test",
        2,
        ["7", "8"],
        None,
        "",
    )
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
# Folds and presets


def test_fold_reads_each_part_when_asked_for(tmp_path):
    write(tmp_path / "Train.txt", b"junk\n")
    write(tmp_path / "VALID.txt.gz", gzip.compress(rows([0, 1], [3])))
    write(tmp_path / "test.txt", TOY)
    fold = load_letor(tmp_path, features=True)
    assert isinstance(fold, Fold)
    assert repr(fold) == f"Fold('{tmp_path}': train, validation, test)"
    assert fold.preset is None
    assert fold.test.X.shape == (3, 3)
    assert fold.test is fold.test
    assert (fold.validation.sizes.tolist(), fold.validation.y_max) == ([2, 1], 3)
    with pytest.raises(DataError, match=r"Train.txt, line 1: "):
        _ = fold.train


@pytest.mark.parametrize("name", ["vali", "valid", "validation"])
def test_names_of_the_validation_part(tmp_path, name):
    write(tmp_path / f"{name}.txt", TOY)
    write(tmp_path / "test.txt", TOY)
    assert load_letor(tmp_path).validation.name.endswith(f"/{name}")


def test_a_missing_part(tmp_path):
    write(tmp_path / "Fold1" / "train.txt", TOY)
    with pytest.raises(DataError, match=r"no test part \(test.txt or test.txt.gz\) in .*Fold1$"):
        load_letor(tmp_path / "Fold1")
    write(tmp_path / "Fold1" / "test.txt", TOY)
    with pytest.raises(DataError, match=r"no test part .*; did you mean .*Fold1?"):
        load_letor(tmp_path)
    fold = load_letor(tmp_path / "Fold1")
    assert repr(fold) == f"Fold('{tmp_path / 'Fold1'}': train, test)"
    assert fold.name == f"{tmp_path.name}/Fold1"
    with pytest.raises(DataError, match=r"no validation part .*vali.txt.* in .*Fold1"):
        _ = fold.validation


def test_wrong_options_are_refused_before_anything_is_read(tmp_path):
    write(tmp_path / "test.txt", b"junk")
    with pytest.raises(DataError, match=r"unknown preset 'wsdm32'; did you mean 'wsdm23'"):
        load_letor(tmp_path, preset="wsdm32")
    with pytest.raises(SettingError, match=r"epsilon = 2"):
        load_letor(tmp_path, epsilon=2)


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
    if known:  # known by the test part alone: the train part differs
        monkeypatch.setattr(datasets, "MQ2008", (sha256(QUERIES),))
    write(tmp_path / "test.txt", QUERIES)
    write(tmp_path / "train.txt", QUERIES + b"\n")
    fold = load_letor(tmp_path, **options)
    assert fold.train.sizes.tolist() == train
    assert fold.test.sizes.tolist() == test
    assert fold.preset == options.get("preset")
    assert fold.test.preset == options.get("preset", "")
    single = load_letor(tmp_path / "test.txt", **options)
    assert single.sizes.tolist() == test
    assert (single.fingerprint, single.preset) == (fold.test.fingerprint, fold.test.preset)


def test_wsdm23_drops_the_last_query_of_the_file_not_of_what_is_left(tmp_path):
    path = write(tmp_path / "a.txt", rows([1] * 6, [1] * 7, [0] * 8))
    assert load_letor(path, preset="wsdm23").query_ids == ["1", "2"]
    with pytest.raises(DataError, match=r"none of 3 queries is left"):
        load_letor(path, preset="wsdm23", min_items=8)


# ---------------------------------------------------------------------------------------------------------------------
# Synthetic profiles


@pytest.mark.parametrize("name", PROFILES)
def test_profiles_are_the_same_for_ever(name):
    assert synthetic(name).fingerprint == HASHES[name]


@pytest.mark.parametrize("name", PROFILES)
def test_every_query_of_a_profile_has_a_relevant_item(name):
    data = synthetic(name, seed=5)
    assert np.add.reduceat(data.y > 0, data.offsets[:-1]).min() >= 1
    assert data.X.dtype == np.float32
    assert 0.0 <= data.X.min() <= data.X.max() <= 1.0


@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
def test_shape_of_mq2008_like(seed):
    data = synthetic("mq2008-like", seed=seed)
    assert (data.name, data.queries, data.y_max, data.X.shape[1]) == ("mq2008-like", 83, 2, 46)
    assert 6 <= data.sizes.min() <= data.sizes.max() <= 19
    # The real test parts, filtered: 9.8 to 10.9 items a query, 29 to 34 % relevant, 27 to 35 % of these of grade 2.
    assert 9 <= data.sizes.mean() <= 12
    assert 0.25 <= np.mean(data.y > 0) <= 0.42
    assert 0.2 <= np.mean(data.y[data.y > 0] == 2) <= 0.45


def test_shape_of_istella_s_like():
    data = synthetic("istella-s-like")
    assert (data.queries, data.y_max, data.X.shape[1]) == (6600, 4, 20)
    assert data.sizes.mean() == pytest.approx(103, abs=2)
    assert data.sizes.std() > 30
    assert np.mean(data.y > 0) == pytest.approx(0.11, abs=0.005)
    assert np.bincount(data.y).min() > 0.01 * data.items


def test_features_of_a_profile_know_the_grade_from_well_to_not_at_all():
    data = synthetic("istella-s-like")
    correlation = np.array([np.corrcoef(data.X[:, j], data.y)[0, 1] for j in range(20)])
    assert correlation[0] > 0.25
    assert 0.05 < correlation[8] < 0.15
    assert np.abs(correlation[-5:]).max() < 5 / np.sqrt(data.items)


def test_seeds_give_different_data():
    assert len({synthetic("mq2008-like", seed=seed).fingerprint for seed in range(5)}) == 5
    assert synthetic("mq2008-like", seed=np.int64(3)).fingerprint == synthetic("mq2008-like", seed=3).fingerprint


@pytest.mark.parametrize("seed", [-1, 2**64, 0.5, "0", None])
def test_wrong_seeds_are_refused(seed):
    with pytest.raises(DataError, match=r"seed = .*: expected a whole number from 0 to"):
        synthetic("mq2008-like", seed=seed)


def test_unknown_profile():
    with pytest.raises(DataError, match=r"unknown profile 'mq2008_like'; did you mean 'mq2008-like'?"):
        synthetic("mq2008_like")


# ---------------------------------------------------------------------------------------------------------------------
# The catalogue


@pytest.mark.parametrize("where", ["Toy/Fold1", "toy/FOLD1", "Fold1", "fold1"])
@pytest.mark.parametrize("root", [0, 1])
def test_catalogued_data_is_found(no_data, toy_entry, where, root):
    folder = no_data[root] / where
    write(folder / "TEST.txt.gz", gzip.compress(TOY))
    assert locate("Toy/fold1") == folder
    assert open_data("toy/fold1").sizes.tolist() == [2, 1]
    assert ("toy/fold1", "toy", str(folder)) in available()


def test_order_of_the_lookup(no_data, toy_entry):
    places = [root / folder for root in no_data for folder in ("Toy/Fold1", "Fold1")]
    for folder in reversed(places):
        write(folder / "test.txt", TOY)
        assert locate("toy/fold1") == folder


def test_missing_data_is_explained(no_data, monkeypatch):
    with pytest.raises(DataError) as caught:
        locate("mq2008/fold2")
    for part in (
        "MQ2008 (Supervised ranking)",
        str(no_data[0] / "MQ2008/Fold2"),
        str(no_data[1] / "MQ2008/Fold2"),
        "MCFAIR_DATA",
    ):
        assert part in str(caught.value)
    monkeypatch.delenv("MCFAIR_DATA")
    with pytest.raises(DataError, match=r"put it at .*MQ2008/Fold2, or point MCFAIR_DATA at the folder that holds"):
        locate("mq2008/fold2")
    assert ("mq2008/fold2", CATALOGUE["mq2008/fold2"].description, "not found") in available()


def test_a_copy_with_another_checksum_is_refused(no_data, toy_entry):
    wrong = write(no_data[0] / "Fold1" / "test.txt", TOY.replace(b"2 qid", b"1 qid"))
    with pytest.raises(DataError, match=f"is not the test part of toy/fold1: .* not {sha256(TOY)[:8]}; "):
        locate("toy/fold1")
    assert ("toy/fold1", "toy", f"not found: {wrong} has another checksum") in available()
    write(no_data[1] / "Fold1" / "test.txt", TOY)  # another fold 1 in the way does not hide the right one
    assert locate("toy/fold1") == no_data[1] / "Fold1"


def test_a_damaged_copy_is_explained(no_data, toy_entry):
    write(no_data[0] / "Fold1" / "test.txt.gz", gzip.compress(TOY)[:-1])
    with pytest.raises(DataError, match=r"damaged or cut short"):
        locate("toy/fold1")
    where = {name: where for name, _, where in available()}
    assert where["toy/fold1"].startswith("not found: ")
    assert where["mq2008-like"] == "built in"


def test_unknown_catalogue_name():
    with pytest.raises(DataError, match=r"unknown dataset 'mq2008/fold6'; did you mean 'mq2008/fold"):
        locate("mq2008/fold6")


# ---------------------------------------------------------------------------------------------------------------------
# open_data


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
    assert data.preset == ""
    paper = open_data("mq2008-like", preset="paper")
    assert (paper.queries, paper.preset) == (83, "paper")


def test_open_data_gives_the_whole_fold_for_the_papers_preset(tmp_path):
    write(tmp_path / "test.txt", TOY)
    fold = open_data(tmp_path, preset="paper")
    assert isinstance(fold, Fold)
    assert fold.preset == "paper"
    assert isinstance(open_data(tmp_path / "test.txt", preset="paper"), Dataset)


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
    code = "import sys, mcfair.data.folds; print(sorted({'numba', 'polars'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


# ---------------------------------------------------------------------------------------------------------------------
# Real data: a copy of MQ2008 that the user has


@needs_mq2008
@pytest.mark.parametrize(
    ("fold", "queries", "kept"), [(1, 156, 82), (2, 157, 74), (3, 157, 69), (4, 157, 86), (5, 157, 93)]
)
def test_mq2008(fold, queries, kept):
    folder = locate(f"mq2008/fold{fold}")
    whole = load_letor(folder, features=True)
    parts = {"train": whole.train, "validation": whole.validation, "test": whole.test}
    assert sum(part.queries for part in parts.values()) == 784
    assert sum(part.items for part in parts.values()) == 15_211
    assert whole.test.queries == queries
    for split, part in parts.items():
        assert (part.y_max, part.X.shape[1], len(part.item_ids)) == (2, 46, part.items)
        assert letor.content_sum(whole.files[split]) == CATALOGUE[f"mq2008/fold{fold}"].sums[split]
    assert open_data(f"mq2008/fold{fold}", preset="wsdm23").queries == kept


@needs_mq2008
def test_mq2008_is_known_without_its_carriage_returns(tmp_path, monkeypatch):
    folder = tmp_path / "Fold2"
    folder.mkdir()
    content = (FOLDS / "Fold2" / "test.txt").read_bytes()
    (folder / "test.txt").write_bytes(content.replace(b"\r\n", b"\n"))
    monkeypatch.setenv("MCFAIR_DATA", str(tmp_path))
    assert locate("mq2008/fold2") == folder
    assert load_letor(folder, preset="wsdm23").test.queries == 74
