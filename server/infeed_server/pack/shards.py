"""The formats of shards: writing samples to a file, and reading them again."""

from __future__ import annotations

import importlib
import io
import struct
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from infeed.shared.errors import MissingExtraError
from infeed_server.pack.fields import (
    Field,
    Value,
    Values,
    extensions,
    from_bytes,
    from_example,
    to_example,
)
from infeed_server.pack.options import Format
from infeed_server.sources.tfrecord.framing import FileRecords, masked_crc

_KEY_DIGITS = 9
"""Digits of a sample's number in the name of its files in a tar."""

Numbered = Iterable[tuple[int, Values]]
"""Samples, with their numbers in the pack."""


def write_shard(
    path: Path, shard_format: Format, samples: Numbered, fields: Sequence[Field]
) -> FileRecords | None:
    """Writes samples to a file; returns the index of its records, where its format has one."""
    if shard_format is Format.WEBDATASET:
        _write_tar(path, samples, fields)
        return None
    records = (to_example(values, fields) for _, values in samples)
    if shard_format is Format.TFRECORD:
        return _write_records(path, records)
    # In groups of one, each record is read alone. Images cannot be compressed again.
    code = "uncompressed" if any(field.image for field in fields) else "zstd"
    writer = _array_record().ArrayRecordWriter(str(path), f"group_size:1,{code}")
    try:
        for record in records:
            writer.write(record)
    finally:
        writer.close()
    return None


def read_shard(
    path: Path, shard_format: Format, fields: Sequence[Field]
) -> Iterator[tuple[int | None, Values]]:
    """Yields the byte of each sample in the file, where its format has one, and its values."""
    if shard_format is Format.WEBDATASET:
        yield from _read_tar(path, fields)
    elif shard_format is Format.ARRAYRECORD:
        reader = _array_record().ArrayRecordReader(str(path), "max_parallelism:0")
        for _ in range(reader.num_records()):
            yield None, from_example(reader.read(), fields)
    else:
        with path.open("rb") as file:
            while header := file.read(12):
                offset = file.tell() - len(header)
                record = file.read(int.from_bytes(header[:8], "little"))
                file.seek(4, io.SEEK_CUR)
                yield offset, from_example(record, fields)


def _write_records(path: Path, records: Iterable[bytes]) -> FileRecords:
    lengths, crcs = [], []
    with path.open("wb", 1 << 20) as file:
        for record in records:
            length, crc = struct.pack("<Q", len(record)), masked_crc(record)
            file.write(length + struct.pack("<I", masked_crc(length)))
            file.write(record)
            file.write(struct.pack("<I", crc))
            lengths.append(len(record))
            crcs.append(crc)
    # No record is damaged: the index is also one of verified data.
    return FileRecords(
        np.array(lengths, np.uint32), np.array(crcs, np.uint32), np.zeros(0, np.int64)
    )


def _write_tar(path: Path, samples: Numbered, fields: Sequence[Field]) -> None:
    ends = extensions(fields)
    with (
        path.open("wb", 1 << 20) as file,
        tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for number, values in samples:
            for field in fields:
                content = _to_file(field, values[field.name])
                # Its time, owner and mode are constant.
                member = tarfile.TarInfo(f"{number:0{_KEY_DIGITS}}.{ends[field.name]}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


def _to_file(field: Field, value: Value) -> bytes:
    if isinstance(value, bytes):
        return value
    if field.kind == "cls":
        return str(int(value)).encode()
    out = io.BytesIO()
    if value.dtype.kind == "V":  # such as bfloat16, which NumPy lacks
        value = np.frombuffer(value.tobytes(), np.uint8)
    np.lib.format.write_array(out, np.asarray(value, order="C"), version=(1, 0))
    return out.getvalue()


def _read_tar(path: Path, fields: Sequence[Field]) -> Iterator[tuple[int, Values]]:
    with tarfile.open(path) as tar:
        members = iter(tar)
        while first := next(members, None):
            values: dict[str, Value] = {}
            for field in fields:
                member = first if not values else next(members)
                opened = tar.extractfile(member)
                values[field.name] = _from_file(field, opened.read() if opened else b"")
            yield first.offset, values


def _from_file(field: Field, content: bytes) -> Value:
    if field.kind in ("jpg", "bin"):
        return content
    if field.kind == "cls":
        return np.array(int(content), field.dtype)
    array = np.lib.format.read_array(io.BytesIO(content))
    return from_bytes(array.tobytes(), field)


def _array_record() -> Any:
    try:
        return importlib.import_module("array_record.python.array_record_module")
    except ImportError:
        raise MissingExtraError(
            "--format arrayrecord needs array_record: pip install 'infeed[formats]'"
        ) from None
