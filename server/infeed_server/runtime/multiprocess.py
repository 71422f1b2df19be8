"""The parent of several server processes: one port, one control plane, one shutdown signal."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial

from prometheus_client import CollectorRegistry

from infeed.shared.errors import ConfigError
from infeed_server.config.address import Address
from infeed_server.control.aggregate import MergedHealth, MergedMetrics, fetch_documents
from infeed_server.control.app import ControlState
from infeed_server.control.calls import Calls
from infeed_server.control.http_server import open_control_server
from infeed_server.control.metrics import DESIRED_SERVERS, desired_servers_gauge
from infeed_server.control.peers import parse_peers
from infeed_server.observe.merged import MergedStatus
from infeed_server.observe.observer import UPDATE_INTERVAL_SECONDS
from infeed_server.processes.periodic import PeriodicTask
from infeed_server.processes.supervisor import ProcessGroup
from infeed_server.runtime.options import ServerOptions
from infeed_server.serving.auth import hash_token, new_token, read_tokens
from infeed_server.version import VERSION

_CHECK_INTERVAL_SECONDS = 0.5

HANG_TIMEOUT_SECONDS = 10.0
"""A process that has answered no request for this long is killed and restarted: the kernel goes
on giving it connections. Its control plane answers on a thread of its own, with a higher priority
than those that make batches, and each answer may take a second; so tracing a graph or a full load
do not silence it, while Python code that keeps the interpreter's lock for this long would. A
process that starts is not asked."""

_EXIT_TIMEOUT_SECONDS = 7.0
"""Time that processes have to exit after their grace, before they are killed: more than
`processes.signals` gives them."""

_SHARED_LIMITS = (
    *("max_streams", "peer_streams", "max_calls", "peer_calls"),
    *("max_connection_age", "max_connection_age_grace"),
)
"""Options that each process gets as they are."""


def serve_processes(
    pipelines: str,
    options: ServerOptions,
    count: int,
    stopped: Callable[[float], bool],
    announce: Callable[[str, str | None], None],
) -> None:
    """Serves from `count` processes until `stopped`, which waits for so many seconds, is true.

    Calls `announce` with the addresses of the trainers' port and of the control plane once all
    processes serve. Raises `ConfigError`, and `ServerError` when the first process does not start.
    """
    if options.engine is not None:
        raise ConfigError(
            f"--processes {count}: other processes make the batches of this --engine, and the "
            "ranks of a feed must connect to one process; leave out --processes"
        )
    listen = options.listen_address()
    if listen.is_unix:
        raise ConfigError(
            f"--processes {count}: processes cannot share {listen}; listen on host:port",
            address=str(listen),
        )
    _check_files(options)
    listen.require_free()
    with ExitStack() as stack:
        address = stack.enter_context(_reserve_port(listen))
        command = [sys.executable, "-m", "infeed", "serve", pipelines]
        command += ["--listen", str(address), "--http", "127.0.0.1:0", "--one-of", str(count)]
        token = new_token()  # the control planes of the processes answer this one alone
        command += ["--parent-token", hash_token(token)]
        command += _shared_arguments(options, count)
        processes = ProcessGroup("process", count, lambda _: command)
        health = MergedHealth(processes.http_addresses, token)
        registry = CollectorRegistry()
        registry.register(MergedMetrics(processes.http_addresses, {DESIRED_SERVERS}, token))
        status = MergedStatus(partial(fetch_documents, processes.http_addresses, token))
        registry.register(desired_servers_gauge(lambda: {(): status.desired_servers}))
        peers = parse_peers(options.http_peers)
        state = ControlState(
            health, registry, VERSION, observer=status, calls=Calls(blocking=True), peers=peers
        )
        control = open_control_server(state, options.control_access())
        if control:
            stack.enter_context(control)
        stack.callback(processes.stop, options.grace + _EXIT_TIMEOUT_SECONDS)
        processes.start(stopped)
        if stopped(0):
            return
        health.update()
        updates = PeriodicTask("status", UPDATE_INTERVAL_SECONDS, status.update)
        stack.enter_context(updates)
        announce(str(address), control.address if control else None)
        while not stopped(_CHECK_INTERVAL_SECONDS):
            processes.restart_exited()
            health.update()
            processes.kill_hung(health.hung(HANG_TIMEOUT_SECONDS), HANG_TIMEOUT_SECONDS)
        health.drain()  # while the processes finish what they owe


def _check_files(options: ServerOptions) -> None:
    """Raises `ConfigError` for an invalid file, instead of each process."""
    if options.tls:
        options.tls.check()
    if options.tokens:
        read_tokens(options.tokens)


def _shared_arguments(options: ServerOptions, count: int) -> list[str]:
    """Returns the arguments of each of `count` processes that come from the options."""
    arguments = ["--grace", str(options.grace), "--readiness", options.readiness]
    for name in _SHARED_LIMITS:
        value = getattr(options, name)
        arguments += [] if value is None else [f"--{name.replace('_', '-')}", str(value)]
    tls = options.tls
    files = {
        "--tls-cert": tls and tls.cert,
        "--tls-key": tls and tls.key,
        "--tls-client-ca": tls and tls.client_ca,
        "--tokens": options.tokens,
    }
    for option, file in files.items():
        arguments += [option, file] if file else []
    if options.memory_limit is not None:
        arguments += ["--memory-limit", str(max(1, (options.memory_limit >> 20) // count))]
    arguments += ["--unready-on-bad-data"] if options.unready_on_bad_data else []
    return [*arguments, "--insecure"] if options.insecure else arguments


@contextmanager
def _reserve_port(address: Address) -> Iterator[Address]:
    """Yields the address with a port that is reserved for processes that share it.

    A socket that is bound but does not listen reserves the port, and gets no connection.
    """
    entries = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    family, kind, proto, _, socket_address = entries[0]
    with closing(socket.socket(family, kind, proto)) as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if address.port:  # which connections of a previous process may still have, in TIME_WAIT
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(socket_address)
        yield Address(address.host, reserved.getsockname()[1])
