"""Packages of a release: built, checked, tried in clean environments, and listed.

    python -m tools.package [--out dist] [--python PYTHON]... [--server PYTHON]... [--sbom]
                            [--release TAG] [--repository URL]

Builds the sdist, the wheel from the unpacked sdist, which proves that the sdist is complete, and
the wheel of `native/`. Builds all of them again from a copy of the tracked files elsewhere, which
must give the same bytes, and checks their contents, and their metadata with `twine check`. For each
`--python`, installs only the wheel into a new environment, measures the import, trains on a fake,
and runs the command of the extra `cli`. For each `--server`, installs it with the server's extra
and trains on a real server. `--sbom` writes `infeed.cdx.json`, a CycloneDX list of the last
environment. `--release` and `--repository` check what only a release needs: a tag of this version,
a dated section of the changelog, and the repository's address.

Needs hatchling, a C compiler, and the network or pip's cache: TensorFlow is large.
"""

from __future__ import annotations

import argparse
import email
import email.message
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from html.parser import HTMLParser
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[1]

PACKAGES = (
    *("client/infeed", "server/infeed_server"),
    *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "plugins").glob("*/infeed_*"))),
)

SBOM_TOOL = "cyclonedx-bom==7.5.0"
TWINE = "twine==7.0.0"

_BUILT = shutil.ignore_patterns("*.egg-info", "*.so")

_NATIVE_FILES = ("__init__.py", "_decoder.so", "py.typed")

MAX_NATIVE_KIB = 64
"""Bound on the wheel of `native/`, which links no library."""

MAX_IMPORT_SECONDS = 0.5
"""Bound on `import infeed`, the shortest of five imports: the machine may be busy."""

IMPORTING = """
import subprocess, sys
code = "import time; start = time.perf_counter(); import infeed; print(time.perf_counter() - start)"
command = [sys.executable, "-I", "-c", code]
print(min(float(subprocess.check_output(command)) for _ in range(5)))
"""

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


def run(*command: str | Path, cwd: Path | None = None, **variables: str) -> str:
    """Runs a command to its end and returns its output. Raises `CalledProcessError`."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= variables
    result = subprocess.run(  # noqa: S603
        command, check=True, cwd=cwd, env=environment, stdout=subprocess.PIPE, text=True
    )
    return result.stdout


def build(out: Path, root: Path = ROOT) -> tuple[Path, Path, Path]:
    """Builds sdist, wheel and native wheel into a folder, with the time of the last commit."""
    out.mkdir(parents=True, exist_ok=True)
    for old in (*out.glob("infeed-*.tar.gz"), *out.glob("infeed[-_]*.whl")):
        old.unlink()
    epoch = run("git", "log", "-1", "--format=%ct", cwd=ROOT).strip()
    hatchling = (sys.executable, "-m", "hatchling", "build", "--directory", out)
    run(*hatchling, "--target", "sdist", cwd=root, SOURCE_DATE_EPOCH=epoch)
    (sdist,) = out.glob("infeed-*.tar.gz")
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(sdist) as archive:
            archive.extractall(folder, filter="data")
        (unpacked,) = Path(folder).iterdir()
        run(*hatchling, "--target", "wheel", cwd=unpacked, SOURCE_DATE_EPOCH=epoch)
    with tempfile.TemporaryDirectory() as folder:  # the build writes into its folder
        copy = Path(shutil.copytree(root / "native", Path(folder, "native"), ignore=_BUILT))
        wheels = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", out)
        run(*wheels, "--no-build-isolation", copy, SOURCE_DATE_EPOCH=epoch)
    (wheel,) = out.glob("infeed-*.whl")
    (native,) = out.glob("infeed_jpeg-*.whl")
    return sdist, wheel, native


def digest(package: Path) -> str:
    return hashlib.sha256(package.read_bytes()).hexdigest()


def compare_builds(*packages: Path) -> list[str]:
    """Builds again from a copy of the tracked files; returns the packages that differ."""
    with tempfile.TemporaryDirectory() as name:
        copy, out = Path(name, "copy"), Path(name, "out")
        for path in filter(None, run("git", "ls-files", "-z", cwd=ROOT).split("\0")):
            (copy / path).parent.mkdir(parents=True, exist_ok=True)
            # The copy lacks the times and permissions of the clone.
            shutil.copyfile(ROOT / path, copy / path)
        again = build(out, copy)
        return [
            f"{package.name}: another SHA-256 when it is built in another folder"
            for package, second in zip(packages, again, strict=True)
            if digest(package) != digest(second)
        ]


class _Addresses(HTMLParser):
    """Addresses of the links and pictures of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        self.found += [value or "" for name, value in attrs if name in ("href", "src", "srcset")]


