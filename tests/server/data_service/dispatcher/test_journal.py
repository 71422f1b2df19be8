"""Tests of `data_service/dispatcher/journal.py`; TensorFlow reads a journal in `test_roles.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from infeed.shared.errors import ConfigError
from infeed_server.data_service.dispatcher.journal import JOURNAL_FOLDER, repair_journal
from infeed_server.data_service.dispatcher.work_dir import DATASETS_FOLDER
from infeed_server.sources.tfrecord.framing import masked_crc


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


@pytest.mark.parametrize("content", [b"", record(b"graph")[:-1], record(b"graph")[1:]])
def test_damaged_graph_that_the_journal_names_is_an_error(
    file: Path, tmp_path: Path, content: bytes
) -> None:
    graphs = tmp_path / DATASETS_FOLDER
    graphs.mkdir()
    (graphs / "photos-1").write_bytes(record(b"graph"))
    (graphs / "photos-2").write_bytes(content)
    file.write_bytes(record(b"registered: photos-1"))
    repair_journal(tmp_path)
    file.write_bytes(record(b"registered: photos-1") + record(b"registered: photos-2"))
    with pytest.raises(ConfigError) as raised:
        repair_journal(tmp_path)
    message = str(raised.value)
    assert f"data set {graphs / 'photos-2'} is corrupt at byte 0" in message
    assert f"or delete {tmp_path}" in message


@pytest.mark.parametrize("position", range(len(RECORDS)))
def test_changed_byte_is_an_error_with_the_file_and_the_remedy(
    file: Path, tmp_path: Path, position: int
) -> None:
    corrupt = bytearray(RECORDS)
    corrupt[position] ^= 0x10
    file.write_bytes(corrupt)
    with pytest.raises(ConfigError) as raised:
        repair_journal(tmp_path)
    message = str(raised.value)
    assert message.startswith(f"--work-dir {tmp_path}: the dispatcher's journal {file} is corrupt")
    assert f"or delete {tmp_path}" in message
    assert file.read_bytes() == corrupt
