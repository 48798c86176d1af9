import gzip
import shutil

import numpy as np
import pytest
from letor_files import TOY, sha256, write
from real_data import FOLDS, needs_mq2008

from mcfair.data.catalogue import CATALOGUE, PROFILES, available, locate, recognise, synthetic
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


HASHES = {
    "mq2008-like": "add1f488f5839c6d90ac699ab067d3aa6244cc11c19150d7001fe090feab1165",
    "istella-s-like": "76da40255bea94f328ae6b9e2a2f2b4f6b63a5c2fa50ad71ff135ffe4684e06c",
    "marketplace": "55c5343cbc684f6b44b1360173a15c64dfa7e16a7c6ab996a6bf4485ad530bf5",
}


@pytest.mark.parametrize("name", PROFILES)
def test_profiles_never_change(name):
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


def test_the_providers_of_the_marketplace_have_the_same_merit():
    data = synthetic("marketplace", seed=3)
    first, second = (data.providers == code for code in (0, 1))
    assert data.provider_names == ("established", "newcomer")
    assert np.array_equal(data.y[first], data.y[second])
    assert np.array_equal(data.X[first], data.X[second])
    assert np.array_equal(data.query_providers, data.providers)


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
