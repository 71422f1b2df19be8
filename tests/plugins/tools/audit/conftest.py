"""The client tests' fakes."""

from tests.client.conftest import arrays, earlier_threads, fake

__all__ = ["arrays", "earlier_threads", "fake"]
