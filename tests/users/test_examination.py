import numpy as np
import pytest

from mcfair.data.dataset import relevance
from mcfair.errors import SettingError
from mcfair.users.examination import described_examination, examination, parse_examination


def test_examination_falls_with_the_rank_by_its_severity_and_ends_at_k_s():
    assert np.allclose(examination(5), [1, 1 / np.log2(3), 1 / 2, 1 / np.log2(5), 1 / np.log2(6)])
    assert np.allclose(examination(3, 2.0), examination(3) ** 2)
    assert examination(4, 0.0).tolist() == [1.0] * 4


@pytest.mark.parametrize(("k", "severity"), [(0, 1.0), (-1, 1.0), (5, -0.1), (5, float("inf"))])
def test_examination_refuses_values_out_of_range(k, severity):
    with pytest.raises(SettingError, match="expected"):
        examination(k, severity)


def test_relevance_of_grades():
    assert np.allclose(relevance([0, 1, 2], 2), [0.1, 0.1 + 0.9 / 3, 1.0])
    assert np.allclose(relevance([0, 1, 2, 3, 4], 4, epsilon=0.0), np.array([0, 1, 3, 7, 15]) / 15)
    assert relevance([0, 0], 0).tolist() == [0.1, 0.1]
    assert max(relevance([y_max], y_max, e / 1000)[0] for y_max in range(1, 6) for e in range(1000)) == 1.0
    with pytest.raises(SettingError, match=r"epsilon = 1\.5: expected a probability"):
        relevance([0], 1, epsilon=1.5)


@pytest.mark.parametrize(
    ("text", "canonical", "p"),
    [
        ("log2", 1.0, [1.0, 1 / np.log2(3), 0.5]),
        ("2", 2.0, [1.0, 1 / np.log2(3) ** 2, 0.25]),
        ("rbp", "rbp(0.8)", [1.0, 0.8, 0.64]),
        ("rbp(persistence=0.5)", "rbp(0.5)", [1.0, 0.5, 0.25]),
        ("reciprocal", "1/rank", [1.0, 1 / 2, 1 / 3]),
        ("equal", "equal", [1.0, 1.0, 1.0]),
        ("1, 0.5", (1.0, 0.5), [1.0, 0.5, 0.0]),
    ],
)
def test_every_form_has_a_canonical_one_that_parses_back(text, canonical, p):
    assert parse_examination(text) == parse_examination(canonical) == canonical
    assert examination(3, text) == pytest.approx(p)
    assert all(described_examination(canonical))


@pytest.mark.parametrize(
    "wrong", ["steep", "rbp(0)", "rbp(2)", "", "1,2", "nan", "-1", [0.5, 1.0], [], [0.0], None, "fitted"]
)
def test_what_is_no_examination_is_refused(wrong):
    with pytest.raises(SettingError, match=r"examination = .* is not allowed: expected "):
        parse_examination(wrong)
    assert parse_examination("fitted", also=("fitted",)) == "fitted"
