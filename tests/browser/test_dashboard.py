"""The dashboard in Chromium against servers: figures, accessibility, requests, hostile answers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.harness.browser import CHROMIUM, DRIVER, REASON, Browser
from tests.harness.http_get import metric
from tests.harness.nursery import Nursery
from tests.harness.observed import BAD_SAMPLE, SOURCE_ERROR, observed
from tests.harness.pictures import encode
from tests.harness.server import InfeedServer
from tests.harness.waiting import wait_until

import infeed
from infeed.shared.errors import AuthenticationError
from infeed_observe.http.app import ControlState, create_app
from infeed_observe.http.server import ControlServer
from infeed_observe.metrics import Metrics
from infeed_observe.observer import Observer
from infeed_server.runtime.certificate import TLSFiles
from infeed_server.serving.health import Health

pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason=REASON)

HOSTILE = "<img src=x onerror=\"document.title='broken'\"> \x1b[31m\u202e" + "x" * 300

PIPELINES = """
pipelines:
  photos:
    source: {{images: {images}}}
    shuffle: {{mode: global, seed: 7}}
    transforms:
      - decode_image: {{field: image, channels: 3}}
      - random_resized_crop: {{field: image, size: [32, 32]}}
      - normalize: {{field: image, scale: 255.0}}
    batch: {{size: 4}}
    on_error: mask
