"""Nobody in who doesn't belong: `infeed serve` with certificates and tokens, and every way to be
refused, with a message that a person can act on, within seconds."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import yaml

import infeed
from infeed import TLS, AuthenticationError, ConfigError, PermissionDeniedError
from infeed.credentials import Credentials
from infeed.transport import GrpcTransport
from infeed_server.service.tokens import fingerprint

TEXT = """
pipelines:
  open:
    source: {arrays: n.npy}
    batch: {size: 4}
  secret:
    source: {arrays: n.npy}
    batch: {size: 4}
"""
ANN, BEN = "infeed_ann", "infeed_ben"

SOON = 20.0
"""Seconds in which a refusal must come, on a machine that does much else: without retries, which
would take 60."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("security")
    np.save(folder / "n.npy", np.arange(100))
    (folder / "pipelines.yaml").write_text(TEXT)
    write_tokens(folder / "tokens.yaml", ann=["open"], ben=["*"])
    return folder


def write_tokens(file: Path, **pipelines: list[str]) -> None:
    grants = [
        {"name": name, "sha256": fingerprint(f"infeed_{name}"), "pipelines": rights}
        for name, rights in pipelines.items()
    ]
    new = file.with_suffix(".new")
    new.write_text(yaml.safe_dump({"tokens": grants}))
    new.rename(file)


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


@pytest.fixture(scope="module")
def clear(start: Any) -> Any:
    """A server without anything."""
    return start()


@pytest.fixture(scope="module")
def guarded(start: Any, pki: Any, folder: Path) -> Any:
    """A server with TLS and tokens."""
    words = ("--tls-cert", pki.server, "--tls-key", pki.server_key)
    return start(*words, "--tokens", folder / "tokens.yaml")


@pytest.fixture(scope="module")
def mutual(start: Any, pki: Any) -> Any:
    """A server that asks trainers for certificates."""
    words = ("--tls-cert", pki.server, "--tls-key", pki.server_key, "--tls-client-ca", pki.ca)
    return start(*words)


@contextlib.contextmanager
def soon() -> Iterator[None]:
    begin = time.monotonic()
    yield
    assert time.monotonic() - begin < SOON


def refusal(
    kind: type[infeed.InfeedError], address: str, name: str = "open", **options: Any
) -> str:
    """How a trainer is refused: at once, however long it would wait for a server."""
    with soon(), pytest.raises(kind) as caught:
        infeed.connect(address, name, timeout=60, **options)
    assert type(caught.value) is kind
    text = str(caught.value)
    assert name == "secret" or "secret" not in text  # nothing is listed
    assert not any(token in text for token in (ANN, BEN, "infeed_wrong"))
    return text


def first(address: str, name: str = "open", **options: Any) -> list[int]:
    with infeed.connect(address, name, **options) as feed:
        return list(feed.next(60).sample_ids.tolist())


# Who belongs.


def test_who_belongs_is_served(clear: Any, guarded: Any, mutual: Any, pki: Any) -> None:
    ca = TLS(ca=pki.ca)
    told = first(clear.address)
    assert first(guarded.address, tls=ca, token=ANN) == told
    assert first(guarded.address, "secret", tls=ca, token=lambda: BEN) == told
    assert first(mutual.address, tls=TLS(pki.ca, pki.trainer, pki.trainer_key)) == told
    localhost = guarded.address.replace("127.0.0.1", "dns:///localhost")
    assert first(localhost, tls=ca, token=ANN) == told


def test_a_whole_epoch_is_the_same_in_tls(clear: Any, guarded: Any, pki: Any) -> None:
    def epoch(address: str, **options: Any) -> list[Any]:
        with infeed.connect(address, "open", epochs=1, **options) as feed:
            return [batch.sample_ids.tolist() for batch in feed]

    assert epoch(guarded.address, tls=TLS(ca=pki.ca), token=ANN) == epoch(clear.address)


# Who does not.


@pytest.mark.parametrize(
    ("token", "words"),
    [
        (None, "this server asks for a token: connect(..., token=...), or --token-file"),
        ("infeed_wrong", "the token is none that this server knows (any more)"),
    ],
)
def test_a_wrong_token(guarded: Any, pki: Any, token: str | None, words: str) -> None:
    assert words in refusal(AuthenticationError, guarded.address, tls=TLS(ca=pki.ca), token=token)
    transport = GrpcTransport(guarded.address, Credentials(token, TLS(ca=pki.ca)))
    with pytest.raises(AuthenticationError):
        transport.list_pipelines()
    transport.close()
    assert f"was refused: {words}" in guarded.stderr


