"""Options of TensorFlow's data service: of `infeed serve`, and of its roles."""

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
    """TensorFlow's data service, which makes the batches instead of the server."""

    workers: int | None = _option(
        "Worker processes to start; each uses all processors. Default: 1.", min=1
    )
    dispatcher: str | None = _option(
        "Address of an existing dispatcher to use instead, host:port; trainers must reach it too."
    )
    dispatcher_listen: str | None = _option(
        "Address of the dispatcher that the server starts; workers listen on the same host, with "
        "--work-dir on the next ports. Default: 127.0.0.1:0, with --work-dir port 7472."
    )
    work_dir: str | None = _option(
        "Folder for its journal, kept across restarts. Default: a temporary one."
    )
    compression: str | None = _option(
        "Compression of batches from the workers, unless a trainer requests another: none, snappy "
        "or auto. Default: none."
    )

    @property
    def default_compression(self) -> Compression:
        return cast("Compression", self.compression or "none")


class RoleOptions(Options):
    """Addresses of a dispatcher or a worker."""

    listen: str
    http: str
    http_host: list[str] | None = option(
        None,
        "Host name that requests may use, besides addresses and this machine's own name; "
        "repeatable.",
    )
    advertise: str | None = option(
        None,
        "Host or host:port under which other machines reach it. Default: the host it listens "
        "on, or the host of its route.",
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
        "Folder for the journal, which survives restarts. Default: a temporary one.",
        metavar="FOLDER",
    )
    worker_address: list[str] | None = option(
        None,
        "For static sharding: address of an expected worker, as host, host:port or host:%port%; "
        "can be repeated.",
    )


class WorkerOptions(RoleOptions):
    """The options of `infeed worker`."""

    listen: str = option(
        "127.0.0.1:7473", "Address for trainers and the dispatcher.", metavar="HOST:PORT"
    )
    http: str = _http("127.0.0.1:7474")
    dispatcher: str = option(
        ...,
        "Address that the dispatcher printed; the worker waits up to 30 s for it.",
        metavar="HOST:PORT",
    )
    tag: list[str] | None = option(None, "Worker tag of TensorFlow; can be repeated.")
    grace: float = option(
        1.0,
        "Seconds that clients get to finish reading at shutdown. TensorFlow cannot drain: "
        "finished elements are lost.",
        metavar="SECONDS",
        min=0,
    )
    with_parent: bool = option(False, "Exit with the parent process.", hidden=True)


def parse_dispatcher(text: str) -> str:
    """Parses `--dispatcher`, host:port. Raises `ConfigError`."""
    address = Address.parse(text, "--dispatcher")
    if address.is_unix or address.port == 0:
        raise ConfigError(
            f"--dispatcher {text}: give the address of a dispatcher, host:port", address=text
        )
    return str(address)
