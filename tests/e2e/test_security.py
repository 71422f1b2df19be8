"""TLS, mutual TLS and tokens of `infeed serve`, from options to a feed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner, Result

import infeed
from infeed import (
    TLS,
    AuthenticationError,
    InfeedError,
    PermissionDeniedError,
    ServerUnavailableError,
)
from infeed.cli import new_app
from infeed_server.serving.auth import new_token, token_entry

TEXT = """
pipelines:
  open:
    source: {arrays: n.npy}
    batch: {size: 4}
  secret:
    source: {arrays: n.npy}
    batch: {size: 4}
"""

FOREVER = 100_000.0
"""Timeout in seconds: a refusal ends the trainer before."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("security")
    np.save(folder / "n.npy", np.arange(100))
    (folder / "pipelines.yaml").write_text(TEXT)
    return folder


@pytest.fixture(scope="module")
def start(command_line: Any, folder: Path) -> Iterator[Callable[..., Any]]:
    """Starts servers: `start("--tokens", file)`."""
    started: list[Any] = []

    def start_server(*options: Any, listen: str = "127.0.0.1:0") -> Any:
        arguments = ("serve", "pipelines.yaml", "--listen", listen, "--http", "off")
        started.append(command_line.start(*arguments, *map(str, options), cwd=folder))
        return started[-1]

    yield start_server
    for item in started:
        item.kill()


def first_ids(address: str, name: str = "open", **options: Any) -> list[int]:
    with infeed.connect(address, name, timeout=100, **options) as feed:
        return list(feed.next(100).sample_ids.tolist())


@pytest.fixture(scope="module")
def token(command_line: Any, folder: Path) -> str:
    """A token of `infeed token`, whose entry is in `tokens.yaml`."""
    command = command_line.run("token", "team", "--pipeline", "op*", "--expires", "30d", cwd=folder)
    assert command.status == 0
    token, _, entry = command.stdout.partition("\n")
    assert token not in entry
    assert "expires: 20" in entry
    (folder / "tokens.yaml").write_text(entry)
    return str(token)


@pytest.fixture(scope="module")
def guarded(start: Any, pki: Any, folder: Path, token: str) -> Any:
    """A server with TLS, mutual TLS and tokens, on all addresses."""
    return start(
        *("--tls-cert", pki.server, "--tls-key", pki.server_key, "--tls-client-ca", pki.ca),
        *("--tokens", folder / "tokens.yaml"),
        listen="0.0.0.0:0",
    )


@pytest.fixture(scope="module")
def address(guarded: Any) -> str:
    return str(guarded.address.replace("0.0.0.0", "127.0.0.1"))


def test_trainer_with_certificate_and_token_is_served(
    guarded: Any, address: str, pki: Any, token: str
) -> None:
    tls = TLS(pki.ca, pki.trainer, pki.trainer_key)
    with infeed.connect(address, "open", epochs=1, tls=tls, token=token) as feed:
        sample_ids = [number for batch in feed for number in batch.sample_ids.tolist()]
    assert sorted(sample_ids) == list(range(100))
    localhost = address.replace("127.0.0.1", "dns:///localhost")
    assert first_ids(localhost, tls=tls, token=lambda: token) == sample_ids[:4]
    assert token not in guarded.stderr


def test_trainer_reads_on_when_its_token_is_replaced(start: Any, folder: Path) -> None:
    tokens = [new_token()]

    def allow_last() -> None:
        renewed = folder / "renewed.new"
        renewed.write_text(token_entry(tokens[-1], "team", ["open"]))
        renewed.replace(folder / "renewed.yaml")

    allow_last()
    server = start("--tokens", "renewed.yaml")
    starts: list[int] = []
    with infeed.connect(
        server.address, "open", token=lambda: tokens[-1], prefetch_batches=2, timeout=100
    ) as feed:
        starts.append(feed.next(100).start)
        tokens.append(new_token())
        allow_last()
        while not feed.stats().left_out:  # the server has read the file, and ended the stream
            starts.append(feed.next(100).start)
        # More than were requested before.
        starts.extend(feed.next(100).start for _ in range(4))
    assert starts == [4 * step for step in range(len(starts))]
    assert "unknown or revoked token" in server.stderr


REFUSALS: list[tuple[str | None, str, type[InfeedError], str]] = [
    (None, "open", AuthenticationError, "this server requires a token"),
    ("infeed_wrong", "open", AuthenticationError, "unknown or revoked token"),
    ("valid", "secret", PermissionDeniedError, "the token of 'team' has no access to pipeline"),
]


@pytest.mark.parametrize(("given", "name", "error_class", "message"), REFUSALS)
def test_trainer_without_a_token_for_its_pipeline_is_refused(
    guarded: Any, address: str, pki: Any, token: str, *, given: str | None, name: str,
    error_class: type[InfeedError], message: str,
) -> None:  # fmt: skip
    tls = TLS(pki.ca, pki.trainer, pki.trainer_key)
    given = token if given == "valid" else given
    with pytest.raises(error_class, match=message):
        infeed.connect(address, name, timeout=FOREVER, tls=tls, token=given)
    line = f"was refused: {message}"
    guarded.wait_until(lambda: line in guarded.stderr, "it logs the refusal")
    assert guarded.stderr.count(line) == 1
    assert token not in guarded.stderr


def test_trainer_without_a_certificate_gets_a_hint(
    guarded: Any, address: str, pki: Any, token: str
) -> None:
    with pytest.raises(ServerUnavailableError, match="requires a client certificate, set TLS"):
        infeed.connect(address, "open", timeout=1, tls=TLS(pki.ca), token=token)
    with pytest.raises(AuthenticationError, match="Hostname mismatch"):
        infeed.connect(address, "open", tls=TLS(pki.ca, server_name="unknown.example"))
    assert "ssl_transport_security" not in guarded.stderr  # a peer could fill the log


# The control plane.


def test_http_with_tls_and_tokens(start: Any, pki: Any, tmp_path: Path) -> None:
    all_token, some_token = tmp_path / "all", tmp_path / "some"
    entries = []
    for file, pattern in ((all_token, "*"), (some_token, "open")):
        token = new_token()
        file.write_text(token)
        entries += yaml.safe_load(token_entry(token, file.name, [pattern]))["tokens"]
    tokens = tmp_path / "tokens.yaml"
    tokens.write_text(yaml.safe_dump({"tokens": entries}))
    options = ("--tls-cert", pki.server, "--tls-key", pki.server_key, "--tls-client-ca", pki.ca)
    server = start(*options, "--http", "127.0.0.1:0", "--http-tls", "--http-tokens", tokens)
    address = server.http

    def top(*options: Any) -> Result:
        return CliRunner().invoke(new_app(), ["top", address, "--json", *map(str, options)])

    shown = top("--tls-ca", pki.ca, "--token-file", all_token)
    assert shown.exit_code == 0, shown.output
    assert [pipeline["name"] for pipeline in json.loads(shown.stdout)["pipelines"]] == [
        "open",
        "secret",
    ]
    for options, problem in (
        (("--tls-ca", pki.ca, "--token-file", some_token), "add the pattern '*'"),
        (("--tls-ca", pki.untrusted_ca, "--token-file", all_token), "its certificate is invalid"),
    ):
        refused = top(*options)
        assert refused.exit_code == 1, options
        assert problem in str(refused.exception)
