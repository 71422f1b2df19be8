"""The options of `infeed serve` for TensorFlow's data service."""

from __future__ import annotations

from dataclasses import dataclass

from infeed.shared.errors import ConfigError
from infeed.shared.spec.dataset import Compression
from infeed_server.config.address import Address


@dataclass(frozen=True)
class ServiceOptions:
    """TensorFlow's data service, which makes the batches instead of the server."""

    dispatcher: str | None = None
    """host:port of a running dispatcher, as trainers reach it; None: the server starts a dispatcher
    and its workers."""
    workers: int = 1
    """Worker processes that the server starts. Each uses all processors."""
    dispatcher_listen: str = ""
    """Where the server's own dispatcher listens; its workers listen on the same host. Default: a
    free port of 127.0.0.1, with a `work_dir` port 7472."""
    work_dir: str | None = None
    """The folder of the own dispatcher's journal, from which it continues after a restart."""
    compression: Compression = "none"
    """Compression of the batches that workers send, unless a trainer requests another."""


def parse_dispatcher(text: str) -> str:
    """Parses `--dispatcher`, host:port. Raises `ConfigError`."""
    address = Address.parse(text, "--dispatcher")
    if address.is_unix or address.port == 0:
        raise ConfigError(
            f"--dispatcher {text}: give the address of a dispatcher, host:port", address=text
        )
    return str(address)
