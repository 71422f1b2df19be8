"""The options of `infeed serve` for TensorFlow's data service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from infeed.shared.errors import ConfigError
from infeed_server.config.address import Address
from infeed_server.config.options import Options, option

if TYPE_CHECKING:
    from infeed.shared.spec.dataset import Compression


def _option(text: str, **shown: Any) -> Any:
    return option(None, text, "Engine", **shown)


class ServiceOptions(Options):
    """TensorFlow's data service, which makes the batches instead of the server."""

    workers: int | None = _option(
        "Worker processes to start, each of which uses all processors. Default: 1.", min=1
    )
    dispatcher: str | None = _option(
        "Address of an existing dispatcher to use instead, host:port; trainers must reach it too."
    )
    dispatcher_listen: str | None = _option(
        "Address of the dispatcher that the server starts; workers listen on the same host, with "
        "--work-dir on the next ports. Default: 127.0.0.1:0, with --work-dir port 7472."
    )
    work_dir: str | None = _option(
        "Folder of its journal, kept across restarts. Default: a temporary one."
    )
    compression: str | None = _option(
        "Compression of batches from the workers, unless a trainer requests another: none, snappy "
        "or auto. Default: none."
    )

    @property
    def default_compression(self) -> Compression:
        return cast("Compression", self.compression or "none")


def parse_dispatcher(text: str) -> str:
    """Parses `--dispatcher`, host:port. Raises `ConfigError`."""
    address = Address.parse(text, "--dispatcher")
    if address.is_unix or address.port == 0:
        raise ConfigError(
            f"--dispatcher {text}: give the address of a dispatcher, host:port", address=text
        )
    return str(address)
