"""Fixtures for all tests: servers in this process and in child processes, certificates, photos."""

from __future__ import annotations

import datetime
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.harness import examples
from tests.harness.ports import ReservedPort
from tests.harness.server import InfeedServer

from infeed_server.imports import without_gc

if TYPE_CHECKING:
    from tests.harness.command_line import CommandLine
    from tests.harness.nursery import Nursery

    from infeed_server.runtime.server import Server

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# A test must not leave an index or digests in a home directory.
_CACHE = tempfile.TemporaryDirectory(prefix="infeed-cache-")
os.environ["INFEED_CACHE_DIR"] = _CACHE.name
# A shell's background jobs ignore SIGINT, and so would the commands that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
examples.register()

pytest_plugins = [
    "tests.harness.hooks.longest_first",
    "tests.harness.hooks.nursery",
    "tests.harness.hooks.quick_graphs",
]

Serve = Callable[..., "Server"]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collects tests, which imports TensorFlow, without garbage collection: this saves a second."""
    with without_gc():
        result = yield
    # AutoGraph writes each converted function as a temporary module with a new name. Its bytecode
    # would not be removed.
    sys.dont_write_bytecode = True
    return result


def pytest_configure(config: pytest.Config) -> None:
    """Raises `pytest.UsageError` when `INFEED_TEST_PHOTOS` is not a folder of photos."""
    folder = os.environ.get("INFEED_TEST_PHOTOS")
    if folder and not hasattr(config, "workerinput"):
        labels = Path(folder, "labels.csv")
        if not labels.is_file():
            raise pytest.UsageError(f"INFEED_TEST_PHOTOS: no file {labels}; unset it to draw some")
        os.environ["INFEED_TEST_PHOTOS"] = str(Path(folder).resolve())  # tests change the directory


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Starts servers in this process: `serve(text)` takes YAML, or pipelines by name."""
    from infeed_server.pipeline.load import from_yaml
    from infeed_server.runtime.options import ServerOptions
    from infeed_server.runtime.server import Server

    running: list[Server] = []
    # The default folder of the quarantine log.
    monkeypatch.chdir(tmp_path)

    def start(pipelines: Any, name: str = "pipelines.yaml") -> Server:
        if isinstance(pipelines, str):
            file = tmp_path / name
            file.write_text(pipelines)
            pipelines = from_yaml(str(file))
        server = Server(pipelines, ServerOptions("127.0.0.1:0", None))
        running.append(server)
        server.start()
        return server

    yield start
    for server in running:
        server.stop(grace=0.2)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Any], Server]]:
    """Starts servers of pipelines as `serve` does; they run until the module's last test."""
    from infeed_server.runtime.options import ServerOptions
    from infeed_server.runtime.server import Server

    with pytest.MonkeyPatch.context() as patch, ExitStack() as running:
        patch.chdir(tmp_path_factory.mktemp("shared"))

        def start(pipelines: Any) -> Server:
            server = Server(pipelines, ServerOptions("127.0.0.1:0", None))
            running.callback(server.stop, grace=0.2)
            server.start()
            return server

        yield start


@pytest.fixture(scope="session")
def new_address() -> Iterator[Callable[[], str]]:
    """Returns a loopback address, whose port is reserved until the end of the session.

    For servers that restart, and for programs that do not take port 0. Until a server listens
    there, connections are refused.
    """
    with ExitStack() as reserved:
        yield lambda: reserved.enter_context(ReservedPort()).address


@pytest.fixture(scope="session")
def command_line(
    nursery: Nursery, new_address: Callable[[], str], tmp_path_factory: pytest.TempPathFactory
) -> CommandLine:
    from tests.harness.command_line import CommandLine

    return CommandLine(tmp_path_factory.mktemp("commands"), nursery, new_address)


