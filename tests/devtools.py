"""A real Chromium, driven over a pipe by its DevTools protocol: pages, keys, media, requests and the console."""

import itertools
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager

from browser import BROWSER

KEYS = {"Tab": 9, "Enter": 13, " ": 32}


LAUNCHER = """
import os, sys
ends = [os.dup(int(each)) for each in sys.argv[1:3]]
for end, place in zip(ends, (3, 4)):
    os.dup2(end, place)
    os.set_inheritable(place, True)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""The browser speaks the protocol over the descriptors 3 and 4."""


class BrowserError(Exception):
    """A command of the protocol failed, or took too long."""


class Browser:
    """A headless Chromium with one page."""

    def __init__(self, folder):
        to_browser, self.from_test = os.pipe()
        self.from_browser, to_test = os.pipe()
        command = [
            "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={folder}",
            "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run",
            "--disable-dev-shm-usage", "--hide-scrollbars", "about:blank",
        ]  # fmt: skip
        ends = (to_browser, to_test)
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER, *map(str, ends), BROWSER, *command],
            pass_fds=ends,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for each in ends:
            os.close(each)
        self.numbers, self.buffer, self.session = itertools.count(1), b"", None
        self.events = []
        targets = self.send("Target.getTargets")["targetInfos"]
        (page,) = [each["targetId"] for each in targets if each["type"] == "page"]
        self.session = self.send("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.send(f"{domain}.enable")
        self.show()

    def close(self):
        os.close(self.from_test)
        self.process.terminate()
        self.process.wait(20)
        os.close(self.from_browser)

    # --- the protocol ------------------------------------------------------------------------------------------------

    def send(self, method, **parameters):
        """Send a command and return its result; keep the events that arrive meanwhile."""
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.from_test, json.dumps(message).encode() + b"\0")
        while True:
            found = self.receive(60)
            if found.get("id") == number:
                if "error" in found:
                    raise BrowserError(f"{method}: {found['error']}")
                return found["result"]
            self.events.append(found)

    def receive(self, seconds):
        """Return the next message."""
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.from_browser], [], [], seconds)
            if not ready:
                raise BrowserError("no message from the browser")
            part = os.read(self.from_browser, 1 << 20)
            if not part:
                raise BrowserError("the browser has ended")
            self.buffer += part
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def wait(self, method):
        """Wait for an event that arrives after the commands sent so far, or has arrived since the last `clear`."""
        until = time.monotonic() + 60
        while not any(each.get("method") == method for each in self.events):
            self.events.append(self.receive(max(0.0, until - time.monotonic())))

    def clear(self):
        self.events = []

    # --- pages -------------------------------------------------------------------------------------------------------

    def show(self, width=1280, height=900, scheme="light"):
        """Set the size of the window and whether light or dark is preferred."""
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.send("Emulation.setEmulatedMedia", features=features)

    def open(self, url):
        """Open a page; return the status of its response."""
        self.clear()
        self.send("Page.navigate", url=url)
        return self.loaded()

    def loaded(self):
        """Wait until a page that is being opened has loaded; return the status of its response."""
        self.wait("Page.loadEventFired")
        documents = [
            each["params"]["response"]["status"]
            for each in self.events
            if each.get("method") == "Network.responseReceived" and each["params"]["type"] == "Document"
        ]
        return documents[-1]

    def evaluate(self, script):
        """Return the value of an expression in the page."""
        found = self.send("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in found:
            raise BrowserError(f"{script}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def until(self, script):
        """Wait until an expression in the page is true."""
        end = time.monotonic() + 20
        while not self.evaluate(script):
            if time.monotonic() > end:
                raise BrowserError(f"{script}: still not true")
            time.sleep(0.02)

    def press(self, key):
        """Press and release a key."""
        code = {"windowsVirtualKeyCode": KEYS[key], "key": key, "code": "Space" if key == " " else key}
        text = {"text": "\r" if key == "Enter" else key} if key != "Tab" else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", **code, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", **code)

    def type(self, text):
        """Type a text into the focused element."""
        self.send("Input.insertText", text=text)

    @property
    def requested(self):
        """The addresses that were requested since the last page was opened."""
        sent = [each["params"] for each in self.events if each.get("method") == "Network.requestWillBeSent"]
        return [each["request"]["url"] for each in sent]

    @property
    def complaints(self):
        """Entries of the console, violations of the Content-Security-Policy among it."""
        return [
            each["params"]
            for each in self.events
            if each.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        ]


@contextmanager
def browsing():
    """Start a browser while the block runs."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Browser(folder)
        try:
            yield browser
        finally:
            browser.close()
