"""The dispatcher: it knows the workers, hands out work among them, and keeps a journal of both."""

from __future__ import annotations

import logging
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from infeed.errors import ConfigError
from infeed_server.cluster import marker
from infeed_server.cluster.advertise import derive, parse_advertise
from infeed_server.cluster.loopback import keep_to_loopback, require_listen
from infeed_server.config.address import Address

if TYPE_CHECKING:
    from infeed_server.cluster.processes import TensorFlowServer

log = logging.getLogger(__name__)

WORKER_SECONDS = 60.0
"""A worker that sends no heartbeat for so long is missing: longer than it takes a busy one to come
round to it, or an orchestrator to start one anew."""

CLIENT_SECONDS = 120.0
"""A client that sends no heartbeat for so long is gone: a trainer that writes a checkpoint holds
TensorFlow's threads for less."""

JOB_CHECK_SECONDS = 60.0
JOB_SECONDS = 600.0
"""A job that no client reads for so long is forgotten, and what workers hold for it is freed: a
trainer that is started anew on another host is back before."""


class DispatcherRole:
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
        """`advertise`: the host, or host:port, by which others reach it; None: derived.

        `work_dir` holds the journal, by which it goes on after an end; None: a temporary one.
        `worker_addresses` are for the static ways to share files or data out, which need to know
        all workers before: `host`, `host:port`, or `host:%port%` for any port.

        Raises `ConfigError`; it does not import TensorFlow.
        """
        require_listen(listen, insecure=insecure)
        self._listen = listen
        self._insecure = insecure
        self._advertise = parse_advertise(advertise) if advertise else derive(listen)
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if work_dir:
            _require_writable(work_dir)
        self._work_dir = work_dir
        self._worker_addresses = worker_addresses
        self._server: TensorFlowServer | None = None
        self.port = 0
        """What it listens on, once it is started."""

    @property
    def address(self) -> str:
        """Where others reach it, host:port."""
        return str(Address(self._advertise.host, self._advertise.port or self.port))

    @property
    def local_address(self) -> str:
        """Where this host reaches it, host:port."""
        return str(Address("127.0.0.1", self.port))

    def start(self) -> None:
        """Raises `ConfigError` when TensorFlow refuses the address or the journal."""
        # After all checks, for it takes seconds.
        from tensorflow.core.protobuf.service_config_pb2 import DispatcherConfig  # noqa: PLC0415

        from infeed_server.cluster.processes import dispatch_server  # noqa: PLC0415

        require_listen(self._listen, insecure=self._insecure)  # importing took its time
        config = DispatcherConfig(
            port=self._listen.port,
            protocol="grpc",
            work_dir=str(self._work_dir or self._temporary_dir()),
            fault_tolerant_mode=True,
            worker_addresses=self._worker_addresses,
            worker_timeout_ms=int(WORKER_SECONDS * 1000),
            client_timeout_ms=int(CLIENT_SECONDS * 1000),
            job_gc_check_interval_ms=int(JOB_CHECK_SECONDS * 1000),
            job_gc_timeout_ms=int(JOB_SECONDS * 1000),
            # TensorFlow's default is to keep those whose trainer never came back, and all that
            # workers hold for them, for ever.
            gc_dynamic_sharding_jobs=True,
        )
        self._server, self.port = dispatch_server(config, self._listen)
        try:
            keep_to_loopback(self._listen, self.port, insecure=self._insecure)
            left = marker.leave(self.local_address, marker.DISPATCHER, journal=uuid.uuid4().hex)
        except BaseException:
            self.stop()
            raise
        log.info("TensorFlow %s, journal %s", left.tensorflow, left.journal)

    def stop(self) -> None:
        """Ends it, and its journal where that is a temporary one."""
        if self._server:
            self._server.stop()
            self._server = None
        if self._temporary:
            self._temporary.cleanup()
            self._temporary = None

    def _temporary_dir(self) -> str:
        self._temporary = tempfile.TemporaryDirectory(prefix="infeed-dispatcher-")
        log.warning(
            "the dispatcher's journal is temporary and ends with this process: if it is started "
            "anew, jobs begin anew; --work-dir keeps it"
        )
        return self._temporary.name


def _require_writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        problem = error.strerror or str(error)
        raise ConfigError(
            f"--work-dir {folder}: cannot write there: {problem[:1].lower()}{problem[1:]}",
            directory=str(folder),
        ) from None
