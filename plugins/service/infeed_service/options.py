"""Options of TensorFlow's data service, for `infeed serve` and for its roles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from infeed.shared.errors import ConfigError
from infeed_server.config.address import Address
from infeed_server.config.options import Options, option

if TYPE_CHECKING:
    from infeed_service.dataset import Compression


def _option(text: str, **shown: Any) -> Any:
    return option(None, text, "Engine", **shown)


class ServiceOptions(Options):
    """Options for TensorFlow's data service, which makes the batches instead of the server."""

    workers: int | None = _option(
        "Worker processes to start; each uses all CPUs. Default: 1.", min=1
    )
    dispatcher: str | None = _option(
        "Address of an existing dispatcher to use instead, host:port; trainers must reach it too."
    )
    dispatcher_listen: str | None = _option(
        "Address of the dispatcher that the server starts. Workers listen on the same host, on the "
        "next ports with --work-dir. Default: 127.0.0.1:0, or port 7472 with --work-dir."
    )
    work_dir: str | None = _option(
        "Folder for the dispatcher's journal, kept across restarts. Default: a temporary one."
    )
    compression: str | None = _option(
        "Compression of batches from the workers, unless a trainer requests another: none, snappy "
        "or auto. Default: none."
    )

    @property
    def default_compression(self) -> Compression:
        return cast("Compression", self.compression or "none")


class RoleOptions(Options):
    """The options for the addresses of a dispatcher or worker."""

    listen: str
    http: str
    http_host: list[str] | None = option(
        None,
        "Host name that requests may use, besides addresses and this machine's own name; "
        "repeatable.",
    )
    advertise: str | None = option(
        None,
        "Host or host:port that other machines connect to. Default: the host it listens on, or "
        "the address of its route.",
        metavar="HOST[:PORT]",
    )
    insecure: bool = option(
        False, "Allow other machines to connect, without encryption or authentication."
    )


def _http(default: str) -> Any:
    return option(
        default, "Address of the dashboard, API, metrics and health, or 'off'.", metavar="HOST:PORT"
    )


class DispatcherOptions(RoleOptions):
    """The options of `infeed dispatcher`."""

    listen: str = option(
        "127.0.0.1:7472",
        "Address for workers and trainers; port 0 selects a free port.",
        metavar="HOST:PORT",
    )
    http: str = _http("127.0.0.1:7475")
    work_dir: str | None = option(
        None,
        "Folder for the journal, kept across restarts. Default: a temporary one.",
        metavar="FOLDER",
    )
    worker_address: list[str] | None = option(
        None,
        "For static sharding: address of an expected worker, as host, host:port or host:%port%; "
        "repeatable.",
    )


class WorkerOptions(RoleOptions):
    """The options of `infeed worker`."""

    listen: str = option(
        "127.0.0.1:7473", "Address for trainers and the dispatcher.", metavar="HOST:PORT"
    )
    http: str = _http("127.0.0.1:7474")
    dispatcher: str = option(
        ...,
        "Address printed by the dispatcher; the worker waits up to 30 s for it.",
        metavar="HOST:PORT",
    )
    tag: list[str] | None = option(None, "Worker tag of TensorFlow; repeatable.")
    grace: float = option(
        1.0,
        "Seconds for clients to finish reading at shutdown. TensorFlow cannot drain, so finished "
        "elements are lost.",
        metavar="SECONDS",
        min=0,
    )
    with_parent: bool = option(False, "Exit with the parent process.", hidden=True)


def parse_dispatcher(text: str) -> str:
    """Parses the value of `--dispatcher`, host:port. Raises `ConfigError`."""
    address = Address.parse(text, "--dispatcher")
    if address.is_unix or address.port == 0:
        raise ConfigError(
            f"--dispatcher {text}: not host:port; give the address of a dispatcher", address=text
        )
    return str(address)
