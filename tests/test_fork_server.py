"""A forked process is like one with an interpreter of its own: arguments, environment, streams, status, signals."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import fork_client
import pytest
from fork_server import ForkedProcess, run_forked, template

TELL = """
import os, sys
print(sys.argv, os.environ["MCFAIR_TOLD"], os.getcwd(), os.getsid(0) == os.getpid(), sys.stdin.read() == "")
print("ä", file=sys.stderr)
sys.exit(3)
"""


def test_arguments_environment_folder_streams_and_status_are_its_own(tmp_path):
    (tmp_path / "tell.py").write_text(TELL)
    environment = os.environ | {"MCFAIR_TOLD": "told"}
    for words, shown in ((["-c", TELL, "a b"], ["-c", "a b"]), ([tmp_path / "tell.py"], [str(tmp_path / "tell.py")])):
        done = run_forked(words, env=environment, cwd=tmp_path, timeout=60)
        assert done.returncode == 3
        assert done.stdout == f"{shown} told {tmp_path} True True\n"
        assert done.stderr == "ä\n"
    assert "MCFAIR_TOLD" not in os.environ


def test_two_processes_share_no_random_numbers():
    code = "import random, secrets; print(random.random(), secrets.token_hex())"
    assert len({run_forked(["-c", code], env=os.environ, timeout=60).stdout for _ in range(3)}) == 3


def test_a_command_is_the_command():
    done = run_forked(["-m", "mcfair", "policies"], env=os.environ, timeout=60)
    assert "MCFair" in done.stdout
    failed = run_forked(["-m", "mcfair", "verify", "--store", "/nowhere/s.db"], env=os.environ, timeout=60)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.startswith("mcfair: error: ")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_signal_ends_it_and_is_its_status(number):
    child = ForkedProcess(["-c", "import time; print('up', flush=True); time.sleep(600)"], env=os.environ)
    assert child.stdout.readline() == "up\n"
    assert child.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.01)
    os.killpg(child.pid, number)
    assert child.wait(60) == -number
    child.stdout.close()
    child.stderr.close()


# --- the program that stands for a command ---------------------------------------------------------------------------

# A process that was started in the background may have inherited that SIGINT is ignored.
SLEEP = (
    "import os, signal, time; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "print(os.getpid(), flush=True); time.sleep(600)"
)


def start_client(*words, **options):
    command = [sys.executable, "-I", "-S", fork_client.__file__, template(), *words]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)


def test_the_program_has_the_streams_the_folder_the_variables_and_the_status_of_its_command(tmp_path):
    code = "import os, sys; print(sys.stdin.read(), os.getcwd(), os.environ['MCFAIR_TOLD'], sys.argv); sys.exit(3)"
    with start_client("-c", code, "a b", cwd=tmp_path, env=os.environ | {"MCFAIR_TOLD": "told"}) as child:
        assert child.communicate("asked")[0] == f"asked {tmp_path} told ['-c', 'a b']\n"
    assert child.returncode == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_program_forwards_signals(number):
    with start_client("-c", SLEEP) as child:
        child.stdout.readline()
        child.send_signal(number)
        assert child.wait(60) == -number


def test_a_command_does_not_outlive_its_program():
    with start_client("-c", SLEEP) as child:
        pid = int(child.stdout.readline())
        child.kill()
    until = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < until
