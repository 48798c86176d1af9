import gzip
import shutil

import pytest
from letor_files import TOY, sha256, write
from real_data import FOLDS, needs_mq2008

from mcfair.data.catalogue import CATALOGUE, available, locate, recognise
from mcfair.data.folds import load_fold, load_letor, open_data
from mcfair.data.letor import content_sum
from mcfair.errors import DataError


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


def test_files_are_recognised_by_content_and_part(toy_entry):
    assert recognise(sha256(TOY), "test") == "toy/fold1"
    assert recognise(sha256(TOY), "train") == ""
    assert recognise(sha256(TOY + b"\n"), "test") == ""


def test_the_data_knows_its_catalogue_name(tmp_path, toy_entry):
    write(tmp_path / "any" / "test.txt.gz", gzip.compress(TOY))
    write(tmp_path / "any" / "train.txt", TOY)
    fold = load_fold(tmp_path / "any")
    assert (fold.catalogue, fold.test.catalogue, fold.select(max_items=1).catalogue) == ("toy/fold1",) * 3
    assert fold.train.catalogue == ""  # no train part has this content
    assert load_letor(tmp_path / "any" / "train.txt").catalogue == "toy/fold1"  # a single file counts as a test part
    assert load_letor(write(tmp_path / "other.txt", TOY + b"\n")).catalogue == ""


# ---------------------------------------------------------------------------------------------------------------------
# Real data: a copy of MQ2008 that the user has


@needs_mq2008
@pytest.mark.parametrize(
    ("fold", "queries", "kept"), [(1, 156, 82), (2, 157, 74), (3, 157, 69), (4, 157, 86), (5, 157, 93)]
)
def test_mq2008(fold, queries, kept):
    name = f"mq2008/fold{fold}"
    whole = load_fold(locate(name), features=True)
    parts = {"train": whole.train, "validation": whole.validation, "test": whole.test}
    assert sum(part.queries for part in parts.values()) == 784
    assert sum(part.items for part in parts.values()) == 15_211
    assert whole.test.queries == queries
    for split, part in parts.items():
        assert (part.y_max, part.X.shape[1], len(part.item_ids)) == (2, 46, part.items)
        assert content_sum(whole.files[split]) == CATALOGUE[name].sums[split]
        assert part.catalogue == name
    assert open_data(name, preset="wsdm23").queries == kept


@needs_mq2008
def test_mq2008_is_known_without_its_carriage_returns(tmp_path, monkeypatch):
    folder = tmp_path / "Fold2"
    shutil.copytree(FOLDS / "Fold2", folder)
    for file in folder.glob("*.txt"):
        file.write_bytes(file.read_bytes().replace(b"\r\n", b"\n"))
    monkeypatch.setenv("MCFAIR_DATA", str(tmp_path))
    assert locate("mq2008/fold2") == folder
    fold = load_fold(folder, preset="wsdm23")
    assert fold.queries == 74
    assert {part.catalogue for part in (fold, fold.train, fold.validation, fold.test)} == {"mq2008/fold2"}
