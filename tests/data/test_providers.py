import naive_data
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcfair.data.dataset import Dataset
from mcfair.data.folds import concatenate
from mcfair.errors import DataError

label = st.sampled_from(["a", "b", "c", "", None])
queries = st.lists(st.lists(label, max_size=5), min_size=1, max_size=6)


def flat(lists):
    return [each for one in lists for each in one]


def dataset(lists, **fields):
    offsets = np.cumsum([0, *map(len, lists)])
    return Dataset(offsets=offsets, y=np.zeros(offsets[-1], int), providers=flat(lists), **fields)


@given(queries)
def test_query_providers_count_up_within_each_query(lists):
    data = dataset(lists)
    assert data.query_providers.tolist() == naive_data.query_groups(flat(lists), [len(each) for each in lists])


def test_without_providers_every_item_is_its_own():
    data = Dataset(offsets=[0, 2, 2, 5], y=[0] * 5)
    assert data.providers is None
    assert data.query_providers.tolist() == [0, 1, 0, 1, 2]
    assert data.provider_name(3) == "item 1 of query 2"
    assert not data.query_providers.flags.writeable


def test_labels_become_codes_in_order_of_first_appearance():
    data = dataset([["b", "a"], [None, "b", ""]], query_ids=["x", "y"], item_ids=list("uvuvw"))
    assert data.providers.tolist() == [0, 1, 2, 0, 3]
    assert data.provider_names == ("b", "a", "", "")
    assert [data.provider_name(code) for code in range(4)] == ["b", "a", "item u of query y", "item w of query y"]
    assert repr(data) == "Dataset('data': 2 queries, 5 items, 2-3 per query, grades 0-0, 4 providers)"


@pytest.mark.parametrize(
    "labels",
    [
        [7, 7, None, 8],
        ["7", "7", "", "8"],
        np.array([7.0, 7.0, np.nan, 8.0]),
        [7, np.int32(7), float("nan"), np.str_(8)],
    ],
)
def test_numbers_are_labels_too(labels):
    data = Dataset(offsets=[0, 4], y=[0] * 4, providers=labels)
    assert (data.providers.tolist(), data.provider_names) == ([0, 0, 1, 2], ("7", "", "8"))


def test_no_label_at_all_is_the_same_as_no_providers():
    data = Dataset(offsets=[0, 2], y=[0, 1], providers=[None, ""])
    assert data.providers is None
    assert data.fingerprint == Dataset(offsets=[0, 2], y=[0, 1]).fingerprint


@pytest.mark.parametrize("wrong", [1.5, True, b"x", ["x"], float("inf")])
def test_labels_of_other_types_are_refused(wrong):
    with pytest.raises(DataError, match=r"providers must be text or whole numbers, .*, got .* for item 1$"):
        Dataset(offsets=[0, 2], y=[0, 1], providers=["a", wrong])


def test_providers_of_the_wrong_length_are_refused():
    with pytest.raises(DataError, match=r"^data: providers has 3 entries, expected 2$"):
        Dataset(offsets=[0, 2], y=[0, 1], providers=["a", "b", "c"])
    with pytest.raises(DataError, match=r"^data: providers has 1 entries, expected 2$"):
        Dataset(offsets=[0, 2], y=[0, 1], providers=[0], provider_names=("a",))


@pytest.mark.parametrize("codes", [[0, 2], [-1, 0]])
def test_codes_outside_the_names_are_refused(codes):
    with pytest.raises(DataError, match=r"codes of providers must be from 0 to 1, got"):
        Dataset(offsets=[0, 2], y=[0, 1], providers=codes, provider_names=("a", "b"))


@given(queries, st.data())
def test_selections_keep_providers(lists, chosen):
    data = dataset(lists)
    order = chosen.draw(st.lists(st.integers(0, len(lists) - 1), unique=True, min_size=1))
    taken = data.take(order)
    kept = [lists[q] for q in order]
    assert taken.query_providers.tolist() == naive_data.query_groups(flat(kept), [len(each) for each in kept])
    if data.providers is not None:
        assert [taken.provider_names[code] for code in taken.providers] == [each or "" for each in flat(kept)]
    hidden = taken.hiding_truth(taken.R)
    assert hidden.query_providers.tolist() == taken.query_providers.tolist()


def test_a_selection_without_labels_has_single_items():
    data = dataset([["a", "a"], [None, None]]).take([1])
    assert data.query_providers.tolist() == [0, 1]
    assert len(set(data.providers.tolist())) == 2


@given(st.lists(queries, min_size=1, max_size=3))
def test_joined_parts_share_the_providers_of_the_same_label(parts):
    whole = concatenate([dataset(each, name=str(i)) for i, each in enumerate(parts)], name="whole")
    lists = flat(parts)
    labels = flat(lists)
    assert whole.query_providers.tolist() == naive_data.query_groups(labels, [len(each) for each in lists])
    if any(labels):
        assert [whole.provider_names[code] for code in whole.providers] == [each or "" for each in labels]
        singles = [code for code, each in zip(whole.providers.tolist(), labels, strict=True) if not each]
        assert len(set(singles)) == len(singles)
    else:
        assert whole.providers is None


def test_a_part_without_providers_joins_as_single_items():
    whole = concatenate([dataset([["a", "a"]], name="x"), Dataset(offsets=[0, 2], y=[0, 1], name="y")], name="whole")
    assert whole.providers.tolist() == [0, 0, 1, 2]


def test_providers_are_part_of_the_fingerprint():
    plain = Dataset(offsets=[0, 2], y=[0, 1])
    prints = {
        plain.fingerprint,
        *(plain.with_providers(groups).fingerprint for groups in (["a", "b"], ["a", "a"], ["b", "a"], ["a", None])),
    }
    assert len(prints) == 5
    three = Dataset(offsets=[0, 3], y=[0, 1, 2])
    assert three.with_providers(["a", "b", "b"]).fingerprint != three.with_providers(["a", "b", "a"]).fingerprint
    assert (
        plain.with_providers(["a", "b"]).fingerprint
        == Dataset(offsets=[0, 2], y=[0, 1], providers=["a", "b"]).fingerprint
    )


def test_new_labels_replace_the_old_ones():
    data = dataset([["a", "b"], ["a"]]).with_providers(["x", None, "x"])
    assert (data.providers.tolist(), data.provider_names) == ([0, 1, 0], ("x", ""))
