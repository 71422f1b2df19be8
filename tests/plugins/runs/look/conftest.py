"""Fixtures of servers with fake pipelines."""

from __future__ import annotations

from tests.client.conftest import earlier_threads, serve

__all__ = ["earlier_threads", "serve"]
