"""A description that no correct server sends ends a feed before anything is made of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import infeed
from infeed.errors import ProtocolError
from infeed.sense import check
from infeed.spec import Cast, FieldSpec, Normalize, OneHot
from infeed.testing import FakeTransport

IMAGE = FieldSpec("image", "uint8", (3, 4))
LABEL = FieldSpec("label", "int64")


@pytest.fixture
def good(arrays: Any) -> Any:
    return FakeTransport(arrays, batch_size=4).spec


def finished(good: Any, transform: Any, *element_spec: FieldSpec) -> Any:
    return replace(good, finish_transforms=(transform,), element_spec=element_spec)


def test_what_makes_sense(good: Any) -> None:
    check(good, 4)
    check(replace(good, sample_count=None, batch_stride=1), 4)
    mean = (1.0,) * 4
    image = FieldSpec("image", "float16", (3, 4))
    normalize = Normalize("image", float("nan"), mean, (2.0,), "float16")
    check(finished(good, normalize, image, LABEL), 4)
    check(finished(good, OneHot("label", 7), IMAGE, FieldSpec("label", "float32", (7,))), 4)
    check(finished(good, Cast("label", "bool"), IMAGE, FieldSpec("label", "bool")), 4)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"batch_size": 0}, "batch size 0"),
        ({"batch_size": 1 << 40}, "batch size"),
        ({"batch_stride": -1}, "batch stride -1"),
        ({"seed": -1}, "seed -1"),
        ({"sample_count": -3}, "number of samples -3"),
        ({"wire_spec": ()}, "one at least"),
        ({"wire_spec": (LABEL, LABEL)}, "'label', 'label'.*each once"),
        ({"wire_spec": (FieldSpec("label", "int64", (-1,)),)}, r"shape \[-1\]"),
        ({"wire_spec": (FieldSpec("label", "int64", (1,) * 31),)}, "shape"),
        ({"wire_spec": (FieldSpec("label", "int64", (1 << 40,)),)}, "batches of 35184372088832"),
        ({"wire_spec": (FieldSpec("label", "bytes", (1 << 40,)),)}, "batches of 35184372088832"),
        ({"element_spec": (FieldSpec("label", "int8", (1 << 34,)),)}, "batches of"),
        ({"element_spec": (LABEL, IMAGE)}, "after the finish transforms"),
        ({"finish_transforms": (Cast("nothing", "int8"),)}, "'nothing'"),
    ],
)
def test_what_makes_none(good: Any, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ProtocolError, match=told):
        check(replace(good, **changes), 4)


@pytest.mark.parametrize(
    "transform",
    [
        Cast("image", "bytes"),
        OneHot("label", 0),
        OneHot("label", -1),
        Normalize("image", data_type="int32"),
        Normalize("image", mean=(1.0, 2.0)),
        Normalize("image", mean=(1.0,) * 3),
        Normalize("image", std=(1.0,) * 5),
        Normalize("label", mean=(1.0, 2.0)),
    ],
)
def test_transforms_that_cannot_be_run(good: Any, transform: Any) -> None:
    # Told of the transform, not of the fields that would come out of it.
    with pytest.raises(ProtocolError, match="where the field is"):
        check(replace(good, finish_transforms=(transform,)), 4)


def test_transforms_of_what_is_no_number(good: Any) -> None:
    spec = replace(good, wire_spec=(IMAGE, FieldSpec("label", "bytes")))
    with pytest.raises(ProtocolError, match="numbers"):
        check(replace(spec, finish_transforms=(Cast("label", "int8"),)), 4)
    spec = replace(good, wire_spec=(IMAGE, FieldSpec("label", "float32")))
    with pytest.raises(ProtocolError, match="integers"):
        check(replace(spec, finish_transforms=(OneHot("label", 3),)), 4)


def test_the_batch_that_is_asked_for_counts(good: Any) -> None:
    wide = FieldSpec("label", "int64", (1 << 20,))
    spec = replace(good, wire_spec=(IMAGE, wide), element_spec=(IMAGE, wide))
    check(spec, 4)
    with pytest.raises(ProtocolError, match="batches of"):
        check(spec, 1 << 14)


def test_a_feed_is_refused(arrays: Any) -> None:
    fake = FakeTransport({**arrays, "more": np.zeros(50)}, batch_size=4)
    fake.spec = replace(fake.spec, batch_size=0)
    with pytest.raises(ProtocolError, match="batch size 0"):
        infeed.connect("fake", "fake", transport=fake)
