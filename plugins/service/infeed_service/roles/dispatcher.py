"""The dispatcher: TensorFlow's server that assigns tasks to workers and keeps a journal.

A full disk under its journal stops all jobs.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from pathlib import Path

from typing_extensions import override

from infeed.shared.errors import ConfigError
from infeed_server.imports import loading_tensorflow
from infeed_service.options import DispatcherOptions
from infeed_service.roles.address import derive
from infeed_service.roles.base import Role
from infeed_service.rpc import STATIC_SHARDING, register_mark

log = logging.getLogger(__name__)

WORKER_TIMEOUT_SECONDS = 60.0
"""Time without a heartbeat after which a worker is missing: longer than a busy worker's delay, or a
restart by an orchestrator."""

CLIENT_TIMEOUT_SECONDS = 120.0
"""Time without a heartbeat after which a client is gone: longer than a trainer that writes a
checkpoint blocks TensorFlow's threads."""

JOB_GC_INTERVAL_SECONDS = 60.0

JOB_GC_TIMEOUT_SECONDS = 600.0
"""Time without clients after which a job is removed and workers free its memory: longer than a
trainer takes to restart on another host."""


class DispatcherRole(Role):
    """A dispatcher in this process."""

    def __init__(self, options: DispatcherOptions, listen_option: str = "--listen") -> None:
        """Checks the options without importing TensorFlow. Raises `ConfigError`."""
        super().__init__(options, listen_option)
        self._advertised = self._advertised or derive(self._listen)
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._work_dir = Path(options.work_dir) if options.work_dir else None
        if self._work_dir:
            try:
                self._work_dir.mkdir(parents=True, exist_ok=True)
                tempfile.TemporaryFile(dir=self._work_dir).close()
            except OSError as error:
                problem = f"--work-dir {self._work_dir}: cannot write there: {error.strerror}"
                raise ConfigError(problem, directory=str(self._work_dir)) from None
        self._worker_addresses = options.worker_address or []

    def start(self) -> None:
        """Starts serving. Raises `ConfigError` if the address or the journal cannot be used."""
        # Imported after all checks, since it takes seconds.
        with loading_tensorflow():
            import tensorflow as tf  # noqa: PLC0415
        from tensorflow.core.protobuf.service_config_pb2 import DispatcherConfig  # noqa: PLC0415

        config = DispatcherConfig(
            port=self._listen.port,
            protocol="grpc",
            work_dir=str(self.work_dir),
            fault_tolerant_mode=True,
            worker_addresses=self._worker_addresses,
            worker_timeout_ms=int(WORKER_TIMEOUT_SECONDS * 1000),
            client_timeout_ms=int(CLIENT_TIMEOUT_SECONDS * 1000),
            job_gc_check_interval_ms=int(JOB_GC_INTERVAL_SECONDS * 1000),
            job_gc_timeout_ms=int(JOB_GC_TIMEOUT_SECONDS * 1000),
            # By default TensorFlow never removes jobs with dynamic sharding, nor frees the memory
            # that workers hold for them.
            gc_dynamic_sharding_jobs=True,
        )
        remedy = (
            f"; if that is a file of --work-dir, restore {self._work_dir} from a copy, or delete "
            "it, after which all jobs start from the beginning"
        )
        try:
            server = tf.data.experimental.service.DispatchServer
            self._start_server("dispatcher", server, config, remedy if self._work_dir else "")
            if self._worker_addresses:
                register_mark(self.local_address, STATIC_SHARDING)
        except BaseException:
            self.stop()
            raise

    @property
    def work_dir(self) -> Path:
        """The folder of the journal, after `start`."""
        if self._work_dir:
            return self._work_dir
        if not self._temporary:
            self._temporary = tempfile.TemporaryDirectory(prefix="infeed-dispatcher-")
            log.warning(
                "the dispatcher's journal is temporary, so jobs begin again after a restart; "
                "--work-dir keeps it"
            )
        return Path(self._temporary.name)

    @override
    def stop(self) -> None:
        """Stops the dispatcher and deletes a temporary journal."""
        super().stop()
        if self._temporary:
            self._temporary.cleanup()
            self._temporary = None


WORK_DIR_CHECK_INTERVAL_SECONDS = 5.0
"""Period of the checks that the folder is writable."""

_PROBE_BYTES = 64 << 10
"""Size of the file that a check writes: too large to fit into free parts of other files' blocks."""


def find_work_dir_problem(folder: Path) -> str | None:
    """Writes a temporary file. Returns why the dispatcher can store nothing; None if it can."""
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
    """Returns the free bytes of the file system; 0 if the folder is gone."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0
