"""The servers of fake pipelines of the client's tests."""

from tests.client.conftest import serve

__all__ = ["serve"]
