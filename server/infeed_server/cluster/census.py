"""Which TensorFlow runs in each process of a service: they have to be of one version."""

from __future__ import annotations

import logging
from collections.abc import Collection

from infeed.errors import ConfigError, InfeedError
from infeed.inquiry import Dispatcher
from infeed_server.cluster import marker
from infeed_server.cluster.rounds import Rounds

LOOK_SECONDS = 30.0

log = logging.getLogger(__name__)


def versions(dispatcher: str) -> dict[str, str | None]:
    """The TensorFlow of the dispatcher at host:port and of its workers, by what they are called,
    such as "worker 10.0.0.3:8473"; None of one that infeed did not start.

    Raises `ServerUnavailableError` when the dispatcher does not answer.
    """
    asked = Dispatcher(dispatcher)
    roles = {f"dispatcher {dispatcher}": marker.DISPATCHER}
    roles |= {f"worker {address}": marker.worker(address) for address in asked.workers()}
    left = {name: marker.read(asked, role) for name, role in roles.items()}
    return {name: found.tensorflow if found else None for name, found in left.items()}


def differing(found: dict[str, str | None], expected: str) -> dict[str, str]:
    """Those of another version than `expected`, with theirs."""
    return {name: each for name, each in found.items() if each and each != expected}


def check_versions(dispatcher: str, expected: str, gone: Collection[str] = ()) -> None:
    """Raises `ConfigError` that names each process whose TensorFlow is not the `expected` one,
    this process's; those that do not tell are logged. Workers that are `gone` do not count."""
    without = {f"worker {address}" for address in gone}
    found = {name: each for name, each in versions(dispatcher).items() if name not in without}
    for name, version in found.items():
        if version is None:
            log.warning("%s does not tell its TensorFlow: infeed did not start it", name)
    others = differing(found, expected)
    if others:
        told = ", ".join(f"{name} runs TensorFlow {version}" for name, version in others.items())
        raise ConfigError(
            f"{told}, this server {expected}; all processes of a service need the same",
            dispatcher=dispatcher,
            tensorflow=expected,
        )


class VersionWatch(Rounds):
    """Tells which workers of the dispatcher at host:port run another TensorFlow than it."""

    def __init__(self, dispatcher: str, expected: str) -> None:
        super().__init__("versions", LOOK_SECONDS)
        self._dispatcher = dispatcher
        self._expected = expected
        self.others: dict[str, str] = {}
        """As of the last look, by what they are called."""

    def look(self) -> None:
        try:
            others = differing(versions(self._dispatcher), self._expected)
        except InfeedError as error:
            log.warning("the versions of the workers cannot be asked for: %s", error.message)
            return
        for name, version in others.items():
            if self.others.get(name) != version:
                log.error("%s runs TensorFlow %s, this one %s", name, version, self._expected)
        self.others = others
