"""The commands `infeed dispatcher` and `infeed worker`, the roles of TensorFlow's data service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from infeed_server.cli import SERVE, logs
from infeed_server.cli.commands import Http, HttpHosts
from infeed_server.cli.console import announce
from infeed_server.imports import without_gc

Advertise = Annotated[
    str | None,
    typer.Option(
        metavar="HOST[:PORT]",
        help="Host, or host:port, for other machines. Default: the host it listens on, or the "
        "host of its route.",
    ),
]
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure", help="Allow other machines to connect, without encryption or authentication."
    ),
]


def register(app: typer.Typer) -> None:
    """Adds the commands to the app; the entry point is this function."""
    for command in (dispatcher, worker):
        app.command(rich_help_panel=SERVE)(command)


def dispatcher(
    listen: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Address for workers and trainers; port 0 selects a free port.",
        ),
    ] = "127.0.0.1:7472",
    http: Http = "127.0.0.1:7475",
    http_host: HttpHosts = None,
    work_dir: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the journal, from which it continues after a restart. Default: a "
            "temporary one."
        ),
    ] = None,
    advertise: Advertise = None,
    worker_address: Annotated[
        list[str] | None,
        typer.Option(
            help="For static sharding: address of an expected worker, as host, host:port or "
            "host:%port%; can be repeated."
        ),
    ] = None,
    insecure: Insecure = False,
    log_format: logs.Format = logs.LogFormat.TEXT,
    quiet: logs.Quiet = False,
    verbose: logs.Verbose = False,
) -> None:
    """Runs the dispatcher of TensorFlow's data service, until SIGTERM or Ctrl-C.

    \b
    Example:
      infeed dispatcher --work-dir journal
    """
    logs.set_up_service_logging(log_format, quiet=quiet, verbose=verbose)
    with without_gc():
        from infeed_server.processes.signals import ShutdownSignal
        from infeed_tfdata.roles.run import RoleOptions, serve_dispatcher

    stop = ShutdownSignal()
    stop.install()
    options = RoleOptions(listen, http, advertise, insecure, tuple(http_host or ()))
    serve_dispatcher(options, work_dir, tuple(worker_address or ()), stop, announce)


def worker(
    dispatcher: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="The address that the dispatcher printed; the worker waits up to 30 s for it.",
        ),
    ],
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address for trainers and the dispatcher.")
    ] = "127.0.0.1:7473",
    http: Http = "127.0.0.1:7474",
    http_host: HttpHosts = None,
    advertise: Advertise = None,
    tag: Annotated[
        list[str] | None, typer.Option(help="Worker tag of TensorFlow; can be repeated.")
    ] = None,
    grace: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="Seconds for its clients to finish reading at shutdown. TensorFlow cannot drain: "
            "the finished elements are lost.",
        ),
    ] = 1.0,
    insecure: Insecure = False,
    log_format: logs.Format = logs.LogFormat.TEXT,
    quiet: logs.Quiet = False,
    verbose: logs.Verbose = False,
    with_parent: Annotated[bool, typer.Option("--with-parent", hidden=True)] = False,
) -> None:
    """Runs a worker of TensorFlow's data service, until SIGTERM or Ctrl-C.

    \b
    Example:
      infeed worker --dispatcher 127.0.0.1:7472 --listen 127.0.0.1:0 --http off
    """
    logs.set_up_service_logging(log_format, quiet=quiet, verbose=verbose)
    with without_gc():
        from infeed_server.processes.signals import ShutdownSignal
        from infeed_tfdata.roles.run import RoleOptions, serve_worker

    stop = ShutdownSignal()
    stop.install()
    if with_parent:
        stop.set_when_parent_exits()
    options = RoleOptions(listen, http, advertise, insecure, tuple(http_host or ()))
    serve_worker(options, dispatcher, tuple(tag or ()), stop, announce, grace)
