"""The fixtures of the sources' tests: no delays, and a user's cache of the test's own."""

from __future__ import annotations

from tests.harness.source_files import cache_folder, retry_delays

__all__ = ["cache_folder", "retry_delays"]