def check_readme(text: str, repository: str | None) -> list[str]:
    """Returns the links in a package's README that lead nowhere on the package index."""
    page = _Addresses()
    page.feed(MarkdownIt("gfm-like", {"linkify": False}).render(text))
    problems = [
        f"README.md: {address!r} is relative; pyproject.toml has the replacements"
        for address in page.found
        if not address.startswith("https://")
    ]
    if repository and not any(address.startswith(f"{repository}/") for address in page.found):
        problems.append(f"README.md: no link to {repository}; pyproject.toml has the replacements")
    return problems


def check_release(fields: email.message.Message, tag: str, repository: str | None) -> list[str]:
    """Returns what a release lacks: a tag of its version, a date, the repository's address."""
    version = fields["Version"]
    problems = []
    if tag != f"v{version}":
        problems.append(f"tag {tag}: not of version {version}; expected v{version}")
    changes = (ROOT / "CHANGELOG.md").read_text()
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changes, re.MULTILINE):
        problems.append(f"CHANGELOG.md: no section [{version}] with a date")
    addresses = [value.partition(", ")[2] for value in fields.get_all("Project-URL", [])]
    if repository not in addresses:
        problems.append(f"pyproject.toml: [project.urls] has {addresses}, not {repository}")
    return problems


def check(sdist: Path, wheel: Path, release: str | None, repository: str | None) -> list[str]:
    """Returns what the packages lack, and what they should not contain."""
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
    # All tracked files of the packages, including the dashboard's pages and scripts.
    expected = {
        name.removeprefix(f"{Path(package).parent}/")
        for package in PACKAGES
        for name in run("git", "ls-files", package, cwd=ROOT).split()
    }
    problems += [f"the wheel lacks {name}" for name in sorted(expected - in_wheel)]
    problems += check_readme(fields.get_payload(), repository)
    if release is not None:
        problems += check_release(fields, release, repository)
    return problems


def check_native(native: Path) -> list[str]:
    """Returns what the wheel of `native/` has in excess: bytes, files or exported symbols."""
    with zipfile.ZipFile(native) as archive, tempfile.TemporaryDirectory() as folder:
        code = [name for name in archive.namelist() if ".dist-info/" not in name]
        library = archive.extract("infeed_jpeg/_decoder.so", folder)
        symbols = run("nm", "--dynamic", "--defined-only", library).split()[2::3]
    problems = []
    if not re.search(r"-py3-none-linux_\w+\.whl$", native.name):
        problems.append(f"{native.name}: not for each Python 3 on Linux")
    if native.stat().st_size > MAX_NATIVE_KIB << 10:
        problems.append(f"{native.name}: more than {MAX_NATIVE_KIB} KiB")
    if sorted(code) != [f"infeed_jpeg/{file}" for file in _NATIVE_FILES]:
        problems.append(f"{native.name}: {code}")
    if sorted(symbols) != ["infeed_jpeg_decode", "infeed_jpeg_read_headers"]:
        problems.append(f"{native.name}: exports {symbols}")
    return problems


