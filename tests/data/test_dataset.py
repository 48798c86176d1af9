import numpy as np
import pytest

from mcfair.data.dataset import Dataset, concatenate
from mcfair.errors import DataError


@pytest.fixture
def toy():
    return Dataset(
        offsets=[0, 2, 5, 5, 6], y=[0, 1, 0, 2, 1, 0], X=np.arange(12.0).reshape(6, 2), name="toy",
        query_ids=["a", "b", "c", "d"], item_ids=list("uvwxyz"), scores=np.linspace(-1, 1, 6),
    )  # fmt: skip


def test_its_repr_says_its_sizes(toy):
    assert repr(toy) == "Dataset('toy': 4 queries, 6 items, 0-3 per query, grades 0-2, 2 features, scores)"


def test_it_cannot_be_changed(toy):
    for array in (toy.y, toy.R, toy.X, toy.offsets):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(AttributeError):
        toy.y_max = 7


def test_relevance_follows_the_grades(toy):
    assert toy.R.tolist() == pytest.approx([0.1, 0.4, 0.1, 1.0, 0.4, 0.1])
    assert toy.with_relevance(0.0).R.tolist() == pytest.approx([0, 1 / 3, 0, 1, 1 / 3, 0])


def test_a_selection_keeps_everything_that_belongs_to_a_query(toy):
    one = toy.select(min_items=3)
    assert (one.queries, one.items, one.y.tolist(), one.query_ids, one.item_ids) == (
        1,
        3,
        [0, 2, 1],
        ["b"],
        list("wxy"),
    )
    assert one.X.tolist() == [[4, 5], [6, 7], [8, 9]]
    assert one.places.tolist() == [1]
    assert one.scores.tolist() == toy.scores[2:5].tolist()
    assert toy.select(max_items=2, relevant_only=True).y_max == 2  # of the whole data
    assert toy.select(drop_last=True).query_ids == ["a", "b", "c"]
    assert toy.select(min_items=1, max_items=2).places.tolist() == [0, 3]


def test_an_empty_selection_says_what_there_is(toy):
    with pytest.raises(
        DataError, match=r"toy: none of 4 queries is left: asked for 7 to 9 items; its queries have 0 to 3"
    ):
        toy.select(min_items=7, max_items=9)
    with pytest.raises(DataError, match="a relevant one among them"):
        toy.take([3]).select(relevant_only=True)


def test_fingerprints_tell_data_apart(toy):
    prints = {toy.fingerprint, toy.select(min_items=2).fingerprint, toy.take([1, 0]).fingerprint}
    prints |= {toy.with_relevance(0.2).fingerprint, Dataset(offsets=[0, 2], y=[0, 1]).fingerprint}
    assert len(prints) == 5
    assert toy.select(min_items=0) is toy


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"offsets": [1, 2]}, "offsets must begin with 0"),
        ({"offsets": [0, 2, 1]}, "never fall"),
        ({"y": [0]}, "y has 1 entries, expected 2"),
        ({"y": [0, -1]}, "grades must be 0 or more, got -1"),
        ({"y": [0, 3], "y_max": 2}, "at most y_max = 2, got 3"),
        ({"R": [0.5, np.nan]}, "R must hold finite numbers from 0 to 1"),
        ({"R": [0.5, 1.5]}, "R must hold finite numbers from 0 to 1"),
        ({"X": [[1.0], [np.inf]]}, "X must hold finite numbers"),
        ({"scores": [1.0]}, "scores has 1 entries, expected 2"),
        ({"query_ids": ["a", "b"]}, "query_ids has 2 entries, expected 1"),
    ],
)
def test_wrong_arrays_are_refused(wrong, message):
    with pytest.raises(DataError, match=message):
        Dataset(**({"offsets": [0, 2], "y": [0, 1]} | wrong))


def test_parts_join(toy):
    whole = concatenate([toy, toy.take([1])], name="both")
    assert (whole.queries, whole.items, whole.name) == (5, 9, "both")
    assert whole.y[6:].tolist() == [0, 2, 1]
    assert whole.places.tolist() == [0, 1, 2, 3, 4]
    assert whole.query_ids == ["a", "b", "c", "d", "b"]
    assert concatenate([toy, Dataset(offsets=[0, 1], y=[1])], name="x").X is None
