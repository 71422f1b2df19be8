"""The code of docs/grain.md runs, in one process from top to bottom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.client.conftest import Server
from tests.harness import doc_blocks
from tests.plugins.frameworks.shared.contract import fake

pytest.importorskip("jax")
pytest.importorskip("orbax.checkpoint")

PAGE = "docs/grain.md"


@pytest.mark.filterwarnings("default")
def test_code_of_the_page_runs(tmp_path: Path) -> None:
    steps: list[Any] = []
    server = Server(fake(name="photos"))
    names: dict[str, Any] = {
        "train_step": lambda image, label: steps.append((image, label)),
        "folder": tmp_path,
        "grain": pytest.importorskip("grain"),
    }
    blocks = [block.code for block in doc_blocks.to_run("python", PAGE)]
    try:
        for block in blocks:
            code = block.replace("127.0.0.1:7470", server.address)
            exec(compile(code, "<grain.md>", "exec", dont_inherit=True), names)
        assert len(blocks) == 5
        assert len(steps) == 4
        assert names["iterator"].get_state()["position"] == 3 * 8
        assert names["resumed"].get_state()["position"] == 3 * 8 + 4
    finally:
        for name in ("iterator", "resumed", "saving"):
            names.pop(name, None)
        server.stop()
