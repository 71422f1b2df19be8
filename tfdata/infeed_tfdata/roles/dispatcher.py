"""The dispatcher: TensorFlow's server that assigns tasks to workers and keeps a journal."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

from typing_extensions import override

from infeed_server.config.address import Address
from infeed_server.processes.stderr_relay import without_banner
from infeed_tfdata.roles.address import derive, parse_advertise
from infeed_tfdata.roles.base import Role
from infeed_tfdata.roles.journal import repair_journal, writing_to
from infeed_tfdata.rpc import STATIC_SHARDING, register_mark

log = logging.getLogger(__name__)

WORKER_TIMEOUT_SECONDS = 60.0
"""Without a heartbeat for so long, a worker is missing: longer than the delay of a busy worker, or
a restart by an orchestrator."""

CLIENT_TIMEOUT_SECONDS = 120.0
"""Without a heartbeat for so long, a client is gone: longer than a trainer that writes a checkpoint
blocks TensorFlow's threads."""

JOB_GC_INTERVAL_SECONDS = 60.0

JOB_GC_TIMEOUT_SECONDS = 600.0
"""A job without clients for so long is removed, and workers free its memory: longer than a restart
of a trainer on another host takes."""


class DispatcherRole(Role):
    """A dispatcher in this process."""

    def __init__(
        self,
        listen: Address,
        advertise: str | None = None,
        work_dir: Path | None = None,
        worker_addresses: tuple[str, ...] = (),
        *,
        insecure: bool = False,
    ) -> None:
        """Checks the options without importing TensorFlow. Raises `ConfigError`.

        `advertise` is the host, or host:port, by which others reach the dispatcher; None: derived.
        `work_dir` holds the journal, from which a restart continues; None: a temporary folder.
        `worker_addresses` are for the static sharding policies, which need all workers in advance:
        `host`, `host:port`, or `host:%port%` for any port.
        """
        super().__init__(listen, insecure=insecure)
        self._advertised = parse_advertise(advertise) if advertise else derive(listen)
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if work_dir:
            with writing_to(work_dir), tempfile.TemporaryFile(dir=work_dir):
                pass
        self._work_dir = work_dir
        self._worker_addresses = worker_addresses

    def start(self) -> None:
        """Starts to serve. Raises `ConfigError` when the address or the journal cannot be used."""
        # Imported after all checks, since it takes seconds.
        with without_banner():
            import tensorflow as tf  # noqa: PLC0415
        from tensorflow.core.protobuf.service_config_pb2 import DispatcherConfig  # noqa: PLC0415

        self._check_listen_address()
        if self._work_dir:
            repair_journal(self._work_dir)
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
            # By default TensorFlow never removes jobs with dynamic sharding, nor the memory that
            # workers hold for them.
            gc_dynamic_sharding_jobs=True,
        )
        server = tf.data.experimental.service.DispatchServer(config, start=False)
        try:
            remedy = (
                f"; if that is a file of --work-dir, restore {self._work_dir} from a copy, or "
                "delete it, with which all jobs start from the beginning"
            )
            self._start_server(server, "dispatcher", remedy if self._work_dir else "")
            if self._worker_addresses:
                register_mark(self.local_address, STATIC_SHARDING)
        except BaseException:
            self.stop()
            raise

    @property
    def work_dir(self) -> Path:
        """The folder of the journal, after `start`."""
        return self._work_dir or Path(self._temporary_dir())

    @override
    def stop(self) -> None:
        """Stops the dispatcher, and deletes a temporary journal."""
        super().stop()
        if self._temporary:
            self._temporary.cleanup()
            self._temporary = None

    def _temporary_dir(self) -> str:
        if self._temporary:
            return self._temporary.name
        self._temporary = tempfile.TemporaryDirectory(prefix="infeed-dispatcher-")
        log.warning(
            "the dispatcher's journal is temporary: after a restart, jobs begin again; --work-dir "
            "keeps the journal"
        )
        return self._temporary.name
