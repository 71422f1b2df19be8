"""TFRecord files with tf.train.Examples, written without TensorFlow."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from infeed_formats.tfrecord.framing import masked_crc


def write_records(file: Path, records: Iterable[bytes]) -> None:
    """Writes a TFRecord file."""
    with file.open("wb") as out:
        for record in records:
            length = struct.pack("<Q", len(record))
            out.write(length + struct.pack("<I", masked_crc(length)))
            out.write(record + struct.pack("<I", masked_crc(record)))


def example(features: Mapping[str, Sequence[Any]]) -> bytes:
    """Returns a serialized tf.train.Example; the type of a feature is its first value's."""
    return _field(1, b"".join(_field(1, _entry(name, features[name])) for name in features))


def _entry(name: str, values: Sequence[Any]) -> bytes:
    return _field(1, name.encode()) + _field(2, _feature(values))


def _feature(values: Sequence[Any]) -> bytes:
    if isinstance(values[0], bytes):
        return _field(1, b"".join(_field(1, value) for value in values))
    if isinstance(values[0], float):
        return _field(2, _field(1, struct.pack(f"<{len(values)}f", *values)))
    return _field(3, _field(1, b"".join(_varint(value % (1 << 64)) for value in values)))


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    result = bytearray()
    while value > 0x7F:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    result.append(value)
    return bytes(result)
