"""Ports that infeed uses by default, and in its documents and samples."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from infeed_server.runtime.options import DEFAULT_HTTP, DEFAULT_LISTEN

ROOT = Path(__file__).resolve().parents[1]

TAKEN = {*range(8431, 8435), 8466, 8470, 8471, 8476, 8482, *range(29000, 29007)}
"""Ports of TPU runtimes and of JAX, which share the network of a TPU VM with infeed."""

SHIPPED = [
    "README.md",
    "Dockerfile",
    "client",
    "server",
    "tfdata",
    "proto",
    "docs",
    "deploy",
    "examples",
]
NO_TEXT = {".pyc", ".svg", ".png"}


def numbers_in_files() -> Iterator[tuple[str, int]]:
    """Yields each number of four or five digits in the text of what is shipped, with its place."""
    paths = [ROOT / name for name in SHIPPED]
    files = [file for path in paths for file in (path, *path.rglob("*")) if file.is_file()]
    for file in files:
        if file.suffix in NO_TEXT:
            continue
        name, text = file.relative_to(ROOT), file.read_text(encoding="utf-8")
        for number, line in enumerate(text.splitlines(), 1):
            for match in re.findall(r"(?<![\w.,])\d{4,5}(?![\w.,]\d|\w)", line):
                yield f"{name}:{number}", int(match)


def test_no_default_sample_or_document_has_a_port_of_a_tpu_runtime() -> None:
    numbers = list(numbers_in_files())
    assert [found for found in numbers if found[1] in TAKEN] == []
    # The search finds ports.
    assert {7470, 7471, 7472, 7473, 7474, 7475} <= {number for _, number in numbers}


def test_defaults() -> None:
    assert (DEFAULT_LISTEN, DEFAULT_HTTP) == ("127.0.0.1:7470", "127.0.0.1:7471")
