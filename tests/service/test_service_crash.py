"""A server that is killed loses nothing it has acknowledged and counts nothing twice; one that would is found out."""

import pytest
from crash_loop import POINTS, CrashLoop
from crash_server import BROKEN
from crash_server import POINTS as KNOWN_POINTS


def test_nothing_acknowledged_is_lost_and_nothing_counts_twice(tmp_path):
    report = CrashLoop(tmp_path, seed=1).run(POINTS)
    print(report)
    assert not report.faults, report
    assert report.kills.total() == len(report.recoveries) - 1 == len(POINTS)
    assert set(POINTS) - {"any"} < set(KNOWN_POINTS)
    assert all(report.acknowledged[what] for what in ("rank", "click", "shown", "retract", "rank again"))
    assert report.explained == report.acknowledged["rank"] > 100
    assert report.retried.total() > 0
    assert max(report.recoveries) < 120


BREAKAGE = {
    "hasty": ("before-commit", "lost:"),  # acknowledges before it commits
    "piecemeal": ("between-rows", "twice"),  # makes every row last by itself
}


@pytest.mark.parametrize("broken", BREAKAGE)
def test_a_broken_server_is_found_out(broken, tmp_path):
    point, complaint = BREAKAGE[broken]
    report = CrashLoop(tmp_path, seed=1, broken=broken).run([point])
    assert any(complaint in fault for fault in report.faults), report


def test_retried_requests_that_are_not_recognised_are_found_out(tmp_path):
    report = CrashLoop(tmp_path, seed=1, broken="forgetful").run([])
    assert any("counted twice" in fault for fault in report.faults), report
    assert BROKEN.keys() == {*BREAKAGE, "forgetful"}
