"""The stages of samples: the last one of the server is what a batch has, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tests.harness.pictures import encode
from tests.harness.waiting import TIMEOUT_SECONDS

from infeed.shared.errors import InvalidRequestError
from infeed.shared.finish import finish
from infeed_server.engines.base import Engine, HostBatch, Request, Trainer
from infeed_server.engines.monitor import Monitor
from infeed_server.observe import preview
from infeed_server.observe.preview import Previews
from infeed_server.pipeline.load import parse
from infeed_server.pipeline.sample_key import format_key, parse_key
from infeed_server.runtime.engine_factory import build

COUNT = 12
SEED = 3

TRANSFORMS: list[Any] = [
    {"decode_image": {"field": "image", "channels": 3}},
    {"random_resized_crop": {"field": "image", "size": [40, 48]}},
    {"random_flip_left_right": {"field": "image"}},
    {"random_saturation": {"field": "image", "lower": 0.5, "upper": 1.5}},
    {"normalize": {"field": "image", "scale": 255.0, "mean": [0.4], "std": [0.2]}},
]

RESIZE = {"resize": {"field": "image", "size": [30, 20]}}
RENAME = {"rename": {"fields": {"image": "pixels"}}}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of JPEGs, of which one is truncated and one is no image."""
    folder = tmp_path_factory.mktemp("images")
    rows, columns = np.mgrid[0:90, 0:120]
    for number in range(COUNT):
        pixels = np.stack([rows * 2, columns * 2, rows * columns // 50 + 9 * number], axis=-1)
        data = encode("JPEG", pixels.astype(np.uint8), quality=90)
        data = {4: data[: len(data) // 2], 7: b"no image"}.get(number, data)
        (folder / f"{number:02}.jpg").write_bytes(data)
    return folder


@pytest.fixture
def make(images: Path) -> Iterator[Any]:
    """`make(**options)`: an engine over the images."""
    engines: list[Engine] = []

    def build_engine(**options: Any) -> Engine:
        defaults = {
            "source": {"images": str(images)},
            "shuffle": {"mode": "global", "seed": SEED},
            "transforms": TRANSFORMS,
            "batch": {"size": 4},
            "on_error": "substitute",
            "quarantine": str(images.parent / "bad.jsonl"),
        }
        engines.append(build("photos", parse({**defaults, **options}), Monitor()))
        return engines[-1]

    yield build_engine
    for engine in engines:
        engine.close()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets the time limit of previews to the one of tests: the machine may be busy."""
    monkeypatch.setattr(preview, "_STAGES_SECONDS", TIMEOUT_SECONDS)


def served(engine: Engine, start: int = 0, count: int = COUNT) -> HostBatch:
    session = engine.open(count, 0, Trainer())
    try:
        answer = session.submit(Request(SEED, start, count, count)).result(300)
        session.on_sent()
    finally:
        session.close()
    assert isinstance(answer, HostBatch)
    return answer


def double(sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    return {**sample, "sum": tf.reduce_sum(tf.cast(sample["image"], tf.float32))}


def negated(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "path": b"none"}


@pytest.mark.parametrize(
    "transforms",
    [
        TRANSFORMS,
        [TRANSFORMS[0], RESIZE, "cache", TRANSFORMS[2]],
        [*TRANSFORMS[:2], {"map": {"function": double}}, RENAME],
        [{"map": {"function": negated, "python": True}}, *TRANSFORMS[:3]],
    ],
    ids=["finished", "cached", "own-function", "python"],
)
def test_the_last_stage_is_the_served_sample(make: Any, transforms: list[Any]) -> None:
    engine = make(transforms=transforms)
    batch = served(engine, start=5)
    ids = batch.sample_ids.tolist()
    # Two bad samples were substituted: their keys are found by the same draws.
    assert not {4, 7} & set(ids)
    for slot, sample_id in enumerate(ids):
        key = engine.sample_key(SEED, 5 + slot, sample_id)
        stages = list(engine.sample_stages(sample_id, key))
        last = [stage for stage in stages if stage.place == "server"][-1]
        assert last.fields.keys() == batch.arrays.keys()
        for name, array in batch.arrays.items():
            value = np.asarray(last.fields[name])
            assert value.tobytes() == np.asarray(array[slot]).tobytes(), (slot, name)
        at_trainer = finish(batch.arrays, engine.spec.finish_transforms, batch.mask)
        for name, value in stages[-1].fields.items():
            assert np.asarray(value).tobytes() == np.asarray(at_trainer[name][slot]).tobytes()


def test_every_transform_is_a_stage_with_its_own_fields(make: Any) -> None:
    engine = make()
    batch = served(engine)
    sample_id = int(batch.sample_ids[0])
    stages = list(engine.sample_stages(sample_id, engine.sample_key(SEED, 0, sample_id)))
    assert [(item.name, item.place) for item in stages] == [
        ("source", "server"),
        ("transforms[0].decode_image", "server"),
        ("transforms[1].random_resized_crop", "server"),
        ("transforms[2].random_flip_left_right", "server"),
        ("transforms[3].random_saturation", "server"),
        ("normalize", "trainer"),
    ]
    assert isinstance(stages[0].fields["image"], bytes)
    assert [stage.fields["image"].shape for stage in stages[1:3]] == [(90, 120, 3), (40, 48, 3)]
    assert stages[-1].fields["image"].dtype == np.float32


def test_a_bad_sample_ends_at_the_failing_stage(make: Any) -> None:
    engine = make()
    served(engine)
    failed = {bad_sample["sample_id"]: bad_sample for bad_sample in engine.bad_samples()}
    assert failed.keys() == {4, 7}
    for sample_id, item in failed.items():
        *before, last = engine.sample_stages(sample_id, parse_key(item["key"]))
        assert [stage.name for stage in before] == ["source"]
        assert last.name == "transforms[0].decode_image"
        assert last.error


def test_an_unknown_sample_has_no_stages(make: Any) -> None:
    engine = make()
    with pytest.raises(InvalidRequestError, match="has the samples 0 to 11"):
        engine.sample_stages(COUNT, np.zeros(2, np.int64))
    assert engine.sample_key(SEED, 0, COUNT) is None


@pytest.mark.usefixtures("patient")
def test_a_preview_of_a_truncated_image_has_what_can_be_decoded(make: Any) -> None:
    engine = make()
    key = np.array([5, -6], np.int64)
    for sample_id, has_picture in ((4, True), (7, False)):
        document = Previews({"photos": engine}).make_sample("photos", sample_id, key)
        assert document["key"] == format_key(key)
        last = document["stages"][-1]
        assert last["error"]
        assert bool(last["image"]) is has_picture