@pytest.mark.parametrize("name", ["secret", "not-there"])
def test_a_token_without_the_right_to_a_pipeline(guarded: Any, pki: Any, name: str) -> None:
    tls = TLS(ca=pki.ca)
    text = refusal(PermissionDeniedError, guarded.address, name, tls=tls, token=ANN)
    assert text == f"the token of 'ann' has no right to a pipeline {name!r}"
    transport = GrpcTransport(guarded.address, Credentials(ANN, tls))
    assert [spec.name for spec in transport.list_pipelines()] == ["open"]
    transport.close()


def test_a_certificate_of_the_servers_that_is_not_trusted(guarded: Any, pki: Any) -> None:
    address = guarded.address
    text = refusal(AuthenticationError, address, tls=TLS(ca=pki.stranger_ca), token=ANN)
    assert text == (
        f"the certificate of {address} is not to be trusted as that of '127.0.0.1': unable to get "
        "local issuer certificate; name its authority with TLS(ca=...)"
    )
    assert "is not to be trusted" in refusal(AuthenticationError, address, tls=True, token=ANN)
    other = TLS(ca=pki.ca, server_name="infeed.example.org")
    assert "Hostname mismatch" in refusal(AuthenticationError, address, tls=other, token=ANN)


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (None, "asks for a trainer's certificate; give TLS(cert=..., key=...)"),
        ("trainer_expired", "refuses this trainer's certificate: it has expired"),
        ("stranger", "refuses this trainer's certificate: it does not know its authority"),
    ],
)
def test_a_certificate_of_the_trainers(
    mutual: Any, pki: Any, shown: str | None, words: str
) -> None:
    own = (getattr(pki, shown), getattr(pki, f"{shown}_key")) if shown else (None, None)
    text = refusal(AuthenticationError, mutual.address, tls=TLS(pki.ca, *own))
    assert text == f"{mutual.address} {words}"
    assert "was refused: " in mutual.stderr


def test_plaintext_to_a_port_of_tls(guarded: Any) -> None:
    words = "this port takes TLS only, and nothing in the clear: connect(..., tls=True or"
    for token in (None, ANN):
        assert words in refusal(AuthenticationError, guarded.address, token=token)
    with grpc.insecure_channel(guarded.address) as channel:
        call: Any = channel.unary_unary("/infeed.v1.FeedService/ListPipelines")
        with pytest.raises(grpc.RpcError) as caught:
            call(b"", timeout=30)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert words in caught.value.details()


def test_tls_to_a_port_in_the_clear(clear: Any, pki: Any) -> None:
    text = refusal(AuthenticationError, clear.address, tls=TLS(ca=pki.ca))
    assert text == (
        f"{clear.address} does not speak TLS; leave out tls=, or give the server a certificate"
    )


# What changes on disk.


def test_what_is_renewed_while_a_feed_runs(
    start: Any, pki: Any, folder: Path, tmp_path: Path
) -> None:
    """The certificate for new connections, the tokens for open ones too."""
    cert, key, tokens = (tmp_path / name for name in ("cert.pem", "key.pem", "tokens.yaml"))

    def put(name: str) -> None:
        cert.write_bytes(getattr(pki, name).read_bytes())
        key.write_bytes(getattr(pki, f"{name}_key").read_bytes())

    put("server_expired")
    write_tokens(tokens, ann=["open"], ben=["open"])
    server = start("--tls-cert", cert, "--tls-key", key, "--tokens", tokens)
    address, tls = server.address, TLS(ca=pki.ca)
    assert "certificate has expired" in refusal(AuthenticationError, address, tls=tls, token=ANN)
    put("server")
    time.sleep(1.1)  # it looks once a second
    options: dict[str, Any] = {"tls": tls, "prefetch_bytes": 1}
    with (
        infeed.connect(address, "open", token=ANN, **options) as ann,
        infeed.connect(address, "open", token=BEN, **options) as ben,
    ):
        assert ann.next(60).start == ben.next(60).start == 0
        tokens.write_text("tokens: [{name: 5}]")  # a mistake, which changes nothing
        put("stranger")
        time.sleep(1.1)
        for _ in range(10):
            ann.next(60)
        assert "issuer" in refusal(AuthenticationError, address, tls=tls, token=ANN)
        assert first(address, tls=TLS(ca=pki.stranger_ca), token=ANN)
        assert "what was read before stays in force" in server.stderr
        write_tokens(tokens, ben=["open"])
        time.sleep(1.1)
        with soon(), pytest.raises(AuthenticationError, match=r"none that this server knows \(any"):
            list(ann)
        for _ in range(10):
            ben.next(60)
    assert f"read again: {tokens}" in server.stderr


def test_a_token_as_it_was_made(command_line: Any, start: Any, tmp_path: Path) -> None:
    made = command_line.run("token", "team", "--pipeline", "op*", cwd=tmp_path)
    assert made.status == 0
    token, _, entry = made.stdout.partition("\n")
    assert token not in entry
    (tmp_path / "tokens.yaml").write_text(entry)
    server = start("--tokens", tmp_path / "tokens.yaml")
    assert first(server.address, token=token)
    assert "'team'" in refusal(PermissionDeniedError, server.address, "secret", token=token)
    assert token not in server.stderr


