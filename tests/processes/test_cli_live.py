"""`mcfair demo --live` as a real process: it serves, its traffic can be seen, and Ctrl-C ends it cleanly."""

import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from service_process import START_SECONDS, Connection

from mcfair.cli.serve import has_display


@contextmanager
def live_demo(*options):
    """Start the demonstration; yield the process and the port of its service."""
    command = [sys.executable, "-m", "mcfair", "demo", "--live", "--no-browser", *options]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        begun = time.monotonic()
        for line in child.stderr:
            if found := re.search(r"the shop is open: http://127\.0\.0\.1:(\d+)/ ", line):
                print(f"open after {time.monotonic() - begun:.1f} s")
                yield child, int(found[1])
                break
        else:
            raise AssertionError("the process ended before the shop was open")
    finally:
        child.kill()
        child.wait()
        child.stderr.close()


def wait_for(condition, seconds=START_SECONDS):
    """Poll until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.05)


def test_traffic_is_visible_and_ctrl_c_closes_the_shop():
    with live_demo() as (child, port), Connection(port) as connection:
        wait_for(lambda: connection.get("/readyz").status == 200)
        wait_for(lambda: connection.get("/v1/fairness").json["visits"] >= 10)
        fairness = connection.get("/v1/fairness").json
        assert len(fairness["groups"]) == 2
        assert sum(group["exposure_share"] for group in fairness["groups"]) == pytest.approx(1.0)
        assert connection.get("/v1/policy").json["policy"].startswith("TopK(")
        child.send_signal(signal.SIGINT)
        rest = child.stderr.read()
        assert child.wait(START_SECONDS) == 0
        assert rest.endswith("mcfair: the shop is closed\n")
        assert "Traceback" not in rest


def test_it_ends_by_itself():
    with live_demo("--seconds", "0.5") as (child, _):
        rest = child.stderr.read()
        assert child.wait(START_SECONDS) == 0
        assert rest.endswith("mcfair: the shop is closed\n")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems open windows by other means")
def test_a_browser_needs_a_display(monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert not has_display()
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    assert has_display()


def test_options_of_the_live_demonstration_need_it():
    command = [sys.executable, "-m", "mcfair", "demo", "--seconds", "3"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr == "mcfair: error: --seconds and --no-browser are options of 'mcfair demo --live'\n"
