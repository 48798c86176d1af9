"""The commands that list what there is."""

import pytest
from command_line import run

import mcfair as mf
from mcfair.parts import described_parameters


@pytest.mark.parametrize(
    ("command", "base"),
    [("policies", mf.Policy), ("clicks", mf.ClickModel), ("estimators", mf.Estimator), ("metrics", mf.Metric)],
)
def test_every_registered_part_is_listed_with_its_parameters(command, base):
    rows = run(command).stdout.splitlines()
    text = "\n".join(rows)
    for name, cls in mf.registered(base).items():
        assert any(row.split("│")[1:2] and row.split("│")[1].strip() == name for row in rows), name
        for parameter in described_parameters(cls):
            assert parameter.split("  ")[0] in text
    assert base.kind.name in rows[1]


def test_datasets_are_listed_with_the_place_where_they_were_found():
    text = run("datasets", MCFAIR_DATA="").stdout
    assert "mq2008-like" in text
    assert "mq2008/fold5" in text
