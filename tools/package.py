"""Packages of a release: built, checked, tried in clean environments, and listed.

    python -m tools.package [--out dist] [--python PYTHON]... [--server PYTHON] [--sbom]

Builds the sdist, and the wheel from the unpacked sdist, so that the sdist is complete. With each
`--python`, installs the wheel alone into a new environment, trains on a fake, and runs the command
of the extra `cli`; with `--server`, installs it with the server's extra and trains on a real
server. `--sbom` writes a CycloneDX list of what that environment contains, `infeed.cdx.json`.

Needs hatchling, and the network or a cache of pip: TensorFlow is large.
"""

from __future__ import annotations

import argparse
import email
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]

PACKAGES = ("client/infeed", "server/infeed_server", "tfdata/infeed_tfdata")

SBOM_TOOL = "cyclonedx-bom==7.5.0"

TRAINING = """
import importlib.util, platform, sys
import numpy as np
import infeed
from infeed.testing import FakeTransport
assert "site-packages" in infeed.__file__, infeed.__file__
for name in ("tensorflow", "grpc", "jax", "torch"):
    assert importlib.util.find_spec(name) is None, f"{name} is installed"
arrays = {"image": np.zeros((40, 8, 8, 3), np.uint8), "label": np.arange(40)}
with infeed.connect("fake", "fake", epochs=2, transport=FakeTransport(arrays)) as feed:
    ids = [number for batch in feed for number in batch.sample_ids.tolist()]
assert sorted(ids) == sorted(2 * list(range(40))), ids
print(f"trainer: Python {platform.python_version()}, {infeed.__version__}, each sample twice")
"""

SERVING = """
import platform, subprocess, sys
from pathlib import Path
import numpy as np
import infeed
np.savez("a.npz", x=np.arange(40))
Path("p.yaml").write_text("pipelines: {a: {source: {arrays: a.npz}, batch: {size: 8}}}")
serve = [sys.executable, "-m", "infeed", "serve", "p.yaml", "--listen", "127.0.0.1:0", "--quiet"]
with subprocess.Popen([*serve, "--http", "off"], stdout=subprocess.PIPE, text=True) as server:
    try:
        target = server.stdout.readline().split()[2]
        with infeed.connect(target, "a", epochs=1) as feed:
            ids = [number for batch in feed for number in batch.sample_ids.tolist()]
        assert sorted(ids) == list(range(40)), ids
    finally:
        server.terminate()
    assert server.wait(60) == 0
print(f"server: Python {platform.python_version()}, each sample once")
"""


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Runs a command to its end and returns its output. Raises `CalledProcessError`."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    result = subprocess.run(  # noqa: S603
        command, check=True, cwd=cwd, env=environment, stdout=subprocess.PIPE, text=True
    )
    return result.stdout


def build(out: Path) -> tuple[Path, Path]:
    """Builds sdist and wheel into a folder, and returns them."""
    out.mkdir(parents=True, exist_ok=True)
    for old in (*out.glob("infeed-*.tar.gz"), *out.glob("infeed-*.whl")):
        old.unlink()
    hatchling = (sys.executable, "-m", "hatchling", "build", "--directory", out)
    run(*hatchling, "--target", "sdist", cwd=ROOT)
    (sdist,) = out.glob("infeed-*.tar.gz")
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(sdist) as archive:
            archive.extractall(folder, filter="data")
        (unpacked,) = Path(folder).iterdir()
        run(*hatchling, "--target", "wheel", cwd=unpacked)
    (wheel,) = out.glob("infeed-*.whl")
    return sdist, wheel


def check(sdist: Path, wheel: Path) -> list[str]:
    """Returns what the packages lack, or have too much."""
    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = set(archive.namelist())
        (metadata,) = (name for name in in_wheel if name.endswith(".dist-info/METADATA"))
        fields = email.message_from_bytes(archive.read(metadata))
    problems = [
        f"the sdist has no {name}"
        for name in ("LICENSE", "CHANGELOG.md", "README.md", "pyproject.toml", "proto/infeed/v1")
        if not any(item == name or item.startswith(f"{name}/") for item in in_sdist)
    ]
    tops = {name.partition("/")[0] for name in in_wheel if ".dist-info/" not in name}
    problems += [f"the wheel has {name}" for name in tops - {Path(path).name for path in PACKAGES}]
    # Whatever git has in the packages, pages and scripts of the dashboard too.
    tracked = run("git", "ls-files", *PACKAGES, cwd=ROOT).split()
    expected = {name.partition("/")[2] for name in tracked}
    problems += [f"the wheel lacks {name}" for name in sorted(expected - in_wheel)]
    if f"## [{fields['Version']}]" not in (ROOT / "CHANGELOG.md").read_text():
        problems.append(f"CHANGELOG.md has no section [{fields['Version']}]")
    return problems


def is_installed(python: str) -> bool:
    """Returns whether an interpreter runs: a name on the path may be of a manager that has none."""
    if shutil.which(python) is None:
        return False
    command = (python, "-c", "import venv")
    return subprocess.run(command, check=False, capture_output=True).returncode == 0  # noqa: S603


def environment(folder: Path, python: str, requirement: str) -> Path:
    """Returns the interpreter of a new environment with a requirement."""
    run(python, "-m", "venv", folder)
    inside = folder / "bin" / "python"
    run(inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement)
    run(inside, "-m", "pip", "check")
    return inside


def try_out(wheel: Path, python: str, extra: str, code: str, bom: Path | None) -> None:
    """Installs the wheel into a clean environment and runs the code there, outside of the clone."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inside = environment(folder / "venv", python, f"{wheel}{extra}")
        # -I: without the variables and folders that would add other packages.
        print(run(inside, "-I", "-c", code, cwd=folder).rstrip(), flush=True)
        if not extra:  # the light package has no command yet
            run(inside, "-m", "pip", "install", "--quiet", f"{wheel}[cli]")
        run(inside.with_name("infeed"), "--help", cwd=folder)
        if bom is not None:
            list_contents(inside, bom, folder)


def list_contents(inside: Path, bom: Path, folder: Path) -> None:
    """Writes the software bill of materials of an environment, by a tool in another one."""
    tool = environment(folder / "tool", sys.executable, SBOM_TOOL).with_name("cyclonedx-py")
    project = ("--pyproject", ROOT / "pyproject.toml", "--mc-type", "library")
    reproducible = ("--output-reproducible", "--of", "JSON", "-o", bom)
    run(tool, "environment", *project, *reproducible, inside)
    print(f"wrote {bom.name}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Builds the packages and tries them out.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder of the packages")
    parser.add_argument("--python", action="append", default=[], help="interpreter to train with")
    parser.add_argument("--server", help="interpreter to serve with, with TensorFlow")
    parser.add_argument("--sbom", action="store_true", help="list what the environment contains")
    options = parser.parse_args()
    sdist, wheel = build(options.out.absolute())
    problems = check(sdist, wheel)
    for package in (sdist, wheel):
        print(f"built {package.name}, {package.stat().st_size >> 10} KiB", flush=True)
    if problems:
        print("\n".join(problems))
        return 1
    bom = wheel.with_name("infeed.cdx.json") if options.sbom else None
    pythons = [item for item in options.python if is_installed(item)]
    for missing in set(options.python) - set(pythons):
        print(f"left out: no {missing} here")
    for number, python in enumerate(pythons):
        lists = bom if number == len(pythons) - 1 and not options.server else None
        try_out(wheel, python, "", TRAINING, lists)
    if options.server:
        try_out(wheel, options.server, "[server]", SERVING, bom)
    return 0


if __name__ == "__main__":
    sys.exit(main())
