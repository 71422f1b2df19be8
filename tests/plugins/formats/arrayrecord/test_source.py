"""The `arrayrecord` source: files of the real writer, damaged, changed and grouped."""

from __future__ import annotations

import logging
import os
import random
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from array_record.python.array_record_module import ArrayRecordWriter
from pydantic import ValidationError

from infeed import SourceError
from infeed.shared.errors import MissingExtraError
from infeed_formats.arrayrecord import reader as reader_module
from infeed_formats.arrayrecord.reader import ArrayRecordReader
from infeed_formats.arrayrecord.source import ArrayRecordSource

Example = Callable[..., bytes]
Parse = Callable[..., dict[str, Any]]

# The trailing zeros would be lost in a NumPy array of byte strings.
RECORDS = [b"record %d" % number * number + bytes(number % 3) for number in range(60)]


def write(path: Path, records: list[bytes], options: str = "group_size:1") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = ArrayRecordWriter(str(path), options)
    for record in records:
        writer.write(record)
    writer.close()
    return path


def write_three(folder: Path, options: str = "group_size:1") -> Path:
    for number in (2, 0, 1):
        path = folder / f"train-{number}.array_record"
        write(path, RECORDS[number * 20 : number * 20 + 20], options)
    return folder / "train-*.array_record"


def open_source(pattern: Path, features: Any = None) -> ArrayRecordReader:
    options = {"arrayrecord": pattern, "features": features}
    return ArrayRecordSource.model_validate(options).open()


def read(source: ArrayRecordReader, *indices: int) -> list[bytes]:
    found: list[bytes] = source.read(np.array(indices, np.int64))["record"].tolist()
    return found


@pytest.mark.parametrize("options", ["group_size:1", "group_size:1,uncompressed", "group_size:8"])
@pytest.mark.parametrize("large", [1, 1 << 20])
def test_read_in_any_order_with_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, large: int
) -> None:
    monkeypatch.setattr(reader_module, "_LARGE_RECORD", large)
    source = open_source(write_three(tmp_path, options))
    assert len(source) == 60
    indices = [59, 0, 7, 7, 3, 0, 10, 2, 21, 40, 20, 39, 1]
    assert read(source, *indices) == [RECORDS[index] for index in indices]
    assert read(source) == []
    assert str(source.provenance(20)) == str(tmp_path / "train-1.array_record")


def test_many_threads_read_the_right_records(tmp_path: Path) -> None:
    source = open_source(write_three(tmp_path))

    def read_some(seed: int) -> bool:
        indices = random.Random(seed).choices(range(60), k=40)
        return read(source, *indices) == [RECORDS[index] for index in indices]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read_some, range(60)))


def test_examples_are_parsed_into_features(tmp_path: Path, example: Example, parse: Parse) -> None:
    records = [example(label=5, box=[1.0, 2.0]), example(label=6, box=[3.0, 4.0])]
    path = write(tmp_path / "a.array_record", records)
    features = {"label": "int64", "box": {"type": "float", "shape": [2]}}
    source = open_source(path, features)
    sample = parse(source, 1)
    assert sample["label"] == 6
    assert sample["box"].tolist() == [3, 4]
    assert source.identity != open_source(path, {"label": "int64"}).identity
    other = open_source(path, {"mask": "bytes"})
    with pytest.raises(ValueError, match="the record has: box: float, label: int64"):
        other.parse({"record": tf.constant(records[0])})


def test_identity_is_independent_of_the_place(tmp_path: Path) -> None:
    here, there = open_source(write_three(tmp_path / "a")), open_source(write_three(tmp_path / "b"))
    assert here.identity == there.identity
    assert here.places.stamp != there.places.stamp
    others = [
        open_source(write(tmp_path / name, records, options)).identity
        for name, records, options in (
            ("1", RECORDS, "group_size:1"),
            ("2", RECORDS[::-1], "group_size:1"),
            ("3", RECORDS, "group_size:1,uncompressed"),
            ("4", RECORDS[:59], "group_size:1"),
        )
    ]
    assert len({*others, here.identity}) == 5


