"""The commands `infeed serve`, `index`, `token` and `demo`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infeed_server.cli.console import announce, console, named_progress, set_up_logging
from infeed_server.imports import without_gc

if TYPE_CHECKING:
    from infeed_server.processes.signals import ShutdownSignal
    from infeed_server.runtime.options import ServerOptions

DATA_SERVICE = "Data service"
"""The title of the options of TensorFlow's data service in `infeed serve --help`."""

LIMITS = "Limits on trainers"
"""The title of the limits in `infeed serve --help`. A client is a token, else a client certificate,
else a host."""

Http = Annotated[str, typer.Option(help="Address of /livez, /readyz and /metrics, or 'off'.")]
HttpHosts = Annotated[
    list[str] | None,
    typer.Option(
        "--http-host",
        help="Name under which they may be requested, besides addresses and this machine's own "
        "name; can be repeated.",
    ),
]


def _limit(help_text: str) -> Any:
    return typer.Option(min=1, help=help_text, rich_help_panel=LIMITS)


def serve(
    pipelines: Annotated[str, typer.Argument(help="A YAML file, or module:attr in Python.")],
    listen: Annotated[str, typer.Option(help="Address for trainers.")] = "127.0.0.1:8470",
    http: Http = "127.0.0.1:8471",
    http_host: HttpHosts = None,
    tls_cert: Annotated[
        str | None, typer.Option(help="The server's certificate (PEM): trainers connect with TLS.")
    ] = None,
    tls_key: Annotated[
        str | None, typer.Option(help="Its private key, if it is not in the same file.")
    ] = None,
    tls_client_ca: Annotated[
        str | None, typer.Option(help="Trainers must present a certificate of these authorities.")
    ] = None,
    tokens: Annotated[
        str | None, typer.Option(help="A file of bearer tokens, with the pipelines of each.")
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="Allow other machines to reach what is not encrypted."),
    ] = False,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds for open streams to end at shutdown.")
    ] = 20.0,
    max_connections: Annotated[int, _limit("Maximum open connections.")] = 1024,
    peer_connections: Annotated[int, _limit("Maximum open connections of one client.")] = 512,
    max_streams: Annotated[int, _limit("Maximum open streams of batches.")] = 256,
    peer_streams: Annotated[int, _limit("Maximum open streams of one client.")] = 128,
    max_calls: Annotated[int, _limit("Maximum open calls of other methods.")] = 64,
    peer_calls: Annotated[int, _limit("Maximum open calls of one client.")] = 32,
    max_health_calls: Annotated[int, _limit("Maximum open health calls.")] = 32,
    peer_health_calls: Annotated[int, _limit("Maximum open health calls of one client.")] = 8,
    max_connection_age: Annotated[
        float | None,
        _limit(
            "Seconds after which trainers move to new connections, so that a balancer can "
            "distribute them again. Default: no limit."
        ),
    ] = None,
    max_connection_age_grace: Annotated[
        float, _limit("Seconds that the streams of such a connection have to end.")
    ] = 60.0,
    memory_limit: Annotated[
        int | None,
        typer.Option(
            min=1, help="Maximum MiB of unsent batches. Default: a quarter of the memory."
        ),
    ] = None,
    processes: Annotated[
        int, typer.Option(min=1, help="Processes that share the port; for hosts with many cores.")
    ] = 1,
    engine: Annotated[
        str,
        typer.Option(
            help="Engine that makes the batches: local, in this process, or tf-data-service.",
            rich_help_panel=DATA_SERVICE,
        ),
    ] = "local",
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Worker processes to start, each of which uses all processors. Default: 1.",
            rich_help_panel=DATA_SERVICE,
        ),
    ] = None,
    dispatcher: Annotated[
        str | None,
        typer.Option(
            help="Address of an existing dispatcher to use instead, host:port; trainers must reach "
            "it too.",
            rich_help_panel=DATA_SERVICE,
        ),
    ] = None,
    dispatcher_listen: Annotated[
        str | None,
        typer.Option(
            help="Address of the dispatcher that the server starts; workers listen on the same "
            "host. Default: 127.0.0.1:0.",
            rich_help_panel=DATA_SERVICE,
        ),
    ] = None,
    work_dir: Annotated[
        str | None,
        typer.Option(
            help="Folder of its journal, kept across restarts. Default: a temporary one.",
            rich_help_panel=DATA_SERVICE,
        ),
    ] = None,
    compression: Annotated[
        str | None,
        typer.Option(
            help="Compression of batches from the workers, unless a trainer requests another: "
            "none, snappy or auto. Default: none.",
            rich_help_panel=DATA_SERVICE,
        ),
    ] = None,
    one_of: Annotated[int, typer.Option(hidden=True)] = 1,
) -> None:
    """Serves the pipelines of a file to trainers, until SIGTERM or Ctrl-C."""
    set_up_logging()
    # Imported here: TensorFlow takes seconds, which `infeed --help` should not.
    from infeed_server.data_service.options import service_options
    from infeed_server.processes.signals import ShutdownSignal
    from infeed_server.rpc.resources import raise_file_limit
    from infeed_server.runtime.certificate import tls_files_from_options
    from infeed_server.runtime.multiprocess import serve_processes
    from infeed_server.runtime.options import ServerOptions

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
        max_connections=max_connections,
        peer_connections=peer_connections,
        max_streams=max_streams,
        peer_streams=peer_streams,
        max_calls=max_calls,
        peer_calls=peer_calls,
        max_health_calls=max_health_calls,
        peer_health_calls=peer_health_calls,
        max_connection_age=max_connection_age,
        max_connection_age_grace=max_connection_age_grace,
        http_hosts=tuple(http_host or ()),
        memory_limit=None if memory_limit is None else memory_limit << 20,
        service=service_options(
            engine,
            workers=workers,
            dispatcher=dispatcher,
            listen=dispatcher_listen,
            work_dir=work_dir,
            compression=compression,
        ),
    )
    raise_file_limit()
    if processes > 1:
        serve_processes(pipelines, options, processes, stop.is_set, announce)
        return
    if one_of > 1:
        stop.set_when_parent_exits()
    _serve(pipelines, options, one_of, stop)


