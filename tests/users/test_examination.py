import numpy as np
import pytest

from mcfair.data.grades import relevance
from mcfair.errors import SettingError
from mcfair.users.examination import examination


def test_examination_falls_with_the_rank_by_its_severity_and_ends_at_k_s():
    assert np.allclose(examination(5), [1, 1 / np.log2(3), 1 / 2, 1 / np.log2(5), 1 / np.log2(6)])
    assert np.allclose(examination(3, severity=2.0), examination(3) ** 2)
    assert examination(4, severity=0.0).tolist() == [1.0] * 4


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
