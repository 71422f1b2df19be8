"""Descriptions of positions and samples: equal to what is delivered, also with bad samples."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tests.harness.pictures import encode

from infeed.shared.errors import InvalidRequestError, SampleNotFoundError
from infeed.v1 import feed_service_pb2 as messages
from infeed_runs.answer import methods, visits
from infeed_server.engines.base import Engine, HostBatch, Request, Trainer
from infeed_server.engines.monitor import Monitor
from infeed_server.pipeline.load import parse
from infeed_server.runtime.engine_factory import build

COUNT, SEED = 12, 3
TRANSFORMS: list[Any] = [
    {"decode_image": {"field": "image", "channels": 3}},
    {"random_resized_crop": {"field": "image", "size": [20, 24]}},
    {"random_flip_left_right": {"field": "image"}},
    {"random_hue": {"field": "image", "max_delta": 0.2}},
]

UNFUSED: list[Any] = [
    TRANSFORMS[0],
    {"resize": {"field": "image", "size": [30, 40]}},
    {"random_flip_left_right": {"field": "image"}},
]
"""Transforms that fail for a bad image under any key, so that it is known after a batch."""


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two folders of JPEGs; one file is truncated and one is no image."""
    root = tmp_path_factory.mktemp("images")
    noise = np.random.default_rng(0)
    for number in range(COUNT):
        data = encode("JPEG", noise.integers(0, 255, (40, 60, 3)).astype(np.uint8), quality=90)
        data = {4: data[: len(data) // 2], 7: b"no image"}.get(number, data)
        file = root / ("cats" if number < 8 else "dogs") / f"{number:02}.jpg"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(data)
    return root


@pytest.fixture
def make(images: Path) -> Iterator[Any]:
    """`make(**options)`: an engine over the images."""
    engines: list[Engine] = []

    def build_engine(**options: Any) -> Engine:
        defaults = {
            "source": {"images": str(images), "labels": "folders"},
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


def served(engine: Engine, count: int = 2 * COUNT) -> HostBatch:
    session = engine.open(count, 0, Trainer())
    try:
        answer = session.submit(Request(SEED, 0, count, count)).result(300)
        session.on_sent()
    finally:
        session.close()
    assert isinstance(answer, HostBatch)
    return answer


def describe(engine: Any, positions: range, *, draws: bool) -> Any:
    """Returns what a server answers about positions."""
    run = messages.Run(pipeline="photos")
    request = messages.DescribeSlotsRequest(
        run=run, start=positions.start, count=len(positions), draws=draws
    )
    return methods.describe_slots(lambda _: engine, request, lambda: True).slots


def find(engine: Any, sample: str, epochs: int) -> messages.FindSampleResponse:
    run = messages.Run(pipeline="photos")
    request = messages.FindSampleRequest(run=run, sample=sample, epochs=epochs)
    return methods.find_sample(lambda _: engine, request, lambda: True)


def draws_of(slot: Any) -> dict[str, Any]:
    return {draw.transform: json.loads(draw.parameters) for draw in slot.draws}


@pytest.mark.parametrize("action", ["substitute", "mask"])
def test_slots_are_those_that_are_delivered(make: Any, images: Path, action: str) -> None:
    engine = make(on_error=action, transforms=UNFUSED)
    positions = range(2 * COUNT)
    # By its draws it is known which samples are bad before any was delivered.
    drawn = [*describe(engine, positions, draws=True)]
    batch = served(engine)
    known = [*describe(engine, positions, draws=False)]
    for slots in (drawn, known):
        assert [slot.position for slot in slots] == [*positions]
        assert [slot.sample_id for slot in slots] == batch.sample_ids.tolist()
        assert [slot.epoch for slot in slots] == [p // COUNT for p in positions]
    assert (action == "mask") == (-1 in batch.sample_ids)
    for with_draws, slot in zip(drawn, known, strict=True):
        sample = slot.sample_id
        if sample < 0:
            assert (slot.file, slot.key, slot.fields) == ("", [], "")
            continue
        assert slot.file == str(images / ("cats" if sample < 8 else "dogs") / f"{sample:02}.jpg")
        assert json.loads(slot.fields) == {"label": int(sample >= 8)}
        assert (with_draws.key, with_draws.fields) == (slot.key, slot.fields)
        first = engine.order(SEED).slots(slot.position, 1)
        if sample == first.index[0]:  # not in place of a bad sample
            assert slot.key == first.key[0].tolist()
        assert not slot.draws
        assert not slot.HasField("offset")


def test_draws_make_the_delivered_picture(make: Any) -> None:
    engine = make()
    batch = served(engine)
    for slot in describe(engine, range(COUNT), draws=True):
        assert slot.sample_id == batch.sample_ids[slot.position]
        drawn = draws_of(slot)
        assert [*drawn] == [
            "transforms[1].random_resized_crop",
            "transforms[2].random_flip_left_right",
            "transforms[3].random_hue",
        ]
        window, flip, hue = drawn.values()
        pixels = tf.io.decode_jpeg(Path(slot.file).read_bytes(), 3)
        part = tf.image.crop_to_bounding_box(
            pixels, window["y"], window["x"], window["height"], window["width"]
        )
        image = tf.cast(tf.round(tf.image.resize(part, (20, 24))), tf.uint8)
        image = tf.image.flip_left_right(image) if flip["flipped"] else image
        expected = tf.image.adjust_hue(image, hue["delta"]).numpy()
        np.testing.assert_array_equal(expected, batch.arrays["image"][slot.position])


def test_steps_that_move_targets_show_no_draws(make: Any) -> None:
    points = {"map": {"function": with_point}}
    engine = make(transforms=[points, *UNFUSED, UNFUSED[2]], targets={"point": "keypoints"})
    (slot,) = describe(engine, range(1), draws=True)
    assert [*draws_of(slot)] == [
        f"transforms[{number}].random_flip_left_right" for number in (3, 4)
    ]


def with_point(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "point": tf.constant([1.0, 2.0])}


def keyed(sample: dict[str, Any], key: Any) -> dict[str, Any]:
    return {"label": sample["label"] + tf.cast(key[0] % 2, tf.int64)}


def random_label(sample: dict[str, Any], rng: Any) -> dict[str, Any]:
    return {**sample, "label": rng.integers(1 << 40)}


def test_own_functions_show_their_keys(make: Any) -> None:
    maps = [{"map": {"function": random_label, "python": True}}, {"map": {"function": keyed}}]
    engine = make(transforms=maps)
    (slot,) = describe(engine, range(1), draws=True)
    drawn = draws_of(slot)
    assert [*drawn] == ["transforms[0].map", "transforms[1].map"]
    words = [word % (1 << 64) for word in slot.key]
    assert drawn["transforms[0].map"] == {"key": "".join(f"{word:016x}" for word in words)}
    assert len(drawn["transforms[1].map"]["key"]) == 32
    # Fields are as the source has them.
    assert json.loads(slot.fields)["label"] == int(slot.sample_id >= 8)


def test_a_bad_sample_is_shown_with_its_error(make: Any) -> None:
    engine = make(on_error="raise", shuffle={"mode": "none"})
    (slot,) = describe(engine, range(7, 8), draws=True)
    assert slot.sample_id == 7
    assert "sample 7" in draws_of(slot)["transforms[1].decode_image+random_resized_crop"]["error"]


def test_find_is_the_inverse_of_describe(make: Any) -> None:
    engine = make(transforms=UNFUSED)
    served(engine)
    slots = [*describe(engine, range(5 * COUNT), draws=False)]
    for sample in range(COUNT):
        (found,) = find(engine, str(sample), 5).samples
        assert found.sample_id == sample
        assert not found.is_removed
        expected = [(slot.position, slot.epoch) for slot in slots if slot.sample_id == sample]
        assert [*zip(found.positions, found.epochs, strict=True)] == expected
        assert bool(expected) == (sample not in (4, 7))


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("dogs/08.jpg", [8]),
        ("08.jpg", [8]),
        ("label:1", [8, 9, 10, 11]),
        ("label:dogs", [8, 9, 10, 11]),
        ("label:1.0", [8, 9, 10, 11]),
    ],
)
def test_samples_are_found_by_file_and_label(make: Any, text: str, ids: list[int]) -> None:
    answer = find(make(), text, 2)
    assert [found.sample_id for found in answer.samples] == ids
    assert not answer.more


@pytest.mark.parametrize("text", ["8.jpg", "12", "-1", "label:birds", "nowhere", "a:b"])
def test_what_no_sample_has_is_not_found(make: Any, text: str) -> None:
    with pytest.raises(SampleNotFoundError, match="an index from 0 to 11, the end of a file's"):
        find(make(), text, 1)


def test_labels_that_would_have_to_be_read_are_refused(make: Any, images: Path) -> None:
    engine = make(source={"images": str(images)})
    with pytest.raises(InvalidRequestError, match="'label' would take reading all"):
        find(engine, "label:1", 1)


def test_answers_are_limited(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = {"x": np.arange(3000), "label": np.repeat([b"a", b"b"], 1500)}
    engine = make(source={"arrays": arrays}, transforms=[])
    answer = find(engine, "label:b", 1)
    assert (len(answer.samples), answer.more) == (1000, True)
    assert answer.samples[0].sample_id == 1500
    monkeypatch.setattr(visits, "_MAX_FOUND_POSITIONS", 40)
    assert len(find(engine, "label:b", 4).samples) == 10
    assert len(find(engine, "label:b", 50).samples) == 1
