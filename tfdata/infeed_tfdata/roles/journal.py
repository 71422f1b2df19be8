"""The work directory of a dispatcher: its journal, and whether it can be written.

TensorFlow appends a TFRecord for each change of its state before it confirms the change, and begins
a new file at each start. A dispatcher whose disk is full stops all jobs.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infeed.shared.errors import ConfigError

log = logging.getLogger(__name__)

DATASETS_FOLDER = "datasets"
"""TensorFlow's name of the folder with the graphs of registered data sets."""

JOURNAL_FOLDER = "tf_data_dispatcher_journal"
"""TensorFlow's name of the journal's folder in the work directory."""

CHECK_INTERVAL_SECONDS = 5.0
"""Between checks whether the folder can be written."""

_PROBE_BYTES = 64 << 10
"""Written by a check: more than a file system finds room for in the blocks of other files."""


def repair_journal(work_dir: Path) -> None:
    """Removes an incomplete last record from each file of the journal in a work directory.

    A process that is killed can leave one, and TensorFlow then fails at every later start. Nothing
    is lost, since the change was not confirmed. Raises `ConfigError` when it cannot write.
    """
    for file in sorted((work_dir / JOURNAL_FOLDER).glob("journal_*")):
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
    """Returns the offset at which the whole records of a file end.

    A file with a corrupt length is left to TensorFlow, which fails.
    """
    # Imported late, since it loads TensorFlow.
    from infeed_server.sources.tfrecord.framing import (  # noqa: PLC0415
        FRAME_BYTES,
        HEADER_BYTES,
        masked_crc,
    )

    offset, size = 0, file.stat().st_size
    with file.open("rb") as stream:
        while size - offset >= HEADER_BYTES:
            stream.seek(offset)
            header = stream.read(HEADER_BYTES)
            if masked_crc(header[:8]) != int.from_bytes(header[8:], "little"):
                return size
            end = offset + FRAME_BYTES + int.from_bytes(header[:8], "little")
            if end > size:
                break
            offset = end
    return offset


def find_work_dir_problem(folder: Path) -> str | None:
    """Writes a temporary file. Returns why the dispatcher can store nothing, None when it can."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_PROBE_BYTES))
    except OSError as error:
        return (
            f"the dispatcher cannot write to its work directory {folder}, so no job continues: "
            f"{error.strerror}"
        )
    return None


def free_bytes(folder: Path) -> int:
    """Returns the free space of the file system; 0 for a folder that is gone."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0


def used_bytes(folder: Path) -> int:
    """Returns the size of all files below a folder; 0 for one that does not exist."""
    size = 0
    for file in folder.rglob("*"):
        try:
            size += file.lstat().st_size if file.is_file() else 0
        except OSError:  # deleted meanwhile
            continue
    return size


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Creates the folder of `--work-dir`. Raises `ConfigError` where the block cannot write."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        problem = error.strerror or str(error)
        raise ConfigError(
            f"--work-dir {folder}: cannot write there: {problem[:1].lower()}{problem[1:]}",
            directory=str(folder),
        ) from None
