"""The files in deploy/: everything they name exists, and the tools they are written for accept them."""

import fnmatch
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import compose_spec
import postgres_server
import pytest
import typer.main
import yaml
from nginx_proxy import DEPLOY, INSTANCES
from psycopg.conninfo import conninfo_to_dict
from service_process import ServerProcess, mcfair

from mcfair.cli.app import app
from mcfair.service.ranker import Ranker
from mcfair.service.web.server import GRACE_SECONDS

ROOT = DEPLOY.parent
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file() and "secrets" not in path.parts)
COMPOSE = (DEPLOY / "compose.yaml").read_text()
SERVICES = yaml.safe_load(COMPOSE)["services"]
UNIT = (DEPLOY / "mcfair@.service").read_text()

needs_postgres = pytest.mark.skipif(postgres_server.missing() is not None, reason=str(postgres_server.missing()))
needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")


def parse_command(words):
    """Parse arguments of `mcfair`; return the values of the options."""
    command = typer.main.get_command(app)
    while hasattr(command, "commands"):
        name, *words = words
        command = command.commands[name]
    return command.make_context(name, words).params


def parse_serve(words):
    """Parse arguments of `mcfair`, which must be those of `serve`; return the values of its options."""
    assert words[0] == "serve"
    return parse_command(words)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_file_names_a_download_or_a_secret(path):
    text = path.read_text()
    inside = r"(127\.0\.0\.1|prometheus:9090|mcfair)\b"
    assert [url for url in re.findall(r"https?://(\S+)", text) if not re.match(inside, url)] == []
    assert not re.search(r"(?i)password\s*[:=]\s*['\"]?\w", text)


def test_secrets_are_ignored_by_git():
    assert "deploy/secrets/" in (ROOT / ".gitignore").read_text().splitlines()


@pytest.mark.parametrize("name", ["deploy", "runbook", "migrate"])
def test_commands_on_the_pages_for_operators_are_allowed(name):
    text = (ROOT / "docs" / "how-to" / f"{name}.md").read_text()
    code = re.findall(r"```(?:console|sh)\n(.*?)```", text, flags=re.DOTALL) + re.findall(r"`([^`\n]+)`", text)
    commands = "serve|keys add|keys list|keys revoke|backup|verify|replay|restore|migrate"
    given = [line for part in code for line in re.findall(rf"\bmcfair(?:-1)? ((?:{commands})\b[^\n|&#]*)", part)]
    assert given
    for line in given:
        if not re.fullmatch(r"[\w ]+", line):  # the bare name of a command
            parse_command(shlex.split(line))


# --- the image -------------------------------------------------------------------------------------------------------


