"""A real nginx with the configuration in deploy/, adapted to the ports and folders of a test."""

import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import contextmanager, suppress
from pathlib import Path

from service_process import free_port

DEPLOY = Path(__file__).parent.parent / "deploy"
NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")

INSTANCES = ("172.30.12.11:8000", "172.30.12.12:8000")
"""The two instances of compose.upstream.conf."""


def configure(folder, port, upstreams, **changes):
    """Write the configuration for one or two upstream ports, with values to be changed."""
    temporary = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"    {name}_temp_path {folder}/{name};\n" for name in temporary)
    text = (DEPLOY / "nginx.conf").read_text()
    replacements = {
        "listen 80;": f"listen 127.0.0.1:{port};",
        "/var/log/nginx/access.log": f"{folder}/access.log",
        "http {\n": "http {\n" + paths,
    } | changes
    for old, new in replacements.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (folder / "nginx.conf").write_text(text)
    one = len(upstreams) == 1
    text = (DEPLOY / ("upstream.conf" if one else "compose.upstream.conf")).read_text()
    for old, new in zip(["127.0.0.1:8000"] if one else INSTANCES, upstreams, strict=True):
        assert old in text
        text = text.replace(old, f"127.0.0.1:{new}")
    (folder / "upstream.conf").write_text(text)


def nginx(folder, *options):
    """Return the command that runs nginx with the configuration in a folder."""
    path = folder / "nginx.conf"
    directives = f"pid {folder}/nginx.pid; error_log {folder}/error.log; daemon off;"
    if os.geteuid() == 0:
        directives += " user root;"  # the folders of tests are closed to other users
    return [NGINX, "-p", str(folder), "-c", str(path), "-g", directives, *options]


@contextmanager
def proxied(folder, *upstreams, **changes):
    """Run nginx in front of one or two ports while the block runs; yield its URL."""
    port = free_port()
    configure(folder, port, upstreams, **changes)
    with subprocess.Popen(nginx(folder), stderr=subprocess.PIPE, text=True) as process:
        try:
            until = time.monotonic() + 10
            while True:
                with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                assert process.poll() is None, process.stderr.read()
                assert time.monotonic() < until
                time.sleep(0.01)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(10)
