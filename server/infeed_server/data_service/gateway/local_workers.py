"""Worker processes of the tf.data service on this machine: `infeed serve --workers n`."""

from __future__ import annotations

import http.client
import logging
import re
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from infeed.rpc.tf_dispatcher import get_worker_tasks
from infeed.shared.errors import InfeedError, ServerError
from infeed_server.config.address import Address
from infeed_server.data_service.worker.monitor import SENT_BYTES_METRIC
from infeed_server.processes.periodic import PeriodicTask
from infeed_server.processes.supervisor import ProcessGroup

log = logging.getLogger(__name__)

HUNG_TIMEOUT_SECONDS = 30.0
"""Without an answer for so long, a worker is killed and restarted: more than a busy one takes."""

PROBE_INTERVAL_SECONDS = 3.0
PROBE_TIMEOUT_SECONDS = 3.0

_START_POLL_INTERVAL_SECONDS = 0.05


class LocalWorkers:
    """The worker processes of a dispatcher, which end with this process. For one thread."""

    def __init__(
        self, count: int, dispatcher: str, host: str = "127.0.0.1", addresses: Sequence[str] = ()
    ) -> None:
        """`dispatcher` is its address, host:port. Workers listen on `host`, which requires
        `--insecure` of the server if it is not a loopback address, at `addresses`, host:port, if
        given, else at free ports."""
        listen = Address(host, 0)
        insecure = [] if listen.is_loopback else ["--insecure"]

        def command(address: str | None) -> Sequence[str]:
            # At its previous address a worker continues its tasks.
            words = [sys.executable, "-m", "infeed", "worker", "--dispatcher", dispatcher]
            words += ["--listen", address or str(listen), "--http", "127.0.0.1:0"]
            return [*words, "--with-parent", *insecure]

        self._group = ProcessGroup("worker", count, command)
        for worker, address in zip(self._group.processes, addresses, strict=False):
            worker.address = address
        self._last_answers = [0.0] * count
        self._errors = [""] * count
        """Why each worker did not answer its last probe."""
        self.sent_bytes: dict[str, float] = {}
        """Bytes that each worker sent since its start, by address, from the last probe."""
        self._probes = PeriodicTask("local-workers", PROBE_INTERVAL_SECONDS, self.probe)

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
        self._last_answers = [time.monotonic()] * len(self._last_answers)
        self._probes.start()

    def restart_failed(self) -> None:
        """Restarts workers that exited, and kills workers that hang."""
        now = time.monotonic()
        for number, worker in enumerate(self._group.processes):
            if worker.http is None:
                self._last_answers[number] = now  # it is starting, which takes a while
            elif worker.status is None and now - self._last_answers[number] >= HUNG_TIMEOUT_SECONDS:
                log.error(
                    "%s at %s has not answered for %.0f s and is killed: %s",
                    worker.name,
                    worker.address,
                    now - self._last_answers[number],
                    self._errors[number],
                )
                worker.kill()
                self._last_answers[number] = now
            worker.restart_exited()

    def stop(self, timeout: float) -> None:
        """Terminates all workers, and kills those that have not exited after `timeout` seconds."""
        self._probes.stop()
        # Not logged: TensorFlow takes long to stop, and the elements it has are not needed.
        self._group.stop(timeout, log_kills=False)

    def probe(self) -> None:
        """Probes all workers."""
        count = len(self._group.processes)
        with ThreadPoolExecutor(count, "infeed-local-workers") as pool:
            list(pool.map(self._probe, range(count)))

    def _probe(self, number: int) -> None:
        worker = self._group.processes[number]
        if worker.http is None or worker.address is None:
            return
        try:
            self.sent_bytes[worker.address] = _fetch_sent_bytes(worker.http)
            get_worker_tasks(worker.address, PROBE_TIMEOUT_SECONDS)
        except (OSError, http.client.HTTPException, InfeedError) as error:
            self._errors[number] = str(error)
        else:
            self._last_answers[number] = time.monotonic()


def _fetch_sent_bytes(address: str) -> float:
    """Reads the metric from a worker's control plane. Raises `OSError` or `HTTPException`."""
    with closing(http.client.HTTPConnection(address, timeout=PROBE_TIMEOUT_SECONDS)) as connection:
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        text = response.read().decode()
    match = re.search(rf"^{SENT_BYTES_METRIC}_total (\S+)$", text, re.MULTILINE)
    if match is None:
        raise http.client.HTTPException(f"/metrics answers with status {response.status}")
    return float(match[1])
