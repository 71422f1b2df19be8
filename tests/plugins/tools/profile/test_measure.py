"""Profiles of small pipelines: every stage is measured, and the figures agree."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.harness.native_double import DecoderDouble

from infeed.shared.errors import SampleError
from infeed_server.pipeline.load import parse_yaml
from infeed_tools.profile.figures import Profile
from infeed_tools.profile.measure import Options, measure
from infeed_tools.profile.text import to_json

PHOTOS = "source: {images: photos}"
FUNCTIONS = """
import tensorflow as tf


def burn(sample):
    x = sample["x"]
    for _ in range(100):
        x = tf.linalg.matmul(x, x) / 64
    return {**sample, "x": x}


def double(sample):
    return {"x": sample["x"] * 2}


def rows():
    return tf.data.Dataset.range(20).map(lambda i: {"i": i})
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("profile")
    (folder / "photos").mkdir()
    rng = np.random.default_rng(0)
    for number in range(12):
        pixels = rng.integers(0, 256, (40, 60, 3), np.uint8)
        Image.fromarray(pixels).save(folder / "photos" / f"{number:02}.jpg")
    np.savez(folder / "x.npz", x=rng.random((12, 64, 64), np.float32))
    (folder / "functions_of_profile.py").write_text(FUNCTIONS)
    return folder


@contextmanager
def opening(name: str) -> Iterator[Any]:
    del name
    yield lambda done, total: None


def profile_of(
    folder: Path, source: str, transforms: str, options: Options | None = None
) -> Profile:
    lines = [source, f"transforms: {transforms}", "batch: {size: 4}"]
    file = folder / "pipelines.yaml"
    file.write_text("pipelines:\n  p:\n" + "".join(f"    {line}\n" for line in lines))
    pipelines = parse_yaml(str(file))
    assert not pipelines.problems
    profile = Profile("p", cores=1)
    measure(profile, pipelines["p"], options or Options(seconds=0.05), opening)
    return profile


def test_fused_step_has_both_names_and_bytes_flow_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "infeed_jpeg", DecoderDouble(lambda _: True))
    transforms = (
        "[decode_image: {field: image}, random_resized_crop: {field: image, size: [8, 8]}, "
        "normalize: {field: image, scale: 255}]"
    )
    profile = profile_of(folder, PHOTOS, transforms)
    steps = "decode_image+random_resized_crop"
    assert [(stage.kind, stage.name) for stage in profile.stages] == [
        ("read", "read images"),
        ("transform", "native decoder"),
        ("transform", steps),
        ("batch", "batch"),
        ("encode", "encode"),
        ("finish", "normalize image"),
    ]
    fused, finish = profile.stages[1], profile.stages[-1]
    assert fused.bytes_out == 8 * 8 * 3
    assert (finish.bytes_in, finish.bytes_out) == (8 * 8 * 3, 8 * 8 * 3 * 4)
    assert profile.wire_bytes == fused.bytes_out
    assert (profile.samples, profile.bad_samples) == (12, 0)
    assert profile.run_samples > 0
    document = to_json(profile, complete=True)
    assert document["run"]["samples"] > 0
    expected = r"infeed-jpeg decodes 0.0% of \d+ pictures, TensorFlow the others: \d+ odd"
    assert re.fullmatch(expected, document["decoder"])


def test_artificial_heavy_function_is_the_most_expensive_stage(folder: Path) -> None:
    transforms = "[map: functions_of_profile:burn, cast: {field: x, dtype: float16}]"
    profile = profile_of(folder, "source: {arrays: x.npz}", transforms)
    heaviest = max(profile.stages, key=lambda stage: stage.cost.cpu)
    assert heaviest.name == "map functions_of_profile:burn"
    assert heaviest.cost.cpu > sum(stage.cost.cpu for stage in profile.server_stages) / 2


def test_function_in_python_is_a_stage_beside_reading(folder: Path) -> None:
    transforms = "[map: {function: functions_of_profile:double, python: true}]"
    profile = profile_of(folder, "source: {arrays: x.npz}", transforms)
    kinds = [(stage.kind, stage.name) for stage in profile.stages[:2]]
    assert kinds == [("read", "read arrays"), ("map", "map functions_of_profile:double")]


def test_stages_before_cache_are_those_of_the_first_epoch(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "infeed_jpeg", DecoderDouble())
    transforms = (
        "[decode_image: {field: image}, resize: {field: image, size: [8, 8]}, cache, "
        "random_flip_left_right: {field: image}]"
    )
    profile = profile_of(folder, PHOTOS, transforms)
    cached = [stage.name for stage in profile.stages if stage.cached]
    assert cached[1:] == ["native decoder"]
    others = ["random_flip_left_right", "read cache", "batch", "encode"]
    assert [stage.name for stage in profile.stages if not stage.cached] == others
    document = to_json(profile, complete=True)
    assert re.fullmatch(r"infeed-jpeg decodes 100.0% of \d+ pictures", document["decoder"])


def test_pipeline_with_bad_samples_only_names_one(folder: Path, tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"{number}.jpg").write_bytes(b"not an image")
    transforms = "[decode_image: {field: image}, resize: {field: image, size: [8, 8]}]"
    with pytest.raises(SampleError, match=r"all 4 samples .* transforms\[0\].decode_image: "):
        profile_of(folder, f"source: {{images: {tmp_path}}}", transforms)
