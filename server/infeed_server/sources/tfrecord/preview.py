"""Preview of TFRecord files: the features of their first records, read without TensorFlow."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from infeed.shared.errors import SourceError
from infeed_server.config.model import Finding, did_you_mean
from infeed_server.sources.file_handles import FileHandle
from infeed_server.sources.storage_faults import error_text
from infeed_server.sources.tfrecord.features import FeatureOptions
from infeed_server.sources.tfrecord.framing import FOOTER_BYTES, HEADER_BYTES, decode_frame

Example = dict[str, tuple[str, list[Any]]]
"""Name of a feature → its type as in definitions, and its values."""

_KINDS = {"bytes_list": "bytes", "float_list": "float", "int64_list": "int64"}


def read_first(path: str, count: int) -> list[bytes]:
    """Returns the data of the first records of a local file, at most `count`.

    Raises `SourceError` for a file that cannot be read, or is damaged within these records.
    """
    records: list[bytes] = []
    offset = 0
    try:
        handle = FileHandle(path)
        try:
            while len(records) < count and (header := handle.read(offset, HEADER_BYTES)):
                length = int.from_bytes(header[:8], "little")
                # A wrong length must not be read: it can state petabytes.
                frame = header + handle.read(offset + len(header), _plausible(length))
                records.append(decode_frame(frame, path, offset, len(records)))
                offset += len(frame)
        finally:
            handle.close()
    except OSError as error:
        raise SourceError(f"cannot read {path!r}: {error_text(error)}", file=path) from error
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


def _plausible(length: int) -> int:
    """Returns the bytes to read behind a header: a record, or few where its length is absurd."""
    return (length if length < 1 << 32 else 0) + FOOTER_BYTES


@cache
def _example_class() -> Any:
    """Returns the message class of tf.train.Example, of its public definition."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="infeed/example.proto", package="infeed_example", syntax="proto3"
    )

    def add(message: Any, name: str, number: int, kind: Any, **more: Any) -> None:
        label = more.pop("label", field.LABEL_OPTIONAL)
        message.field.add(name=name, number=number, type=kind, label=label, **more)

    def add_message(message: Any, name: str, number: int, of: str, **more: Any) -> None:
        type_name = f".infeed_example.{of}"
        add(message, name, number, field.TYPE_MESSAGE, type_name=type_name, **more)

    repeated = field.LABEL_REPEATED
    lists = (("BytesList", field.TYPE_BYTES), ("FloatList", field.TYPE_FLOAT))
    for name, kind in (*lists, ("Int64List", field.TYPE_INT64)):
        add(file.message_type.add(name=name), "value", 1, kind, label=repeated)
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, name in enumerate(_KINDS, 1):
        add_message(feature, name, number, name.title().replace("_", ""), oneof_index=0)
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    add(entry, "key", 1, field.TYPE_STRING)
    add_message(entry, "value", 2, "Feature")
    add_message(features, "feature", 1, "Features.FeatureEntry", label=repeated)
    add_message(file.message_type.add(name="Example"), "features", 1, "Features")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("infeed_example.Example"))
