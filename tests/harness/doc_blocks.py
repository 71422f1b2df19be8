"""Code blocks of a page, run with feeds of a fake instead of a server."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import infeed
from infeed.testing import FakeTransport

ROOT = Path(__file__).parents[2]


def blocks(page: str) -> list[Any]:
    """Returns the Python blocks of a page, as parameters with the number of their first line."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        pytest.param(match[1], id=f"line-{text.count(chr(10), 0, match.start()) + 1}")
        for match in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    ]


def run(code: str, folder: Path, monkeypatch: pytest.MonkeyPatch, **names: Any) -> None:
    """Runs a block in a folder; each connection is to a fake of 48 images with labels."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (48, 4, 4, 3), np.uint8)
    fake = FakeTransport({"image": images, "label": np.arange(48) % 3}, batch_size=8)

    def with_fake(function: Callable[..., Any]) -> Callable[..., Any]:
        def connect(target: Any, pipeline: str, **options: Any) -> Any:
            return function(target, "fake", transport=fake, **options)

        return connect

    monkeypatch.setattr(infeed, "connect", with_fake(infeed.connect))
    if "infeed.tensorflow" in code:
        module = infeed.tensorflow
        monkeypatch.setattr(module, "connect", with_fake(module.connect))
    monkeypatch.chdir(folder)
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(code, "block", "exec"), {"__name__": "block", **names})


def image_model(keras: Any) -> Any:
    """Returns a small model of these images."""
    layers = [keras.Input((4, 4, 3)), keras.layers.Rescaling(1 / 255), keras.layers.Flatten()]
    model = keras.Sequential([*layers, keras.layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, weighted_metrics=["accuracy"])
    return model
