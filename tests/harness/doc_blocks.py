"""Code blocks of the pages, and how they are run."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import infeed
from infeed.testing import FakeTransport

ROOT = Path(__file__).parents[2]

PAGES = sorted(
    str(page.relative_to(ROOT))
    for folder in (
        *(".", "docs", "examples", "examples/notebooks"),
        *("deploy", "deploy/kubernetes", "benchmarks"),
    )
    for page in (ROOT / folder).glob("*.md")
)

FOLLOWED = {
    "docs/data-order.md": "tests/docs/test_data_order.py",
    "docs/extending.md": "tests/plugins/test_extending.py",
    "docs/fleet.md": "tests/docs/test_fleet.py",
    "docs/gallery.md": "tests/examples/test_gallery.py",
    "docs/quickstart.md": "tests/docs/test_quickstart.py",
    "docs/recipes.md": "tests/docs/test_recipes.py",
    "examples/notebooks/first.md": "tests/examples/test_notebooks.py",
    "examples/notebooks/verdict.md": "tests/examples/test_notebooks.py",
}
"""Page → a test of its own, since its blocks go on from each other, or are examples."""

# All languages are matched, so that an end of a block is never taken for a beginning.
_BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]+) -->\n+)?```(?P<language>[^\n]*)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A code block of a page."""

    page: str
    line: int
    """Number of the line of its fence."""
    language: str
    code: str
    not_run: str | None
    """The reason of the comment `<!-- not run: REASON -->` above it, if there is one."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@cache
def read(page: str) -> tuple[Block, ...]:
    """Returns the blocks of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return tuple(
        Block(
            page,
            text.count("\n", 0, match.start("language")) + 1,
            match["language"],
            match["code"],
            match["reason"],
        )
        for match in _BLOCK.finditer(text)
    )


def to_run(language: str, *pages: str) -> list[Block]:
    """Returns the blocks in a language that are to be run on their own, of some pages or of all."""
    return [
        block
        for page in pages or [page for page in PAGES if page not in FOLLOWED]
        for block in read(page)
        if block.language == language and block.not_run is None
    ]


def blocks(page: str) -> list[Any]:
    """Returns the Python programs of a page, as parameters with the number of their first line."""
    return [pytest.param(block.code, id=f"line-{block.line}") for block in to_run("python", page)]


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
        exec(compile(code, "block", "exec", dont_inherit=True), {"__name__": "block", **names})


def image_model(keras: Any) -> Any:
    """Returns a small model of these images."""
    layers = [keras.Input((4, 4, 3)), keras.layers.Rescaling(1 / 255), keras.layers.Flatten()]
    model = keras.Sequential([*layers, keras.layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, metrics=["accuracy"])
    return model
