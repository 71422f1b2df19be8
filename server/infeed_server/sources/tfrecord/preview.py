"""Preview of TFRecord files: the features of their first records, read without TensorFlow."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.message import DecodeError

from infeed.shared.errors import SourceError
from infeed_server.config.model import Finding, did_you_mean
from infeed_server.sources.file_handles import FileHandle
from infeed_server.sources.files import reading
from infeed_server.sources.tfrecord.features import FeatureOptions
from infeed_server.sources.tfrecord.framing import (
    FOOTER_BYTES,
    FRAME_BYTES,
    HEADER_BYTES,
    decode_record,
    read_length,
)

Example = dict[str, tuple[str, list[Any]]]
"""Name of a feature → its type as in definitions, and its values."""

_KINDS = {"bytes_list": "bytes", "float_list": "float", "int64_list": "int64"}


_EXAMPLE_PROTO = """
name: "example" syntax: "proto3"
message_type { name: "BytesList" field { name: "value" number: 1 type: TYPE_BYTES MANY } }
message_type { name: "FloatList" field { name: "value" number: 1 type: TYPE_FLOAT MANY } }
message_type { name: "Int64List" field { name: "value" number: 1 type: TYPE_INT64 MANY } }
message_type { name: "Feature" oneof_decl { name: "kind" }
  field { name: "bytes_list" number: 1 type_name: ".BytesList" oneof_index: 0 ONE }
  field { name: "float_list" number: 2 type_name: ".FloatList" oneof_index: 0 ONE }
  field { name: "int64_list" number: 3 type_name: ".Int64List" oneof_index: 0 ONE } }
message_type { name: "Features"
  field { name: "feature" number: 1 type: TYPE_MESSAGE type_name: ".Features.FeatureEntry" MANY }
  nested_type { name: "FeatureEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type_name: ".Feature" ONE } } }
message_type { name: "Example" field { name: "features" number: 1 type_name: ".Features" ONE } }
"""
"""The public definition of tf.train.Example; MANY and ONE stand for labels."""


def read_first(path: str, count: int) -> list[bytes]:
    """Returns the data of at most `count` records of a local file. Raises `SourceError`."""
    records: list[bytes] = []
    offset = 0
    with reading(path), FileHandle(path) as handle:
        while len(records) < count and (header := handle.read(offset, HEADER_BYTES)):
            length = read_length(header, path, offset, len(records))
            frame = header + handle.read(offset + HEADER_BYTES, length + FOOTER_BYTES)
            if len(frame) < length + FRAME_BYTES:
                problem = f"is truncated: it ends inside the record at byte {offset}"
                raise SourceError(f"{path} {problem}", file=path, offset=offset)
            try:
                records.append(
                    decode_record(frame, length, int.from_bytes(frame[-FOOTER_BYTES:], "little"))
                )
            except ValueError as error:
                problem = f"is corrupt at byte {offset}: {error}"
                raise SourceError(f"{path} {problem}", file=path, offset=offset) from None
            offset += len(frame)
    return records


def parse_example(record: bytes) -> Example | None:
    """Returns the features of a serialized tf.train.Example, sorted; None if it is none."""
    example = _example_class()()
    try:
        example.ParseFromString(record)
    except DecodeError:
        return None
    result: Example = {}
    for name, feature in sorted(example.features.feature.items()):
        kind = feature.WhichOneof("kind")
        # A feature without a kind is absent from the sample.
        if kind is not None:
            result[name] = _KINDS[kind], list(getattr(feature, kind).value)
    return result or None


def describe(record: bytes) -> str:
    """Returns what a record has, for errors: its features with their types."""
    example = parse_example(record)
    if example is None:
        return "the record is not a tf.train.Example with features"
    return f"the record has: {_listed(example)}"


def check_features(path: str, features: Mapping[str, FeatureOptions]) -> Iterator[Finding]:
    """Yields the features that the first record of a file does not have as they are defined."""
    try:
        records = read_first(path, 1)
    except SourceError as error:
        yield ("tfrecord",), error.message
        return
    if not records:
        return
    example = parse_example(records[0])
    if example is None:
        yield ("tfrecord",), f"{path}: its first record is not a tf.train.Example with features"
        return
    for name, options in features.items():
        if name in example:
            if problem := _misfit(options, *example[name]):
                yield ("features", name), f"in the first record of {path}, the feature {problem}"
        elif options.max_length is None:
            hint = did_you_mean(name, list(example))
            message = f"the first record of {path} has no such feature{hint}; it has: "
            yield ("features", name), message + _listed(example)


def _listed(example: Example) -> str:
    return ", ".join(f"{name}: {kind}" for name, (kind, _) in example.items())


def _misfit(options: FeatureOptions, kind: str, values: list[Any]) -> str | None:
    if kind != options.type.removesuffix("32"):
        return f"is {kind}, not {options.type}"
    expected = math.prod(options.shape or ())
    if options.max_length is not None or len(values) == expected:
        return None
    return (
        f"has {len(values)} values, not {expected}; give shape: [{len(values)}] if each record has "
        "as many, else max_length"
    )


@cache
def _example_class() -> Any:
    """Returns the message class of tf.train.Example."""
    text = _EXAMPLE_PROTO.replace("MANY", "label: LABEL_REPEATED")
    text = text.replace("ONE", "label: LABEL_OPTIONAL type: TYPE_MESSAGE")
    file = text_format.Parse(text, descriptor_pb2.FileDescriptorProto())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Example"))
