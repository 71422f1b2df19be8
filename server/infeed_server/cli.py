"""The server's commands: serve, index, token, demo; those of the data service are in roles.py."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.logging import RichHandler

from infeed_server.imports import without_collection

if TYPE_CHECKING:
    from infeed_server.runtime.options import ServerOptions
    from infeed_server.runtime.signals import Stop

console = Console(stderr=True)


def register(app: typer.Typer) -> None:
    """Adds the commands to `infeed`; its entry point `infeed.commands` names this function."""
    from infeed_server.roles import dispatcher, worker

    app.command()(serve)
    app.command()(dispatcher)
    app.command()(worker)
    app.command()(index)
    app.command()(token)
    app.command()(demo)


def serve(
    pipelines: Annotated[str, typer.Argument(help="A YAML file, or module:attr in Python.")],
    listen: Annotated[str, typer.Option(help="Where trainers connect.")] = "127.0.0.1:8470",
    http: Annotated[
        str, typer.Option(help="Where /livez, /readyz and /metrics answer; 'off' for nowhere.")
    ] = "127.0.0.1:8471",
    tls_cert: Annotated[
        str | None, typer.Option(help="The server's certificate (PEM): trainers connect in TLS.")
    ] = None,
    tls_key: Annotated[
        str | None, typer.Option(help="Its private key, if it is not in the same file.")
    ] = None,
    tls_client_ca: Annotated[
        str | None, typer.Option(help="Trainers must show a certificate of these authorities.")
    ] = None,
    tokens: Annotated[
        str | None, typer.Option(help="A file of bearer tokens, with the pipelines of each.")
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="Allow other machines to reach what is not encrypted."),
    ] = False,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds that open streams get to end at a stop.")
    ] = 20.0,
    peer_streams: Annotated[
        int, typer.Option(min=1, help="Streams that one host may have open.")
    ] = 128,
    memory_limit: Annotated[
        int | None,
        typer.Option(min=1, help="MiB of batches that wait to be sent. Default: a quarter of all."),
    ] = None,
    processes: Annotated[
        int, typer.Option(min=1, help="Share the port among so many; for hosts of many cores.")
    ] = 1,
    engine: Annotated[
        str,
        typer.Option(help="Who makes the batches: this process (local), or tf-data-service."),
    ] = "local",
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="tf-data-service: worker processes to start. Default: 1."),
    ] = None,
    dispatcher: Annotated[
        str | None,
        typer.Option(help="tf-data-service: join the one of this dispatcher, host:port."),
    ] = None,
    dispatcher_listen: Annotated[
        str | None,
        typer.Option(
            help="tf-data-service: where the one it starts listens. Default: 127.0.0.1:0."
        ),
    ] = None,
    work_dir: Annotated[
        str | None,
        typer.Option(help="tf-data-service: the folder of its journal, kept over restarts."),
    ] = None,
    compression: Annotated[
        str | None,
        typer.Option(help="tf-data-service: how batches travel: none (default), snappy or auto."),
    ] = None,
    one_of: Annotated[int, typer.Option(hidden=True)] = 1,
) -> None:
    """Serve the pipelines of a file to trainers, until SIGTERM or Ctrl-C."""
    set_up_logging()
    # Imported here, for TensorFlow takes seconds and `infeed --help` should not.
    from infeed_server.runtime.certificate import tls_files
    from infeed_server.runtime.options import ServerOptions, service_options
    from infeed_server.runtime.processes import serve_processes
    from infeed_server.runtime.signals import Stop

    # First of all: as process 1 of a container, nothing else would let a signal through. Until
    # the server serves, one ends the process.
    stop = Stop()
    stop.install()
    options = ServerOptions(
        listen,
        None if http == "off" else http,
        insecure,
        share_port=one_of > 1,
        tls=tls_files(tls_cert, tls_key, tls_client_ca),
        tokens=tokens,
        grace=grace,
        peer_streams=peer_streams,
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
    if processes > 1:
        serve_processes(pipelines, options, processes, stop.asked, announce)
        return
    if one_of > 1:
        stop.with_parent()
    _serve(pipelines, options, one_of, stop)


def _serve(pipelines: str, options: ServerOptions, one_of: int, stop: Stop) -> None:
    with without_collection():
        from infeed_server.engines import host
        from infeed_server.pipeline.load import load
        from infeed_server.progress import named_progress
        from infeed_server.runtime.memory import keep_freed_memory
        from infeed_server.runtime.server import Server

    keep_freed_memory()
    host.share(one_of)
    with named_progress(console) as progress:
        server = Server(load(pipelines), options, progress)
    with server:
        for line in server.specs():
            console.print(f"[bold]pipeline[/] {line}", soft_wrap=True, highlight=False)
        stop.asked(
            0
        )  # from here on a signal ends it in good order; who reads the line may send one
        announce(str(server.address), server.http_address)
        stop.wait(options.grace)
        console.print("stopping")


def announce(address: str, http: str | None) -> None:
    # The one line on standard output: scripts that asked for port 0 read it.
    print(f"serving on {address} (http {http or 'off'})", flush=True)


def index(
    pattern: Annotated[str, typer.Argument(help="TFRecord files: a path or a glob.")],
    directory: Annotated[
        str | None, typer.Option(help="Keep the index here instead of beside the data.")
    ] = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Build it even if it fits.")] = False,
) -> None:
    """Build the record index of TFRecord files, or check it where it exists."""
    set_up_logging()
    with without_collection():
        from infeed_server.progress import named_progress
        from infeed_server.sources.files import expand
        from infeed_server.sources.index import build_index

    with named_progress(console) as progress:
        found = build_index(expand([pattern]), directory, progress(pattern), rebuild=rebuild)
    for file in found.files:
        state = "checked" if file.cached else "built"
        print(f"{file.path}: {file.records} records, index {state}")
    print(f"{len(found)} records in {len(found.files)} files, identity {found.identity[:32]}")


def token(
    name: Annotated[str, typer.Argument(help="Whose it is; no secret.")],
    pipelines: Annotated[
        list[str] | None,
        typer.Option("--pipeline", help="A name or pattern it has a right to; can be repeated."),
    ] = None,
) -> None:
    """Make a bearer token, and the entry of it for the file of `infeed serve --tokens`."""
    set_up_logging()
    from infeed_server.service.tokens import entry, new_token

    made = new_token()
    console.print("[bold]the token[/], to be shown by trainers and kept secret:")
    print(made, flush=True)
    console.print("[bold]its entry[/], under 'tokens:' in the server's file:")
    print(entry(made, name, pipelines or ["*"]), end="")


def demo(
    epochs: Annotated[int, typer.Option(min=1, help="Epochs to train.")] = 4,
    directory: Annotated[
        Path | None, typer.Option(help="Keep the data set here; default: a temporary directory.")
    ] = None,
) -> None:
    """Serve an embedded data set from one process and train a small model on it in this one."""
    set_up_logging()
    with without_collection():
        from infeed_server.demo import run

    raise typer.Exit(run(console, epochs, directory))


def set_up_logging() -> None:
    """Log lines to standard error, one style for all; TensorFlow says errors only.

    The environment is read when TensorFlow is imported, which every command does later. infeed's
    server runs on processors alone, so looking for accelerators would only cost time and noise.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    if console.is_terminal:
        handler: logging.Handler = RichHandler(console=console, show_path=False)
        form = "%(message)s"
    else:  # One line an entry, however long: a collector of logs cuts at line ends.
        handler = logging.StreamHandler()
        form = "%(asctime)s %(levelname)s %(message)s"
    logging.basicConfig(level=logging.INFO, format=form, handlers=[handler])
