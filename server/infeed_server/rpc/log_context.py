"""Fields of the call that a thread works on, which every line of its log in JSON has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

log_fields: ContextVar[Callable[[], Mapping[str, Any]]] = ContextVar("log_fields", default=dict)
"""Set at the begin of a call, which gRPC runs in a context of its own."""
