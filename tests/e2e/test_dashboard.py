"""The dashboard in Chromium: what its scripts make of the API, and of names with markup."""

from __future__ import annotations

import html
import re
import shutil
import subprocess

import pytest
from tests.harness.observed import BAD_SAMPLE, SOURCE_ERROR, observed

from infeed_server.control.app import ControlState, create_app
from infeed_server.control.health import Health
from infeed_server.control.http_server import ControlServer
from infeed_server.observe.metrics import Metrics
from infeed_server.observe.observer import Observer

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--enable-logging=stderr", "--log-level=0", "--virtual-time-budget=3000", "--dump-dom"),
)

NAME = "<img src=x onerror=\"document.title='broken'\">"

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")


@pytest.fixture(scope="module")
def shown() -> Observer:
    """What the page shows."""
    return observed(NAME)


@pytest.fixture(scope="module")
def page(shown: Observer, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Returns the page's HTML after some seconds, and the browser's log."""
    state = ControlState(
        Health(), Metrics("1.2.3", "2.21.0").registry, "1.2.3", status=shown.status
    )
    folder = tmp_path_factory.mktemp("chromium")
    with ControlServer(create_app(state), "127.0.0.1", 0) as server:
        command = [
            str(CHROMIUM),
            *OPTIONS,
            f"--user-data-dir={folder}",
            f"http://{server.address}/",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    return done.stdout, done.stderr


def part(dom: str, start: str, end: str) -> str:
    """Returns the text between two marks, without its tags."""
    inner = dom.partition(start)[2].partition(end)[0]
    assert inner, f"{start} is not on the page"
    return html.unescape(re.sub(r"<[^>]*>", "", inner))


def test_the_verdict_is_the_line_of_the_api(page: tuple[str, str], shown: Observer) -> None:
    dom, _ = page
    verdict = shown.status.to_json({})["verdict"]
    assert verdict["cause"] == "transforms"
    assert part(dom, '<p id="verdict-line">', "</p>") == verdict["text"]
    assert 'data-level="high"' in dom


def test_the_figures_are_those_of_the_api(page: tuple[str, str], shown: Observer) -> None:
    dom, _ = page
    report = shown.status.to_json({})["pipelines"][0]["report"]
    transforms = part(dom, '<ol id="server-stages">', "</ol>").split("transforms")[1]
    assert f"{1e3 * report['transform_seconds'] / report['batches']:.0f} ms" in transforms
    share = 100 * report["transform_seconds"] / report["seconds"]
    assert f"waited for {share:.0f} % of the time" in transforms
    assert re.search(r'<li class="stage" data-limit="true">.{,200}transforms', dom, re.DOTALL)
    trainers = part(dom, '<div id="jobs">', "</article>")
    for figure in ("50.0 %", "250 ms", "75 %", "3 batches", "14,808", "1,234"):
        assert figure in trainers


def test_markup_of_names_and_reasons_is_text(page: tuple[str, str]) -> None:
    dom, _ = page
    assert "<title>highly input-bound: infeed</title>" in dom
    assert not re.search(r"<img[^>]* src=", dom)
    pipelines = part(dom, '<table class="cards middle" id="pipelines">', "</table>")
    assert NAME in pipelines
    assert "; refused for its data: 1 batch, the last at " in pipelines
    assert SOURCE_ERROR.message in pipelines
    bad = part(dom, '<table class="cards middle" id="bad">', "</table>")
    assert BAD_SAMPLE["error"] in bad
    assert BAD_SAMPLE["file"] in bad
    assert f'data-f="count">{BAD_SAMPLE["count"]}</td>' in dom


def test_the_console_has_no_message(page: tuple[str, str]) -> None:
    assert [line for line in page[1].splitlines() if "CONSOLE" in line] == []
