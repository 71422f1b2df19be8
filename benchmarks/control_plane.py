"""Answer times of the control plane while streams saturate the machine.

    .venv/bin/python -m benchmarks.control_plane [FOLDER_OF_IMAGES] [--trainers 8] [--seconds 30]

Trainers that compute nothing read decoded images and constant arrays as fast as the server can send
them. Meanwhile each path is requested in turn, with a connection per request, as by probes and
Prometheus. Without a folder, it draws images.
"""

from __future__ import annotations

import argparse
import http.client
import os
import tempfile
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import numpy as np
from benchmarks.processes import started

from infeed_tools.demo import shapes

PATHS = ("/livez", "/readyz", "/metrics", "/api/v1/status", "/")
PAUSE_SECONDS = 0.01
LIMIT_SECONDS = 0.1

DEFINITION = """\
pipelines:
  photos:
    source: {{images: {folder}}}
    shuffle: {{seed: 17}}
    transforms:
      - decode_image: {{field: image, channels: 3}}
      - resize: {{field: image, size: [224, 224]}}
    batch: {{size: 16}}
  arrays:
    source: {{arrays: {arrays}}}
    shuffle: {{seed: 17}}
    batch: {{size: 64}}
"""


def request_seconds(address: str, path: str) -> float:
    """Returns the time of a request and its whole answer."""
    began = time.perf_counter()
    with closing(http.client.HTTPConnection(address, timeout=60)) as connection:
        connection.request("GET", path, headers={"accept": "*/*"})
        response = connection.getresponse()
        response.read()
    if response.status != http.client.OK:
        raise SystemExit(f"{path} answers {response.status}")
    return time.perf_counter() - began


def measure(address: str, seconds: float) -> dict[str, list[float]]:
    """Returns the times of the requests for each path, sorted."""
    times: dict[str, list[float]] = {path: [] for path in PATHS}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for path in PATHS:
            times[path].append(request_seconds(address, path))
            time.sleep(PAUSE_SECONDS)
    return {path: sorted(item) for path, item in times.items()}


def report(label: str, times: dict[str, list[float]]) -> bool:
    """Prints the quantiles of each path, and returns whether all are below the limit."""
    print(f"{label}: milliseconds of a request")
    for path, item in times.items():
        p50, p99 = item[len(item) // 2], item[int(len(item) * 0.99)]
        figures = f"p50 {1000 * p50:6.1f}  p99 {1000 * p99:6.1f}  max {1000 * item[-1]:6.1f}"
        print(f"  {path:30} {figures}  of {len(item)}")
    return all(item[int(len(item) * 0.99)] <= LIMIT_SECONDS for item in times.values())


def _run_first() -> None:
    """Keeps this process's own waits for a processor out of the times, if the system allows.

    Niceness would not: it counts only among the processes of one group, such as a container.
    """
    with suppress(AttributeError, PermissionError):  # on Linux only, as root
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("images", nargs="?", type=Path)
    parser.add_argument("--trainers", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name) / "drawn" if options.images is None else options.images.resolve()
        if options.images is None:
            list(shapes.write_images(folder, 500, seed=0))
        arrays, definition = Path(name) / "arrays.npz", Path(name) / "pipelines.yaml"
        np.savez(arrays, image=np.zeros((256, 224, 224, 3), np.uint8))
        definition.write_text(DEFINITION.format(folder=folder, arrays=arrays))
        words = ("serve", str(definition), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
        line = stack.enter_context(started("infeed", *words)).read_line()
        target = line.split()[2]
        address = line.partition("(http ")[2].rstrip(")\n")
        idle = measure(address, options.seconds / 3)
        for pipeline in ("photos", "arrays"):
            count = str(max(1, options.trainers // 2))
            rates = ("--trainers", count, "--step-ms", "0", "--duration", "600", "--independent")
            stack.enter_context(started("infeed", "loadtest", target, pipeline, *rates))
        time.sleep(10)  # until the trainers read
        _run_first()
        loaded = measure(address, options.seconds)
        report("idle", idle)
        within = report(f"{options.trainers} trainers", loaded)
        print(f"every p99 within {1000 * LIMIT_SECONDS:.0f} ms: {within}")


if __name__ == "__main__":
    main()
