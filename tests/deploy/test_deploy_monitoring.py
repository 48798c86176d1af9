"""Alert rules and dashboard: they use metrics that a real service exports, and every alert has a test and a runbook."""

import contextlib
import json
import re
import shutil
import subprocess
import time

import httpx
import msgspec
import pytest
import yaml
from nginx_proxy import DEPLOY
from prometheus_client.parser import text_string_to_metric_families
from service_process import free_port
from serving import serving

from mcfair.service.core.engine import Engine
from mcfair.service.ranker import Ranker
from mcfair.service.stores import SQLiteStore
from mcfair.service.wire import RawRankRequest

FOLDER = DEPLOY / "prometheus"
RULES = yaml.safe_load((FOLDER / "rules.yml").read_text())["groups"][0]["rules"]
RULE_TESTS = yaml.safe_load((FOLDER / "rules.test.yml").read_text())["tests"]
DASHBOARD = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
RUNBOOK = (DEPLOY.parent / "docs" / "how-to" / "runbook.md").read_text()

ALERTS = {rule["alert"]: rule for rule in RULES}
QUERIES = [rule["expr"] for rule in RULES] + [target["expr"] for panel in PANELS for target in panel["targets"]]
ADDED = {"up": {"job", "instance"}}
"""Series that Prometheus adds; it also adds job and instance to all others."""

needs_prometheus = pytest.mark.skipif(shutil.which("prometheus") is None, reason="Prometheus is not installed")


@pytest.fixture(scope="module")
def service():
    """A service with some traffic; its read key is in `key`."""
    with Ranker("memory:") as ranker, serving(ranker) as client:
        rank = {"query": "q", "items": [{"id": "a", "group": "seller"}, {"id": "b"}]}
        for _ in range(3):
            impression = client.post("/v1/rank", json=rank).json()["impression"]
            for path in ("/v1/feedback", "/v1/retract"):
                client.post(path, json={"events": [{"impression": impression, "item": "a"}]})
        client.get("/v1/fairness")  # summarises the queries
        client.key = ranker.add_key("prometheus", ["read"]).key
        yield client


def exported(client):
    """Return the labels of every series that a service exports, with their values: {name: {label: values}}."""
    text = client.get("/metrics", headers={"Authorization": f"Bearer {client.key}"}).text
    found = {name: {label: set() for label in labels} for name, labels in ADDED.items()}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = found.setdefault(sample.name, {"job": set(), "instance": set()})
            for label, value in sample.labels.items():
                labels.setdefault(label, set()).add(value)
    return found


