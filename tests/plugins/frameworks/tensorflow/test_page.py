"""The code blocks of the page on TensorFlow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.harness import doc_blocks

tf = pytest.importorskip("tensorflow")

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


@pytest.mark.parametrize("code", doc_blocks.blocks("docs/tensorflow.md"))
def test_block_runs(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train_step(images: Any, labels: Any) -> None:
        with tf.GradientTape():
            model(images)

    model = doc_blocks.image_model(tf.keras)
    doc_blocks.run(code, tmp_path, monkeypatch, model=model, train_step=train_step)
