"""The commands of TensorFlow's data service: dispatcher, worker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from infeed_server.cli import announce, set_up_logging
from infeed_server.imports import without_collection

Advertise = Annotated[
    str | None,
    typer.Option(
        metavar="HOST[:PORT]",
        help="Where others find it. Default: the host it listens on, or that of its route.",
    ),
]
Http = Annotated[
    str, typer.Option(help="Where /livez, /readyz and /metrics answer; 'off' for nowhere.")
]
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure", help="Allow other machines to connect: nothing is encrypted or asked."
    ),
]


def dispatcher(
    listen: Annotated[
        str, typer.Option(help="Where workers and trainers connect.")
    ] = "127.0.0.1:8472",
    http: Http = "127.0.0.1:8475",
    work_dir: Annotated[
        Path | None, typer.Option(help="Keep the journal here, so that jobs outlive a restart.")
    ] = None,
    advertise: Advertise = None,
    worker_address: Annotated[
        list[str] | None,
        typer.Option(help="A worker to be: host, host:port or host:%port%; can be repeated."),
    ] = None,
    insecure: Insecure = False,
) -> None:
    """Run the dispatcher of TensorFlow's data service, until SIGTERM or Ctrl-C."""
    set_up_logging()
    with without_collection():
        from infeed_server.runtime.roles import RoleOptions, serve_dispatcher
        from infeed_server.runtime.signals import Stop

    stop = Stop()
    stop.install()
    options = RoleOptions(listen, None if http == "off" else http, advertise, insecure)
    serve_dispatcher(options, work_dir, tuple(worker_address or ()), stop, announce)


def worker(
    dispatcher: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="The address that the dispatcher printed.")
    ],
    listen: Annotated[
        str, typer.Option(help="Where trainers and the dispatcher connect.")
    ] = "127.0.0.1:8473",
    http: Http = "127.0.0.1:8474",
    advertise: Advertise = None,
    tag: Annotated[
        list[str] | None, typer.Option(help="A tag that the dispatcher tells; can be repeated.")
    ] = None,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds that those who read from it get at a stop.")
    ] = 1.0,
    insecure: Insecure = False,
    with_parent: Annotated[bool, typer.Option("--with-parent", hidden=True)] = False,
) -> None:
    """Run a worker of TensorFlow's data service, until SIGTERM or Ctrl-C."""
    set_up_logging()
    with without_collection():
        from infeed_server.runtime.roles import RoleOptions, serve_worker
        from infeed_server.runtime.signals import Stop

    stop = Stop()
    stop.install()
    if with_parent:
        stop.with_parent()
    options = RoleOptions(listen, None if http == "off" else http, advertise, insecure)
    serve_worker(
        options, dispatcher, tuple(tag or ()), stop, announce, grace, keeps_port=with_parent
    )