@pytest.mark.parametrize("query", QUERIES)
def test_metrics_and_labels_of_a_query_are_exported(service, query):
    series = exported(service)
    selectors = re.findall(r"\b((?:mcfair|process)_\w+|up)\b(?:{([^}]*)})?", query)
    assert selectors
    names = {name for name, _ in selectors}
    assert names <= set(series)
    for name, matchers in selectors:
        for label, operator, value in re.findall(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"', matchers):
            assert label in series[name], (name, label)
            if operator == "=" and label != "job":
                assert value in series[name][label], (name, label, value)
    known = set().union(*(series[name] for name in names))
    for labels in re.findall(r"\bby \(([^)]*)\)", query):
        assert set(re.split(r",\s*", labels)) <= known


class LedStore(SQLiteStore):
    """A store in memory of which another instance may take the lead."""

    leading = True

    def leads(self):
        return self.leading


def test_compaction_is_timed_from_the_begin_of_a_pass_to_its_end():
    times = [0]
    engine = Engine(LedStore(None), clock=lambda: times[0], compaction_step=1)
    raw = msgspec.Raw(b'[{"id": "a"}, {"id": "b"}]')
    for i in range(5):
        engine.rank(RawRankRequest(query=f"q{i}", items=raw, k=1))
    engine.compact_expired()
    assert engine.compaction_seconds() == 0.0
    times[0] += 8 * 86_400_000
    engine.compact_expired(0.0)
    times[0] += 5_000
    engine.compact_expired(0.0)
    assert engine.compaction_seconds() == 5.0
    engine.store.leading = False
    engine.compact_expired(0.0)
    assert engine.compaction_seconds() == 0.0  # the pass is another instance's
    engine.store.leading = True
    engine.compact_expired(0.0)
    engine.compact_expired()
    assert engine.compaction_seconds() == 0.0
    engine.store.close()


def test_every_metric_of_the_service_is_on_the_dashboard(service):
    shown = " ".join(target["expr"] for panel in PANELS for target in panel["targets"])
    families = {re.sub(r"_(bucket|sum|count|created)$", "", name) for name in exported(service)}
    assert sorted(name for name in families if name.startswith("mcfair_") and name not in shown) == []


def test_panels_have_a_description_and_a_unit_and_show_the_chosen_instances():
    assert len(PANELS) >= 12
    for panel in PANELS:
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert all('instance=~"$instance"' in target["expr"] for target in panel["targets"]), panel["title"]
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    cells = [(p["x"] + i, p["y"] + j) for p in places for i in range(p["w"]) for j in range(p["h"])]
    assert len(cells) == len(set(cells))  # no panel covers another
    assert max(x for x, _ in cells) == 23


@pytest.mark.parametrize("name", ALERTS)
def test_every_alert_has_its_section_in_the_runbook(name):
    page, _, anchor = ALERTS[name]["annotations"]["runbook"].partition("#")
    assert (page, anchor) == ("docs/how-to/runbook.md", name.lower())
    (section,) = re.findall(rf"^## {name}$(.*?)(?=^## |\Z)", RUNBOOK, flags=re.MULTILINE | re.DOTALL)
    meaning, action = section.strip().split("\n\n")
    assert len(meaning.split()) > 15
    assert len(action.split()) > 15
    assert ALERTS[name]["labels"]["severity"] in ("page", "ticket")


def test_every_alert_of_the_runbook_exists():
    assert re.findall(r"^## (Mcfair\w+)$", RUNBOOK, flags=re.MULTILINE) == list(ALERTS)


def test_every_alert_has_a_test_in_which_it_fires_and_one_in_which_it_does_not():
    cases = [case for test in RULE_TESTS for case in test["alert_rule_test"]]
    assert {case["alertname"] for case in cases if case.get("exp_alerts")} == set(ALERTS)
    assert {case["alertname"] for case in RULE_TESTS[0]["alert_rule_test"]} == set(ALERTS)
    assert not any(case.get("exp_alerts") for case in RULE_TESTS[0]["alert_rule_test"])


@needs_prometheus
@pytest.mark.parametrize(
    "words",
    ["check rules rules.yml", "test rules rules.test.yml", "check config --syntax-only prometheus.yml"],
    ids=["rules", "tests", "configuration"],
)
def test_promtool_accepts(words):
    ran = subprocess.run(["promtool", *words.split()], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@contextlib.contextmanager
def prometheus(folder, target, key):
    """Run Prometheus with the configuration in deploy/ and another target; yield a client of its API."""
    text = (FOLDER / "prometheus.yml").read_text()
    changes = {
        "15s": "1s",
        "/run/secrets/metrics_key": f"{folder}/metrics_key",
        '["mcfair-1:8000", "mcfair-2:8000"]': f'["{target}"]',
    }
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (folder / "prometheus.yml").write_text(text)
    (folder / "metrics_key").write_text(key)
    shutil.copy(FOLDER / "rules.yml", folder)
    port = free_port()
    words = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    words.append(f"--web.listen-address=127.0.0.1:{port}")
    with (folder / "log").open("w") as log, subprocess.Popen(["prometheus", *words], stderr=log) as process:
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=20) as client:
                yield client
        finally:
            process.terminate()
            process.wait(20)


def ask(client, path, **parameters):
    """Ask Prometheus; return its data, None while it starts."""
    with contextlib.suppress(httpx.TransportError):
        answer = client.get(path, params=parameters)
        if answer.status_code != 503:
            assert answer.json()["status"] == "success", answer.text
            return answer.json()["data"]
    return None


@needs_prometheus
def test_prometheus_scrapes_the_service_and_evaluates_every_rule_and_panel(service, tmp_path):
    until = time.monotonic() + 60
    with prometheus(tmp_path, f"127.0.0.1:{service.base_url.port}", service.key) as client:
        while True:  # until two scrapes allow rates
            scraped = ask(client, "/query", query='sum_over_time(up{job="mcfair"}[1m])')
            rules = ask(client, "/rules")
            if scraped and scraped["result"] and float(scraped["result"][0]["value"][1]) >= 3:
                states = {rule["name"]: (rule["health"], rule["state"]) for rule in rules["groups"][0]["rules"]}
                if all(health != "unknown" for health, _ in states.values()):
                    break
            assert time.monotonic() < until, (tmp_path / "log").read_text()
            time.sleep(0.2)
        assert states == dict.fromkeys(ALERTS, ("ok", "inactive"))
        for panel in PANELS:
            for target in panel["targets"]:
                query = target["expr"].replace("$instance", ".*").replace("$__rate_interval", "1m")
                assert ask(client, "/query", query=query)["result"], panel["title"]
