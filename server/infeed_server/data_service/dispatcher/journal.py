"""The journal of a dispatcher, checked before TensorFlow reads it.

TensorFlow appends a TFRecord for each change of its state before it confirms the change, and begins
a new file at each start. A process that is killed can leave the last record incomplete, and
TensorFlow then fails at every later start with an error that names no file. It does so too for a
damaged graph of a data set, which is a TFRecord in a file of its own.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from infeed.shared.errors import ConfigError
from infeed_server.data_service.dispatcher.work_dir import DATASETS_FOLDER
from infeed_server.sources.tfrecord.framing import (
    FOOTER_BYTES,
    FRAME_BYTES,
    HEADER_BYTES,
    masked_crc,
)

log = logging.getLogger(__name__)

JOURNAL_FOLDER = "tf_data_dispatcher_journal"
"""TensorFlow's name of the journal's folder in the work directory."""


def repair_journal(work_dir: Path) -> None:
    """Removes an incomplete last record from each file of the journal in a work directory.

    Nothing is lost by that, since the change was not confirmed. Raises `ConfigError` for a record
    that is corrupt otherwise, and for a damaged graph of a data set that the journal names, with
    the file and the remedy.
    """
    journal = sorted((work_dir / JOURNAL_FOLDER).glob("journal_*"))
    _remove_incomplete_records(work_dir, journal)
    records = b"".join(file.read_bytes() for file in journal)
    for file in sorted((work_dir / DATASETS_FOLDER).glob("*")):
        # TensorFlow does not read the others, such as one that a full disk has left incomplete.
        if file.name.encode() in records and _find_end(file) < max(1, file.stat().st_size):
            raise _corrupt(file, 0, 0, "it is incomplete")


def _remove_incomplete_records(work_dir: Path, journal: list[Path]) -> None:
    for file in journal:
        try:
            end, size = _find_end(file), file.stat().st_size
            if end < size:
                os.truncate(file, end)
                log.warning(
                    "%s: removed the last %d bytes, an incomplete record of a change that the "
                    "dispatcher had not confirmed when it ended",
                    file,
                    size - end,
                )
        except OSError as error:
            raise ConfigError(
                f"--work-dir {work_dir}: cannot repair {file}: {error.strerror}", file=str(file)
            ) from None


def _find_end(file: Path) -> int:
    """Returns the offset at which the whole records of a file end."""
    offset = count = 0
    size = file.stat().st_size
    with file.open("rb") as stream:
        while size - offset >= HEADER_BYTES:
            header = stream.read(HEADER_BYTES)
            length = int.from_bytes(header[:8], "little")
            if masked_crc(header[:8]) != int.from_bytes(header[8:], "little"):
                raise _corrupt(file, offset, count, "the CRC of its length does not match")
            end = offset + FRAME_BYTES + length
            if end > size:
                break
            data_crc = masked_crc(stream.read(length))
            if data_crc != int.from_bytes(stream.read(FOOTER_BYTES), "little"):
                raise _corrupt(file, offset, count, "the CRC of its data does not match")
            offset = end
            count += 1
    return offset


def _corrupt(file: Path, offset: int, count: int, defect: str) -> ConfigError:
    work_dir = file.parent.parent
    kind = "journal" if file.parent.name == JOURNAL_FOLDER else "data set"
    return ConfigError(
        f"--work-dir {work_dir}: the dispatcher's {kind} {file} is corrupt at byte {offset}, "
        f"after {count} whole records: {defect}. The state of its jobs is lost; restore the file "
        f"from a copy, or delete {work_dir} (or give another folder), with which all jobs start "
        "from the beginning",
        file=str(file),
        offset=offset,
    )
