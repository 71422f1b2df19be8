"""Log context: fields of a thread's current call, in each of its JSON log lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

log_fields: ContextVar[Callable[[], Mapping[str, Any]]] = ContextVar("log_fields", default=dict)
"""Set when a call begins; gRPC runs each in its own context."""
