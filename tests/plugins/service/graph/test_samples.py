"""Tests of the graphs of indexed pipelines, against the bits of the local engine."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tests.harness.tfrecords import example, write_records

from infeed_server import Pipeline
from infeed_server.pipeline.load import parse
from infeed_service.graph import Variant, plan_data_service

N = 40
ONCE = Variant(6, 5, 1, "pad")

AUGMENT = [
    {"decode_image": {"field": "image", "channels": 3}},
    {"random_resized_crop": {"field": "image", "size": [64, 64]}},
    {"random_flip_left_right": {"field": "image", "draw": "mine"}},
    {"random_flip_left_right": {"field": "image"}},
    {"random_brightness": {"field": "image", "max_delta": 0.2}},
    {"normalize": {"field": "image", "scale": 255.0}},
]
CROP = AUGMENT[:2]
"""Of a fixed size, as batches must be, and quickly traced: for tests of something else."""


def numbers(**options: Any) -> Pipeline:
    """Returns a pipeline whose sample i is i."""
    arrays = {"x": np.arange(N, dtype=np.int64)}
    defaults = {
        "source": {"arrays": arrays},
        "shuffle": {"seed": 5},
        "batch": {"size": 6},
    }
    return parse({**defaults, **options})


@pytest.fixture
def album(photos: SimpleNamespace, tmp_path: Path) -> Path:
    """A folder of JPEGs, some of them grey, and their `labels.csv`."""
    rows = ["file,label"]
    for number, (file, label) in enumerate(sorted(photos.labels.items())[:30]):
        content = (photos.folder / file).read_bytes()
        if number % 10 == 0:
            content = tf.io.encode_jpeg(tf.io.decode_jpeg(content, 1)).numpy()
        (tmp_path / file).write_bytes(content)
        rows.append(f"{file},{label}")
    (tmp_path / "labels.csv").write_text("\n".join(rows) + "\n")
    return tmp_path


@pytest.fixture
def records(album: Path) -> Path:
    """The album in TFRecord files; the glob of their names."""
    rows = (album / "labels.csv").read_text().split()[1:]
    for shard in range(3):
        pairs = [row.split(",") for row in rows[shard::3]]
        examples = [
            example({"image": [(album / file).read_bytes()], "label": [int(label)]})
            for file, label in pairs
        ]
        write_records(album / f"part-{shard}.tfrecord", examples)
    return album / "part-*.tfrecord"


def of_images(folder: Path, **options: Any) -> Pipeline:
    source = {"images": folder, "labels": folder / "labels.csv"}
    return parse({"source": source, "transforms": AUGMENT, "batch": {"size": 7}, **options})


def of_records(pattern: Path, **options: Any) -> Pipeline:
    source = {"tfrecord": pattern, "features": {"image": "bytes", "label": "int64"}}
    return parse({"source": source, "transforms": AUGMENT, "batch": {"size": 7}, **options})


def test_images_equal_local_engine(album: Path, assert_equal: Any) -> None:
    batches = assert_equal(of_images(album, shuffle={}), Variant(7, 17, 2, "pad"))
    assert batches[0].fields["image"].dtype == np.uint8  # the client applies the finish transform
    assert batches[0].fields["image"].any()


def test_records_equal_local_engine(records: Path, assert_equal: Any) -> None:
    shuffle = {"mode": "window", "block": 4, "window": 12}
    definition = of_records(records, shuffle=shuffle, transforms=CROP)
    assert_equal(definition, Variant(8, 3, 2, "drop"))


def test_arrays_of_every_dtype_equal_local_engine(assert_equal: Any) -> None:
    arrays = {
        "image": np.arange(N * 12, dtype=np.uint8).reshape(N, 2, 2, 3),
        "big_endian": np.arange(N, dtype=">u4"),
        "flag": np.arange(N) % 3 == 0,
        "half": np.arange(N, dtype=np.float16),
        "name": np.array([f"n°{i}" for i in range(N)]),
        "bytes": np.array([b"%d" % i for i in range(N)]),
        "words": np.array([[f"a{i}", b"b"] for i in range(N)], object),
        "wide": np.arange(N, dtype=np.uint64) + np.uint64(1 << 63),
    }
    assert_equal(numbers(source={"arrays": arrays}), ONCE)


@pytest.mark.parametrize(
    ("shuffle", "epochs", "remainder", "size"),
    [
        ({"mode": "global"}, 1, "pad", 2 * N),
        ({"mode": "global"}, 3, "drop", 7),
        ({"mode": "window", "block": 3, "window": 9}, 3, "pad", 7),
        ({"mode": "none"}, 3, "drop", N + 1),
    ],
)
def test_every_order_and_remainder_equals_local_engine(
    assert_equal: Any, shuffle: Any, epochs: int, remainder: Any, size: int
) -> None:
    batches = assert_equal(numbers(shuffle=shuffle), Variant(size, 9, epochs, remainder))
    assert len(batches) == (-(-N * epochs // size) if remainder == "pad" else N * epochs // size)


def static_spec(size: int) -> tuple[dict[str, tf.TensorSpec], dict[str, tf.TensorSpec]]:
    """Returns the element spec of a dataset over `numbers`."""
    metadata = {
        "start": tf.TensorSpec([], tf.int64),
        "epoch": tf.TensorSpec([], tf.int64),
        "mask": tf.TensorSpec([size], tf.bool),
        "sample_ids": tf.TensorSpec([size], tf.int64),
    }
    return {"x": tf.TensorSpec([size], tf.int64)}, metadata


def test_shapes_are_static_and_memory_is_bounded() -> None:
    dataset = plan_data_service("one", numbers(on_error="mask")).dataset(ONCE)
    assert dataset.element_spec == static_spec(6)
    assert dataset.options().deterministic
    assert dataset.options().autotune.ram_budget == 1 << 30


def sometimes_bad(sample: dict[str, tf.Tensor], key: tf.Tensor) -> dict[str, tf.Tensor]:
    """Fails for some samples under any key, and for some keys."""
    x = sample["x"]
    lucky = tf.random.stateless_uniform([], key) < 0.9
    good = tf.debugging.Assert(tf.logical_and(x % 11 != 3, lucky), ["bad", x])
    with tf.control_dependencies([good]):
        return {"x": tf.identity(x), "name": tf.strings.as_string(x)}


@pytest.mark.parametrize(("size", "epochs", "action"), [(1, 1, "mask"), (7, 3, "substitute")])
def test_bad_samples_equal_local_engine(
    assert_equal: Any, size: int, epochs: int, action: str
) -> None:
    definition = numbers(transforms=[{"map": {"function": sometimes_bad}}], on_error=action)
    batches = assert_equal(definition, Variant(size, 9, epochs, "pad"))
    ids = np.concatenate([batch.sample_ids[batch.mask] for batch in batches])
    assert not (ids % 11 == 3).any()
    assert len(ids) < epochs * N if action == "mask" else len(ids) == epochs * N


_FRAMING = 16
"""Bytes around the data of a record: its length, and two checksums."""


def test_damaged_and_truncated_records_are_masked(records: Path, assert_equal: Any) -> None:
    files = sorted(records.parent.glob(records.name))
    definition = of_records(records, on_error="mask", transforms=CROP)
    content = bytearray(files[1].read_bytes())
    (size,) = struct.unpack_from("<Q", content)
    content[_FRAMING + size + _FRAMING] ^= 1  # inside the second record of ten
    files[1].write_bytes(content)
    files[2].write_bytes(files[2].read_bytes()[:-100])
    batches = assert_equal(definition, Variant(7, 3, 1, "pad"))
    ids = np.concatenate([batch.sample_ids[batch.mask] for batch in batches])
    assert not {11, 29} & set(ids.tolist())
    assert {10, 12, 28} <= set(ids.tolist())


def test_fault_of_storage_fails_the_batch_of_images(album: Path, local_batches: Any) -> None:
    variant = Variant(5, 3, 1, "drop")
    definition = of_images(album, on_error="mask", transforms=[])
    expected = local_batches(definition, variant)
    dataset = plan_data_service("one", definition).dataset(variant)
    image = album / (album / "labels.csv").read_text().split()[1].partition(",")[0]
    away = image.rename(album / "away")
    with pytest.raises(tf.errors.NotFoundError, match=image.name):
        list(dataset)
    away.rename(image)
    ids = [metadata["sample_ids"].numpy().tolist() for _, metadata in dataset]
    assert ids == [batch.sample_ids.tolist() for batch in expected]
    image.write_bytes(image.read_bytes() + b"more")
    with pytest.raises(tf.errors.InvalidArgumentError, match="changed since it was listed"):
        list(dataset)


def test_cache_is_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    plan_data_service("one", numbers(transforms=["cache"]))
    assert caplog.text.count("cache has no effect") == 1


def test_dataset_id_differs_when_any_part_differs(
    album: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    definition = of_images(album, transforms=CROP)
    plan = plan_data_service("one", definition)
    moved = Path(shutil.copytree(album, tmp_path_factory.mktemp("elsewhere") / "album"))
    elsewhere = plan_data_service("one", of_images(moved, transforms=CROP))
    assert plan.spec.fingerprint == elsewhere.spec.fingerprint
    assert plan.location_hash != elsewhere.location_hash
    variants = [ONCE, Variant(7, 5, 1, "pad"), Variant(6, 6, 1, "pad"), Variant(6, 5, 2, "pad")]
    variants += [Variant(6, 5, 1, "drop"), Variant(6, 5, 1, "pad", shard_hint=True)]
    ids = {plan.dataset_id(variant, "AUTO") for variant in variants}
    ids |= {plan.dataset_id(ONCE, "NONE"), elsewhere.dataset_id(ONCE, "AUTO")}
    other = plan_data_service("one", of_images(album, transforms=AUGMENT[:3]))
    ids.add(other.dataset_id(ONCE, "AUTO"))
    assert len(ids) == len(variants) + 3
    assert all(name.startswith("one-") for name in ids)
    assert plan_data_service("one", definition).dataset_id(ONCE, "AUTO") in ids
