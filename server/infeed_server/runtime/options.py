"""Where and how a server listens, and whom it lets in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from infeed.errors import ConfigError
from infeed.registered import COMPRESSIONS, Compression
from infeed_server.rpc.limits import MAX_PEER_STREAMS
from infeed_server.runtime.certificate import TLSFiles

DEFAULT_LISTEN = "127.0.0.1:8470"
DEFAULT_HTTP = "127.0.0.1:8471"

ENGINES = ("local", "tf-data-service")

GRACE_SECONDS = 20.0
"""What open streams get to end by themselves when the server is told to stop: with what else a
stop takes, less than the 30 seconds that orchestrators usually wait."""


@dataclass(frozen=True)
class ServiceOptions:
    """TensorFlow's data service, which makes the batches instead of the server itself."""

    dispatcher: str | None = None
    """host:port of one that runs already, as trainers reach it too; None: the server starts one,
    and workers for it."""
    workers: int = 1
    """Processes that the server starts. Each uses all processors."""
    listen: str = "127.0.0.1:0"
    """Where the server's own dispatcher listens; its workers listen on the same host."""
    work_dir: str | None = None
    """Where the server's own dispatcher keeps its journal, to go on after a restart."""
    compression: Compression = "none"
    """How batches travel from the workers, unless a trainer asks for another way."""


def service_options(engine: str, **options: Any) -> ServiceOptions | None:
    """What the options of `infeed serve` say; those that are None were not given.

    Raises `ConfigError` for what does not fit together.
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


def _option(name: str) -> str:
    return "--dispatcher-listen" if name == "listen" else f"--{name.replace('_', '-')}"


@dataclass(frozen=True)
class ServerOptions:
    """Where the server listens. `http` None leaves the control plane out."""

    listen: str = DEFAULT_LISTEN
    http: str | None = DEFAULT_HTTP
    insecure: bool = False
    """Whether other machines may reach what is not encrypted."""
    share_port: bool = False
    """Whether other processes listen on the same port; the kernel shares connections out."""
    tls: TLSFiles | None = None
    """None: in the clear."""
    tokens: str | None = None
    """A file of bearer tokens; None: anybody may ask for everything."""
    grace: float = GRACE_SECONDS
    peer_streams: int = MAX_PEER_STREAMS
    """Streams that one host may have open."""
    memory_limit: int | None = None
    """Bytes that the batches of all streams may take before they are sent; None: a quarter of what
    this process may use."""
    service: ServiceOptions | None = None
    """None: the local engine."""
