"""The formats of shards: how samples are written, and the YAML that serves them."""

from __future__ import annotations

import io
import struct
import tarfile
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from infeed_server.config.document import flow
from infeed_server.pack.fields import Field, Value, Values, extensions
from infeed_server.pack.options import Format
from infeed_server.sources.arrayrecord.reader import library
from infeed_server.sources.tfrecord.framing import FileRecords, masked_crc

_KEY_DIGITS = 9
"""Digits of a sample's number in the name of its files in a tar."""


def write_shard(
    path: Path, shard_format: Format, fields: Sequence[Field], samples: Iterable[Values], first: int
) -> FileRecords | None:
    """Writes samples to a file; returns the index of its records, where its format has one that is
    stored beside it. `first` is the number of the first sample."""
    if shard_format is Format.WEBDATASET:
        _write_tar(path, fields, samples, first)
        return None
    records = (_example(values, fields) for values in samples)
    if shard_format is Format.TFRECORD:
        return _write_records(path, records)
    # In groups of one, each record is read alone. Images cannot be compressed again.
    code = "uncompressed" if any(field.image for field in fields) else "zstd"
    with closing(library().ArrayRecordWriter(str(path), f"group_size:1,{code}")) as writer:
        for record in records:
            writer.write(record)
    return None


def serve_lines(shard_format: Format, fields: Sequence[Field], path: str) -> list[str]:
    """Returns the YAML that serves shards, with the transforms that restore the fields' types."""
    is_tar = shard_format is Format.WEBDATASET
    stored = extensions(fields) if is_tar else {field.name: field.feature() for field in fields}
    steps = [field.transform() for field in fields if not (is_tar and field.kind == "npy")]
    transforms = [f"  - {_pair(step)}" for step in steps if step]
    return [
        "source:",
        f"  {_pair({shard_format.value: path})}",
        "  fields:" if is_tar else "  features:",
        *(f"    {_pair({name: how})}" for name, how in stored.items()),
        *(["transforms:", *transforms] if transforms else []),
    ]


def _pair(mapping: dict[str, Any]) -> str:
    return flow(mapping)[1:-1]


def _write_records(path: Path, records: Iterable[bytes]) -> FileRecords:
    lengths, crcs = [], []
    with path.open("wb", 1 << 20) as file:
        for record in records:
            length, crc = struct.pack("<Q", len(record)), masked_crc(record)
            length_crc = masked_crc(length)
            file.write(length + struct.pack("<I", length_crc) + record + struct.pack("<I", crc))
            lengths.append(len(record))
            crcs.append(crc)
    # No record is damaged: the index is also one of verified data.
    none = np.zeros(0, np.int64)
    return FileRecords(np.array(lengths, np.uint32), np.array(crcs, np.uint32), none)


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


def _write_tar(path: Path, fields: Sequence[Field], samples: Iterable[Values], first: int) -> None:
    ends = extensions(fields)
    with (
        path.open("wb", 1 << 20) as file,
        tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for number, values in enumerate(samples, first):
            for field in fields:
                content = _member(field, values[field.name])
                # Its time, owner and mode are constant.
                member = tarfile.TarInfo(f"{number:0{_KEY_DIGITS}}.{ends[field.name]}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


def _member(field: Field, value: Value) -> bytes:
    if isinstance(value, bytes):
        return value
    if field.kind == "cls":
        return str(int(value)).encode()
    if field.kind == "bin":
        return value.tobytes()
    out = io.BytesIO()
    np.lib.format.write_array(out, np.asarray(value, order="C"), version=(1, 0))
    return out.getvalue()