"""

TEXT = "return [...document.querySelectorAll(arguments[0])].map((node) => node.textContent.trim())"


@pytest.fixture(scope="module")
def started_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser"), insecure=True) as started:
        yield started


@pytest.fixture
def browser(started_browser: Browser) -> Browser:
    """A browser whose page of the previous test requests nothing more."""
    started_browser.open("about:blank")
    return started_browser


def texts(browser: Browser, selector: str) -> list[str]:
    return list(browser.run(TEXT, selector))


def wait_for_text(browser: Browser, selector: str, text: str) -> None:
    wait_until(
        lambda: any(text in item for item in texts(browser, selector)),
        lambda: f"{text!r} in {selector}: {texts(browser, selector)}",
        interval=0.1,
    )


@pytest.fixture
def control() -> Iterator[Callable[..., ControlServer]]:
    """`control(*names)`: a control plane with observed pipelines."""
    with ExitStack() as stack:
        yield lambda *names: stack.enter_context(ControlServer(_app(*names), "127.0.0.1", 0))


def test_the_page_has_the_figures_of_the_api(browser: Browser) -> None:
    shown = observed("photos")
    with ControlServer(_app(observer=shown), "127.0.0.1", 0) as server:
        browser.open(f"http://{server.address}/")
        wait_for_text(browser, "#link-text", "live")
        status = shown.to_json({})
        report = status["pipelines"][0]["report"]
        wait_for_text(browser, "#verdict-line", status["verdict"]["text"])
        (limit,) = texts(browser, '.stage[data-limit="true"]')
        assert "transforms" in limit
        assert f"{1e3 * report['transform_seconds'] / report['batches']:.0f} ms" in limit
        share = 100 * report["transform_seconds"] / report["seconds"]
        assert f"waited for {share:.0f} % of the time" in " ".join(limit.split())
        (trainers,) = texts(browser, "#jobs")
        for figure in ("50.0 %", "250 ms", "75 %", "3 batches", "14,808", "1,234"):
            assert figure in trainers
        (pipelines,), (bad,) = texts(browser, "#pipelines"), texts(browser, "#bad")
        assert "; refused for their data: 1 batch, the last at " in pipelines
        assert SOURCE_ERROR.message in pipelines
        assert "label: int64[] (4 classes: cat, <b>dog</b>, owl, …)" in pipelines
        assert texts(browser, "#broken") == ["scans is not served: <b>no</b> file"]
        assert BAD_SAMPLE["error"] in bad


def test_hostile_names_leave_the_page_live(
    browser: Browser, control: Callable[..., ControlServer]
) -> None:
    server = control(HOSTILE, "__proto__", "constructor")
    browser.console()
    browser.open(f"http://{server.address}/")
    wait_for_text(browser, "#link-text", "live")
    assert browser.run("return document.title") == "highly input-bound: infeed"
    shown = HOSTILE.replace("\x1b", r"\u001b").replace("\u202e", r"\u202e")
    assert texts(browser, ".pick") == [shown, "__proto__", "constructor"]
    assert BAD_SAMPLE["file"] in texts(browser, '#bad [data-f="file"]')[0]
    assert browser.run("return document.querySelectorAll('img').length") == 0
    width, window = browser.run("return [document.documentElement.scrollWidth, innerWidth]")
    assert width <= window
    assert browser.console() == []


def _app(*names: str, observer: Observer | None = None) -> Any:
    registry = Metrics().registry
    observer = observer or observed(*names)
    return create_app(ControlState(Health(), registry, "1.2.3", status=observer))


def test_the_page_with_tls_and_a_password(browser: Browser, pki: SimpleNamespace) -> None:
    def authorize(authorization: str | None) -> None:
        if authorization != "Bearer infeed_all":
            raise AuthenticationError("no token")

    app = create_app(
        ControlState(Health(), Metrics().registry, "1", status=observed("photos")),
        authorize=authorize,
    )
    tls = TLSFiles(str(pki.server), str(pki.server_key)).http_context()
    with ControlServer(app, "127.0.0.1", 0, tls) as server:
        browser.console()
        # As after the browser's prompt.
        browser.open(f"https://any:infeed_all@{server.address}/")
        wait_for_text(browser, "#link-text", "live")
        wait_for_text(browser, ".pick", "photos")
        assert browser.console() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_axe_finds_nothing(
    browser: Browser, control: Callable[..., ControlServer], scheme: str, width: int
) -> None:
    axe = os.environ.get("INFEED_TEST_AXE", "")
    if not Path(axe).is_file():
        pytest.skip("INFEED_TEST_AXE is not axe.min.js of the npm package axe-core")
    server = control("photos", "a/b <b>")
    browser.resize(width, 900)
    browser.prefer(color_scheme=scheme, reduced_motion="reduce")
    browser.open(f"http://{server.address}/")
    wait_for_text(browser, "#link-text", "live")
    browser.run(f"{Path(axe).read_text()}; window.axe = axe")
    found = browser.run("return axe.run().then((all) => all.violations.map((each) => each.id))")
    assert found == []


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """A folder of JPEGs, two of them truncated."""
    folder = tmp_path / "images"
    folder.mkdir()
    rows, columns = np.mgrid[0:60, 0:80]
    for number in range(24):
        pixels = np.stack([rows * 4, columns * 3, rows * columns // 20], axis=-1)
        data = encode("JPEG", (pixels + number).astype(np.uint8), quality=90)
        data = data[: len(data) // 2] if number in (5, 11) else data
        (folder / f"{number:02}.jpg").write_bytes(data)
    return folder


@pytest.fixture
def server(nursery: Nursery, tmp_path: Path, images: Path) -> Iterator[InfeedServer]:
    definition = tmp_path / "pipelines.yaml"
    definition.write_text(PIPELINES.format(images=images))
    with InfeedServer(
        definition, tmp_path / "server", http="127.0.0.1:0", launch=nursery.start
    ) as started:
        yield started


def cell(browser: Browser, table: str, column: str) -> list[str]:
    return texts(browser, f'{table} [data-f="{column}"]')


def test_a_server_with_three_trainers(browser: Browser, server: InfeedServer, images: Path) -> None:
    target = server.address
    with ExitStack() as stack:
        feeds = [
            stack.enter_context(infeed.connect(target, "photos", shard=infeed.Shard(rank, 3)))
            for rank in range(3)
        ]
        for _ in range(8):
            for feed in feeds:
                feed.next(300)
        browser.requested()
        browser.console()
        browser.open(f"http://{server.http}/")
        wait_for_text(browser, "#link-text", "live")
        wait_until(lambda: len(cell(browser, "#jobs", "number")) == 3, "three ranks", interval=0.1)
        assert cell(browser, "#jobs", "number") == ["0", "1", "2"]
        pairs = {
            "trainers": ("#pipelines", "infeed_trainers"),
            "queued": ("#pipelines", "infeed_queued_requests"),
            "bad": ("#pipelines", "infeed_bad_samples_total"),
        }
        # The trainers hold their batches, so the figures come to rest.
        for column, (table, name) in pairs.items():
            wait_until(
                lambda c=column, t=table, n=name: (
                    cell(browser, t, c) == [f"{metric(server.http, n):.0f}"]
                ),
                lambda c=column, t=table, n=name: (
                    f"{n}: {metric(server.http, n)}, the page has {cell(browser, t, c)}"
                ),
                interval=0.2,
            )
        _look_at_samples(browser, images)
        origins = {"/".join(url.split("/")[:3]) for url in browser.requested()}
        assert origins <= {f"http://{server.http}"}
        assert browser.console() == []


def _look_at_samples(browser: Browser, images: Path) -> None:
    """Opens the preview; the bad samples are listed."""

    def is_made() -> bool:
        # The first one, or another one after a time-out of a busy machine.
        if texts(browser, "#preview-note")[0].startswith(("A few samples", "No samples")):
            browser.run("document.getElementById('preview-show').click()")
        return bool(cell(browser, "#preview", "file"))

    wait_until(is_made, lambda: f"samples: {texts(browser, '#preview-note')}", interval=0.2)
    files = {path.name for path in images.iterdir()}
    assert {name.split()[-1] for name in cell(browser, "#preview", "file")} <= files
    drawn = "[...document.querySelectorAll('#preview img')].every((each) => each.naturalWidth)"
    wait_until(lambda: browser.run(f"return {drawn}"), "all pictures are drawn", interval=0.1)
    wait_until(lambda: cell(browser, "#bad", "file"), "bad samples are listed", interval=0.1)
