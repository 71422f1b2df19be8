"""The client tests' servers of fake pipelines."""

from tests.client.conftest import serve

__all__ = ["serve"]
