"""The dashboard's files over HTTP: types, headers, and no use of other hosts."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urljoin

from tests.harness.http_get import Get

STATIC = Path(__file__).parents[4] / "plugins/observe/infeed_observe/http/static"

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


def references(text: str) -> set[str]:
    """Returns the files that a page or module loads."""
    found = re.findall(r'\b(?:src|href)="([^"#]+)"', text)
    return {*found, *re.findall(r'\bfrom "([^"]+)"', text)}


def test_a_browser_gets_the_page_and_a_program_the_index(browse: Get) -> None:
    page = browse("/", Accept=BROWSER)
    assert (page.status, page.content_type) == (200, "text/html; charset=utf-8")
    assert page.body.startswith("<!doctype html>")
    answers = [browse("/", Accept=accept) for accept in ("*/*", "application/json")]
    for answer in answers:
        assert answer.content_type == "application/json"
        assert answer.json == browse("/api/v1").json
        assert answer.json["version"] == "1.2.3"
        assert "/api/v1/status" in answer.json["endpoints"]
    # Otherwise a cache could answer a program with the page.
    assert {answer.headers["vary"].lower() for answer in (page, *answers)} == {"accept"}


def test_every_file_that_the_page_loads_is_served_with_its_type(browse: Get) -> None:
    types = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
    to_load, loaded = ["/"], set()
    while to_load:
        path = to_load.pop()
        answer = browse(path, Accept=BROWSER)
        assert answer.status == 200, path
        if path != "/":
            assert answer.headers["content-type"].partition(";")[0] == types[path.split(".")[-1]]
        loaded.add(path)
        to_load += {urljoin(path, reference) for reference in references(answer.body)} - loaded
        to_load = [item for item in to_load if not item.startswith("/api/")]
    files = {f"/dashboard/{path.name}" for path in STATIC.iterdir()} - {"/dashboard/index.html"}
    assert loaded == {"/", *files}


def test_the_browser_loads_from_this_server_alone(browse: Get) -> None:
    for path in ("/", "/dashboard/main.js", "/dashboard/icon.svg"):
        headers = browse(path, Accept=BROWSER).headers
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"


def test_the_page_has_no_inline_script_or_style_and_no_other_host() -> None:
    page = (STATIC / "index.html").read_text()
    assert re.findall(r"<script(?![^>]* src=)", page) == []
    assert "<style" not in page
    assert re.findall(r"\s(?:style|on\w+)=", page) == []
    for file in STATIC.iterdir():
        text = file.read_text().replace("http://www.w3.org/2000/svg", "")
        assert re.findall(r"https?://\w", text) == [], file.name
        # Data must never become HTML.
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert word not in text, file.name


def test_nothing_else_is_served(browse: Get) -> None:
    for name in ("", "none.js", "../dashboard.py", "%2e%2e/dashboard.py", "..%2fdashboard.py"):
        answer = browse(f"/dashboard/{name}", Accept=BROWSER)
        assert answer.status == 404
        assert answer.headers["content-type"] == "application/json"
