"""Validation of received specs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infeed.prefetch.spec_check import validate_spec
from infeed.shared.errors import InvalidRequestError, ProtocolError
from infeed.shared.spec import Cast, FieldSpec, Normalize, OneHot
from infeed.testing import FakeTransport

IMAGE = FieldSpec("image", "uint8", (3, 4))
LABEL = FieldSpec("label", "int64")


@pytest.fixture
def spec(arrays: Any) -> Any:
    return FakeTransport(arrays, batch_size=4).spec


def finished(spec: Any, transform: Any, *element_spec: FieldSpec) -> Any:
    return replace(spec, finish_transforms=(transform,), element_spec=element_spec)


def test_valid_specs_pass(spec: Any) -> None:
    validate_spec(spec, 4)
    validate_spec(replace(spec, sample_count=None, batch_stride=1), 4)
    mean = (1.0,) * 4
    image = FieldSpec("image", "float16", (3, 4))
    normalize = Normalize("image", float("nan"), mean, (2.0,), "float16")
    validate_spec(finished(spec, normalize, image, LABEL), 4)
    validate_spec(finished(spec, OneHot("label", 7), IMAGE, FieldSpec("label", "float32", (7,))), 4)
    validate_spec(finished(spec, Cast("label", "bool"), IMAGE, FieldSpec("label", "bool")), 4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 0}, "batch size 0"),
        ({"batch_size": 1 << 40}, "batch size"),
        ({"batch_stride": -1}, "batch stride -1"),
        ({"seed": -1}, "seed -1"),
        ({"sample_count": -3}, "number of samples -3"),
        ({"wire_spec": ()}, "at least one"),
        ({"wire_spec": (LABEL, LABEL)}, "'label', 'label'.*each once"),
        ({"wire_spec": (FieldSpec("label", "int64", (-1,)),)}, r"shape \[-1\]"),
        ({"wire_spec": (FieldSpec("label", "int64", (1,) * 31),)}, "shape"),
        ({"wire_spec": (FieldSpec("label", "int64", (1 << 40,)),)}, "batches of 35184372088832"),
        ({"wire_spec": (FieldSpec("label", "bytes", (1 << 40,)),)}, "batches of 35184372088832"),
        ({"element_spec": (FieldSpec("label", "int8", (1 << 34,)),)}, "batches of"),
        ({"element_spec": (LABEL, IMAGE)}, "the finish transforms; expected: the element spec"),
        ({"finish_transforms": (Cast("nothing", "int8"),)}, "'nothing'"),
    ],
)
def test_invalid_spec_is_rejected(spec: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        validate_spec(replace(spec, **changes), 4)


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
def test_inapplicable_transform_is_rejected(spec: Any, transform: Any) -> None:
    # The error names the transform, not its resulting fields.
    with pytest.raises(ProtocolError, match=" on field "):
        validate_spec(replace(spec, finish_transforms=(transform,)), 4)


def test_requested_batch_size_is_checked(spec: Any) -> None:
    fields = (IMAGE, FieldSpec("label", "int64", (1 << 20,)))
    wide = replace(spec, wire_spec=fields, element_spec=fields)
    validate_spec(wide, 4)
    with pytest.raises(InvalidRequestError, match="batch size 16384 makes batches of"):
        validate_spec(wide, 1 << 14)
