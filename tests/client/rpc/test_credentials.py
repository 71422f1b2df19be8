"""Credentials: a token appears in no text, and is not sent unencrypted to other machines."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest

import infeed
from infeed.http2.tls_config import TLS
from infeed.rpc.channel import GrpcTransport
from infeed.rpc.credentials import Credentials
from infeed.shared.errors import ConfigError, UserCodeError
from infeed.testing import FakeTransport

SECRET = "infeed_s3cr3t-t0ken"


def test_token_is_sent_as_a_header() -> None:
    assert Credentials(SECRET).headers() == [("authorization", f"Bearer {SECRET}")]
    assert Credentials().headers() == []


@pytest.mark.parametrize(
    "character",
    ["\n", "\r\n", "\r", "\0", " ", "\t", "\x7f", "\x1b", "\xe9", "\u2028", "\U0001f511"],
)
@pytest.mark.parametrize("form", ["{0}{1}", "{1}{0}", "{1}{0}{1}", "{1}{0}x-admin: yes"])
def test_invalid_token_is_not_in_the_error(character: str, form: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Credentials(form.format(character, SECRET)).headers()
    text = "".join(traceback.format_exception_only(caught.value)) + str(caught.value.metadata)
    assert SECRET not in text
    assert "printable ASCII" in text
    assert "strip the line break" in text


@pytest.mark.parametrize("token", [lambda: None, lambda: b"secret", lambda: [SECRET]])
def test_token_function_must_return_str(token: Any) -> None:
    with pytest.raises(ConfigError, match=r"^the token must be a nonempty str of printable"):
        Credentials(token).headers()


def test_token_is_not_in_any_repr() -> None:
    credentials = Credentials(SECRET, TLS())
    transport = GrpcTransport("127.0.0.1:1", credentials)
    assert SECRET not in repr(credentials) + str(credentials) + repr(transport) + str(
        vars(transport)
    )


UNENCRYPTED = "the token for {} would be sent unencrypted"


@pytest.mark.parametrize(
    ("target", "address"),
    [
        ("10.0.0.1:1", "10.0.0.1:1"),
        ("example.org:1", "example.org:1"),
        ("localhost.example.org:1", "localhost.example.org:1"),
        ("127.0.0.1:1,10.0.0.1:1", "10.0.0.1:1"),
        ("dns:///localhost:1,dns:///example.org:2", "dns:///example.org:2"),
        ("0.0.0.0:1", "0.0.0.0:1"),
    ],
)
def test_token_to_other_machines_requires_tls(target: str, address: str) -> None:
    with pytest.raises(ConfigError) as caught:
        infeed.connect(target, "p", token=SECRET)
    assert str(caught.value).startswith(UNENCRYPTED.format(address))
    assert SECRET not in str(caught.value)
    GrpcTransport(target, Credentials(SECRET, tls=False))
    GrpcTransport(target, Credentials(SECRET, tls=True))
    GrpcTransport(target, Credentials())


@pytest.mark.parametrize("host", ["a" * 70, ".a", "a..b", "\u00e9" * 70])
def test_invalid_host_names_are_refused_with_tls(host: str) -> None:
    with pytest.raises(ConfigError, match=r"is not a valid name for the certificate of .*:1: "):
        infeed.connect(f"{host}:1", "p", tls=True)


@pytest.fixture
def recording_server(
    serve: Any, fake: FakeTransport, monkeypatch: Any
) -> tuple[str, list[str | None]]:
    """The address of a server without authentication, and the authorizations of its calls."""
    server = serve(fake)
    seen: list[str | None] = []
    for name in ("_get", "_stream"):
        handle = getattr(server, name)

        def record(request: Any, context: Any, handle: Any = handle) -> Any:
            seen.append(dict(context.invocation_metadata()).get("authorization"))
            return handle(request, context)

        monkeypatch.setattr(server, name, record)
    server.stop()
    server.start()
    return server.address, seen


def test_token_function_is_called_for_each_call(recording_server: Any) -> None:
    address, seen = recording_server
    numbers = iter(range(100))
    with infeed.connect(address, "fake", token=lambda: f"t{next(numbers)}") as feed:
        next(feed)
    assert seen == ["Bearer t0", "Bearer t1"]


def failing_later(error: BaseException) -> Callable[[], str]:
    """A function that returns its token for the first call, and then fails."""
    calls = iter([SECRET])

    def token() -> str:
        for value in calls:
            return value
        raise error

    return token


@pytest.mark.parametrize("error", [ValueError("out of tokens"), FileNotFoundError("out of tokens")])
def test_failing_token_function_ends_the_feed(
    recording_server: Any, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """An OSError too, which must not be mistaken for one of the connection."""
    address, seen = recording_server
    message = rf"the token function failed: {type(error).__name__}: out of tokens"

    def fail() -> str:
        raise error

    with pytest.raises(UserCodeError, match=message) as caught:
        infeed.connect(address, "fake", token=fail, timeout=100_000.0)
    assert caught.value.__cause__ is error
    with (
        infeed.connect(address, "fake", token=failing_later(error)) as feed,
        pytest.raises(UserCodeError, match=message),
    ):
        feed.next(timeout=100)
    assert seen == [f"Bearer {SECRET}"]
    assert SECRET not in caplog.text
