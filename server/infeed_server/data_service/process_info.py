"""Process information that roles publish through the dispatcher: versions, and the journal's id.

The dispatcher has no field for it, and keeps the tags of a worker from the first registration of
its address. But it stores the element structure of each registered data set, so a role registers a
data set whose elements have `name=value` pairs as keys. A registered structure cannot change, so
names are numbered, and the last one counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from infeed.errors import ServerUnavailableError
from infeed.rpc.tf_dispatcher import DispatcherClient
from infeed_server.version import VERSION

DISPATCHER_ROLE = "dispatcher"

_PAIR = re.compile(rb"(tensorflow|infeed|journal)=([0-9A-Za-z.+_-]+)")


@dataclass(frozen=True)
class ProcessInfo:
    """The published information about a role."""

    tensorflow: str
    infeed: str = VERSION
    journal: str = ""
    """Of a dispatcher: the id of its journal."""


def worker_role(address: str) -> str:
    """Returns the role of the worker at `address`, host:port."""
    return f"worker-{address}"


def fetch(dispatcher: DispatcherClient, role: str) -> ProcessInfo | None:
    """Returns what the role published last, None without any. Raises as `DispatcherClient` does."""
    return _last(dispatcher, role)[0]


def publish(dispatcher: str, role: str, journal: str = "") -> ProcessInfo:
    """Publishes the versions of this process as `role`, at the dispatcher at host:port.

    A `journal` that was published before is kept. Raises as `DispatcherClient` does.
    """
    # Imported late, since it takes seconds.
    import tensorflow as tf  # noqa: PLC0415

    last, count = _last(DispatcherClient(dispatcher), role)
    info = ProcessInfo(tf.__version__, VERSION, last.journal if last and last.journal else journal)
    if info == last:
        return info
    pairs = [f"{name}={value}" for name, value in vars(info).items() if value]
    try:
        tf.data.experimental.service.register_dataset(
            f"grpc://{dispatcher}",
            tf.data.Dataset.range(1).map(lambda number: dict.fromkeys(pairs, number)),
            compression=None,
            dataset_id=_dataset_id(role, count),
        )
    except tf.errors.OpError as error:
        raise ServerUnavailableError(
            f"the dispatcher at {dispatcher} does not store the versions of {role}: "
            f"{error.message}",
            target=dispatcher,
        ) from None
    return info


def _last(dispatcher: DispatcherClient, role: str) -> tuple[ProcessInfo | None, int]:
    """Returns what was published last, and how many times."""
    last, count = None, 0
    while (spec := dispatcher.get_element_spec(_dataset_id(role, count))) is not None:
        values = {name.decode(): value.decode() for name, value in _PAIR.findall(spec)}
        last = ProcessInfo(
            values.get("tensorflow", ""), values.get("infeed", ""), values.get("journal", "")
        )
        count += 1
    return last, count


def _dataset_id(role: str, number: int) -> str:
    # The dispatcher uses it as a file name.
    return f"infeed-role-{role}-{number}"
