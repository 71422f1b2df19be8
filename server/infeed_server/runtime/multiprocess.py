"""The parent of several server processes: one port, one instrument, one shutdown signal."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager

from infeed.shared.errors import ConfigError
from infeed_server.config.address import Address
from infeed_server.processes.signals import ShutdownSignal
from infeed_server.processes.supervisor import ProcessGroup
from infeed_server.runtime.certificate import tls_files
from infeed_server.runtime.instruments import ProcessFacts, open_parent_instrument
from infeed_server.runtime.options import ServerOptions
from infeed_server.serving.auth import hash_token, new_token, read_tokens

_UPDATE_INTERVAL_SECONDS = 1.0
"""Seconds between checks of the processes: with more, an exited one is restarted later."""

HANG_TIMEOUT_SECONDS = 10.0
"""Seconds without an answer after which a process is killed and restarted, since the kernel keeps
giving it connections. Its instrument has its own thread, so full load does not silence it, but
Python code that holds the interpreter's lock for this long does."""

_EXIT_TIMEOUT_SECONDS = 7.0
"""Time for processes to exit after their grace period, before they are killed: longer than
`processes.signals` allows."""


def serve_processes(
    pipelines: str,
    options: ServerOptions,
    stop: ShutdownSignal,
    announce: Callable[[str, str | None], None],
) -> None:
    """Serves from several processes until `stop` is set.

    Calls `announce` with the addresses of the trainers' port and of the instrument once all
    processes serve. Raises `ConfigError`, `ServerError` when the first process does not start, and
    `SystemExit` for a signal before all serve.
    """
    count = options.processes
    if options.engine is not None:
        raise ConfigError(
            f"--processes {count}: with this --engine, all ranks of a feed must connect to the "
            "same process; leave out --processes"
        )
    listen = options.listen_address()
    if listen.is_unix:
        raise ConfigError(
            f"--processes {count}: processes cannot share {listen}; listen on host:port",
            address=str(listen),
        )
    if files := tls_files(options):  # one error now instead of one from each process
        files.check()
    if options.tokens:
        read_tokens(options.tokens)
    listen.require_free()
    with ExitStack() as stack:
        address = stack.enter_context(_reserve_port(listen))
        token = new_token()
        command = _command(pipelines, options, address, token)
        processes = ProcessGroup("process", count, lambda _: command)
        facts = ProcessFacts(options, token, processes.http_addresses)
        instrument = open_parent_instrument(facts)
        stack.callback(instrument.stop)
        stack.callback(processes.stop, options.grace + _EXIT_TIMEOUT_SECONDS)
        processes.start(stop.is_set)
        if stop.is_set(0):
            raise SystemExit(stop.status)
        instrument.update()
        announce(str(address), instrument.address)
        while not stop.is_set(_UPDATE_INTERVAL_SECONDS):
            processes.restart_exited()
            instrument.update()
            processes.kill_hung(instrument.hung(HANG_TIMEOUT_SECONDS), HANG_TIMEOUT_SECONDS)
        instrument.drain()  # while the processes finish their streams


def _command(pipelines: str, options: ServerOptions, listen: Address, token: str) -> list[str]:
    """Returns the command line of one process, whose control plane answers `token` alone."""
    limit = options.memory_limit
    changes = {
        "listen": str(listen),
        "http": "127.0.0.1:0",
        **dict.fromkeys(("http_hosts", "http_tokens")),
        "http_tls": False,
        "memory_limit": None if limit is None else max(1, limit // options.processes),
        "processes": 1,
        "one_of": options.processes,
        "with_parent": True,
        "parent_token": hash_token(token),
    }
    own = options.model_copy(update=changes)
    return [sys.executable, "-m", "infeed", "serve", pipelines, *own.to_arguments()]


@contextmanager
def _reserve_port(address: Address) -> Iterator[Address]:
    """Yields the address with a port that is reserved for processes that share it. A socket that is
    bound but does not listen reserves the port and receives no connections."""
    entries = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    family, kind, proto, _, socket_address = entries[0]
    with closing(socket.socket(family, kind, proto)) as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if address.port:  # connections of a previous process may still hold it in TIME_WAIT
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(socket_address)
        yield Address(address.host, reserved.getsockname()[1])