def instructions():
    """Return the instructions of the Dockerfile as (name, rest), with continued lines joined."""
    lines = [line for line in (DEPLOY / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in joined.splitlines() if line.strip()]


def final_stage():
    found = instructions()
    return found[max(i for i, (name, _) in enumerate(found) if name == "FROM") :]


def test_what_the_image_copies_exists_and_is_sent_to_the_builder():
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = [rest.split()[:-1] for name, rest in instructions() if name == "COPY" and "--from" not in rest]
    sources = [source for each in copied for source in each]
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert any(fnmatch.fnmatch(source.removeprefix("./"), each) for each in kept), source
    readme = re.search(r'^readme = "(.*)"', (ROOT / "pyproject.toml").read_text(), flags=re.MULTILINE)[1]
    assert {readme, "LICENSE", "src"} <= set(sources)  # what the build of the package reads


def test_extras_of_the_image_exist():
    install = next(rest for name, rest in instructions() if name == "RUN" and "pip install" in rest)
    extras = re.search(r"'\.\[([\w,]+)]'", install)[1].split(",")
    text = (ROOT / "pyproject.toml").read_text()
    for extra in extras:
        assert re.search(rf"^{extra} = \[", text, flags=re.MULTILINE), extra


def test_the_image_runs_without_privileges_and_without_build_tools():
    stage = final_stage()
    users = [rest for name, rest in stage if name == "USER"]
    assert users == ["mcfair"]
    assert ("STOPSIGNAL", "SIGTERM") in stage
    runs = " ".join(rest for name, rest in stage if name == "RUN")
    assert not re.search(r"\b(apt-get|pip|gcc|curl)\b", runs)


def test_the_command_of_the_image_is_allowed():
    words = {name: rest for name, rest in final_stage() if name in ("ENTRYPOINT", "CMD")}
    assert json.loads(words["ENTRYPOINT"]) == ["mcfair"]
    given = parse_serve(json.loads(words["CMD"]))
    assert given["store"] == "sqlite:////var/lib/mcfair/mcfair.db"
    assert ("VOLUME", "/var/lib/mcfair") in final_stage()


def test_the_health_check_of_the_image_follows_readiness(tmp_path):
    check = next(rest for name, rest in final_stage() if name == "HEALTHCHECK")
    _, program = json.loads(check.partition("CMD ")[2])[1:]
    with ServerProcess(tmp_path / "mcfair.db", "--drain", "60s", fresh=True) as server:
        here = program.replace(":8000", f":{server.ready().port}")
        healthy = subprocess.run([sys.executable, "-c", here], check=False)
        server.child.terminate()
        with server.output_changed:
            while server.connect().get("/readyz").status == 200:
                server.output_changed.wait(0.05)
        draining = subprocess.run([sys.executable, "-c", here], stderr=subprocess.DEVNULL, check=False)
    assert (healthy.returncode, draining.returncode) == (0, 1)


# --- compose ---------------------------------------------------------------------------------------------------------


def test_compose_file_follows_the_specification():
    options = compose_spec.PyOptions(apply_merge=True)
    options.from_yaml(COMPOSE).validate()
    with pytest.raises(ValueError, match="restrat"):  # a control: unknown keys are refused
        options.from_yaml(COMPOSE.replace("restart:", "restrat:", 1))


def test_files_that_compose_mounts_exist():
    sources = [volume.split(":")[0] for each in SERVICES.values() for volume in each.get("volumes", [])]
    mounted = [source for source in sources if source.startswith("./")]
    assert len(mounted) >= 6
    for source in mounted:
        assert (DEPLOY / source).exists(), source
    build = SERVICES["mcfair-1"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).exists()


def test_every_service_of_compose_is_restarted_bounded_and_its_log_rotated():
    for name, each in SERVICES.items():
        assert each["restart"] == "unless-stopped", name
        assert {"cpus", "memory"} <= set(each["deploy"]["resources"]["limits"]), name
        assert "max-size" in each["logging"]["options"], name


def test_a_service_that_is_waited_for_has_a_health_check():
    for each in SERVICES.values():
        for name, condition in each.get("depends_on", {}).items():
            assert condition == {"condition": "service_healthy"}
            # the image of mcfair has its own
            assert "healthcheck" in SERVICES[name] or name.startswith("mcfair-"), name


@needs_postgres
def test_the_health_check_of_the_database_asks_at_the_address_that_instances_use():
    """While the image of PostgreSQL creates the database, it runs a server on a Unix socket only."""
    server = postgres_server.shared_server()
    _, program, *words = SERVICES["postgres"]["healthcheck"]["test"]
    assert "--host=127.0.0.1" in words
    assert server.run(program, *words, f"--port={server.port}").returncode == 0


def test_instances_of_compose_are_those_of_nginx_and_of_prometheus():
    instances = {name: each for name, each in SERVICES.items() if name.startswith("mcfair-")}
    addresses = [each["networks"]["backend"]["ipv4_address"] for each in instances.values()]
    assert [f"{address}:8000" for address in addresses] == list(INSTANCES)
    scraped = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())["scrape_configs"][0]
    assert scraped["static_configs"][0]["targets"] == [f"{name}:8000" for name in instances]
    proxy = SERVICES["nginx"]["networks"]["backend"]["ipv4_address"]
    for each in instances.values():
        given = parse_serve(each["command"])
        assert (given["trusted_proxies"], given["proxy_headers"], given["port"]) == (proxy, True, 8000)
        assert int(each["stop_grace_period"].removesuffix("s")) > GRACE_SECONDS


@needs_postgres
def test_store_of_compose_is_found_through_a_service_file(tmp_path, monkeypatch):
    """The secret is a file in the format of libpq, named by an environment variable."""
    database = conninfo_to_dict(postgres_server.shared_server().new_database())
    lines = [f"{name}={database[name]}" for name in ("host", "port", "user", "dbname")]
    (tmp_path / "pg_service.conf").write_text("\n".join(["[mcfair]", *lines, "password=any", ""]))
    assert SERVICES["mcfair-1"]["environment"] == {"PGSERVICEFILE": "/run/secrets/pg_service"}
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "pg_service.conf"))
    url = parse_serve(SERVICES["mcfair-1"]["command"])["store"]
    added = mcfair(
        "keys", "add", "shop", "--scope", "rank", "--store", url
    )  # creates the tables, as in the first start
    assert added.stdout.startswith("mcfair_"), added.stderr
    with Ranker(url, warm=False) as ranker:
        assert ranker.has_keys
        assert ranker.rank("q", ["a"], k=1).items[0].id == "a"


