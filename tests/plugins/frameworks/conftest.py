"""Fakes and servers of the client's tests, for the adapters."""

from tests.client.conftest import arrays, earlier_threads, fake, few_objects, serve

__all__ = ["arrays", "earlier_threads", "fake", "few_objects", "serve"]
