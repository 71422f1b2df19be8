"""What a role leaves with the dispatcher about itself: its TensorFlow, and whose journal is kept.

A dispatcher tells nothing of the kind, and the tags of a worker only as they were when its address
was seen first. But it keeps the element structures of data sets, so a role registers one whose
elements have the facts for names. A structure never changes under its name; names count up.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from infeed.errors import ServerUnavailableError
from infeed.inquiry import Dispatcher
from infeed_server.version import VERSION

DISPATCHER = "dispatcher"

_FACT = re.compile(rb"(tensorflow|infeed|journal)=([0-9A-Za-z.+_-]+)")


@dataclass(frozen=True)
class Marker:
    """What a role says of itself."""

    tensorflow: str
    infeed: str = VERSION
    journal: str = ""
    """Of a dispatcher: a name by which its journal is told from a later one."""


def worker(address: str) -> str:
    """The role of the worker at `address`, host:port."""
    return f"worker-{address}"


def read(dispatcher: Dispatcher, role: str) -> Marker | None:
    """The last that the role left; None when it left none. Raises as `Dispatcher` does."""
    return _last(dispatcher, role)[0]


def leave(dispatcher: str, role: str, journal: str = "") -> Marker:
    """Has the dispatcher at host:port keep what this process is; as `read` will find it.

    A `journal` that was left before stays. Raises as `Dispatcher` does.
    """
    # After all else, for it takes seconds.
    import tensorflow as tf  # noqa: PLC0415

    last, count = _last(Dispatcher(dispatcher), role)
    now = Marker(tf.__version__, VERSION, last.journal if last and last.journal else journal)
    if now == last:
        return now
    facts = [f"{name}={value}" for name, value in vars(now).items() if value]
    try:
        tf.data.experimental.service.register_dataset(
            f"grpc://{dispatcher}",
            tf.data.Dataset.range(1).map(lambda number: dict.fromkeys(facts, number)),
            compression=None,
            dataset_id=_name(role, count),
        )
    except tf.errors.OpError as error:
        raise ServerUnavailableError(
            f"the dispatcher at {dispatcher} does not keep what {role} is: {error.message}",
            target=dispatcher,
        ) from None
    return now


def _last(dispatcher: Dispatcher, role: str) -> tuple[Marker | None, int]:
    """The last that was left, and how many there are."""
    last, count = None, 0
    while (spec := dispatcher.element_spec(_name(role, count))) is not None:
        facts = {name.decode(): value.decode() for name, value in _FACT.findall(spec)}
        last = Marker(
            facts.get("tensorflow", ""), facts.get("infeed", ""), facts.get("journal", "")
        )
        count += 1
    return last, count


def _name(role: str, number: int) -> str:
    # The dispatcher keeps each in a file of that name.
    return f"infeed-role-{role}-{number}"
