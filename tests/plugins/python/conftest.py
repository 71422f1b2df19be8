"""Fixtures of the tests of sources and of transforms."""

from __future__ import annotations

from tests.harness.source_files import cache_folder, retry_delays
from tests.server.transforms.conftest import key, run, run_each, run_eagerly, spec

__all__ = ["cache_folder", "key", "retry_delays", "run", "run_each", "run_eagerly", "spec"]
