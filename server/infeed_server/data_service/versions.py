"""The TensorFlow versions of a service's processes, which must be equal."""

from __future__ import annotations

import logging
from collections.abc import Collection

from infeed.errors import ConfigError, InfeedError
from infeed.rpc.tf_dispatcher import DispatcherClient
from infeed_server.data_service import process_info
from infeed_server.processes.periodic import PeriodicTask

CHECK_INTERVAL_SECONDS = 30.0

log = logging.getLogger(__name__)


def tensorflow_versions(dispatcher: str) -> dict[str, str | None]:
    """Returns the TensorFlow versions of the dispatcher at host:port and of its workers.

    Keys are names such as "worker 10.0.0.3:8473"; None stands for a process that infeed did not
    start. Raises `ServerUnavailableError` when the dispatcher does not answer.
    """
    client = DispatcherClient(dispatcher)
    roles = {f"dispatcher {dispatcher}": process_info.DISPATCHER_ROLE}
    roles |= {
        f"worker {address}": process_info.worker_role(address) for address in client.get_workers()
    }
    infos = {name: process_info.fetch(client, role) for name, role in roles.items()}
    return {name: info.tensorflow if info else None for name, info in infos.items()}


def check_versions(dispatcher: str, expected: str, lost: Collection[str] = ()) -> None:
    """Raises `ConfigError` that names each process whose TensorFlow is not the `expected` version.

    Workers at the `lost` addresses are left out; processes with an unknown version are logged.
    """
    excluded = {f"worker {address}" for address in lost}
    versions = tensorflow_versions(dispatcher)
    versions = {name: each for name, each in versions.items() if name not in excluded}
    for name, version in versions.items():
        if version is None:
            log.warning("%s: unknown TensorFlow version, since infeed did not start it", name)
    mismatches = _mismatches(versions, expected)
    if mismatches:
        listed = ", ".join(f"{name} runs TensorFlow {each}" for name, each in mismatches.items())
        raise ConfigError(
            f"{listed}, this server {expected}; all processes of a service need the same version",
            dispatcher=dispatcher,
            tensorflow=expected,
        )


class VersionMonitor(PeriodicTask):
    """Finds and logs the workers of a dispatcher whose TensorFlow version differs from its own."""

    def __init__(self, dispatcher: str, expected: str) -> None:
        super().__init__("versions", CHECK_INTERVAL_SECONDS, self.run_once)
        self._dispatcher = dispatcher
        self._expected = expected
        self.mismatches: dict[str, str] = {}
        """Versions by process name, from the last check."""

    def run_once(self) -> None:
        """Checks all versions."""
        try:
            mismatches = _mismatches(tensorflow_versions(self._dispatcher), self._expected)
        except InfeedError as error:
            log.warning("the TensorFlow versions of the workers are unknown: %s", error.message)
            return
        for name, version in mismatches.items():
            if self.mismatches.get(name) != version:
                log.error("%s runs TensorFlow %s, this process %s", name, version, self._expected)
        self.mismatches = mismatches


def _mismatches(versions: dict[str, str | None], expected: str) -> dict[str, str]:
    return {name: each for name, each in versions.items() if each and each != expected}
