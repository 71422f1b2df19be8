"""The example of docs/observability.md, run with a feed of a fake."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("opentelemetry.sdk.trace")

from tests.harness import doc_blocks


@pytest.mark.parametrize("code", doc_blocks.blocks("docs/observability.md"))
def test_example_runs(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    doc_blocks.run(code, tmp_path, monkeypatch)
