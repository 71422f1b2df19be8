"""The `tfrecord` source: reading by index, and damaged files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from infeed import SampleError, SourceError
from infeed_formats.tfrecord.reader import TFRecordReader
from infeed_formats.tfrecord.source import TFRecordSource

Write = Callable[..., Path]


@pytest.fixture
def three_files(write_records: Write) -> list[bytes]:
    """Fifteen records in three files, in sorted order of the files."""
    records = [b"record %d" % number * number for number in range(15)]
    for number in (2, 0, 1):
        write_records(f"part-{number}.tfrecord", records[number * 5 : number * 5 + 5])
    return records


def open_source(pattern: Path | str | list[Path]) -> TFRecordReader:
    return TFRecordSource.model_validate({"tfrecord": pattern, "features": {"x": "bytes"}}).open()


def source_with_damage(pattern: Path | str) -> TFRecordReader:
    """Opens the source as for `on_error: substitute` and `mask`."""
    definition = TFRecordSource.model_validate({"tfrecord": pattern, "features": {"x": "bytes"}})
    return definition.open(keep_damaged=True)


def test_read_in_any_order_with_repeats(tmp_path: Path, three_files: list[bytes]) -> None:
    source = open_source(tmp_path / "part-*.tfrecord")
    assert len(source) == 15
    indices = np.array([14, 0, 7, 7, 3, 0, 10, 2])
    read = source.read(indices)["record"]
    assert read.dtype == object
    assert read.tolist() == [three_files[index] for index in indices]
    assert source.read(np.array([], np.int64))["record"].tolist() == []


def test_damaged_record_of_the_index_is_a_bad_sample(
    tmp_path: Path, three_files: list[bytes]
) -> None:
    path = tmp_path / "part-1.tfrecord"
    offset = open_source(tmp_path / "part-*.tfrecord").provenance(7).offset
    assert offset is not None
    damage(path, offset + 14)
    damaged = source_with_damage(tmp_path / "part-*.tfrecord")
    with pytest.raises(
        SampleError, match=f"sample 7 .*part-1.tfrecord.* byte {offset}.*CRC of its data"
    ) as caught:
        damaged.read(np.array([3, 7, 12]))
    assert caught.value.metadata == {"sample_id": "7", "file": str(path), "offset": str(offset)}
    assert damaged.read(np.array([8, 6]))["record"].tolist() == [three_files[8], three_files[6]]


@pytest.mark.parametrize("keep_damaged", [True, False])
@pytest.mark.parametrize("prefix", ["", "file://"])
@pytest.mark.parametrize(("place", "part"), [(0, "length"), (12, "data")])
def test_damage_after_indexing_is_a_fault_of_the_copy(
    write_records: Write, place: int, part: str, prefix: str, keep_damaged: bool
) -> None:
    path = write_records("a.tfrecord", [b"one", b"two"])
    pattern = f"{prefix}{path}"
    opened = source_with_damage(pattern) if keep_damaged else open_source(pattern)
    stamp = path.stat()
    damage(path, 19 + place)
    os.utime(path, ns=(stamp.st_mtime_ns, stamp.st_mtime_ns))  # as bit rot does
    restarted = source_with_damage(pattern) if keep_damaged else open_source(pattern)
    assert restarted.identity == opened.identity
    remedy = "`infeed index --rebuild`" if keep_damaged else "on_error: substitute or mask"
    message = f"^sample 1 .* is damaged, the record at byte 19: the CRC of its {part}.*{remedy}"
    for source in (opened, restarted):
        with pytest.raises(SourceError, match=message) as caught:
            source.read(np.array([0, 1]))
        place_of_it = {"file": pattern, "offset": "19", "sample_id": "1"}
        assert caught.value.metadata == {**place_of_it, "fault": "damaged"}
        assert source.read(np.array([0]))["record"].tolist() == [b"one"]


def test_kept_truncated_record_is_a_bad_sample(write_records: Write) -> None:
    path = write_records("a.tfrecord", [b"one", b"two", b"three" * 20])
    path.write_bytes(path.read_bytes()[:-40])
    definition = TFRecordSource(tfrecord=str(path), features={"x": "bytes"})  # type: ignore[dict-item]
    with pytest.raises(SourceError, match="truncated: 2 whole records"):
        definition.open()
    source = definition.open(keep_damaged=True)
    assert source.read(np.array([1, 0]))["record"].tolist() == [b"two", b"one"]
    with pytest.raises(SampleError, match="truncated inside it, after 2 whole records") as caught:
        source.read(np.array([0, 2, 1]))
    assert caught.value.metadata == {"sample_id": "2", "file": str(path), "offset": "38"}


@pytest.mark.parametrize("prefix", ["", "file://"])
@pytest.mark.parametrize("records", [[b"one", b"ten"], [b"o", b"ten", b"x" * 2]])
def test_other_valid_record_is_refused_even_without_another_time(
    write_records: Write, prefix: str, records: list[bytes]
) -> None:
    path = write_records("a.tfrecord", [b"o", b"two", b"three" * 9])
    source = open_source(f"{prefix}{path}")
    stamp = path.stat()
    write_records("a.tfrecord", [b"o", b"ten", b"three" * 9])
    os.utime(path, ns=(stamp.st_mtime_ns, stamp.st_mtime_ns))
    message = r"changed since it was opened: the record at byte 17: .*run `infeed index --rebuild`"
    with pytest.raises(SourceError, match=message):
        source.read(np.array([1]))
    assert source.read(np.array([0]))["record"].tolist() == [b"o"]


def test_source_without_records_is_refused(write_records: Write) -> None:
    with pytest.raises(SourceError, match="no record in the 1 files"):
        open_source(write_records("a.tfrecord", []))


def damage(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 255
    path.write_bytes(content)


@pytest.mark.parametrize("context", [{}, {"x": b"1"}])
def test_sequence_examples_are_refused(write_records: Write, context: dict[str, bytes]) -> None:
    record = tf.train.SequenceExample()
    for name, value in context.items():
        record.context.feature[name].bytes_list.value.append(value)
    record.feature_lists.feature_list["text"].feature.add().int64_list.value.append(7)
    path = write_records("a.tfrecord", [record.SerializeToString()])
    with pytest.raises(
        SourceError, match=r"a.tfrecord: the first record is .*SequenceExample, whose feature"
    ):
        open_source(path)