def check_metadata(*packages: Path) -> None:
    """Runs `twine check` in an environment of its own. Raises `CalledProcessError`."""
    with tempfile.TemporaryDirectory() as name:
        twine = environment(Path(name), sys.executable, TWINE).with_name("twine")
        print(run(twine, "check", "--strict", *packages).rstrip(), flush=True)


def is_installed(python: str) -> bool:
    """Returns whether an interpreter runs: a version manager's name on the path may have none."""
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
    """Installs the wheel into a clean environment and runs the code there, outside the clone."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inside = environment(folder / "venv", python, f"{wheel}{extra}")
        # -I ignores the variables and folders that would add other packages.
        print(run(inside, "-I", "-c", code, cwd=folder).rstrip(), flush=True)
        if not extra:  # the light package has no command yet
            seconds = float(run(inside, "-I", "-c", IMPORTING, cwd=folder))
            print(f"import infeed: {1000 * seconds:.0f} ms", flush=True)
            if seconds > MAX_IMPORT_SECONDS:
                raise SystemExit(f"import infeed: {seconds:.2f} s; {MAX_IMPORT_SECONDS} s at most")
            run(inside, "-m", "pip", "install", "--quiet", f"{wheel}[cli]")
        run(inside.with_name("infeed"), "--help", cwd=folder)
        if bom is not None:
            list_contents(inside, bom, folder)


def list_contents(inside: Path, bom: Path, folder: Path) -> None:
    """Writes the software bill of materials of an environment, with a tool in another one."""
    tool = environment(folder / "tool", sys.executable, SBOM_TOOL).with_name("cyclonedx-py")
    # The tool cannot read a version that the build takes from the code.
    version = run(inside, "-I", "-c", "import infeed; print(infeed.__version__)").strip()
    definition = (ROOT / "pyproject.toml").read_text()
    (folder / "pyproject.toml").write_text(
        re.sub("^dynamic = .*$", f'version = "{version}"', definition, count=1, flags=re.MULTILINE)
    )
    project = ("--pyproject", folder / "pyproject.toml", "--mc-type", "library")
    reproducible = ("--output-reproducible", "--of", "JSON", "-o", bom)
    run(tool, "environment", *project, *reproducible, inside)
    if json.loads(bom.read_text())["metadata"]["component"].get("version") != version:
        raise SystemExit(f"{bom}: the listed component has no version {version}")
    print(f"wrote {bom.name}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Builds the packages and tries them out.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder of the packages")
    parser.add_argument("--python", action="append", default=[], help="interpreter to train with")
    parser.add_argument(
        "--server", action="append", default=[], help="interpreter to serve with, with TensorFlow"
    )
    parser.add_argument("--sbom", action="store_true", help="list what the environment contains")
    parser.add_argument("--release", metavar="TAG", help="check what a release has to have")
    parser.add_argument("--repository", metavar="URL", help="address that the packages must name")
    options = parser.parse_args()
    sdist, wheel, native = build(options.out.absolute())
    for package in (sdist, wheel, native):
        print(f"built {package.name}, {package.stat().st_size >> 10} KiB", flush=True)
        print(f"  sha256 {digest(package)}", flush=True)
    problems = check(sdist, wheel, options.release, options.repository)
    problems += check_native(native) + compare_builds(sdist, wheel, native)
    if problems:
        print("\n".join(problems))
        return 1
    check_metadata(sdist, wheel, native)
    trials = [(python, "", TRAINING) for python in options.python]
    trials += [(python, "[server]", SERVING) for python in options.server]
    for python, _, _ in trials:
        if not is_installed(python):
            print(f"left out: no {python} here")
    trials = [trial for trial in trials if is_installed(trial[0])]
    for number, trial in enumerate(trials, 1):
        is_listed = options.sbom and number == len(trials)
        try_out(wheel, *trial, wheel.with_name("infeed.cdx.json") if is_listed else None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
