"""All kinds of cases: each module of them registers its own once it is imported."""

from __future__ import annotations

from tests.fuzz import calls_others, calls_stream, calls_unary, floods, impostor, scripts, specs
from tests.fuzz.calls import CALLS
from tests.fuzz.lines import CROWDS, LINES
from tests.fuzz.replies import REPLIES

MODULES = (calls_others, calls_stream, calls_unary, floods, impostor, scripts, specs)

__all__ = ["CALLS", "CROWDS", "LINES", "MODULES", "REPLIES"]