@needs_postgres
def test_dump_of_postgresql_restores_the_store():
    """As docs/how-to/restore.md advises: keys and impression ids stay valid, and every list is reproduced."""
    server = postgres_server.shared_server()
    old, new = server.new_database(), server.new_database()
    with Ranker(old, warm=False) as ranker:
        key = ranker.add_key("any", ["admin"]).info
        answers = [ranker.rank(f"q{i % 3}", ["a", "b", "c"], k=2) for i in range(10)]
        ranker.feedback([{"impression": answers[0].impression, "item": answers[0].items[0].id}])
    dump = server.folder / "dump"
    for program, *words in (
        ["pg_dump", "--format=custom", f"--file={dump}", old],
        ["pg_restore", "--dbname", new, dump],
    ):
        ran = server.run(program, *words)
        assert ran.returncode == 0, ran.stderr
    for command in ("verify", "replay"):
        ran = mcfair(command, "--store", new)
        assert ran.returncode == 0, ran.stderr
    with Ranker(new, warm=False) as ranker:
        kept = ranker.keys()
        assert [each.id for each in kept] == [key.id]
        event = {"impression": answers[1].impression, "item": answers[1].items[0].id}
        assert ranker.feedback([event])[0].status == "applied"


def test_grafana_is_provisioned_with_the_data_source_of_the_dashboard():
    folder = DEPLOY / "grafana"
    source = yaml.safe_load((folder / "provisioning/datasources/prometheus.yaml").read_text())["datasources"][0]
    dashboard = json.loads((folder / "dashboard.json").read_text())
    used = {panel["datasource"]["uid"] for panel in dashboard["panels"] if panel["type"] != "row"}
    assert used == {source["uid"]}
    provider = yaml.safe_load((folder / "provisioning/dashboards/mcfair.yaml").read_text())["providers"][0]
    mounts = dict(volume.split(":")[:2] for volume in SERVICES["grafana"]["volumes"])
    assert str(Path(mounts["./grafana/dashboard.json"]).parent) == provider["options"]["path"]


# --- systemd ---------------------------------------------------------------------------------------------------------


def test_the_command_of_the_unit_is_allowed_and_its_stop_timeout_sufficient():
    command = re.search(r"^ExecStart=(.*)$", UNIT, flags=re.MULTILINE)[1]
    words = shlex.split(command.replace("%i", "8001").replace("${STORE}", "x.db").replace("$OPTIONS", ""))
    assert Path(words[0]).name == "mcfair"
    assert parse_serve(words[1:])["port"] == 8001
    assert int(re.search(r"^TimeoutStopSec=(\d+)", UNIT, flags=re.MULTILINE)[1]) > GRACE_SECONDS


def test_the_unit_is_started_again_for_as_long_as_a_database_may_be_away():
    """An instance ends if there is no database when it starts."""
    given = dict(re.findall(r"^(StartLimit\w+|RestartSec)=(\w+)$", UNIT, flags=re.MULTILINE))
    assert given["StartLimitIntervalSec"] == "0"
    assert 1 <= int(given["RestartSec"]) <= 10


@needs_systemd
def test_systemd_accepts_the_unit(tmp_path):
    unit = tmp_path / "mcfair@8000.service"
    unit.write_text(UNIT.replace("/opt/mcfair/bin/mcfair", sys.executable))
    ran = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    unit.write_text(unit.read_text().replace("Restart=on-failure", "Restart=sometimes"))
    ran = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert "sometimes" in ran.stderr  # a control: the check can fail


@needs_systemd
def test_the_unit_is_confined(tmp_path):
    """The exposure that systemd computes, from 0 to 10, in tenths: at most 15."""
    unit = tmp_path / "mcfair@8000.service"
    unit.write_text(UNIT)
    words = ["systemd-analyze", "security", "--offline=true", "--threshold=15", str(unit)]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
