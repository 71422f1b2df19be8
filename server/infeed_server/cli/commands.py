"""The command `infeed serve`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from infeed_server.cli import logs
from infeed_server.cli.console import (
    announce,
    console,
    loading_tensorflow,
    named_progress,
)
from infeed_server.runtime.engines import configure_engine, engine_names

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from infeed_server.processes.signals import ShutdownSignal
    from infeed_server.runtime.options import ServerOptions

ENGINE = "Engine"
"""The title of the options of engines in `infeed serve --help`."""

LIMITS = "Limits on trainers"
"""The title of the limits in `infeed serve --help`. A client is a token, else a client certificate,
else a host."""


class Readiness(str, Enum):
    """The values of `--readiness`."""

    ALL = "all"
    ANY = "any"


Http = Annotated[
    str,
    typer.Option(
        metavar="HOST:PORT", help="Address of the dashboard, API, metrics and health, or 'off'."
    ),
]
HttpHosts = Annotated[
    list[str] | None,
    typer.Option(
        "--http-host",
        help="Name under which they may be requested, besides addresses and this machine's own "
        "name; can be repeated.",
    ),
]


SECURITY = "Security"
"""The title of the options of TLS and tokens in `infeed serve --help`."""


def _limit(help_text: str, metavar: str = "N") -> Any:
    return typer.Option(min=1, help=help_text, metavar=metavar, rich_help_panel=LIMITS)


def _file(help_text: str) -> Any:
    return typer.Option(help=help_text, metavar="FILE", rich_help_panel=SECURITY)


def serve(
    pipelines: Annotated[str, typer.Argument(help="A YAML file, or module:attr in Python.")],
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address for trainers.")
    ] = "127.0.0.1:7470",
    http: Http = "127.0.0.1:7471",
    http_host: HttpHosts = None,
    http_peer: Annotated[
        list[str] | None,
        typer.Option(
            help="Control plane of another server, such as http://host-b:7471, to show beside "
            "this one in the dashboards of both; can be repeated."
        ),
    ] = None,
    http_tls: Annotated[
        bool,
        typer.Option(
            "--http-tls",
            help="Serve the dashboard, API, metrics and health with the certificate of --tls-cert.",
            rich_help_panel=SECURITY,
        ),
    ] = False,
    http_tokens: Annotated[
        str | None,
        _file("A file of bearer tokens for them; those with the pattern '*' have access."),
    ] = None,
    tls_cert: Annotated[
        str | None, _file("The server's certificate (PEM): trainers connect with TLS.")
    ] = None,
    tls_key: Annotated[str | None, _file("Its private key, if it is not in the same file.")] = None,
    tls_client_ca: Annotated[
        str | None, _file("Trainers must present a certificate of these authorities.")
    ] = None,
    tokens: Annotated[
        str | None, _file("A file of bearer tokens, with the pipelines of each.")
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            help="Allow other machines to reach what is not encrypted.",
            rich_help_panel=SECURITY,
        ),
    ] = False,
    grace: Annotated[
        float,
        typer.Option(min=0, metavar="SECONDS", help="Seconds for open streams to end at shutdown."),
    ] = 20.0,
    max_streams: Annotated[int, _limit("Maximum open streams of batches.")] = 256,
    peer_streams: Annotated[int, _limit("Maximum open streams of one client.")] = 128,
    max_calls: Annotated[int, _limit("Maximum open calls of other methods.")] = 64,
    peer_calls: Annotated[int, _limit("Maximum open calls of one client.")] = 32,
    max_connection_age: Annotated[
        float | None,
        _limit(
            "Seconds after which trainers move to new connections, so that a balancer can "
            "distribute them again. Default: no limit.",
            "SECONDS",
        ),
    ] = None,
    max_connection_age_grace: Annotated[
        float, _limit("Seconds that the streams of such a connection have to end.", "SECONDS")
    ] = 60.0,
    readiness: Annotated[
        Readiness,
        typer.Option(
            help="Pipelines that must be ready for the server to be ready: all of them, or any."
        ),
    ] = Readiness.ALL,
    unready_on_bad_data: Annotated[
        bool,
        typer.Option(
            "--unready-on-bad-data",
            help="Make a pipeline not ready, until a restart, when a file of it has changed or is "
            "damaged.",
        ),
    ] = False,
    memory_limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="MIB",
            help="Maximum MiB of unsent batches. Default: a quarter of the memory.",
        ),
    ] = None,
    processes: Annotated[
        int, typer.Option(min=1, help="Processes that share the port; for hosts with many cores.")
    ] = 1,
    engine: Annotated[
        str,
        typer.Option(
            help="Engine that makes the batches: local, in this process, or "
            f"{' or '.join(engine_names()[1:])}.",
            rich_help_panel=ENGINE,
        ),
    ] = "local",
    log_format: logs.Format = logs.LogFormat.TEXT,
    quiet: logs.Quiet = False,
    verbose: logs.Verbose = False,
    one_of: Annotated[int, typer.Option(hidden=True)] = 1,
    parent_token: Annotated[str | None, typer.Option(hidden=True)] = None,
    engine_options: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Serves the pipelines of a file to trainers, until SIGTERM or Ctrl-C.

    \b
    Examples:
      infeed serve pipelines.yaml
      infeed serve pipelines.yaml --listen 127.0.0.1:0 --http off
      infeed serve pipelines.yaml --listen 0.0.0.0:7470 --tls-cert server.pem
    """
    logs.set_up_service_logging(log_format, quiet=quiet, verbose=verbose)
    # Imported here: TensorFlow takes seconds, which `infeed --help` should not.
    from infeed_server.processes.priority import lower_priority
    from infeed_server.processes.signals import ShutdownSignal
    from infeed_server.rpc.resources import (
        ThreadReserve,
        raise_file_limit,
        require_memory_for_start,
    )
    from infeed_server.runtime.certificate import tls_files_from_options
    from infeed_server.runtime.multiprocess import serve_processes
    from infeed_server.runtime.options import ServerOptions
    from infeed_server.runtime.tracing import tracing

    # First: process 1 of a container ignores signals without a handler. Until the server serves, a
    # signal ends the process.
    stop = ShutdownSignal()
    stop.install()
    options = ServerOptions(
        listen,
        http,
        insecure,
        share_port=one_of > 1,
        tls=tls_files_from_options(tls_cert, tls_key, tls_client_ca),
        tokens=tokens,
        grace=grace,
        max_streams=max_streams,
        peer_streams=peer_streams,
        max_calls=max_calls,
        peer_calls=peer_calls,
        max_connection_age=max_connection_age,
        max_connection_age_grace=max_connection_age_grace,
        http_hosts=tuple(http_host or ()),
        http_peers=tuple(http_peer or ()),
        http_tls=http_tls,
        http_tokens=http_tokens,
        parent_token=parent_token,
        readiness=readiness.value,
        unready_on_bad_data=unready_on_bad_data,
        memory_limit=None if memory_limit is None else memory_limit << 20,
        engine=configure_engine(engine, engine_options),
    )
    raise_file_limit()
    if one_of == 1:
        ThreadReserve().require_for_start(processes)
        require_memory_for_start()
    if processes > 1:
        serve_processes(pipelines, options, processes, stop.is_set, announce)
        return
    if one_of > 1:
        stop.set_when_parent_exits()
    lower_priority()  # before TensorFlow and others start threads
    out = sys.stdout
    # What the user's code prints is not the ready line.
    with redirect_stdout(sys.stderr), tracing() as provider:
        _serve(pipelines, options, one_of, stop, out, provider)


def _serve(
    pipelines: str,
    options: ServerOptions,
    one_of: int,
    stop: ShutdownSignal,
    out: TextIO,
    provider: TracerProvider | None,
) -> None:
    with loading_tensorflow():
        from infeed_server.cli.panel import server_panel
        from infeed_server.engines import cgroup
        from infeed_server.engines.memory_budget import default_limit
        from infeed_server.pipeline.load import load
        from infeed_server.processes.malloc import keep_freed_memory
        from infeed_server.runtime.server import Server

    keep_freed_memory()
    cgroup.set_process_count(one_of)
    unsent = (options.memory_limit or default_limit()) >> 20
    log.info("limits: %s; %d MiB of unsent batches", cgroup.describe(), unsent)
    with named_progress(console) as progress:
        server = Server(load(pipelines), options, progress, provider)
    with server:
        if console.is_terminal and not console.quiet and one_of == 1:
            console.print(server_panel(server))
        else:
            for line in server.specs():
                log.info("pipeline %s", line)
        stop.is_set(0)  # before the ready line: from here on a signal stops it gracefully
        announce(str(server.address), server.http_address, out)
        stop.wait(options.grace)
        log.info("stopping")
