"""Fixtures of all tests of sources."""

from __future__ import annotations

from tests.harness.source_files import cache_folder, example, parse, retry_delays, write_records
from tests.plugins.tools.init.conftest import data

__all__ = ["cache_folder", "data", "example", "parse", "retry_delays", "write_records"]
