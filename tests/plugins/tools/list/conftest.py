"""The servers of fake pipelines of the client's tests."""

from tests.client.conftest import earlier_threads, serve

__all__ = ["earlier_threads", "serve"]
