"""The API that the dashboard reads: bad samples, previews, and every key in the documentation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from tests.harness.http_get import Get, fetch
from tests.harness.observed import BAD_SAMPLE, observed

from infeed.shared.errors import InvalidRequestError, SourceError
from infeed_observe.http.app import ControlState, create_app
from infeed_observe.http.server import ControlServer
from infeed_observe.metrics import Metrics
from infeed_observe.preview import BusyError
from infeed_server.serving.health import Health

PAGE = Path(__file__).parents[4] / "docs/observability.md"


def test_bad_samples_of_a_pipeline(browse: Get) -> None:
    for name, safe in (("photos", "/"), ("a/b <b>", "/"), ("a/b <b>", "")):
        answer = browse(f"/api/v1/pipelines/{quote(name, safe=safe)}/bad-samples")
        assert answer.json == {"pipeline": name, "samples": [BAD_SAMPLE]}
    answer = browse("/api/v1/pipelines/phots/bad-samples")
    assert answer.status == 404
    assert answer.json == {
        "error": "there is no pipeline 'phots'; /api/v1/status lists the pipelines"
    }


def test_answers_are_not_kept_and_no_other_origin_may_read_them(browse: Get) -> None:
    headers = browse("/api/v1/status", Origin="http://other.example").headers
    assert headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in headers


def test_previews_over_http() -> None:
    class Previews:
        def make(self, pipeline: str, position: int) -> dict[str, Any]:
            if position == 3:
                return {"pipeline": pipeline, "file": "\udcff", "samples": []}
            if position == 1:
                raise BusyError
            if position < 0:
                raise InvalidRequestError("position is wrong")
            if position == 2:
                raise SourceError("the file is gone")
            return {"pipeline": pipeline, "samples": [position]}

    state = ControlState(
        Health(),
        Metrics().registry,
        "1.2.3",
        status=observed(),
        previews=cast("Any", Previews()),
    )
    with ControlServer(create_app(state), "127.0.0.1", 0) as running:
        path = "/api/v1/pipelines/a%2Fb/preview"
        assert fetch(running.address, path).json == {"pipeline": "a/b", "samples": [0]}
        busy = fetch(running.address, f"{path}?position=1")
        assert (busy.status, busy.headers["retry-after"]) == (429, "2")
        for value, status in (("x", 400), ("-3", 400), ("2", 503), ("9" * 5000, 400)):
            assert fetch(running.address, f"{path}?position={value}").status == status
        # A file name that is not valid Unicode.
        assert fetch(running.address, f"{path}?position=3").json["file"] == "\udcff"
        index = fetch(running.address, "/api/v1").json
        assert "/api/v1/pipelines/NAME/preview" in index["endpoints"]


def test_a_server_without_previews_has_no_such_path(browse: Get) -> None:
    assert browse("/api/v1/pipelines/photos/preview").status == 404
    assert "/api/v1/pipelines/NAME/preview" not in browse("/api/v1").json["endpoints"]


def test_documented_keys_are_those_of_the_documents(browse: Get) -> None:
    page = PAGE.read_text(encoding="utf-8")
    page = page.partition("\n### Status\n")[2].partition("\n### Preview\n")[0]
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    documented = {key for row in rows for key in re.findall(r"`(\w+)`", row)}
    paths = ("status", "pipelines/photos/bad-samples")
    found: set[str] = set()
    values = [browse(f"/api/v1/{path}").json for path in paths]
    while values:
        value = values.pop()
        if isinstance(value, dict):
            found |= value.keys()
            values += value.values()
        elif isinstance(value, list):
            values += value
    assert documented <= found
    assert found - {"photos", "a/b <b>", "scans", "label"} <= set(re.findall(r"`(\w+)`", page))
