"""The service behind nginx, with the configuration in deploy/: real requests through a real proxy."""

import json
import logging
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
from contextlib import suppress

import httpx
import pytest
from nginx_proxy import DEPLOY, NGINX, configure, nginx, proxied
from service_process import free_port
from serving import serving

import mcfair as mf
from mcfair.errors import UnavailableError
from mcfair.service.ranker import Ranker
from mcfair.service.wire import MAX_BODY

RANK = {"query": "red shoes", "items": [{"id": "a"}, {"id": "b"}], "k": 1}

pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")


@pytest.mark.parametrize("instances", [1, 2])
def test_configuration_is_valid(tmp_path, instances):
    configure(tmp_path, free_port(), [free_port() for _ in range(instances)])
    ran = subprocess.run(nginx(tmp_path, "-t"), capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "warn" not in ran.stderr


def uncommented_tls(folder, port):
    """Return the changes to the configuration that switch TLS on, with a certificate for this machine."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=IP:127.0.0.1", "-keyout", folder / "mcfair.key", "-out", folder / "mcfair.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    commented = re.findall(r"^ *(# .*ssl.*;)$", (DEPLOY / "nginx.conf").read_text(), flags=re.MULTILINE)
    assert len(commented) == 4, "docs/how-to/deploy.md names their number"
    return {line: line[2:].replace("443", f"127.0.0.1:{port}").replace("/etc/ssl", str(folder)) for line in commented}


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_tls_is_on_once_its_lines_are_uncommented(keyed, tmp_path):
    port = free_port()
    with proxied(tmp_path, keyed.base_url.port, **uncommented_tls(tmp_path, port)):
        ran = subprocess.run(nginx(tmp_path, "-t"), capture_output=True, text=True, check=False)
        assert (ran.returncode, "warn" in ran.stderr) == (0, False), ran.stderr
        trusted = ssl.create_default_context(cafile=tmp_path / "mcfair.pem")
        address = f"https://127.0.0.1:{port}"
        with mf.Client(address, keyed.key, verify=trusted, rank_deadline=20) as client:
            assert client.rank("red shoes", ["a", "b"]).items
        with mf.Client(address, keyed.key, retry_timeout=0) as client, pytest.raises(UnavailableError, match="VERIFY"):
            client.policy()
        with httpx.Client(base_url=address, verify=trusted, timeout=20) as client:
            assert client.get("/").status_code == 401
            signed_in = client.post("/sign-in", data={"key": keyed.key, "page": "queries"})
            assert "; Secure" in signed_in.headers["set-cookie"]  # the proxy says that the connection is encrypted
            assert client.get(signed_in.headers["location"]).status_code == 200


@pytest.fixture
def keyed():
    """A service with keys behind a proxy that it trusts; the key is in `key`."""
    with Ranker("memory:") as ranker:
        key = ranker.add_key("any", ["admin"]).key
        with serving(ranker, access_log=True, trusted_proxies="127.0.0.1") as client:
            client.key = key
            yield client


def test_requests_through_the_proxy(keyed, tmp_path, caplog):
    caplog.set_level(logging.INFO, "mcfair.access")
    key = {"Authorization": f"Bearer {keyed.key}"}
    with proxied(tmp_path, keyed.base_url.port) as url, httpx.Client(base_url=url, timeout=20) as client:
        assert client.post("/v1/rank", json=RANK).status_code == 401
        once = key | {"Idempotency-Key": "k1"}
        first = client.post("/v1/rank", json=RANK, headers=once).json()
        assert client.post("/v1/rank", json=RANK, headers=once).json() == first
        assert client.get("/v1/usage", headers=key).json()["impressions"] == 1
        spoofed = {"X-Forwarded-For": "203.0.113.7", "Forwarded": "for=203.0.113.7"}
        assert client.get("/livez", headers=spoofed).status_code == 200
        assert client.get("/metrics", headers=key).status_code == 200
        too_large = client.post("/v1/rank", content=b" " * (MAX_BODY + 1), headers=key)
        assert too_large.status_code == 413
        fitting = json.dumps(RANK).encode().ljust(MAX_BODY)
        typed = key | {"content-type": "application/json"}
        assert client.post("/v1/rank", content=fitting, headers=typed).status_code == 200
    addresses = {record.getMessage().split()[0] for record in caplog.records if record.name == "mcfair.access"}
    assert addresses == {"127.0.0.1"}  # what a client claims about itself is not believed
    log = (tmp_path / "access.log").read_text()
    assert "POST /v1/rank 200" in log
    assert keyed.key not in log


def test_export_is_streamed_through_the_proxy(keyed, tmp_path):
    key = {"Authorization": f"Bearer {keyed.key}"}
    items = [{"id": f"{i:0200d}"} for i in range(1000)]
    for i in range(30):
        keyed.post("/v1/rank", json={"query": str(i), "items": items}, headers=key)
    whole = keyed.get("/v1/export", headers=key).content
    with proxied(tmp_path, keyed.base_url.port) as url, httpx.Client(base_url=url, timeout=20) as client:
        assert client.get("/v1/export", headers=key).content == whole
        with client.stream("GET", "/v1/export", headers=key) as answer:
            assert next(answer.iter_bytes(4096))
            assert keyed.server.app.lifecycle.in_flight == 1  # nginx does not read ahead of its client
    assert not any((tmp_path / "proxy").rglob("[0-9]*[0-9]"))


def test_service_without_keys_refuses_what_the_proxy_forwards(tmp_path):
    with Ranker("memory:") as ranker, serving(ranker) as client:
        assert client.get("/v1/usage").status_code == 200
        with proxied(tmp_path, client.base_url.port) as url:
            answer = httpx.get(f"{url}/v1/usage")
    assert (answer.status_code, answer.json()["field"]) == (403, "Forwarded")


def test_connections_per_address_and_slow_heads_are_bounded(keyed, tmp_path):
    changes = {
        "limit_conn per_address 64": "limit_conn per_address 2",
        "client_header_timeout 10s": "client_header_timeout 1s",
    }
    with proxied(tmp_path, keyed.base_url.port, **changes) as url:
        address = ("127.0.0.1", httpx.URL(url).port)
        with socket.create_connection(address, timeout=10) as slow:
            slow.sendall(b"GET /livez HTTP/1.1\r\nx: ")
            with suppress(ConnectionResetError):
                assert slow.recv(100) == b""
        head = b"POST /v1/rank HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n"
        busy = [socket.create_connection(address, timeout=10) for _ in range(2)]
        for each in busy:
            each.sendall(head)
        until = time.monotonic() + 10
        while httpx.get(f"{url}/livez").status_code != 429:
            assert time.monotonic() < until
        for each in busy:
            each.close()


def test_overload_of_all_instances_is_503_with_retry_after(tmp_path):
    with Ranker("memory:") as one, Ranker("memory:") as other:
        for ranker in (one, other):
            ranker.add_key("any", ["admin"])
        full = {"max_in_flight": 0, "admin_token": "t"}
        with (
            serving(one, **full) as first,
            serving(other, **full) as second,
            proxied(tmp_path, first.base_url.port, second.base_url.port) as url,
        ):
            headers = {"Authorization": "Bearer t", "Idempotency-Key": "k"}
            answers = [httpx.post(f"{url}/v1/rank", json=RANK, headers=headers) for _ in range(20)]
            assert {(answer.status_code, answer.headers.get("retry-after")) for answer in answers} == {(503, "1")}
            assert httpx.get(f"{url}/livez").status_code == 200


@pytest.mark.parametrize(("path", "body"), [("/v1/rank", RANK), ("/v2/rerank", {"query": "q", "documents": ["a"]})])
@pytest.mark.parametrize(("extra", "status"), [({}, 502), ({"Idempotency-Key": "k"}, 200)], ids=["bare", "keyed"])
def test_proxy_repeats_a_ranking_only_if_it_has_a_key(keyed, tmp_path, extra, status, path, body):
    """The other instance reads the request and closes the connection: it may have executed it."""
    read = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=close_after_reading, args=(listener, read), daemon=True).start()
        headers = {"Authorization": f"Bearer {keyed.key}"} | extra
        with proxied(tmp_path, listener.getsockname()[1], keyed.base_url.port) as url:
            while not read:  # until a request goes to the other instance first
                answer = httpx.post(f"{url}{path}", json=body, headers=headers, timeout=20)
                assert read or answer.status_code == 200
            assert answer.status_code == status


def close_after_reading(listener, read):
    """Read the request of every connection, then close it."""
    with suppress(OSError):
        while True:
            accepted, _ = listener.accept()
            with accepted:
                read.append(accepted.recv(1 << 16))
