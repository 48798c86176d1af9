"""A killed server loses nothing that it acknowledged and counts nothing twice; a faulty one is caught."""

import pytest
from crash_loop import POINTS, CrashLoop
from crash_server import FAULTS
from crash_server import POINTS as SERVER_POINTS
from deliberate_faults import caught_by


def test_nothing_acknowledged_is_lost_and_nothing_counts_twice(tmp_path):
    report = CrashLoop(tmp_path, seed=1).run(POINTS)
    print(report)
    assert not report.faults, report
    assert report.kills.total() == len(report.recoveries) - 1 == len(POINTS)
    assert set(POINTS) < set(SERVER_POINTS)
    assert all(report.acknowledged[what] for what in ("rank", "click", "shown", "retract", "rank again"))
    assert report.explained == report.acknowledged["rank"] > 50
    assert report.retried.total() > 0
    assert max(report.recoveries) < 120


CAUGHT_BY = {
    "acknowledge-before-commit": (["before-commit"] * 2, r"lost: |are \[.*'applied'.*\] instead of \[.*'duplicate'"),
    "no-transactions": (["between-rows"] * 3, r"counted twice: |counts rank \d+ of impression \d+ twice"),
    "lose-idempotency-keys": ([], r"counted twice: "),
}
"""Each deliberate fault with the points to kill at, and the kind of fault that the shoppers' ledgers must report."""


@pytest.mark.parametrize("fault", CAUGHT_BY)
def test_deliberate_fault_of_the_server_is_caught(fault, tmp_path):
    points, reason = CAUGHT_BY[fault]

    def check(faulty):
        folder = tmp_path / ("faulty" if faulty else "control")
        folder.mkdir()
        report = CrashLoop(folder, seed=1, fault=fault, faulty=faulty).run(points)
        assert report.acknowledged.total() > 20, report
        assert not any("the server logged an error" in each for each in report.faults), "the server itself failed"
        assert not report.faults, "\n".join(report.faults)

    caught_by(check, reason)


def test_every_deliberate_fault_is_tested():
    assert FAULTS.keys() == CAUGHT_BY.keys()
