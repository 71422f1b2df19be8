"""The options of `infeed serve` for TensorFlow's data service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from infeed.shared.errors import ConfigError
from infeed.shared.spec.dataset import COMPRESSIONS, Compression
from infeed_server.config.address import Address

ENGINES = ("local", "tf-data-service")


@dataclass(frozen=True)
class ServiceOptions:
    """TensorFlow's data service, which makes the batches instead of the server."""

    dispatcher: str | None = None
    """host:port of a running dispatcher, as trainers reach it; None: the server starts a dispatcher
    and its workers."""
    workers: int = 1
    """Worker processes that the server starts. Each uses all processors."""
    listen: str = "127.0.0.1:0"
    """Where the server's own dispatcher listens; its workers listen on the same host."""
    work_dir: str | None = None
    """The folder of the own dispatcher's journal, from which it continues after a restart."""
    compression: Compression = "none"
    """Compression of the batches that workers send, unless a trainer requests another."""


def service_options(engine: str, **options: Any) -> ServiceOptions | None:
    """Returns the options of the data service, or None for the local engine.

    Options that are None were not given. Raises `ConfigError` for a combination that has no effect.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if engine not in ENGINES:
        raise ConfigError(f"--engine {engine!r}: it is {' or '.join(ENGINES)}")
    if engine == "local":
        if given:
            raise ConfigError(f"{_option(next(iter(given)))} goes with --engine tf-data-service")
        return None
    if given.get("compression", "none") not in COMPRESSIONS:
        known = ", ".join(COMPRESSIONS)
        raise ConfigError(f"--compression {given['compression']!r}: it is one of {known}")
    own = [name for name in ("workers", "listen", "work_dir") if name in given]
    if "dispatcher" in given and own:
        raise ConfigError(
            f"{_option(own[0])} is for a service that this server starts; with --dispatcher it "
            "joins one that runs already"
        )
    return ServiceOptions(**given)


def parse_dispatcher(text: str) -> str:
    """Parses `--dispatcher`, host:port. Raises `ConfigError`."""
    address = Address.parse(text, "--dispatcher")
    if address.is_unix or address.port == 0:
        raise ConfigError(
            f"--dispatcher {text}: give the address of a dispatcher, host:port", address=text
        )
    return str(address)


def _option(name: str) -> str:
    return "--dispatcher-listen" if name == "listen" else f"--{name.replace('_', '-')}"
