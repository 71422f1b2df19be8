"""The parent of several server processes: one port, one control plane, one signal to stop."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager

from infeed.errors import ConfigError
from infeed_server.config.address import Address, require_safe
from infeed_server.control.app import ControlState, create_app
from infeed_server.control.merge import MergedHealth, MergedMetrics
from infeed_server.control.server import ControlServer
from infeed_server.runtime.fleet import Fleet
from infeed_server.runtime.options import ServerOptions
from infeed_server.service.tokens import read
from infeed_server.version import VERSION

_LOOK_SECONDS = 0.5

_END_SECONDS = 7.0
"""What processes get beyond their grace: more than they give themselves (signals.py)."""


def serve_processes(
    pipelines: str,
    options: ServerOptions,
    count: int,
    stopped: Callable[[float], bool],
    serving: Callable[[str, str | None], None],
) -> None:
    """Serves from `count` processes until `stopped`, which sleeps for so many seconds and says so.

    `serving` is told the address of the trainers' port and of the control plane once all serve.
    Raises `ConfigError`, and `ServerError` when the first process does not start.
    """
    if options.service is not None:
        raise ConfigError(
            f"--processes {count}: its workers make the batches of a tf-data-service, and the "
            "ranks of a feed have to meet in one process; leave out --processes"
        )
    listen = Address.parse(options.listen)
    if listen.is_unix:
        raise ConfigError(
            f"--processes {count}: processes cannot share {listen}; listen on host:port",
            address=str(listen),
        )
    require_safe(listen, "--listen", encrypted=options.tls is not None, insecure=options.insecure)
    _read_once(options)
    listen.require_free()
    with ExitStack() as stack:
        address = stack.enter_context(_reserved(listen))
        command = [sys.executable, "-m", "infeed", "serve", pipelines]
        command += ["--listen", str(address), "--http", "127.0.0.1:0", "--one-of", str(count)]
        fleet = Fleet([*command, *_words(options, count)], count)
        health = MergedHealth(fleet.http_addresses)
        control = _control(options, health, fleet)
        if control:
            stack.enter_context(control)
        stack.callback(fleet.stop, options.grace + _END_SECONDS)
        fleet.start(stopped)
        if stopped(0):
            return
        health.update()
        serving(str(address), control.address if control else None)
        while not stopped(_LOOK_SECONDS):
            fleet.tend()
            health.update()


def _read_once(options: ServerOptions) -> None:
    """Says at once what is wrong with a file, not from each process. Raises `ConfigError`."""
    if options.tls:
        options.tls.context()
    if options.tokens:
        read(options.tokens)


def _words(options: ServerOptions, count: int) -> list[str]:
    """The options that each of `count` processes is to have too."""
    words = ["--grace", str(options.grace), "--peer-streams", str(options.peer_streams)]
    tls = options.tls
    files = {
        "--tls-cert": tls and tls.cert,
        "--tls-key": tls and tls.key,
        "--tls-client-ca": tls and tls.client_ca,
        "--tokens": options.tokens,
    }
    for option, file in files.items():
        words += [option, file] if file else []
    if options.memory_limit is not None:
        words += ["--memory-limit", str(max(1, (options.memory_limit >> 20) // count))]
    return [*words, "--insecure"] if options.insecure else words


def _control(options: ServerOptions, health: MergedHealth, fleet: Fleet) -> ControlServer | None:
    if options.http is None:
        return None
    http = Address.parse(options.http)
    require_safe(http, "--http", encrypted=False, insecure=options.insecure)
    state = ControlState(health, MergedMetrics(fleet.http_addresses), VERSION)
    return ControlServer(create_app(state), http.host, http.port)


@contextmanager
def _reserved(address: Address) -> Iterator[Address]:
    """The address with a port that is kept for processes that share it.

    A socket that is bound but does not listen keeps the port, and is sent no connection.
    """
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    family, kind, proto, _, place = found[0]
    with closing(socket.socket(family, kind, proto)) as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(place)
        yield Address(address.host, holder.getsockname()[1])
