"""The commands `infeed dispatcher` and `infeed worker`, the roles of TensorFlow's data service."""

from __future__ import annotations

import typer

from infeed.cli import SERVE
from infeed.cli.model_options import with_models
from infeed_server.cli.console import announce
from infeed_server.cli.logs import LogOptions
from infeed_server.imports import without_gc
from infeed_service.options import DispatcherOptions, WorkerOptions

dispatcher_app = typer.Typer()


@dispatcher_app.command(rich_help_panel=SERVE)
@with_models
def dispatcher(
    options: DispatcherOptions,
    log_options: LogOptions,
) -> None:
    """Runs the dispatcher of TensorFlow's data service, until SIGTERM or Ctrl-C.

    \b
    Example:
      infeed dispatcher --work-dir journal
    """
    log_options.set_up()
    with without_gc():
        from infeed_server.processes.signals import ShutdownSignal
        from infeed_service.roles.run import serve_dispatcher

    stop = ShutdownSignal()
    stop.install()
    serve_dispatcher(options, stop, announce)


worker_app = typer.Typer()


@worker_app.command(rich_help_panel=SERVE)
@with_models
def worker(
    options: WorkerOptions,
    log_options: LogOptions,
) -> None:
    """Runs a worker of TensorFlow's data service, until SIGTERM or Ctrl-C.

    \b
    Example:
      infeed worker --dispatcher 127.0.0.1:7472 --listen 127.0.0.1:0 --http off
    """
    log_options.set_up()
    with without_gc():
        from infeed_server.processes.signals import ShutdownSignal
        from infeed_service.roles.run import serve_worker

    stop = ShutdownSignal()
    stop.install()
    if options.with_parent:
        stop.set_when_parent_exits()
    serve_worker(options, stop, announce)
