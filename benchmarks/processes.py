"""The servers of a benchmark as processes, gone when the block ends."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.datasets import PHOTOS

from infeed_server.demo.process import serving

ROOT = Path(__file__).parent.parent


@contextmanager
def infeed_server() -> Iterator[str]:
    """`infeed serve` on the benchmarks' pipelines; gives its address."""
    text = (ROOT / "benchmarks/pipelines.yaml").read_text().replace("PHOTOS", str(PHOTOS.resolve()))
    with tempfile.TemporaryDirectory() as folder:
        definition = Path(folder) / "pipelines.yaml"
        definition.write_text(text)
        with serving(definition, Path(folder) / "server.log") as address:
            yield address


@contextmanager
def service_cluster() -> Iterator[str]:
    """A tf.data service dispatcher with one worker; gives the dispatcher's address."""
    dispatcher, worker = free_port(), free_port()
    with ExitStack() as stack:
        stack.enter_context(_running("benchmarks.service", "dispatcher", str(dispatcher)))
        stack.enter_context(_running("benchmarks.service", "worker", str(worker), str(dispatcher)))
        yield f"localhost:{dispatcher}"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextmanager
def _running(*module: str) -> Iterator[None]:
    """A Python module as a process that says `ready`."""
    process = subprocess.Popen(
        [sys.executable, "-m", *module],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert process.stdout is not None
    try:
        if process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"{' '.join(module)} did not start")
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
