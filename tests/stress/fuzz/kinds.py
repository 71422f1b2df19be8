"""All kinds of cases, which their modules register on import."""

from __future__ import annotations

from tests.stress.fuzz import (
    calls_others,
    calls_stream,
    calls_unary,
    fake_server,
    floods,
    scripts,
    specs,
)
from tests.stress.fuzz.calls import CALLS
from tests.stress.fuzz.raw_connections import OVERLOADS, RAW_CONNECTIONS
from tests.stress.fuzz.replies import REPLIES

MODULES = (calls_others, calls_stream, calls_unary, floods, fake_server, scripts, specs)

__all__ = ["CALLS", "MODULES", "OVERLOADS", "RAW_CONNECTIONS", "REPLIES"]
