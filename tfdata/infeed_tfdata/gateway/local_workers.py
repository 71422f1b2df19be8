"""Worker processes of the tf.data service on this machine: `infeed serve --workers n`."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Collection, Sequence

from infeed.shared.errors import ServerError
from infeed_server.config.address import Address
from infeed_server.processes.supervisor import ProcessGroup
from infeed_tfdata.options import WorkerOptions

log = logging.getLogger(__name__)

_START_POLL_INTERVAL_SECONDS = 0.05


class LocalWorkers:
    """The worker processes of a dispatcher, which end with this process. For one thread."""

    def __init__(self, dispatcher: str, listen: Sequence[Address]) -> None:
        """`dispatcher` is its address, host:port. A worker listens on each address of `listen`,
        which requires `--insecure` of the server if it is not a loopback address."""

        def command(address: str | None) -> Sequence[str]:
            options = WorkerOptions(
                dispatcher=dispatcher,
                # At its previous address a worker continues its tasks.
                listen=address or str(listen[0]),
                http="127.0.0.1:0",
                insecure=not listen[0].is_loopback,
                with_parent=True,
            )
            return [sys.executable, "-m", "infeed", "worker", *options.to_arguments()]

        self._killed: set[str | None] = set()
        """Addresses of workers that were killed and have not answered since."""
        self._group = ProcessGroup("worker", len(listen), command)
        for worker, address in zip(self._group.processes, listen, strict=True):
            worker.address = str(address) if address.port else None

    def start(self) -> None:
        """Starts all workers, and returns when they serve.

        Raises `ServerError` when one exits instead, after it has logged why.
        """
        for worker in self._group.processes:
            worker.start()
        while not all(self._group.http_addresses()):
            time.sleep(_START_POLL_INTERVAL_SECONDS)
            for worker in self._group.processes:
                if worker.status is not None:
                    raise ServerError(f"{worker.name} ended with status {worker.status}")

    def restart_failed(self, lost: Collection[str] = ()) -> None:
        """Restarts workers that exited, and kills workers at the `lost` addresses, which hang."""
        self._killed.intersection_update(lost)
        for worker in self._group.processes:
            hangs = worker.address in lost and worker.address not in self._killed
            if hangs and worker.http is not None and worker.status is None:
                log.error("%s at %s hangs and is killed", worker.name, worker.address)
                self._killed.add(worker.address)
                worker.kill()
            worker.restart_exited()

    def stop(self, timeout: float) -> None:
        """Terminates all workers, and kills those that have not exited after `timeout` seconds."""
        # Not logged: TensorFlow takes long to stop, and the elements it has are not needed.
        self._group.stop(timeout, log_kills=False)
