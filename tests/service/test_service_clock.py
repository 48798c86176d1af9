"""The clock of the service: jumps of the wall clock neither expire everything at once nor stop time."""

import time

import pytest

from mcfair.errors import NotFoundError
from mcfair.service.core.clock import Clock
from mcfair.service.ranker import Ranker

SECOND = 10**9
DAY = 86_400 * SECOND


class Machine:
    """A machine whose real time passes and whose wall clock can be set."""

    def __init__(self):
        self.passed, self.offset = 0, 1_000 * DAY

    def clock(self):
        return Clock(lambda: self.passed + self.offset, lambda: self.passed)


@pytest.fixture
def machine():
    return Machine()


def test_clock_is_the_wall_clock_while_that_runs_evenly(machine):
    clock = machine.clock()
    for _ in range(10):
        machine.passed += 7 * SECOND
        assert clock() == (machine.passed + machine.offset) // 10**6


def test_clock_of_this_machine_is_the_wall_clock():
    clock = Clock()
    for _ in range(3):
        before = time.time_ns() // 10**6
        assert before - 100 <= clock() <= time.time_ns() // 10**6 + 100


def test_drift_is_followed(machine):
    clock = machine.clock()
    for _ in range(100):
        machine.passed += SECOND
        machine.offset += SECOND // 1_000
        assert clock() == (machine.passed + machine.offset) // 10**6


def test_jump_ahead_is_followed_at_twice_the_speed(machine):
    clock = machine.clock()
    start = clock()
    machine.offset += 60 * SECOND
    for i in range(1, 100):
        machine.passed += SECOND
        assert clock() - start == min(2_000 * i, 1_000 * i + 60_000)


def test_step_back_does_not_stop_time(machine):
    clock = machine.clock()
    start = clock()
    machine.offset -= 60 * SECOND
    for i in range(1, 200):
        machine.passed += SECOND
        assert clock() - start == max(500 * i, 1_000 * i - 60_000)


def test_clock_never_runs_backwards_between_two_calls_without_time(machine):
    clock = machine.clock()
    start = clock()
    machine.offset -= DAY
    assert clock() == clock() == start


@pytest.mark.parametrize("days", [30, -30])
def test_impressions_survive_a_wrong_wall_clock_and_expire_in_time(machine, days):
    with Ranker("memory:", retention=7 * 86_400.0, warm=False, clock=machine.clock()) as ranker:
        answer = ranker.rank("q", ["a", "b"])
        machine.offset += days * DAY
        for _ in range(3):
            machine.passed += DAY
            ranker.explain(answer.impression)
        assert ranker.click(answer.impression, "a").status == "applied"
        machine.passed += 15 * DAY  # at half the speed, too, more than the retention
        assert ranker.click(answer.impression, "b").status == "expired"
        ranker.executor.submit(type(ranker.executor.engine).compact_expired).result()
        with pytest.raises(NotFoundError):
            ranker.explain(answer.impression)


def test_control_without_this_clock_a_jump_expires_everything(machine):
    with Ranker(
        "memory:", retention=7 * 86_400.0, warm=False, clock=lambda: (machine.passed + machine.offset) // 10**6
    ) as ranker:
        answer = ranker.rank("q", ["a", "b"])
        machine.offset += 30 * DAY
        assert ranker.click(answer.impression, "a").status == "expired"


def test_ranker_has_this_clock_by_default():
    with Ranker("memory:", warm=False) as ranker:
        assert isinstance(ranker.executor.engine.clock, Clock)
