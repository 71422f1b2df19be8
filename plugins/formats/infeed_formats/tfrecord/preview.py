"""Preview of TFRecord files: features of their first records, read without TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.message import DecodeError

from infeed.shared.errors import SourceError
from infeed_formats.tfrecord.framing import (
    FOOTER_BYTES,
    FRAME_BYTES,
    HEADER_BYTES,
    decode_record,
    read_length,
)
from infeed_server.storage.files import reading
from infeed_server.storage.handles import BlockHandle

Example = dict[str, tuple[str, list[Any]]]
"""Name of a feature → its type, as in definitions, and its values."""

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
message_type { name: "Example" field { name: "features" number: 1 type_name: ".Features" ONE }
  field { name: "feature_lists" number: 2 type_name: ".Features" ONE } }
"""
"""The public definition of tf.train.Example; MANY and ONE stand for labels. A SequenceExample also
has feature lists, a mapping like features; only their presence is read."""


def read_first(path: str, count: int) -> list[bytes]:
    """Returns the data of at most `count` records of a file. Raises `SourceError`."""
    records: list[bytes] = []
    offset = 0
    with reading(path), BlockHandle(path) as handle:
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


def parse_example(record: bytes, place: str = "the record") -> Example | None:
    """Returns the sorted features of a serialized tf.train.Example; None if it is not one. Raises
    `SourceError` for a SequenceExample."""
    example = _example_class()()
    try:
        example.ParseFromString(record)
    except DecodeError:
        return None
    if example.HasField("feature_lists"):
        raise SourceError(
            f"{place} is a tf.train.SequenceExample, whose feature lists are not supported; write "
            "it as a tf.train.Example, or use a python or dataset source"
        )
    result: Example = {}
    for name, feature in sorted(example.features.feature.items()):
        kind = feature.WhichOneof("kind")
        # A feature without a kind is absent.
        if kind is not None:
            result[name] = _KINDS[kind], list(getattr(feature, kind).value)
    return result or None


def require_examples(path: str, read: Callable[[str, int], list[bytes]] = read_first) -> None:
    """Raises `SourceError` if a file's first record, from `read`, is a SequenceExample, since only
    its context would be served. An unreadable record fails only when it is served."""
    records: list[bytes] = []
    with suppress(SourceError):
        records = read(path, 1)
    for record in records:
        parse_example(record, f"{path}: the first record")


def describe(record: bytes) -> str:
    """Returns a record's features with their types, for error messages."""
    example = parse_example(record)
    if example is None:
        return "the record is not a tf.train.Example with features"
    listed = ", ".join(f"{name}: {kind}" for name, (kind, _) in example.items())
    return f"the record has: {listed}"


@cache
def _example_class() -> Any:
    """Returns the message class of tf.train.Example."""
    text = _EXAMPLE_PROTO.replace("MANY", "label: LABEL_REPEATED")
    text = text.replace("ONE", "label: LABEL_OPTIONAL type: TYPE_MESSAGE")
    file = text_format.Parse(text, descriptor_pb2.FileDescriptorProto())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Example"))
