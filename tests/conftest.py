"""Fixtures for all tests: real servers, in this process or in one of their own, and real data."""

from __future__ import annotations

import datetime
import os
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.harness import examples
from tests.harness.nursery import Nursery
from tests.harness.server import InfeedServer

from infeed_server.imports import without_collection

if TYPE_CHECKING:
    from infeed_server.runtime.server import Server

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# A test must not leave an index in a home directory.
os.environ.pop("INFEED_CACHE_DIR", None)
examples.register()

pytest_plugins = [
    "tests.plugins.final_line",
    "tests.plugins.longest_first",
    "tests.plugins.selected_paths",
]

Serve = Callable[..., "Server"]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collects tests, which imports TensorFlow, without collecting garbage: a second less. What was
    imported is never garbage, and a later collection does not look through it."""
    with without_collection():
        collected = yield
    # Each function that AutoGraph converts is a module with a new name among the temporary files,
    # whose bytecode would stay there.
    sys.dont_write_bytecode = True
    return collected


def pytest_configure(config: pytest.Config) -> None:
    """Raises `pytest.UsageError` when `INFEED_TEST_PHOTOS` names no folder of photos."""
    folder = os.environ.get("INFEED_TEST_PHOTOS")
    if not folder or hasattr(config, "workerinput"):
        return
    labels = Path(folder, "labels.csv")
    if not labels.is_file():
        raise pytest.UsageError(
            f"INFEED_TEST_PHOTOS: no file {labels}; without it, photos are drawn"
        )
    if len(labels.read_text().split()) < 2:
        raise pytest.UsageError(
            f"INFEED_TEST_PHOTOS: {labels} has no photo; it has rows file,label"
        )


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Starts servers in this process: `serve(text)` takes YAML, or pipelines by name."""
    from infeed_server.pipeline.load import from_yaml
    from infeed_server.runtime.options import ServerOptions
    from infeed_server.runtime.server import Server

    running: list[Server] = []
    # Where the quarantine log goes by default.
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


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """Starts processes that need not load TensorFlow: it is loaded once for all."""
    with Nursery() as started:
        yield started


@pytest.fixture
def server_process(nursery: Nursery, tmp_path: Path) -> Iterator[Callable[..., InfeedServer]]:
    """Starts `infeed serve` processes on YAML text; all are gone after the test."""
    running: list[InfeedServer] = []

    def start(text: str, listen: str = "127.0.0.1:0", *options: str) -> InfeedServer:
        definition = tmp_path / "pipelines.yaml"
        definition.write_text(text)
        log = tmp_path / f"server-{len(running)}"
        server = InfeedServer(
            definition, log, *options, listen=listen, http="127.0.0.1:0", launch=nursery.start
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
    """Certificates, as paths of PEM files: `ca`; `server` for loopback and `trainer`, each with its
    `_key`, and the same `_expired`; a stranger's (`stranger_ca`, `stranger`, `stranger_key`, for
    loopback too); `elsewhere`, of the right authority for another host; and `locked_key`."""
    import trustme
    from cryptography.hazmat.primitives import serialization

    folder = tmp_path_factory.mktemp("pki")
    past = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=1)
    files: dict[str, Path] = {}

    def keep(name: str, *blobs: Any) -> None:
        files[name] = folder / f"{name}.pem"
        files[name].write_bytes(b"".join(blob.bytes() for blob in blobs))

    def issue(name: str, ca: trustme.CA, *identities: str, **options: Any) -> trustme.LeafCert:
        cert = ca.issue_cert(*identities, **options)
        keep(name, *cert.cert_chain_pems)
        keep(f"{name}_key", cert.private_key_pem)
        return cert

    ca, stranger = trustme.CA(), trustme.CA()
    loopback = ("127.0.0.1", "::1", "localhost")
    keep("ca", ca.cert_pem)
    keep("stranger_ca", stranger.cert_pem)
    issue("server", ca, *loopback)
    issue("server_expired", ca, *loopback, not_after=past)
    issue("elsewhere", ca, "infeed.example.org")
    issue("trainer", ca, "trainer@example.org")
    issue("trainer_expired", ca, "trainer@example.org", not_after=past)
    issue("stranger", stranger, *loopback)
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
    """A folder of JPEGs with `labels.csv`: that of `INFEED_TEST_PHOTOS`, or drawn ones.

    Has `folder`, `labels` (file → label) and `count`.
    """
    real = os.environ.get("INFEED_TEST_PHOTOS")
    folder = Path(real) if real else draw_photos(tmp_path_factory.mktemp("photos"))
    rows = [line.rpartition(",") for line in (folder / "labels.csv").read_text().split()]
    labels = {file: int(label) for file, _, label in rows if label != "label"}
    return SimpleNamespace(folder=folder, labels=labels, count=len(labels))


def draw_photos(folder: Path, count: int = 60) -> Path:
    """JPEGs of all kinds of sizes, every tenth of them grey."""
    import numpy as np
    import tensorflow as tf

    rng = np.random.default_rng(0)
    rows = ["file,label"]
    for number in range(count):
        height, width = rng.integers(80, 200, 2)
        channels = 1 if number % 10 == 0 else 3
        small = rng.integers(0, 255, (6, 6, channels))
        picture = tf.cast(tf.image.resize(small, [height, width]), tf.uint8)
        name = f"photo_{number:03}.JPEG"
        (folder / name).write_bytes(tf.io.encode_jpeg(picture).numpy())
        rows.append(f"{name},{number % 7}")
    (folder / "labels.csv").write_text("\n".join(rows) + "\n")
    return folder
