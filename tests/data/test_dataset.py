import re

import naive_data
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcfair.data.dataset import Dataset
from mcfair.data.folds import concatenate
from mcfair.data.protocols import NO_PROTOCOL, PROTOCOLS
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
        ({"offsets": [1, 2]}, "offsets must be whole numbers that begin with 0"),
        ({"offsets": [0, 2, 1]}, "never fall"),
        ({"y": [0]}, "y has 1 entries, expected 2"),
        ({"y": [0, -1]}, "grades must be whole numbers from 0 to 1000, got -1$"),
        ({"y": [0, 1001]}, "grades must be whole numbers from 0 to 1000, got 1001$"),
        ({"y": [0, 40_000]}, "grades must be whole numbers from 0 to 1000, got 40000$"),
        ({"y": [0, 1.7]}, "grades must be whole numbers from 0 to 1000, got 1.7$"),
        ({"y": [0.0, np.nan]}, "grades must be whole numbers from 0 to 1000, got nan$"),
        ({"y": [0.0, np.inf]}, "grades must be whole numbers from 0 to 1000, got inf$"),
        ({"y": [-np.inf, 0.0]}, "grades must be whole numbers from 0 to 1000, got -inf$"),
        ({"y": [0, None]}, "grades must be whole numbers from 0 to 1000, got nan$"),
        ({"y": ["a", "b"]}, r"grades must be whole numbers from 0 to 1000, got \['a', 'b'\]$"),
        ({"y": [[0], [1]]}, r"y must have 1 dimension\(s\), got shape \(2, 1\)"),
        ({"y": [0, 3], "y_max": 2}, "y_max = 2 is not allowed: expected .* the highest grade, 3, to 1000"),
        ({"y_max": 2.5}, "y_max = 2.5 is not allowed"),
        ({"y_max": 1001}, "y_max = 1001 is not allowed"),
        ({"R": [0.5, np.nan]}, "R must hold numbers from 0 to 1, got nan"),
        ({"R": [0.5, 1.5]}, "R must hold numbers from 0 to 1, got 1.5"),
        ({"X": [[1.0], [np.inf]]}, "X must hold finite numbers, got inf"),
        ({"X": [1.0, 2.0]}, "X must have 2 dimension"),
        ({"scores": [1.0]}, "scores has 1 entries, expected 2"),
        ({"query_ids": ["a", "b"]}, "query_ids has 2 entries, expected 1"),
        ({"offsets": [0, 1, 2], "query_ids": ["a", "a"]}, "query ids must be distinct, got 'a' twice"),
        ({"item_ids": ["u", "u"]}, "item ids must be distinct within a query, got 'u' twice in query '0'"),
        (
            {"offsets": [0, 1, 3], "y": [0] * 3, "query_ids": ["x", "y"], "item_ids": list("uvv")},
            "got 'v' twice in query 'y'",
        ),
    ],
)
def test_wrong_arrays_are_refused(wrong, message):
    with pytest.raises(DataError, match=message) as caught:
        Dataset(**({"offsets": [0, 2], "y": [0, 1]} | wrong))
    assert "\n" not in str(caught.value)


def test_a_message_about_many_offsets_is_one_line():
    with pytest.raises(DataError, match=r"never fall, got \[3 0 0") as caught:
        Dataset(offsets=[3] + [0] * 100, y=[])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("y", [[0, 2], [0.0, 2.0], np.array([0, 2], np.uint8), np.array([0.0, 2.0], object)])
def test_whole_grades_of_any_type_are_accepted(y):
    data = Dataset(offsets=[0, 2], y=y)
    assert (data.y.tolist(), data.y.dtype, data.y_max) == ([0, 2], np.int16, 2)
    assert Dataset(offsets=[0, 2], y=[True, False]).y.tolist() == [1, 0]


def test_items_of_different_queries_may_have_one_id():
    assert Dataset(offsets=[0, 1, 2], y=[0, 1], item_ids=["u", "u"]).item_ids == ["u", "u"]


def test_a_dataset_is_its_own_pool(toy):
    queries, evaluated = toy.pool()
    assert queries is toy
    assert evaluated.tolist() == [True] * 4


def test_the_protocol_and_the_catalogue_name_stay_with_the_data(toy):
    assert (toy.protocol, toy.catalogue) == (NO_PROTOCOL, "")
    fields = {"protocol": PROTOCOLS["paper"], "catalogue": "toy/fold1"}
    data = Dataset(offsets=toy.offsets, y=toy.y, **fields)
    for each in (data.take([1, 0]), data.with_relevance(0.2), data.hiding_truth(data.R), data.with_providers([1] * 6)):
        assert {name: getattr(each, name) for name in fields} == fields


