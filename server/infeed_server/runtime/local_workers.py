"""Workers of TensorFlow's data service on this machine: `infeed serve --workers n`."""

from __future__ import annotations

import http.client
import logging
import re
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from infeed.errors import InfeedError, ServerError
from infeed.inquiry import worker_tasks
from infeed_server.cluster.rounds import Rounds
from infeed_server.config.address import Address
from infeed_server.runtime.fleet import Worker
from infeed_server.runtime.work import SERVED_BYTES

log = logging.getLogger(__name__)

HUNG_SECONDS = 30.0
"""A worker that says nothing for so long is killed and started anew: more than a busy one takes."""

ASK_SECONDS = 3.0

_LOOK_SECONDS = 0.05


class LocalWorkers(Rounds):
    """So many worker processes of a dispatcher, which end with this one.

    `start`, `tend` and `stop` are for one thread; the addresses may be asked for by any.
    """

    def __init__(
        self, count: int, dispatcher: str, host: str = "127.0.0.1", addresses: Sequence[str] = ()
    ) -> None:
        """`dispatcher` is its address, host:port; workers listen on the `host`, and where that is
        not this machine alone, whoever says so has said --insecure. `addresses` are where they are
        to listen, host:port; without any they take free ports."""
        super().__init__("local-workers", ASK_SECONDS)
        listen = Address(host, 0)
        insecure = [] if listen.is_loopback else ["--insecure"]

        def command(address: str | None) -> Sequence[str]:
            # Under its old address a worker goes on with what it had.
            words = [sys.executable, "-m", "infeed", "worker", "--dispatcher", dispatcher]
            words += ["--listen", address or str(listen), "--http", "127.0.0.1:0"]
            return [*words, "--with-parent", *insecure]

        self._workers = [Worker(f"worker {number}", command) for number in range(count)]
        for worker, place in zip(self._workers, addresses, strict=False):
            worker.address = place
        self._heard = [0.0] * count
        self._why = [""] * count
        """Why each did not answer when it was asked last."""
        self.served: dict[str, float] = {}
        """Bytes that each sent since it was started, by its address; looked up now and then."""

    def begin(self, stopped: Callable[[float], bool]) -> None:
        """Starts all, and returns when they serve.

        `stopped` sleeps for so many seconds and says whether to give up. Raises `ServerError` when
        one ends instead of serving: it said why.
        """
        for worker in self._workers:
            worker.start()
        while not all(self.http_addresses()) and not stopped(_LOOK_SECONDS):
            for worker in self._workers:
                if worker.status is not None:
                    raise ServerError(f"{worker.name} ended with status {worker.status}")
        self._heard = [time.monotonic()] * len(self._workers)
        self.start()

    def tend(self) -> None:
        """Starts workers again that ended, and those that hang."""
        now = time.monotonic()
        for number, worker in enumerate(self._workers):
            if worker.http is None:
                self._heard[number] = now  # it starts, which takes its time
            elif worker.status is None and now - self._heard[number] >= HUNG_SECONDS:
                log.error(
                    "%s at %s has not answered for %.0f s and is killed: %s",
                    worker.name,
                    worker.address,
                    now - self._heard[number],
                    self._why[number],
                )
                worker.kill()
                self._heard[number] = now
            worker.tend()

    def addresses(self) -> list[str | None]:
        """Where each worker serves, or did when it served last, host:port."""
        return [worker.address for worker in self._workers]

    def http_addresses(self) -> list[str | None]:
        """Where each worker's control plane answers; None for one that does not serve."""
        return [worker.http for worker in self._workers]

    def end(self, patience: float) -> None:
        """Ends all; they get `patience` seconds to do it by themselves."""
        self.stop()
        for worker in self._workers:
            worker.terminate()
        deadline = time.monotonic() + patience
        for worker in self._workers:
            # TensorFlow takes long to stop, and nobody needs what a worker still has.
            worker.wait(deadline, told=False)

    def look(self) -> None:
        """Asks each worker whether it is there."""
        with ThreadPoolExecutor(len(self._workers), "infeed-local-workers") as pool:
            list(pool.map(self._ask, range(len(self._workers))))

    def _ask(self, number: int) -> None:
        worker = self._workers[number]
        if worker.http is None or worker.address is None:
            return
        try:
            self.served[worker.address] = _served_bytes(worker.http)
            worker_tasks(worker.address, ASK_SECONDS)
        except (OSError, http.client.HTTPException, InfeedError) as error:
            self._why[number] = str(error)
        else:
            self._heard[number] = time.monotonic()


def _served_bytes(address: str) -> float:
    """What the worker's control plane there tells. Raises when it does not answer."""
    with closing(http.client.HTTPConnection(address, timeout=ASK_SECONDS)) as connection:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        text = answer.read().decode()
    found = re.search(rf"^{SERVED_BYTES}_total (\S+)$", text, re.MULTILINE)
    if found is None:
        raise http.client.HTTPException(f"/metrics answers with status {answer.status}")
    return float(found[1])
