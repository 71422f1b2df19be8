"""Tests of a dispatcher's work directory; TensorFlow reads a journal in `test_roles.py`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from infeed_server.sources.tfrecord.framing import masked_crc
from infeed_tfdata.roles.journal import (
    JOURNAL_FOLDER,
    find_work_dir_problem,
    free_bytes,
    repair_journal,
    used_bytes,
)


def record(data: bytes) -> bytes:
    length = len(data).to_bytes(8, "little")
    crcs = [masked_crc(part).to_bytes(4, "little") for part in (length, data)]
    return length + crcs[0] + data + crcs[1]


RECORDS = record(b"first") + record(b"") + record(b"the last one")
WHOLE = len(RECORDS) - len(record(b"the last one"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = tmp_path / JOURNAL_FOLDER
    folder.mkdir()
    (folder / "journal_0").write_bytes(RECORDS)
    return folder / "journal_1"


def test_whole_journal_is_unchanged(
    file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for content in (b"", RECORDS):
        file.write_bytes(content)
        repair_journal(tmp_path)
        assert file.read_bytes() == content
    repair_journal(tmp_path / "new")
    assert not caplog.records


@pytest.mark.parametrize("end", range(WHOLE + 1, len(RECORDS)))
def test_incomplete_last_record_is_removed(
    file: Path, tmp_path: Path, end: int, caplog: pytest.LogCaptureFixture
) -> None:
    file.write_bytes(RECORDS[:end])
    repair_journal(tmp_path)
    assert file.read_bytes() == RECORDS[:WHOLE]
    assert f"{file}: removed the last {end - WHOLE} bytes" in caplog.text


@pytest.mark.parametrize("position", range(len(RECORDS)))
def test_journal_with_a_changed_byte_is_left_alone(
    file: Path, tmp_path: Path, position: int
) -> None:
    corrupt = bytearray(RECORDS)
    corrupt[position] ^= 0x10
    file.write_bytes(corrupt)
    repair_journal(tmp_path)
    assert file.read_bytes() == corrupt


def test_folder_that_cannot_be_written_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_work_dir_problem(tmp_path) is None
    assert not list(tmp_path.iterdir())
    folder = tmp_path / "none"
    problem = f"the dispatcher cannot write to its work directory {folder}, so no job continues"
    assert find_work_dir_problem(folder) == f"{problem}: No such file or directory"
    # A disk without a free block has room for an empty file.
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: open("/dev/full", "wb"))  # noqa: SIM115, PTH123
    assert str(find_work_dir_problem(tmp_path)).endswith("No space left on device")


def test_files_of_all_folders_are_counted(tmp_path: Path) -> None:
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "a").write_bytes(bytes(1000))
    (tmp_path / "b").write_bytes(bytes(24))
    assert used_bytes(tmp_path) == 1024
    assert free_bytes(tmp_path) > 0
    assert used_bytes(tmp_path / "none") == free_bytes(tmp_path / "none") == 0