def test_hidden_data_has_the_queries_but_not_the_truth(toy):
    hidden = toy.hiding_truth(np.arange(6.0))
    assert hidden.scores.tolist() == [0, 1, 2, 3, 4, 5]
    assert not hidden.y.any()
    assert not hidden.R.any()
    assert (hidden.fingerprint, hidden.query_ids) == (toy.fingerprint, toy.query_ids)


def test_notebooks_show_a_table():
    data = Dataset(offsets=[0, 2, 5], y=[0, 1, 0, 2, 1], providers=list("abaab"), name="<b>toy</b> & co")
    html = data._repr_html_()
    assert "<caption>&lt;b&gt;toy&lt;/b&gt; &amp; co</caption>" in html
    facts = dict(re.findall(r"<tr><th>([^<]*)</th><td>([^<]*)</td></tr>", html))
    assert facts == {
        "queries": "2", "items": "5", "items per query": "2-3", "grades": "0-2", "providers": "2", "features": "none",
        "protocol": "none",
    }  # fmt: skip


def test_notebooks_show_features_and_protocol(toy):
    data = Dataset(offsets=toy.offsets, y=toy.y, X=toy.X, protocol=PROTOCOLS["wsdm23"])
    html = data._repr_html_()
    assert "<tr><th>features</th><td>2</td></tr><tr><th>protocol</th><td>wsdm23</td></tr>" in html


def test_parts_join(toy):
    other = Dataset(
        offsets=[0, 3], y=[0, 2, 1], X=np.ones((3, 2)), query_ids=["e"], item_ids=list("uvw"), scores=[0, 0, 0]
    )
    whole = concatenate([toy, other], name="both")
    assert (whole.queries, whole.items, whole.name) == (5, 9, "both")
    assert whole.y[6:].tolist() == [0, 2, 1]
    assert whole.places.tolist() == [0, 1, 2, 3, 4]
    assert whole.query_ids == ["a", "b", "c", "d", "e"]
    assert whole.item_ids == list("uvwxyzuvw")
    assert concatenate([toy, Dataset(offsets=[0, 1], y=[1])], name="x").X is None


def test_query_ids_that_clash_are_told_apart_by_the_names_of_their_parts():
    parts = [Dataset(offsets=[0, 1, 2], y=[0, 1], query_ids=["1", "2"], name=name) for name in ("f/train", "f/test")]
    assert concatenate(parts, name="f").query_ids == ["f/train/1", "f/train/2", "f/test/1", "f/test/2"]
    with pytest.raises(DataError, match="query ids must be distinct, got 'f/train/1' twice"):
        concatenate([parts[0], parts[0]], name="f")


def test_joined_parts_keep_the_catalogue_name_that_all_have():
    one, two = (Dataset(offsets=[0, 1], y=[0], catalogue=name) for name in ("a", "b"))
    assert concatenate([one, one], name="x").catalogue == "a"
    assert concatenate([one, two], name="x").catalogue == ""


def test_what_a_policy_prepares_from_is_not_validated_again(monkeypatch):
    """A policy that prepares often on large data spent its time on ids that had been looked at when they were read."""
    data = Dataset(
        offsets=[0, 2, 5], y=[0, 1, 0, 2, 1], query_ids=["a", "b"], item_ids=list("vwxyz"), X=np.zeros((5, 2))
    )
    monkeypatch.setattr(Dataset, "__post_init__", lambda self: pytest.fail("validated again"))
    hidden = data.hiding_truth(data.R)
    assert (hidden.scores.tolist(), hidden.R.tolist(), hidden.item_ids) == (data.R.tolist(), [0.0] * 5, list("vwxyz"))
    assert not hidden.y.flags.writeable
    assert data.without_features.X is None
    assert data.take([1]).query_ids == ["b"]
    assert hidden.fingerprint == data.fingerprint


def test_a_query_cannot_be_taken_twice_if_it_has_a_name():
    with pytest.raises(DataError, match="query ids must be distinct, got 'a' twice"):
        Dataset(offsets=[0, 1, 2], y=[0, 1], query_ids=["a", "b"]).take([0, 0])


def test_hidden_truth_needs_a_score_for_every_item():
    with pytest.raises(DataError, match="scores has 1 entries, expected 2"):
        Dataset(offsets=[0, 2], y=[0, 1]).hiding_truth([0.5])


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
