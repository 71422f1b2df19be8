"""Methods that other packages answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.harness.packages import write_package

from infeed.shared.doors import Door
from infeed.shared.errors import ConfigError
from infeed_server import Server, ServerOptions
from infeed_server.rpc import servicer


@pytest.mark.parametrize(
    ("method", "text"),
    [
        (
            "Other",
            r"^the method 'Other' of infeed-rpc 1\.0 has an unknown name; known: Desc",
        ),
        ("GetPipeline", r"'GetPipeline' of infeed-rpc 1\.0 has an unknown name"),
        ("FindSample", r"'FindSample', string:digits of infeed-rpc 1\.0, should be a function$"),
    ],
)
def test_a_package_at_fault_is_named_before_pipelines_are_opened(
    method: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_package(tmp_path, "infeed-rpc", f"[infeed.answers]\n{method} = string:digits\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(servicer, "_DOOR", Door("infeed.answers", "method"))
    with pytest.raises(ConfigError, match=text):
        Server({}, ServerOptions("127.0.0.1:0", "off"))
