"""The client tests' servers of fake pipelines."""

from tests.client.conftest import earlier_threads, serve

__all__ = ["earlier_threads", "serve"]
