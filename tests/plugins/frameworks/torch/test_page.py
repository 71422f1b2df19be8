"""Runs the code blocks of docs/pytorch.md, in order, against a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from tests.client.conftest import Server  # noqa: E402
from tests.harness import doc_blocks  # noqa: E402
from torch import nn  # noqa: E402

from infeed.testing import FakeTransport  # noqa: E402

PAGE = "docs/pytorch.md"
BLOCKS = [
    block.code
    for block in doc_blocks.to_run("python", PAGE, "README.md")
    if block.page == PAGE or "infeed.torch" in block.code
]

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def address() -> Iterator[str]:
    random = np.random.default_rng(0)
    images = random.normal(size=(26, 2, 2, 3)).astype(np.float32)
    arrays = {"image": images, "label": random.integers(0, 3, 26)}
    server = Server(FakeTransport(arrays, name="photos", batch_size=8))
    yield server.address
    server.stop()


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_block_runs(
    number: int, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    steps: list[Any] = []
    model = nn.Linear(12, 3)
    names = {
        "model": model,
        "predict": lambda images: model(images.flatten(1)).argmax(1),
        "train_step": lambda images, labels: steps.append((images.shape, labels.shape)),
    }
    code = BLOCKS[number].replace("127.0.0.1:7470", address).replace("/tmp/", f"{tmp_path}/")
    try:
        exec(compile(code, f"{PAGE}:{number}", "exec", dont_inherit=True), names)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    if "train_step" in code:
        assert steps
    if "right" in code:
        assert names["count"] == 26
    if "same" in code:
        batches = [next(iter(names[name]))["label"] for name in ("dataset", "same")]
        assert torch.equal(*batches)
