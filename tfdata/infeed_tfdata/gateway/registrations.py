"""Limits on the data sets that a gateway registers, by number and size, in total and per caller.

A dispatcher keeps the graph of each registered data set in its work directory, and has no call that
removes one. Trainers choose seeds and batch sizes, so without limits one could fill that disk.
"""

from __future__ import annotations

from typing import NamedTuple

from infeed.shared.errors import InvalidRequestError

GRAPH_OVERHEAD_BYTES = 64 << 10
"""Counted for each graph besides its data: its operations and functions."""


class Limits(NamedTuple):
    """The limits of one caller, or of all callers together."""

    datasets: int
    size_bytes: int


TOTAL = Limits(4096, 16 << 30)
PER_CALLER = Limits(512, 4 << 30)
"""An eighth of the data sets and a quarter of the bytes, so that one caller leaves most of them."""


class Registrations:
    """The data sets that a gateway has registered. Not thread-safe."""

    def __init__(self, stored_bytes: int = 0) -> None:
        """`stored_bytes` is the size of the data sets that an earlier gateway registered."""
        self._stored_bytes = stored_bytes
        self._entries: dict[str, tuple[str, int]] = {}
        """Caller and size of each data set."""

    def __contains__(self, dataset_id: str) -> bool:
        return dataset_id in self._entries

    def add(self, dataset_id: str, caller: str, size_bytes: int) -> None:
        """Adds a data set, unless it is there: the first caller to request it is charged for it.

        Raises `InvalidRequestError` beyond a limit. The gateway itself, the caller "", has none.
        """
        if dataset_id in self:
            return
        if caller:
            own = [size for owner, size in self._entries.values() if owner == caller]
            every = [size for _, size in self._entries.values()]
            _check(f"{caller} has", len(own), sum(own) + size_bytes, PER_CALLER)
            _check(
                "this server has", len(every), sum(every, self._stored_bytes + size_bytes), TOTAL
            )
        self._entries[dataset_id] = (caller, size_bytes)

    def remove(self, dataset_id: str) -> None:
        """Removes a data set that could not be registered."""
        del self._entries[dataset_id]


def _check(subject: str, count: int, size_bytes: int, limits: Limits) -> None:
    if count >= limits.datasets or size_bytes > limits.size_bytes:
        raise InvalidRequestError(
            f"{subject} registered {count} data sets (seeds, batch sizes, numbers of epochs) with "
            f"the dispatcher, which keeps each of them; with another one of {size_bytes >> 20} MiB "
            f"together, the limit of {limits.datasets} data sets and {limits.size_bytes >> 20} MiB "
            "is exceeded: request one of these, or restart server and dispatcher with another work "
            "directory"
        )
