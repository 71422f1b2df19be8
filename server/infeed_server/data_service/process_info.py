"""Process information that roles publish through the dispatcher: versions, and the journal's id.

`DispatcherClient.get_published` describes the format. The tags of a worker are no alternative: the
dispatcher keeps them from the first registration of its address.

All processes of a service need the same version of TensorFlow.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass

from infeed.rpc.tf_dispatcher import DISPATCHER_ROLE, DispatcherClient, published_dataset_id
from infeed.shared.errors import ConfigError, InfeedError, ServerUnavailableError
from infeed_server.processes.periodic import PeriodicTask
from infeed_server.version import VERSION

log = logging.getLogger(__name__)

CHECK_INTERVAL_SECONDS = 30.0
"""Between checks of the versions."""


@dataclass(frozen=True)
class ProcessInfo:
    """The published information about a role."""

    tensorflow: str
    infeed: str = VERSION
    journal: str = ""
    """Of a dispatcher: the id of its journal."""
    sharding: str = ""
    """Of a dispatcher: `STATIC_SHARDING` or `DYNAMIC_SHARDING`."""


def worker_role(address: str) -> str:
    """Returns the role of the worker at `address`, host:port."""
    return f"worker-{address}"


def fetch(dispatcher: DispatcherClient, role: str) -> ProcessInfo | None:
    """Returns what the role published last, None without any. Raises as `DispatcherClient` does."""
    return _last(dispatcher, role)[0]


def publish(dispatcher: str, role: str, journal: str = "", sharding: str = "") -> ProcessInfo:
    """Publishes the versions of this process as `role`, at the dispatcher at host:port.

    A `journal` that was published before is kept. Raises as `DispatcherClient` does.
    """
    # Imported late, since it takes seconds.
    import tensorflow as tf  # noqa: PLC0415

    last, count = _last(DispatcherClient(dispatcher), role)
    journal = last.journal if last and last.journal else journal
    info = ProcessInfo(tf.__version__, VERSION, journal, sharding)
    if info == last:
        return info
    pairs = [f"{name}={value}" for name, value in vars(info).items() if value]
    try:
        tf.data.experimental.service.register_dataset(
            f"grpc://{dispatcher}",
            tf.data.Dataset.range(1).map(lambda number: dict.fromkeys(pairs, number)),
            compression=None,
            dataset_id=published_dataset_id(role, count),
        )
    except tf.errors.OpError as error:
        raise ServerUnavailableError(
            f"the dispatcher at {dispatcher} does not store the versions of {role}: "
            f"{error.message}",
            target=dispatcher,
        ) from None
    return info


def tensorflow_versions(dispatcher: str) -> dict[str, str | None]:
    """Returns the TensorFlow versions of the dispatcher at host:port and of its workers.

    Keys are names such as "worker 10.0.0.3:7473"; None stands for a process that infeed did not
    start. Raises `ServerUnavailableError` when the dispatcher does not answer.
    """
    client = DispatcherClient(dispatcher)
    roles = {f"dispatcher {dispatcher}": DISPATCHER_ROLE}
    roles |= {f"worker {address}": worker_role(address) for address in client.get_workers()}
    infos = {name: fetch(client, role) for name, role in roles.items()}
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


def _last(dispatcher: DispatcherClient, role: str) -> tuple[ProcessInfo | None, int]:
    """Returns what was published last, and how many times."""
    published = list(dispatcher.get_published(role))
    if not published:
        return None, 0
    return ProcessInfo(**{"tensorflow": "", "infeed": "", **published[-1]}), len(published)


def _mismatches(versions: dict[str, str | None], expected: str) -> dict[str, str]:
    return {name: each for name, each in versions.items() if each and each != expected}
