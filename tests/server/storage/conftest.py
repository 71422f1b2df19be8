"""The fixtures of the sources' tests: no delays, and a user's cache of the test's own."""

from tests.server.sources.conftest import cache_folder, retry_delays

__all__ = ["cache_folder", "retry_delays"]
