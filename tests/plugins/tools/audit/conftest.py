"""The servers of fake pipelines of the client's tests."""

from tests.client.conftest import arrays, fake

__all__ = ["arrays", "fake"]
