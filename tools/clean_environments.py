"""Check of the extras: each is installed into an environment of its own, and trains there.

    python -m tools.clean_environments jax grain [--python PYTHON] [--server HOST:PORT/PIPELINE]

Needs the network or pip's cache, and some minutes, so no test runs it. `torch` installs the build
that pip finds first: with CUDA, several gigabytes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]

BATCHES = {
    "jax": "infeed.jax.connect(*source, batch_size=8, epochs=1, ids='id', **options)",
    "torch": "infeed.torch.connect(*source, batch_size=8, epochs=1, ids='id', **options)",
    "grain": "infeed.grain.FeedDataset(*source, batch_size=8, epochs=1, ids='id', **options)",
}
"""Extra → the iterable of batches, with the sample ids as a field."""

TRAINING = """
import importlib.util, platform, sys
import numpy as np
import infeed
from infeed.testing import FakeTransport

server = {server!r}
arrays = {{"image": np.zeros((40, 8, 8, 3), np.uint8), "label": np.arange(40)}}
source = server.split("/", 1) if server else ("fake", "fake")
options = {{}} if server else {{"transport": FakeTransport(arrays)}}
weights, ids = np.zeros(3), []
for batch in {batches}:
    weights = weights + np.asarray(batch["image"], np.float64).mean((0, 1, 2))
    ids += batch["id"].tolist()
assert ids and len(ids) == len(set(ids)), ids
for name in ("tensorflow", "grpc"):
    assert importlib.util.find_spec(name) is None, f"{{name}} is installed"
version = platform.python_version()
print(f"{extra}: Python {{version}}, {{len(ids)}} samples, each once; no TensorFlow")
"""


def check(extra: str, python: str, server: str | None) -> int:
    """Installs `infeed[extra]` alone in a new environment and trains; returns the exit status."""
    code = TRAINING.format(extra=extra, batches=BATCHES[extra], server=server)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([python, "-m", "venv", folder], check=True)  # noqa: S603
        inside = str(Path(folder) / "bin" / "python")
        install = [inside, "-m", "pip", "install", "--quiet", f"{ROOT}[{extra}]"]
        subprocess.run(install, check=True, cwd=folder)  # noqa: S603
        # -I ignores the variables and folders that would add other packages.
        training = [inside, "-I", "-c", code]
        return subprocess.run(training, check=False, cwd=folder).returncode  # noqa: S603


def main() -> int:
    parser = argparse.ArgumentParser(description="Trains with each extra in a clean environment.")
    parser.add_argument("extras", nargs="+", choices=sorted(BATCHES))
    parser.add_argument("--python", default=sys.executable, help="interpreter of the environments")
    parser.add_argument("--server", help="HOST:PORT/PIPELINE; by default, arrays in the process")
    options = parser.parse_args()
    return max(check(extra, options.python, options.server) for extra in options.extras)


if __name__ == "__main__":
    sys.exit(main())
