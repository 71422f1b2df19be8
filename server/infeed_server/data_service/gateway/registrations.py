"""Limits on the data sets that a gateway registers, by number and size, in total and per caller.

A dispatcher keeps the graph of each registered data set in its work directory, and has no call that
removes one. Trainers choose seeds and batch sizes, so without limits each could fill that disk, or
use up what the others may register.
"""

from __future__ import annotations

from dataclasses import dataclass

from infeed.shared.errors import InvalidRequestError

GRAPH_OVERHEAD_BYTES = 64 << 10
"""Counted for each graph besides its data: its operations and functions."""


@dataclass(frozen=True)
class Limits:
    """The limits of one caller, or of all callers together."""

    datasets: int
    size_bytes: int


TOTAL = Limits(4096, 16 << 30)
PER_CALLER = Limits(512, 4 << 30)
"""An eighth of the data sets and a quarter of the bytes, so that one caller leaves most of them."""


class Registrations:
    """The data sets that a gateway has registered. Not thread-safe."""

    def __init__(
        self, stored_bytes: int = 0, total: Limits = TOTAL, per_caller: Limits = PER_CALLER
    ) -> None:
        """`stored_bytes` are those of data sets that an earlier gateway registered."""
        self._total = total
        self._per_caller = per_caller
        self._stored_bytes = stored_bytes
        self._entries: dict[str, tuple[str, int]] = {}
        """Caller and size of each data set."""

    def __contains__(self, dataset_id: str) -> bool:
        return dataset_id in self._entries

    def add(self, dataset_id: str, caller: str, size_bytes: int) -> None:
        """Adds a data set, unless it is there: the first caller to request it is charged for it."""
        self._entries.setdefault(dataset_id, (caller, size_bytes))

    def require_room(self, dataset_id: str, caller: str, size_bytes: int) -> None:
        """Raises `InvalidRequestError` if a data set that is not there would exceed a limit.

        An empty `caller` is the gateway itself, for which there is no limit.
        """
        if dataset_id in self or not caller:
            return
        own = [size for owner, size in self._entries.values() if owner == caller]
        every = [size for _, size in self._entries.values()]
        stored = self._stored_bytes
        for subject, sizes, before, limits in (
            (f"{caller} has", own, 0, self._per_caller),
            ("this server has", every, stored, self._total),
        ):
            used = before + sum(sizes)
            if len(sizes) < limits.datasets and used + size_bytes <= limits.size_bytes:
                continue
            raise InvalidRequestError(
                f"{subject} registered {len(sizes)} data sets (seeds, batch sizes, numbers of "
                f"epochs) of {used >> 20} MiB with the dispatcher, which keeps each of them; "
                f"another of {size_bytes >> 20} MiB exceeds the limit of {limits.datasets} data "
                f"sets and {limits.size_bytes >> 20} MiB: request one of these, or restart server "
                "and dispatcher with another work directory",
                caller=caller,
            )
