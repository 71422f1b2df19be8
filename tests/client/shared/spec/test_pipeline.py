"""Specs keep their values in a round trip, and refuse unknown ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.examples import examples

from infeed.shared.errors import ProtocolError
from infeed.shared.spec import (
    DATA_TYPES,
    Cast,
    FieldSpec,
    Guarantee,
    Normalize,
    OneHot,
    PipelineSpec,
    finish_from_proto,
)
from infeed.v1 import spec_pb2

names = st.text(min_size=1, max_size=8)
numbers = st.floats(allow_nan=False)
fields = st.builds(
    FieldSpec,
    names,
    st.sampled_from(DATA_TYPES),
    st.lists(st.integers(0, 1 << 40), max_size=4).map(tuple),
)
transforms = st.one_of(
    st.builds(Cast, names, st.sampled_from(DATA_TYPES)),
    st.builds(
        Normalize,
        names,
        st.none() | numbers,
        st.lists(numbers, max_size=3).map(tuple),
        st.lists(numbers, max_size=3).map(tuple),
        st.sampled_from(["float16", "float32", "float64", "bfloat16"]),
    ),
    st.builds(OneHot, names, st.integers(1, 1 << 40), st.just("uint8"), numbers, numbers),
)
pipelines = st.builds(
    PipelineSpec,
    name=names,
    element_spec=st.lists(fields, max_size=3).map(tuple),
    wire_spec=st.lists(fields, max_size=3).map(tuple),
    finish_transforms=st.lists(transforms, max_size=3).map(tuple),
    sample_count=st.none() | st.integers(0, 1 << 62),
    fingerprint=st.text("0123456789abcdef"),
    guarantee=st.builds(
        Guarantee,
        st.sampled_from(["deterministic", "none"]),
        st.sampled_from(["exactly_once", "at_most_once"]),
        st.sampled_from(["constant_time", "replay", "none"]),
    ),
    batch_size=st.integers(1, 1 << 17),
    seed=st.integers(0, (1 << 63) - 1),
    remainder=st.sampled_from(["drop", "pad"]),
    on_error=st.sampled_from(["raise", "substitute", "mask"]),
    batch_stride=st.integers(0, 1),
    server_version=st.text(max_size=5),
    remainder_scope=st.sampled_from(["job", "worker"]),
    source_kind=st.text(max_size=5),
    shuffle_mode=st.text(max_size=5),
    classes=st.dictionaries(names, st.lists(names, max_size=3).map(tuple), max_size=2),
)


@examples(60)
@given(pipelines)
def test_pipeline_round_trip(spec: PipelineSpec) -> None:
    data = spec.to_proto().SerializeToString()
    received = PipelineSpec.from_proto(spec_pb2.Pipeline.FromString(data))
    assert received == spec
    assert received.classes == spec.classes


@given(pipelines)
@examples(1)
def test_older_server_has_one_remainder_a_job(spec: PipelineSpec) -> None:
    message = spec.to_proto()
    message.ClearField("remainder_scope")
    assert PipelineSpec.from_proto(message).remainder_scope == "job"


@given(pipelines)
@examples(1)
def test_enum_value_of_a_newer_server_is_refused(spec: PipelineSpec) -> None:
    message = spec.to_proto()
    message.on_error = 99  # type: ignore[assignment]
    with pytest.raises(ProtocolError, match=r"sent 99 for OnError.*upgrade infeed"):
        PipelineSpec.from_proto(message)


def test_unknown_finish_transform_is_refused() -> None:
    with pytest.raises(ProtocolError, match=r"'image'.*finish=\"server\""):
        finish_from_proto(spec_pb2.FinishTransform(field="image"))
