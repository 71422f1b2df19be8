"""The Python blocks of docs/jax.md, run one after another."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.harness import doc_blocks

import infeed
from infeed import client
from infeed.shared.spec import Normalize
from infeed.testing import FakeTransport
from infeed_frameworks import feed_adapter

jax = pytest.importorskip("jax")
pytest.importorskip("orbax.checkpoint")

PAGE = "docs/jax.md"


@pytest.mark.filterwarnings("ignore")  # of Orbax
def test_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    random = np.random.default_rng(0)
    arrays = {
        "image": random.integers(0, 256, (150, 8, 8, 3), np.uint8),
        "label": random.integers(0, 10, 150).astype(np.int32),
    }

    def connect(target: str, pipeline: str, **options: Any) -> infeed.Feed:
        assert target == "127.0.0.1:7470"
        finish = [Normalize("image", scale=255.0)]
        transport = FakeTransport(arrays, name="photos", finish_transforms=finish)
        return client.connect(target, pipeline, transport=transport, **options)

    monkeypatch.setattr(feed_adapter, "connect", connect)
    steps = []

    def loss_of(params: Any, image: Any, label: Any) -> Any:
        logits = image.mean((1, 2)) @ params["w"]
        return -(jax.nn.log_softmax(logits) * jax.nn.one_hot(label, 10)).mean()

    @jax.jit
    def step(params: Any, image: Any, label: Any) -> Any:
        # Contracts over the slots, which JAX refuses on a mesh with axes of the type Explicit.
        return jax.tree.map(jax.numpy.subtract, params, jax.grad(loss_of)(params, image, label))

    def train_step(params: Any, image: Any, label: Any) -> Any:
        steps.append(image.shape)
        return step(params, image, label)

    def predict(params: Any, image: Any) -> Any:
        return image[:, 0, 0, 0] * 0

    names: dict[str, Any] = {
        "params": {"w": jax.numpy.zeros((3, 10))},
        "train_step": train_step,
        "predict": predict,
        "folder": tmp_path / "checkpoints",
    }
    blocks = [block.code for block in doc_blocks.to_run("python", PAGE)]
    assert len(blocks) == 4
    expected = "".join(f"{line}\n" for line in re.findall(r"print\(.*\)  # (.*)", "".join(blocks)))
    for block in blocks:
        exec(compile(block, PAGE, "exec", dont_inherit=True), names)
    assert expected
    assert capsys.readouterr().out.startswith(expected)
    assert len(steps) == 2 + 2
    assert names["total"] == 150
    assert names["restored"]["feed"]["position"] == 128
    assert names["batch"]["image"].shape == (64, 8, 8, 3)
