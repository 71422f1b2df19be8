"""Failures of steps: errors of one server that another has to confirm before the feed ends.

A corrupt record or a user's function usually fails at every server, and then ends the feed. But the
error of one server alone may be the fault of its host.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from infeed.shared.errors import (
    CursorError,
    InfeedError,
    InvalidRequestError,
    SampleError,
    UserCodeError,
)

STEP_ERRORS = (SampleError, UserCodeError, CursorError, InvalidRequestError)
"""Errors of a step that another server usually raises as well."""

CONFIRMATION_TIMEOUT_SECONDS = 30.0
"""Bound on the wait for another server's answer to the next step, which one has failed.

Shorter: a feed may end by the fault of one host while the others are slow. It grows with the usual
time of a batch.
"""


@dataclass(frozen=True)
class _Failure:
    server: str
    error: InfeedError
    since: float


class StepFailures:
    """The steps that one server has failed, and no other has answered. Not thread-safe."""

    def __init__(self) -> None:
        self._failures: dict[int, _Failure] = {}
        self._delivered_at = -math.inf

    def is_confirmed(self, step: int, server: str, error: InfeedError, now: float) -> bool:
        """Returns whether another server has failed the step before; else remembers the error."""
        return self._failures.setdefault(step, _Failure(server, error, now)).server != server

    def on_delivered(self, step: int, now: float) -> None:
        """Forgets the failure of a step that a server has sent after all."""
        self._failures.pop(step, None)
        self._delivered_at = now

    def unanswered(self, next_step: int, now: float, usual_seconds: float) -> InfeedError | None:
        """Returns the error of the next step if no other server has answered it in time."""
        failure = self._failures.get(next_step)
        timeout = max(CONFIRMATION_TIMEOUT_SECONDS, usual_seconds)
        if failure is None or now < max(failure.since, self._delivered_at) + timeout:
            return None
        return failure.error