# Several of them.


def test_several_processes(start: Any, pki: Any, folder: Path) -> None:
    server = start(
        *("--processes", "2", "--tokens", folder / "tokens.yaml"),
        *("--tls-cert", pki.server, "--tls-key", pki.server_key, "--tls-client-ca", pki.ca),
    )
    tls = TLS(pki.ca, pki.trainer, pki.trainer_key)
    for _ in range(4):  # whichever process the kernel chooses for each
        assert first(server.address, tls=tls, token=ANN)
        assert "any more" in refusal(
            AuthenticationError, server.address, tls=tls, token="infeed_wrong"
        )
        refusal(PermissionDeniedError, server.address, "secret", tls=tls, token=ANN)
        refusal(AuthenticationError, server.address, tls=TLS(ca=pki.ca), token=ANN)
        refusal(AuthenticationError, server.address, token=ANN)
    server.signal(signal.SIGTERM)
    assert server.wait() == 0


@pytest.mark.parametrize("refuses_first", [False, True])
def test_one_that_refuses_among_several(
    clear: Any, guarded: Any, caplog: pytest.LogCaptureFixture, refuses_first: bool
) -> None:
    members = [clear.address, guarded.address]
    target = ",".join(reversed(members) if refuses_first else members)
    with infeed.connect(target, "open", epochs=3) as feed:
        assert len(list(feed)) == 75
        assert feed.stats().servers == (clear.address,)
    assert f"{guarded.address} is left out: this port takes TLS only" in caplog.text


def test_several_that_all_refuse(guarded: Any, mutual: Any, pki: Any) -> None:
    target = f"{guarded.address},{mutual.address}"
    refusal(AuthenticationError, target, tls=TLS(ca=pki.ca))


# Servers that must not start.


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0"])
def test_no_other_machines_in_the_clear(start: Any, folder: Path, listen: str, pki: Any) -> None:
    server = start("--tokens", folder / "tokens.yaml", listen=listen)  # which would be overheard
    assert server.wait() == 1
    assert f"error: --listen {listen}: other machines could connect" in server.stderr
    assert "give --tls-cert and --tls-key, add --insecure if" in server.stderr


def test_other_machines_in_tls(start: Any, pki: Any, folder: Path) -> None:
    words = ("--tls-cert", pki.server, "--tls-key", pki.server_key)
    server = start(*words, listen="0.0.0.0:0")
    address = server.address.replace("0.0.0.0", "127.0.0.1")
    assert first(address, tls=TLS(ca=pki.ca))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--tls-key", "{server_key}"), "--tls-key: TLS needs the server's certificate too"),
        (("--tls-client-ca", "{ca}"), "--tls-client-ca: TLS needs the server's certificate too"),
        (("--tls-cert", "/none.pem"), "--tls-cert /none.pem: no such file or directory"),
        (("--tls-cert", "{server}"), "--tls-cert {server}: does not hold a certificate and its"),
        (
            ("--tls-cert", "{server}", "--tls-key", "{trainer_key}"),
            "--tls-key {trainer_key}: is not the key of the certificate {server}",
        ),
        (
            ("--tls-cert", "{server}", "--tls-key", "{locked_key}"),
            "--tls-key {locked_key}: is locked with a passphrase; give one without",
        ),
        (
            ("--tls-cert", "{server}", "--tls-key", "{server_key}", "--tls-client-ca", "/dev/null"),
            "--tls-client-ca /dev/null: holds no certificate in PEM form",
        ),
        (("--tokens", "/none.yaml"), "cannot read /none.yaml: No such file or directory"),
        (("--tokens", "pipelines.yaml"), "pipelines.yaml:2: tokens: missing; it is required"),
        # Told once, not by each of several processes.
        (("--tokens", "/none.yaml", "--processes", "2"), "cannot read /none.yaml: No such file"),
        (("--tls-cert", "/none.pem", "--processes", "2"), "--tls-cert /none.pem: no such file"),
    ],
)
def test_files_that_are_wrong(start: Any, pki: Any, options: tuple[str, ...], told: str) -> None:
    files = vars(pki)
    server = start(*(word.format(**files) for word in options))
    assert server.wait() == 1
    assert f"error: {told.format(**files)}" in server.stderr
    assert server.stderr.count("error: ") == 1
    assert "Traceback" not in server.stderr
    assert server.stdout == ""


# Trainers that must not start.


def test_a_token_in_the_clear_to_another_machine() -> None:
    with soon(), pytest.raises(ConfigError, match="would travel in the clear"):
        infeed.connect("192.0.2.1:8470", "open", token=ANN, timeout=60)