@pytest.mark.parametrize("group_size", [1, 4])
def test_a_damaged_byte_gives_the_right_record_or_a_named_error(
    tmp_path: Path, group_size: int
) -> None:
    generator = random.Random(group_size)
    records = [generator.randbytes(generator.randrange(200, 5000)) for _ in range(60)]
    path = write(tmp_path / "a.array_record", records, f"group_size:{group_size}")
    good = path.read_bytes()
    used = [place for place, byte in enumerate(good) if byte]
    problems = 0
    for number in range(300):
        damaged = bytearray(good)
        # Every second one in what is no padding.
        place = generator.choice(used) if number % 2 else generator.randrange(len(good))
        damaged[place] ^= 1 << generator.randrange(8)
        path.write_bytes(damaged)
        problem = None
        try:
            source = open_source(path)
            assert read(source, *range(60)) == records
        except SourceError as error:
            problem = error
        if problem is None:
            continue
        problems += 1
        assert problem.metadata["fault"] == "damaged"
        assert problem.metadata["file"] == str(path)
        assert " mismatch " in problem.message
        if "sample_id" in problem.metadata:  # or the footer is damaged
            bad = int(problem.metadata["sample_id"])
            assert problem.message.startswith(
                f"sample {bad} cannot be read: {path} is damaged, record "
            )
            group = range(bad // group_size * group_size, (bad // group_size + 1) * group_size)
            rest = [index for index in range(60) if index not in group]
            assert read(source, *rest) == [records[index] for index in rest]
    assert problems > 150


def test_truncated_file_is_refused(tmp_path: Path) -> None:
    pattern = write_three(tmp_path)
    path = tmp_path / "train-1.array_record"
    for size in (path.stat().st_size - 1, 1 << 16, 100):
        os.truncate(path, size)
        with pytest.raises(
            SourceError, match=r"train-1.array_record is not a complete .*write it again"
        ):
            open_source(pattern)
    path.write_bytes(b"")
    with pytest.raises(SourceError, match=r"train-1.array_record is not a complete"):
        open_source(pattern)


@pytest.mark.parametrize("after_a_read", [False, True])
def test_changed_file_is_refused(tmp_path: Path, after_a_read: bool) -> None:
    path = write(tmp_path / "a.array_record", [b"one", b"two"])
    source = open_source(path)
    if after_a_read:
        assert read(source, 1) == [b"two"]
    write(tmp_path / "b.array_record", [b"six", b"ten"]).replace(path)
    os.utime(path, ns=(1, 1))
    with pytest.raises(SourceError, match="changed since it was opened: it had") as caught:
        read(source, 0)
    assert caught.value.metadata["fault"] == "changed"


def test_fault_of_the_system_is_not_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, retry_delays: list[float]
) -> None:
    source = open_source(write(tmp_path / "a.array_record", [b"one", b"two"]))
    open_reader, failures = reader_module.open_reader, ["pread() failed: Input/output error; at 1"]

    def fail_once(name: str) -> Any:
        if failures:
            raise RuntimeError(failures.pop())
        return open_reader(name)

    monkeypatch.setattr(reader_module, "open_reader", fail_once)
    assert read(source, 1) == [b"two"]
    assert len(retry_delays) == 1


def test_groups_are_allowed_with_advice(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        open_source(write_three(tmp_path))
        assert caplog.records == []
        open_source(write_three(tmp_path, "group_size:8"))
    (record,) = caplog.records
    assert "group_size:8 (3 of 3 files)" in record.getMessage()
    assert "mode: window" in record.getMessage()


def test_files_in_a_store_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"'gs://b/a' is in a store.*copy the files"):
        ArrayRecordSource.model_validate({"arrayrecord": ["here", "gs://b/a"]})


def test_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.array_record", [b"one"])
    monkeypatch.setitem(sys.modules, "array_record.python.array_record_module", None)
    reader_module.library.cache_clear()
    try:
        with pytest.raises(MissingExtraError, match=r"pip install 'infeed\[formats\]'"):
            open_source(path)
    finally:
        reader_module.library.cache_clear()
