"""What a user's own function raised, told as its author wants to read it."""

from __future__ import annotations

from infeed.errors import UserCodeError
from infeed_server.config.traceback import user_traceback


def raised(what: str, error: Exception) -> UserCodeError:
    """`what` raised `error`: the message ends in the traceback, the user's own frames only."""
    return UserCodeError(f"{what} raised {type(error).__name__}:\n{user_traceback(error)}")
