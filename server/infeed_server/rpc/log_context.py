"""The call that a thread works on, whose fields every line of its log in JSON has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol


class LoggedCall(Protocol):
    """A call with fields for the log."""

    @property
    def log_fields(self) -> Mapping[str, Any]: ...


_call: ContextVar[LoggedCall | None] = ContextVar("infeed_call", default=None)


@contextmanager
def logged_call(call: LoggedCall) -> Iterator[None]:
    """Adds the fields of a call to what this context logs in the block."""
    token = _call.set(call)
    try:
        yield
    finally:
        _call.reset(token)


def current_log_fields() -> Mapping[str, Any]:
    """Returns the fields of the current call: peer and method, or the fields of its feed."""
    call = _call.get()
    return {} if call is None else call.log_fields
