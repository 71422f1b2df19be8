"""Tests of `pipeline/fingerprint.py`: it changes with the bits of batches, and only then."""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tests.harness.tfrecords import example, write_records

from infeed_server.engines.monitor import Monitor
from infeed_server.pipeline.fingerprint import ALGORITHM, fingerprint
from infeed_server.pipeline.load import parse
from infeed_server.runtime.engine_factory import build

FLIP: dict[str, Any] = {"random_flip_left_right": {"field": "image"}}
RESIZE: dict[str, Any] = {"resize": {"field": "image", "size": [4, 4]}}
BASE: dict[str, Any] = {
    "shuffle": {"mode": "global", "seed": 1},
    "transforms": [RESIZE, FLIP],
    "batch": {"size": 2},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    image = rng.integers(0, 255, (10, 6, 6, 3)).astype(np.uint8)
    np.savez(folder / "one.npz", image=image)
    image[3, 2, 1, 0] ^= 1
    np.savez(folder / "other.npz", image=image)
    for name in ("photos", "photographs"):
        (folder / name).mkdir()
        for number in range(4):
            encoded = tf.io.encode_png(image[number]).numpy()
            (folder / name / f"{number}.png").write_bytes(encoded)
    (folder / "photographs" / "3.png").rename(folder / "photographs" / "4.png")
    write_records(folder / "x.tfrecord", (example({"x": [number]}) for number in range(4)))
    return folder


def fingerprint_of(source: Any, **changes: Any) -> str:
    definition = parse({"source": source, **BASE, **changes})
    engine = build("any", definition, Monitor())
    try:
        return engine.spec.fingerprint
    finally:
        engine.close()


@pytest.fixture(scope="module")
def base(data: Path) -> str:
    return fingerprint_of({"arrays": str(data / "one.npz")})


@pytest.mark.parametrize(
    "changes",
    [
        {"transforms": [RESIZE]},
        {"transforms": [FLIP, RESIZE]},
        {"transforms": [RESIZE, {"random_flip_left_right": {"field": "image", "draw": "mine"}}]},
        {"transforms": [RESIZE, FLIP, {"normalize": {"field": "image", "scale": 255.0}}]},
        {"on_error": "mask"},
        {"add": [{"arrays": {"image": np.zeros((2, 6, 6, 3), np.uint8)}}]},
        {"remove": [3]},
        {"skip": [[1, 2]]},
        {"shuffle": {"order": "stable", "seed": 1}},
        {"shuffle": {"mode": "window", "seed": 1}},
        {"shuffle": {"mode": "window", "seed": 1, "window": 5, "block": 2}},
    ],
    ids=str,
)
def test_change_of_bits_changes_it(data: Path, base: str, changes: Any) -> None:
    changed = fingerprint_of({"arrays": str(data / "one.npz")}, **changes)
    assert changed != base
    assert changed == fingerprint_of({"arrays": str(data / "one.npz")}, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"shuffle": {"mode": "global", "seed": 2}},
        {"batch": {"size": 5}},
        {"batch": {"size": 2, "remainder": "pad"}},
        {"quarantine": "elsewhere.jsonl"},
        {"transforms": [RESIZE, "cache", FLIP]},
        {"transforms": ["cache", RESIZE, FLIP]},
        # Explicit defaults are the same definition.
        {"remove": [], "add": [], "skip": []},
        {"on_error": "raise"},
        # Block and window have no effect in this mode.
        {"shuffle": {"mode": "global", "seed": 1, "block": 7, "window": 70}},
    ],
    ids=str,
)
def test_other_change_does_not_change_it(data: Path, base: str, changes: Any) -> None:
    assert fingerprint_of({"arrays": str(data / "one.npz")}, **changes) == base


def test_it_depends_on_the_data_and_not_on_its_path(data: Path, base: str, tmp_path: Path) -> None:
    shutil.copy(data / "one.npz", tmp_path / "renamed.npz")
    assert fingerprint_of({"arrays": str(tmp_path / "renamed.npz")}) == base
    assert fingerprint_of({"arrays": str(data / "other.npz")}) != base

    decode = {"transforms": [{"decode_image": {"field": "image"}}, RESIZE]}
    photos = fingerprint_of({"images": str(data / "photos")}, **decode)
    shutil.copytree(data / "photos", tmp_path / "moved")
    assert fingerprint_of({"images": str(tmp_path / "moved")}, **decode) == photos
    # Another name changes the order.
    assert fingerprint_of({"images": str(data / "photographs")}, **decode) != photos

    features = {"features": {"x": "int64"}}
    records = fingerprint_of({"tfrecord": str(data / "x.tfrecord"), **features}, transforms=[])
    shutil.copy(data / "x.tfrecord", tmp_path / "y.tfrecord")
    assert (
        fingerprint_of({"tfrecord": str(tmp_path / "y.tfrecord"), **features}, transforms=[])
        == records
    )


def test_it_depends_on_the_code_of_a_users_function(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "function_with_a_fingerprint.py"

    def with_body(body: str) -> str:
        module.write_text(f"def change(sample):\n    return {{'x': sample['x'] + {body}}}\n")
        sys.modules.pop(module.stem, None)
        importlib.invalidate_caches()
        transforms = [{"map": f"{module.stem}:change"}]
        return fingerprint_of({"arrays": {"x": np.arange(5)}}, transforms=transforms)

    first = with_body("1")
    assert with_body("2 ") != first
    assert with_body("1") == first


def test_format() -> None:
    assert len(fingerprint(a=1)) == 32
    assert int(fingerprint(a=1), 16) >= 0
    assert fingerprint(a=1)[:2] == f"{ALGORITHM:02x}"
    assert fingerprint(a=1, b=[2, 3]) == fingerprint(b=[2, 3], a=1)
    assert fingerprint(a=1) != fingerprint(a=2) != fingerprint(b=2)
