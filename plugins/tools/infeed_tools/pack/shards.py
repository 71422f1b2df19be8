"""The shards: samples as TFRecords, and the YAML that serves them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from infeed_formats.tfrecord.framing import FileRecords, masked_crc
from infeed_server.config.document import flow
from infeed_tools.pack.fields import Field, Value, Values


def write_shard(path: Path, fields: Sequence[Field], samples: Iterable[Values]) -> FileRecords:
    """Writes samples to a file; returns the index of its records."""
    lengths, crcs = [], []
    with path.open("wb", 1 << 20) as file:
        for values in samples:
            record = _example(values, fields)
            length, crc = struct.pack("<Q", len(record)), masked_crc(record)
            length_crc = masked_crc(length)
            file.write(length + struct.pack("<I", length_crc) + record + struct.pack("<I", crc))
            lengths.append(len(record))
            crcs.append(crc)
    # No record is damaged, so this is also the index of verified data.
    none = np.zeros(0, np.int64)
    return FileRecords(np.array(lengths, np.uint32), np.array(crcs, np.uint32), none)


def serve_lines(fields: Sequence[Field], path: str) -> list[str]:
    """Returns the YAML that serves shards, with the transforms that restore the fields' types."""
    steps = [field.transform() for field in fields]
    transforms = [f"  - {_pair(step)}" for step in steps if step]
    return [
        "source:",
        f"  {_pair({'tfrecord': path})}",
        "  features:",
        *(f"    {_pair({field.name: field.feature()})}" for field in fields),
        *(["transforms:", *transforms] if transforms else []),
    ]


def _pair(mapping: dict[str, Any]) -> str:
    return flow(mapping)[1:-1]


def _example(values: Values, fields: Sequence[Field]) -> bytes:
    """Returns a tf.train.Example, the same bytes for the same values."""
    features = {field.name: _feature(field, values[field.name]) for field in fields}
    example = tf.train.Example(features=tf.train.Features(feature=features))
    serialized: bytes = example.SerializeToString(deterministic=True)
    return serialized


def _feature(field: Field, value: Value) -> Any:
    if isinstance(value, bytes) or field.stored == "raw":
        content = value if isinstance(value, bytes) else value.tobytes()
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[content]))
    items = value.ravel().tolist()
    if field.stored == "int64":
        return tf.train.Feature(int64_list=tf.train.Int64List(value=map(int, items)))
    if field.stored == "float":
        return tf.train.Feature(float_list=tf.train.FloatList(value=items))
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=items))
