"""The command `infeed serve`."""

from __future__ import annotations

import logging
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from infeed.cli import SERVE
from infeed.cli.model_options import with_models
from infeed_server.cli.console import announce, console, named_progress
from infeed_server.cli.logs import LogOptions
from infeed_server.imports import defer_tensorflow, load_tensorflow
from infeed_server.runtime.engines import configure_engine, engine_options
from infeed_server.runtime.options import ServeOptions, ServerOptions

log = logging.getLogger(__name__)

MIN_MEMORY_BYTES = 1 << 30
"""Memory below which the server warns at start: TensorFlow takes a quarter of it, and a photo
pipeline with a few trainers half."""

if TYPE_CHECKING:
    from infeed_server.processes.signals import ShutdownSignal


EngineOptions: Any = engine_options()


app = typer.Typer()


@app.command(rich_help_panel=SERVE)
@with_models
def serve(
    pipelines: Annotated[
        str, typer.Argument(help="YAML file of pipelines, or module:attr in Python.")
    ],
    given: ServeOptions,
    engine: EngineOptions,
    log_options: LogOptions,
) -> None:
    """Serves a file's pipelines to trainers until SIGTERM or Ctrl-C.

    \b
    Examples:
      infeed serve pipelines.yaml
      infeed serve pipelines.yaml --listen 127.0.0.1:0 --http off
      infeed serve pipelines.yaml --listen 0.0.0.0:7470 --tls-cert server.pem
    """
    log_options.set_up()
    # Imported here: TensorFlow takes seconds, and `infeed --help` should not.
    from infeed_server.processes.signals import ShutdownSignal
    from infeed_server.rpc.limits import raise_file_limit
    from infeed_server.runtime.multiprocess import serve_processes

    # First, because process 1 of a container ignores signals without a handler. Until the server
    # serves, a signal ends the process.
    stop = ShutdownSignal()
    stop.install()
    options = ServerOptions(**given.model_dump(), engine=configure_engine(engine))
    raise_file_limit()
    if options.processes > 1:
        serve_processes(pipelines, options, stop, announce)
        return
    if options.with_parent:
        stop.set_when_parent_exits()
    out = sys.stdout
    # The user's prints must not mix with the ready line.
    with redirect_stdout(sys.stderr):
        _serve(pipelines, options, stop, out)


def _serve(pipelines: str, options: ServerOptions, stop: ShutdownSignal, out: TextIO) -> None:
    defer_tensorflow()
    from infeed_server.pipeline.load import load

    loaded = load(
        pipelines, skip_broken=options.skip_broken
    )  # reports a mistake in a file before TensorFlow is loaded
    load_tensorflow()
    from infeed_server.processes import cgroup
    from infeed_server.processes.malloc import keep_freed_memory
    from infeed_server.runtime.server import Server, unsent_limit

    keep_freed_memory()
    cgroup.set_process_count(options.one_of)
    unsent = unsent_limit(options) >> 20
    log.info("limits: %s; %d MiB of unsent batches", cgroup.describe(), unsent)
    if cgroup.memory_bytes() < MIN_MEMORY_BYTES:
        text = "only %.2f GiB of memory: the kernel may kill the server; give it 2 GiB"
        log.warning(text, cgroup.memory_bytes() / 2**30)
    with named_progress(console) as progress:
        server = Server(loaded, options, progress)
    with server:
        for line in server.specs():
            log.info("pipeline %s", line)
        stop.is_set(0)  # before the ready line: from here on a signal stops it gracefully
        announce(str(server.address), server.http_address, out)
        stop.wait(options.grace)
        log.info("stopping")
