"""The command line as a program: help, version, errors, signals, streams."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import MCFAIR, SIMULATE, refused, run, start

import mcfair as mf


def test_help_names_every_command_and_option():
    text = run("--help").stdout
    for command in ("simulate", "reproduce", "run", "tune", "demo", "policies", "clicks", "estimators", "metrics",
                    "datasets", "serve", "keys"):  # fmt: skip
        assert f"\n  {command} " in text
    options = run("simulate", "--help", COLUMNS="200").stdout
    for option in ("--data", "--split", "--policy", "--setting", "--steps", "--seeds", "--preset", "--min-items",
                   "--max-items", "--k", "--gamma", "--epsilon", "--examination", "--clicks", "--estimator",
                   "--metric", "--checkpoints", "--threads", "--out", "--json", "--record", "--plugin"):  # fmt: skip
        assert f"\n  {option} " in options
    assert "list[" not in options
    shared = run("tune", "--help", COLUMNS="200").stdout
    for option in ("--data", "--preset", "--setting", "--examination", "--clicks", "--estimator", "--metric"):
        assert f"\n  {option} " in shared


@pytest.mark.parametrize(("words", "command"), [((), "simulate"), (("keys",), "revoke")])
def test_a_command_with_subcommands_alone_prints_its_help(words, command):
    done = run(*words)
    assert done.stdout == run(*words, "--help").stdout
    assert f"\n  {command} " in done.stdout
    assert done.stderr == ""


def test_the_version_is_printed():
    assert run("--version").stdout == f"mcfair {mf.__version__}\n"


def test_exit_statuses_of_the_process():
    """The other tests call the function behind the command; here is the process itself."""
    assert start().stdout.startswith("Usage: ")
    usage = start("simulate", "--policy", "TopK", check=False)
    assert (usage.returncode, usage.stdout, usage.stderr) == (2, "", "mcfair: error: Missing option '--data'.\n")
    failed = start("simulate", "--data", "nothing", "--policy", "TopK", check=False)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.startswith("mcfair: error: no such file or folder: nothing")
    assert failed.stderr.count("\n") == 1
    traced = start("simulate", "--data", "nothing", "--policy", "TopK", "--debug", check=False)
    assert traced.returncode == 1
    assert "Traceback" in traced.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("simulate",), "Missing option '--data'"),
        (("simulate", "--data", "mq2008-like"), "Missing option '--policy'"),
        ((*SIMULATE, "--policy", "TopK", "--surprise"), "No such option: --surprise"),
        ((*SIMULATE, "--policy", "TopK", "--severity", "2"), "No such option: --severity"),
        ((*SIMULATE, "--policy", "TopK", "--steps", "ten"), "--steps"),
        ((*SIMULATE, "--policy", "TopK", "--gamma", "much"), "--gamma"),
        ((*SIMULATE, "--policy"), "--policy"),
        (("tune", "--data", "mq2008-like", "--policy", "MMF"), "Missing option '--target'"),
        (("run",), "Missing argument 'file'"),
        (("keys", "surprise"), "No such command 'surprise'"),
        (("nothing",), "No such command 'nothing'"),
        (("--surprise",), "No such option: --surprise"),
    ],
)
def test_a_usage_error_is_one_line_with_status_2(words, message):
    assert message in refused(*words, status=2)


def test_a_reader_that_goes_away_is_no_error():
    done = subprocess.run(
        f"{sys.executable} -m mcfair policies | head -n 1", shell=True, capture_output=True, text=True
    )  # fmt: skip
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("words", [(*SIMULATE, "--policy", "TopK"), ("policies",), ("rank", "shop.csv")])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_one_line(tmp_path, words, unbuffered):
    (tmp_path / "shop.csv").write_text("query,item,score\na,x,0.5\na,y,0.2\n")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*MCFAIR, *words], stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "mcfair: error: cannot write: No space left on device\n")


def test_output_that_a_disk_takes_in_part_is_not_taken_for_written(tmp_path):
    (tmp_path / "shop.csv").write_text("query,item,score\n" + "".join(f"a,item{i},0.{i}\n" for i in range(100, 110)))
    limited = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (30_000,) * 2); sys.argv[0] = 'mcfair'; "
    words = [sys.executable, "-u", "-c", f"{limited}from mcfair.cli.app import main; main()"]
    with (tmp_path / "lists.csv").open("w") as lists:
        done = subprocess.run(
            [*words, "rank", str(tmp_path / "shop.csv"), "--sessions", "1000"], stdout=lists, stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
    assert done.returncode == 1
    assert "mcfair: error: cannot write: File too large\n" in done.stderr


@pytest.mark.parametrize("link", [None, os.link, os.symlink])
def test_lists_do_not_overwrite_their_scores(tmp_path, link):
    (scores := tmp_path / "shop.csv").write_text("query,item,score\na,x,0.5\na,y,0.2\n")
    (tmp_path / "out").mkdir()
    out = tmp_path / "out" / ".." / "shop.csv"
    if link is not None:
        link(scores, out := tmp_path / "out.csv")
    assert "it is the file of scores, which the lists would overwrite" in refused(
        "rank", str(scores), "--out", str(out)
    )
    assert scores.read_text().startswith("query,item,score")


def test_a_terminal_that_knows_ascii_only_is_no_error():
    assert "MCFair" in start(*SIMULATE, "--policy", "MCFair", PYTHONIOENCODING="ascii").stdout


def test_the_installed_command_is_the_module():
    installed = Path(sys.executable).with_name("mcfair")
    assert subprocess.run([installed, "policies"], capture_output=True, text=True).stdout == run("policies").stdout


def test_progress_is_shown_to_people_on_stderr():
    main, other = pty.openpty()
    done = subprocess.Popen(
        [*MCFAIR, *SIMULATE, "--policy", "TopK", "--steps", "3000000"], stdout=subprocess.PIPE, stderr=other,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "100"},
    )  # fmt: skip
    os.close(other)
    seen = b""
    try:
        while piece := os.read(main, 4096):
            seen += piece
    except OSError:  # how a terminal signals that the other side is closed
        pass
    os.close(main)
    out = done.communicate()[0].decode()
    assert done.returncode == 0
    assert b"/3000000" in seen
    assert "TopK" in out


def test_ctrl_c_ends_all_processes_and_keeps_what_is_finished(tmp_path):
    (tmp_path / "long.toml").write_text(
        'settings = [{mode = "online", steps = 10_000}]\n'
        'series = [{policies = ["LP(alpha=[0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100])"]}]\n'
    )
    words = [*MCFAIR, "run", str(tmp_path / "long.toml"), "--out", str(tmp_path / "out"), "--jobs", "2"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    runs = tmp_path / "out" / "runs"
    while process.poll() is None and not (runs.exists() and list(runs.glob("[!.]*"))):
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "mcfair: interrupted\n")
    deadline = time.monotonic() + 10
    while alive(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert alive(process.pid) == []
    assert list(runs.glob("[!.]*/run.json"))


def test_ctrl_c_waits_for_no_run(tmp_path):
    (tmp_path / "long.toml").write_text(
        'settings = [{mode = "online", steps = 100_000_000}]\nseeds = 4\nseries = [{policies = ["MCFair"]}]\n'
    )
    words = [*MCFAIR, "run", str(tmp_path / "long.toml"), "--out", str(tmp_path / "out"), "--jobs", "2"]
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL, start_new_session=True)
    while process.poll() is None and len(alive(process.pid)) < 4:  # with the two workers
        time.sleep(0.05)
    time.sleep(3)  # into the runs, which take half a minute
    process.send_signal(signal.SIGINT)
    begun = time.monotonic()
    assert process.wait(timeout=60) == 130
    assert time.monotonic() - begun < 5


def alive(session):
    """Return the command lines of the processes of a session that still run."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, own = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(own) == session and state != "Z":
                found.append((folder / "cmdline").read_text())
        except OSError:
            continue  # it has just ended
    return found


def test_the_old_name_of_an_option_is_accepted_with_a_note_and_shown_in_no_help():
    words = ("simulate", "--data", "mq2008-like", "--policy", "TopK", "--steps", "50", "--json")
    new = json.loads(run(*words, "--k", "2").stdout)
    for old in (("--k-s", "2"), ("--k-s=2",)):
        done = run(*words, *old)
        assert done.stderr.startswith("mcfair: note: --k-s is now called --k; the old name will not be understood")
        assert json.loads(done.stdout)["summary"] == new["summary"]
    assert "--k-s" not in run("simulate", "--help").stdout


def test_the_delay_of_clicks_has_its_old_name_for_one_release():
    assert "--delay is now called --click-delay" in run("rehearse", "--delay", "30m", check=False).stderr
