"""The commands of the service."""

import sqlite3

import pytest
from service_process import ServerProcess, mcfair
from typer.testing import CliRunner

import mcfair as mf
from mcfair.cli.app import app
from mcfair.errors import MCFairError
from mcfair.service.commands import parse_duration
from mcfair.service.stores import read_lock_note


def run(*words):
    """Run a command in this process; return its result."""
    return CliRunner().invoke(app, [str(word) for word in words])


def failure(*words):
    """Run a command that must fail with one of our errors; return the message."""
    result = run(*words)
    assert isinstance(result.exception, MCFairError), result.output
    return str(result.exception)


@pytest.fixture
def path(tmp_path):
    """A store with two queries and a click."""
    path = tmp_path / "s.db"
    with mf.Ranker(path, policy="MCFair(beta=5)", warm=False) as ranker:
        for query in ("p", "q"):
            answer = ranker.rank(query, list("abc"), k=2)
        ranker.feedback([{"impression": answer.impression, "item": "a"}])
    return path


def test_verify_and_replay_accept_a_consistent_store(path):
    assert run("verify", "--store", path).stdout == "2 queries, 2 impressions, 1 events: consistent\n"
    output = run("replay", "--store", f"sqlite:///{path}").stdout
    assert output == "2 queries, 2 lists: all reproduced, counters included\n"


def test_verify_and_replay_report_faults(path):
    with sqlite3.connect(path) as db:
        first = db.execute("SELECT body FROM log WHERE query = 1 AND seq = 1").fetchone()[0]
        db.execute("UPDATE log SET bits = x'0101' WHERE query = 2 AND seq = 1")
        db.execute("UPDATE log SET body = ? WHERE query = 1 AND seq = 1", (first.replace(b"\0\0\1\0", b"\2\0\1\0"),))
    db.close()
    result = mcfair("verify", "--store", path)
    assert result.returncode == 1
    assert result.stderr.splitlines() == [
        "mcfair: query 2: the feedback state of impression 1 does not follow from its feedback entries",
        f"mcfair: error: {path} is inconsistent: 1 fault(s)",
    ]
    assert "cannot be reproduced" in failure("replay", "--store", path)


def test_missing_store_is_not_created(tmp_path):
    for command in ("verify", "replay"):
        assert "does not exist" in failure(command, "--store", tmp_path / "none.db")
    assert "does not exist" in failure("backup", tmp_path / "copy.db", "--store", tmp_path / "none.db")
    assert list(tmp_path.iterdir()) == []


def test_backup_is_a_store(path, tmp_path):
    assert "bytes" in run("backup", tmp_path / "copy.db", "--store", path).stdout
    assert "consistent" in run("verify", "--store", tmp_path / "copy.db").stdout
    assert "exists already" in failure("backup", tmp_path / "copy.db", "--store", path)
    with mf.Ranker(tmp_path / "copy.db", warm=False) as ranker:
        assert ranker.query_state("q").visits == 1


def test_keys_without_a_server(path):
    added = run("keys", "add", "shop", "--scope", "rank", "--scope", "feedback", "--store", path)
    key = added.stdout.strip()
    listed = run("keys", "list", "--store", path).stdout
    assert "shop: rank, feedback" in listed
    assert key.split("_", 2)[2] not in listed
    id = listed.split()[0]
    assert "revoked" in run("keys", "revoke", id, "--store", path).stdout
    assert "no such key" in failure("keys", "revoke", "nobody", "--store", path)
    assert "unknown scope 'all'" in failure("keys", "add", "shop", "--scope", "all", "--store", path)


def test_keys_alone_prints_its_help():
    alone, top = run("keys"), run()
    assert alone.exit_code == top.exit_code
    for result, commands in ((alone, ("add", "list", "revoke")), (top, ("serve", "verify", "keys"))):
        assert result.output.startswith("Usage: ")
        assert all(command in result.output for command in commands)


def test_keys_through_a_running_server_take_effect_at_once(path):
    with ServerProcess(path) as server:
        with server.ready().connect() as connection:
            assert connection.request("GET", "/v1/policy").status == 200
            added = mcfair("keys", "add", "reader", "--scope", "read", "--store", path)
            key = added.stdout.strip()
            assert connection.request("GET", "/v1/policy").status == 401
            with mf.Client(f"http://127.0.0.1:{server.port}", key, rank_deadline=30.0) as client:
                assert client.policy().policy == repr(mf.MCFair(beta=5))
            id = mcfair("keys", "list", "--store", path).stdout.split()[0]
            assert "revoked" in mcfair("keys", "revoke", id, "--store", path).stdout
            with (
                pytest.raises(MCFairError),
                mf.Client(f"http://127.0.0.1:{server.port}", key, rank_deadline=30.0) as client,
            ):
                client.policy()
        assert server.terminate() == 0
    assert read_lock_note(path) is None
    assert path.with_name(path.name + ".lock").read_bytes() == b""


def test_serve_keeps_stored_rules_unless_given(path):
    for words, policy, version in ((("--policy", "TopK"), "TopK", 2), ((), "TopK", 2)):
        with ServerProcess(path, *words) as server:
            with mf.Client(f"http://127.0.0.1:{server.ready().port}", rank_deadline=30.0) as client:
                found = client.policy()
            assert (found.policy, found.version) == (repr(mf.parse_policy(policy)), version)
            assert f"{mf.parse_policy(policy)!r}, version {version}" in server.text
            assert "there are no API keys" in server.text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--policy", "MCFiar"), "did you mean 'MCFair'"),
        (("--policy", "LP"), "LP cannot serve"),
        (("--retention", "soon"), "a duration such as 45s"),
        (("--examination", "1,x"), "probabilities such as"),
        (("--examination", "0,0"), "at least one rank"),
        (("--newcomer-exposure", "late"), "newcomer_exposure"),
        (("--host", "0.0.0.0"), "mcfair keys add"),
        (("--prior-mean", "2"), "prior_mean"),
        (("--store", "redis://x"), "expected sqlite:///PATH"),
        (("--plugin", "nowhere.py"), "cannot import nowhere.py"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_serve_refuses_invalid_options(tmp_path, words, message):
    store = () if "--store" in words else ("--store", tmp_path / "s.db")
    assert message in failure("serve", *store, "--port", "0", *words)


def test_durations_have_units():
    assert [parse_duration("x", text) for text in ("90", "45s", "30m", "12h", "7d", "2w")] == [
        90, 45, 1800, 43_200, 604_800, 1_209_600,
    ]  # fmt: skip