def _serve(pipelines: str, options: ServerOptions, one_of: int, stop: ShutdownSignal) -> None:
    with without_gc():
        from infeed_server.engines import cgroup
        from infeed_server.pipeline.load import load
        from infeed_server.processes.malloc import keep_freed_memory
        from infeed_server.runtime.server import Server

    keep_freed_memory()
    cgroup.set_process_count(one_of)
    with named_progress(console) as progress:
        server = Server(load(pipelines), options, progress)
    with server:
        for line in server.specs():
            console.print(f"[bold]pipeline[/] {line}", soft_wrap=True, highlight=False)
        stop.is_set(0)  # before the ready line: from here on a signal stops it gracefully
        announce(str(server.address), server.http_address)
        stop.wait(options.grace)
        console.print("stopping")


def index(
    pattern: Annotated[str, typer.Argument(help="TFRecord files: a path or a glob.")],
    directory: Annotated[
        str | None, typer.Option(help="Folder of the index. Default: beside the data.")
    ] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Build it even if it is up to date.")
    ] = False,
) -> None:
    """Builds the record index of TFRecord files, or checks an existing one."""
    set_up_logging()
    with without_gc():
        from infeed_server.sources.files import expand_globs
        from infeed_server.sources.tfrecord.index import build_index

    with named_progress(console) as progress:
        record_index = build_index(
            expand_globs([pattern]), directory, progress(pattern), rebuild=rebuild
        )
    for file in record_index.files:
        state = "checked" if file.cached else "built"
        print(f"{file.path}: {file.records} records, index {state}")
    files, identity = len(record_index.files), record_index.identity[:32]
    print(f"{len(record_index)} records in {files} files, identity {identity}")


def token(
    name: Annotated[str, typer.Argument(help="Name of its owner, for messages and the log.")],
    pipelines: Annotated[
        list[str] | None,
        typer.Option(
            "--pipeline", help="Name or pattern of pipelines it may read; can be repeated."
        ),
    ] = None,
) -> None:
    """Makes a bearer token, and its entry for the file of `infeed serve --tokens`."""
    set_up_logging()
    from infeed_server.serving.auth import new_token, token_entry

    secret = new_token()
    console.print("[bold]the token[/], for trainers, to be kept secret:")
    print(secret, flush=True)
    console.print("[bold]its entry[/], under 'tokens:' in the server's file:")
    print(token_entry(secret, name, pipelines or ["*"]), end="")


def demo(
    epochs: Annotated[int, typer.Option(min=1, help="Epochs to train.")] = 4,
    directory: Annotated[
        Path | None, typer.Option(help="Folder of the data set. Default: a temporary one.")
    ] = None,
) -> None:
    """Serves an embedded data set from another process and trains a small model on it."""
    set_up_logging()
    with without_gc():
        from infeed_server.demo import run

    raise typer.Exit(run(console, epochs, directory))
