"""Generators over a feed, up to what Keras makes of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.plugins.frameworks.shared.contract import AdapterContract

import infeed
from infeed.shared.errors import InvalidRequestError
from infeed.testing import FakeTransport
from infeed_frameworks.keras.elements import KerasElements

pytest.importorskip("keras")


class Opened:
    """A feed by its generator, whose elements are the fields alone."""

    def __init__(self, feed: infeed.Feed) -> None:
        self._feed = feed

    def __iter__(self) -> Any:
        for fields, *_ in infeed.keras.generator(self._feed, label=None, mask=True):
            yield fields

    def state(self) -> Any:
        return self._feed.state()

    def close(self) -> None:
        self._feed.close()


class TestContract(AdapterContract):
    names_fields = False

    def open(self, transport: Any, **options: Any) -> Any:
        if isinstance(transport, str):
            return Opened(infeed.connect(transport, "fake", **options))
        return Opened(infeed.connect("fake", "fake", transport=transport, **options))


@pytest.mark.parametrize(
    ("fields", "options", "expected"),
    [
        ("xy", {}, ("x", "y")),
        ("xyz", {}, ({"x": "x", "z": "z"}, "y")),
        ("xy", {"label": None}, ({"x": "x", "y": "y"},)),
        ("xz", {"label": "label"}, ({"x": "x", "z": "z"},)),
        ("xy", {"mask": True}, ("x", "y", "weight")),
        ("xz", {"label": None, "mask": True}, ({"x": "x", "z": "z"}, None, "weight")),
        ("xy", {"ids": "id"}, ({"x": "x", "id": "id"}, "y")),
        ("xy", {"label": None, "ids": "id"}, ({"x": "x", "y": "y", "id": "id"},)),
    ],
)
def test_options_set_the_element_structure(fields: str, options: Any, expected: Any) -> None:
    def names(part: Any) -> Any:
        if isinstance(part, dict):
            return {name: names(x) for name, x in part.items()}
        if part is None or part.dtype != np.int32:
            return part if part is None else {"float32": "weight", "int64": "id"}[part.dtype.name]
        return fields[part[0]]

    arrays = {name: np.full(8, index, np.int32) for index, name in enumerate(fields)}
    fake = FakeTransport(arrays, batch_size=4)
    with infeed.connect("fake", "fake", transport=fake, epochs=1) as feed:
        first = next(iter(infeed.keras.generator(feed, **({"label": "y"} | options))))
    assert tuple(map(names, first)) == expected


@pytest.mark.parametrize("mask", [False, True])
def test_ids_and_parts_are_those_of_the_slots(fake: FakeTransport, mask: bool) -> None:
    fake.spec = replace(fake.spec, parts={"web": 10, "books": 40})
    with infeed.connect("fake", "fake", transport=fake, epochs=1, remainder="pad") as feed:
        elements = list(infeed.keras.generator(feed, ids="id", part="part", mask=mask))
    ids = np.concatenate([x["id"] for x, *_ in elements])
    assert [*ids[:50]] == [*fake.sample_ids(3, 0, 50)]
    assert [*ids[50:]] == [-1, -1] * mask
    parts = np.concatenate([x["part"] for x, *_ in elements])
    assert [*parts] == [*np.where(ids < 0, -1, ids >= 10)]


def test_one_hot_labels_have_class_weights() -> None:
    arrays = {"x": np.arange(4), "label": np.eye(4, dtype=np.float32)}
    fake = FakeTransport(arrays, batch_size=4, shuffle=False)
    with infeed.connect("fake", "fake", transport=fake) as feed:
        _, _, weights = next(iter(infeed.keras.generator(feed, class_weight={1: 2.0, 3: 0.5})))
    assert weights.tolist() == [1.0, 2.0, 1.0, 0.5]


def test_a_batch_of_bad_samples_alone_is_refused(fake: FakeTransport) -> None:
    with infeed.connect("fake", "fake", transport=fake, epochs=1, remainder="pad") as feed:
        batch = next(feed)
        batch.mask[:] = False
        with pytest.raises(InvalidRequestError, match=r"position 0 of 'fake' has only empty slots"):
            KerasElements(feed, "label", mask=False, as_tuple=True)(batch)


def test_steps_end_a_generator_and_the_next_continues(fake: FakeTransport) -> None:
    with infeed.connect("fake", "fake", transport=fake) as feed:
        for steps in (1, 3):
            assert len(list(infeed.keras.generator(feed, steps=steps))) == steps
        assert feed.delivered == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label": "lable"}, "no such field .did you mean 'label'"),
        ({"class_weight": {"cat": 2.0}}, "class_weight must be an integer"),
        (
            {"class_weight": {1: 2.0}, "label": "image"},
            "one class per sample, which 'image' of",
        ),
        ({"ids": "image"}, "ids='image' is already a field of the pipeline"),
        ({"mask": 1}, "mask must be True or False"),
        ({"restart": 1}, "restart must be True or False"),
        ({"restart": True}, "is endless.*give infeed.connect epochs=1"),
        ({"steps": 0}, "steps must be from 1 to .*, or None for all batches of the feed, not 0"),
    ],
)
def test_wrong_options_are_refused_at_once(fake: FakeTransport, options: Any, message: str) -> None:
    with (
        infeed.connect("fake", "fake", transport=fake) as feed,
        pytest.raises(InvalidRequestError, match=message),
    ):
        infeed.keras.generator(feed, **options)
