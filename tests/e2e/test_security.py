"""TLS, mutual TLS and tokens of `infeed serve`: one path each, from options to a feed.

The units are in the tests of each module; files that are renewed, in test_processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import infeed
from infeed import TLS, AuthenticationError, InfeedError, PermissionDeniedError

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
"""Seconds for which a trainer would go on trying: a refusal ends it before."""


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

    def make(*words: Any, listen: str = "127.0.0.1:0") -> Any:
        common = ("serve", "pipelines.yaml", "--listen", listen, "--http", "off")
        started.append(command_line.start(*common, *map(str, words), cwd=folder))
        return started[-1]

    yield make
    for each in started:
        each.kill()


def until(condition: Callable[[], bool], server: Any) -> None:
    """Waits for a condition, such as of a server's log."""
    deadline = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < deadline, server.stderr
        assert not server.ended, server.stderr
        time.sleep(0.01)


def first(address: str, name: str = "open", **options: Any) -> list[int]:
    with infeed.connect(address, name, timeout=100, **options) as feed:
        return list(feed.next(100).sample_ids.tolist())


@pytest.fixture(scope="module")
def made(command_line: Any, folder: Path) -> str:
    """A token of `infeed token`, whose entry is in `made.yaml`."""
    command = command_line.run("token", "team", "--pipeline", "op*", cwd=folder)
    assert command.status == 0
    token, _, entry = command.stdout.partition("\n")
    assert token not in entry
    (folder / "made.yaml").write_text(entry)
    return str(token)


@pytest.fixture(scope="module")
def guarded(start: Any, pki: Any, folder: Path, made: str) -> Any:
    """A server with TLS, mutual TLS and tokens, for other machines too."""
    return start(
        *("--tls-cert", pki.server, "--tls-key", pki.server_key, "--tls-client-ca", pki.ca),
        *("--tokens", folder / "made.yaml"),
        listen="0.0.0.0:0",
    )


@pytest.fixture(scope="module")
def address(guarded: Any) -> str:
    return str(guarded.address.replace("0.0.0.0", "127.0.0.1"))


def test_a_trainer_with_a_certificate_and_a_token_is_served(
    guarded: Any, address: str, pki: Any, made: str
) -> None:
    tls = TLS(pki.ca, pki.trainer, pki.trainer_key)
    with infeed.connect(address, "open", epochs=1, tls=tls, token=made) as feed:
        seen = [number for batch in feed for number in batch.sample_ids.tolist()]
    assert sorted(seen) == list(range(100))
    localhost = address.replace("127.0.0.1", "dns:///localhost")
    assert first(localhost, tls=tls, token=lambda: made) == seen[:4]
    assert made not in guarded.stderr


class Lacking(NamedTuple):
    """A trainer that lacks one of what the server requires, and what both sides are told."""

    told: str
    logged: str
    kind: type[InfeedError] = AuthenticationError
    token: str | None = "made"
    name: str = "open"
    cert: bool = True
    tls: bool = True


LACKING = {
    "token": Lacking(
        "this server asks for a token: connect(..., token=...), or --token-file",
        "this server asks for a token",
        token=None,
    ),
    "known token": Lacking(
        "the token is none that this server knows (any more)",
        "the token is none that this server knows",
        token="infeed_wrong",
    ),
    "right": Lacking(
        "the token of 'team' has no right to a pipeline 'secret'",
        "the token of 'team' has no right to a pipeline 'secret'",
        kind=PermissionDeniedError,
        name="secret",
    ),
    "certificate": Lacking(
        "{address} asks for a trainer's certificate; give TLS(cert=..., key=...)",
        "no TLS with it: peer did not return a certificate",
        cert=False,
    ),
    "TLS": Lacking(
        "this port takes TLS only, and nothing in the clear: "
        "connect(..., tls=True or infeed.TLS(...))",
        "this port takes TLS only",
        tls=False,
    ),
}


@pytest.mark.parametrize("what", LACKING)
def test_a_trainer_that_lacks_one_is_refused_once_and_the_log_says_why(
    guarded: Any, address: str, pki: Any, made: str, what: str
) -> None:
    case = LACKING[what]
    own = (pki.trainer, pki.trainer_key) if case.cert else ()
    with pytest.raises(InfeedError) as caught:
        infeed.connect(
            address,
            case.name,
            timeout=FOREVER,
            tls=TLS(pki.ca, *own) if case.tls else False,
            token=made if case.token == "made" else case.token,
        )
    assert type(caught.value) is case.kind
    assert str(caught.value) == case.told.format(address=address)
    line = f"was refused: {case.logged}"
    until(lambda: line in guarded.stderr, guarded)
    assert guarded.stderr.count(line) == 1
    assert made not in guarded.stderr


# Servers that must not start.


def test_no_other_machines_in_the_clear(start: Any, folder: Path, made: str) -> None:
    server = start("--tokens", folder / "made.yaml", listen="0.0.0.0:0")  # would be overheard
    assert server.wait(100) == 1
    assert "error: --listen 0.0.0.0:0: other machines could connect" in server.stderr
    assert "give --tls-cert and --tls-key, add --insecure if" in server.stderr


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--tls-client-ca", "{ca}"), "--tls-client-ca: TLS needs the server's certificate too"),
        (("--tokens", "pipelines.yaml"), "pipelines.yaml:2: tokens: missing; it is required"),
        # Not by each of several processes.
        (("--tokens", "/none.yaml", "--processes", "2"), "cannot read /none.yaml: No such file"),
        (("--tls-cert", "/none.pem", "--processes", "2"), "--tls-cert /none.pem: no such file"),
    ],
)
def test_a_file_that_is_wrong_is_told_once(
    start: Any, pki: Any, options: tuple[str, ...], told: str
) -> None:
    server = start(*(word.format(**vars(pki)) for word in options))
    assert server.wait(100) == 1
    assert f"error: {told}" in server.stderr
    assert server.stderr.count("error: ") == 1
    assert "Traceback" not in server.stderr
    assert server.stdout == ""