@pytest.fixture
def server_process(
    nursery: Nursery, new_address: Callable[[], str], tmp_path: Path
) -> Iterator[Callable[..., InfeedServer]]:
    """Starts `infeed serve` processes on YAML text; they are killed after the test."""
    running: list[InfeedServer] = []

    def start(text: str, listen: str | None = None, *options: str) -> InfeedServer:
        definition = tmp_path / "pipelines.yaml"
        definition.write_text(text)
        log = tmp_path / f"server-{len(running)}"
        server = InfeedServer(
            definition,
            log,
            *options,
            listen=listen or new_address(),
            http=new_address(),
            launch=nursery.start,
        )
        running.append(server)
        server.start()
        server.wait_until_serving()
        return server

    yield start
    for server in running:
        server.kill()


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Certificates as paths of PEM files, each with its key as `NAME_key`.

    `ca` issued `server` (for loopback), `trainer`, both again as `NAME_expired`, and `elsewhere`
    (for another host). `untrusted_ca` issued `untrusted` (for loopback). `locked_key` is the
    server's key with a password.
    """
    import trustme
    from cryptography.hazmat.primitives import serialization

    folder = tmp_path_factory.mktemp("pki")
    past = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=1)
    files: dict[str, Path] = {}

    def save(name: str, *blobs: Any) -> None:
        files[name] = folder / f"{name}.pem"
        files[name].write_bytes(b"".join(blob.bytes() for blob in blobs))

    def issue(name: str, ca: trustme.CA, *identities: str, **options: Any) -> trustme.LeafCert:
        cert = ca.issue_cert(*identities, **options)
        save(name, *cert.cert_chain_pems)
        save(f"{name}_key", cert.private_key_pem)
        return cert

    ca, untrusted_ca = trustme.CA(), trustme.CA()
    loopback = ("127.0.0.1", "::1", "localhost")
    save("ca", ca.cert_pem)
    save("untrusted_ca", untrusted_ca.cert_pem)
    save("untrusted_ca_key", untrusted_ca.private_key_pem)
    issue("server", ca, *loopback)
    issue("server_expired", ca, *loopback, not_after=past)
    issue("elsewhere", ca, "infeed.example.org")
    issue("trainer", ca, "trainer@example.org")
    issue("trainer_expired", ca, "trainer@example.org", not_after=past)
    issue("untrusted", untrusted_ca, *loopback)
    key = serialization.load_pem_private_key(files["server_key"].read_bytes(), None)
    files["locked_key"] = folder / "locked_key.pem"
    files["locked_key"].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    return SimpleNamespace(**files)


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A folder of JPEGs with `labels.csv`: `INFEED_TEST_PHOTOS`, or drawn photos.

    Has `folder`, `labels` (file → label) and `count`.
    """
    path = os.environ.get("INFEED_TEST_PHOTOS")
    folder = Path(path) if path else draw_photos(tmp_path_factory.mktemp("photos"))
    rows = [line.rpartition(",") for line in (folder / "labels.csv").read_text().split()]
    labels = {file: int(label) for file, _, label in rows if label != "label"}
    return SimpleNamespace(folder=folder, labels=labels, count=len(labels))


@pytest.fixture(scope="session")
def few_photos(
    photos: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory
) -> SimpleNamespace:
    """The first 60 of `photos`, in a folder of their own."""
    folder = tmp_path_factory.mktemp("few_photos")
    names = sorted(photos.labels)[:60]
    for name in names:
        shutil.copy(photos.folder / name, folder)
    labels = {name: photos.labels[name] for name in names}
    rows = ["file,label", *(f"{name},{label}" for name, label in labels.items())]
    (folder / "labels.csv").write_text("\n".join(rows) + "\n")
    return SimpleNamespace(folder=folder, labels=labels, count=len(labels))


def draw_photos(folder: Path, count: int = 60) -> Path:
    """Writes JPEGs of random sizes, every tenth of them grey, and returns the folder."""
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(0)
    rows = ["file,label"]
    for number in range(count):
        height, width = rng.integers(80, 200, 2).tolist()
        shape = (6, 6) if number % 10 == 0 else (6, 6, 3)
        thumbnail = Image.fromarray(rng.integers(0, 255, shape, np.uint8))
        name = f"photo_{number:03}.JPEG"
        thumbnail.resize((width, height)).save(folder / name)
        rows.append(f"{name},{number % 7}")
    (folder / "labels.csv").write_text("\n".join(rows) + "\n")
    return folder
