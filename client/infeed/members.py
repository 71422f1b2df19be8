"""The servers of a target, as they stand: which are connected, which are no good, and why."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from infeed.errors import InfeedError

log = logging.getLogger(__name__)


@dataclass
class Member:
    """One server."""

    entered: bool = False
    """Whether it is connected, or about to be."""
    open: bool = False
    """Whether it has accepted the stream."""
    draining: bool = False
    left_out: InfeedError | None = None
    """Why it is not one of this feed's servers, though it answers."""
    trouble: str = ""
    """Why it was lost last."""

    @property
    def unfit(self) -> bool:
        """Whether it was lost or left out, and has not accepted a stream since."""
        return bool(self.trouble) or self.left_out is not None

    def opened(self) -> None:
        """It has accepted the stream."""
        self.open, self.left_out, self.trouble = True, None, ""

    def lost(self, error: InfeedError) -> None:
        """The connection is gone, or there never was one."""
        self.entered = self.open = False
        self.left_out, self.trouble = None, error.message

    def leave_out(self, error: InfeedError) -> None:
        """It answers, but is none of this feed's servers."""
        self.entered = self.open = False
        self.left_out = error


class Members:
    """All of them, by name. Not thread-safe."""

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __getitem__(self, server: str) -> Member:
        return self._members[server]

    def expect(self, servers: Sequence[str]) -> None:
        """The target stands for these too."""
        for server in servers:
            self._members.setdefault(server, Member())

    def has_turn(self, server: str) -> bool:
        """Where only one can serve at a time: whether it is this one.

        Of the fit servers the first by name is taken, so that the ranks of a job, which share one
        reading of a data set, meet at the same one.
        """
        unfit = self[server].unfit
        return not any(
            other.entered or (not other.unfit and (unfit or name < server))
            for name, other in self._members.items()
            if name != server
        )

    @property
    def refusal(self) -> InfeedError | None:
        """Why one was left out, if any is."""
        return next((one.left_out for one in self._members.values() if one.left_out), None)

    @property
    def all_refuse(self) -> bool:
        """Whether there is none that could serve."""
        return all(one.left_out for one in self._members.values())

    @property
    def troubles(self) -> dict[str, str]:
        """Why servers were lost that have not come back, by name."""
        return {name: one.trouble for name, one in self._members.items() if one.trouble}


__all__ = ["Member", "Members"]
