"""Headless Chromium, driven with the WebDriver protocol by `chromedriver`."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.harness.waiting import TIMEOUT_SECONDS, wait_until

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")

REASON = "needs Chromium and chromedriver"

_ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--force-color-profile=srgb", "--hide-scrollbars"),
)


class Browser:
    """A browser with an empty profile and one page. A context manager that starts and ends it."""

    def __init__(self, folder: Path, *arguments: str, insecure: bool = False) -> None:
        """`insecure`: certificates of unknown authorities are accepted."""
        self._folder = folder
        self._arguments = [*_ARGUMENTS, f"--user-data-dir={folder / 'profile'}", *arguments]
        self._insecure = insecure

    def __enter__(self) -> Browser:
        assert CHROMIUM, REASON
        assert DRIVER, REASON
        log = self._folder / "chromedriver.log"
        with log.open("w") as output:
            self._driver = subprocess.Popen(
                [DRIVER, "--port=0"],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "TMPDIR": str(self._folder)},  # a folder stays there
            )
        try:
            wait_until(lambda: _find_port(log), "chromedriver listens")
            self._port = int(_find_port(log) or 0)
            self._session = ""
            capabilities = {
                "browserName": "chrome",
                "acceptInsecureCerts": self._insecure,
                "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
                "goog:chromeOptions": {"binary": CHROMIUM, "args": self._arguments},
            }
            made = self._request("POST", "", {"capabilities": {"alwaysMatch": capabilities}})
            self._session = f"/{made['sessionId']}"
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._request("DELETE", "")
        finally:
            self._end()

    def open(self, url: str) -> None:
        """Opens a page, and returns when it has loaded."""
        self._request("POST", "/url", {"url": url})

    def run(self, script: str, *arguments: Any) -> Any:
        """Returns what the body of a function in JavaScript returns; it waits for a promise."""
        return self._request("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def command(self, name: str, **parameters: Any) -> Any:
        """Returns the answer to a command of the DevTools protocol."""
        return self._request("POST", "/goog/cdp/execute", {"cmd": name, "params": parameters})

    def resize(self, width: int, height: int) -> None:
        """Sets the size of the page in CSS pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1.0, "mobile": False}
        self.command("Emulation.setDeviceMetricsOverride", **size)

    def prefer(self, **features: str) -> None:
        """Sets media features: `color_scheme="dark"`, `reduced_motion="reduce"`."""
        listed = [
            {"name": f"prefers-{name.replace('_', '-')}", "value": value}
            for name, value in features.items()
        ]
        self.command("Emulation.setEmulatedMedia", features=listed)

    def console(self) -> list[str]:
        """Returns the messages of the console since the last call."""
        return [item["message"] for item in self._log("browser")]

    def requested(self) -> list[str]:
        """Returns the URLs of requests over the network since the last call."""
        events = [json.loads(item["message"])["message"] for item in self._log("performance")]
        urls = [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in urls if not url.startswith(("data:", "chrome"))]

    def _log(self, kind: str) -> list[dict[str, Any]]:
        return list(self._request("POST", "/se/log", {"type": kind}))

    def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT_SECONDS)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, f"/session{self._session}{path}", text)
            value = json.loads(connection.getresponse().read())["value"]
        finally:
            connection.close()
        if isinstance(value, dict) and "error" in value:
            raise AssertionError(f"{method} {path}: {value['error']}: {value['message']}")
        return value

    def _end(self) -> None:
        self._driver.terminate()
        self._driver.wait(TIMEOUT_SECONDS)


def _find_port(log: Path) -> str | None:
    found = re.search(r"started successfully on port (\d+)", log.read_text())
    return found and found[1]
