"""What a trainer shows: a token never reaches a text, nor the wrong machine."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable
from typing import Any

import pytest

import infeed
from infeed.credentials import Credentials
from infeed.errors import ConfigError, InfeedError, InvalidRequestError, UserCodeError
from infeed.link import Link
from infeed.secure import SecureLink
from infeed.testing import FakeTransport
from infeed.tls import TLS
from infeed.transport import GrpcTransport

SECRET = "infeed_s3cr3t-t0ken"


def test_a_token_travels_as_a_header() -> None:
    assert Credentials(SECRET).headers() == [("authorization", f"Bearer {SECRET}")]
    assert Credentials().headers() == []


@pytest.mark.parametrize(
    "character",
    ["\n", "\r\n", "\r", "\0", " ", "\t", "\x7f", "\x1b", "\xe9", "\u2028", "\U0001f511"],
)
@pytest.mark.parametrize("form", ["{0}{1}", "{1}{0}", "{1}{0}{1}", "{1}{0}x-admin: yes"])
def test_what_is_no_token_never_shows(character: str, form: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Credentials(form.format(character, SECRET)).headers()
    shown = "".join(traceback.format_exception_only(caught.value)) + str(caught.value.metadata)
    assert SECRET not in shown
    assert "printable ASCII" in shown


@pytest.mark.parametrize("token", ["", lambda: ""])
def test_an_empty_token(token: Any) -> None:
    with pytest.raises(ConfigError, match="the token is empty"):
        Credentials(token).headers()


@pytest.mark.parametrize("token", [lambda: None, lambda: b"secret", lambda: [SECRET]])
def test_a_function_that_gives_no_text(token: Any) -> None:
    with pytest.raises(ConfigError, match=r"^a token is text, not (NoneType|bytes|list)$"):
        Credentials(token).headers()


def test_nothing_that_is_printed_holds_the_token() -> None:
    credentials = Credentials(SECRET, TLS())
    transport = GrpcTransport("127.0.0.1:1", credentials)
    assert SECRET not in repr(credentials) + str(credentials) + repr(transport) + str(
        vars(transport)
    )


IN_THE_CLEAR = "a token for {} would travel in the clear"


@pytest.mark.parametrize(
    ("target", "culprit"),
    [
        ("10.0.0.1:1", "10.0.0.1:1"),
        ("example.org:1", "example.org:1"),
        ("localhost.example.org:1", "localhost.example.org:1"),
        ("127.0.0.1.example.org:1", "127.0.0.1.example.org:1"),
        ("127.0.0.1:1,10.0.0.1:1", "10.0.0.1:1"),
        ("unix:/run/a.sock, example.org:1", "example.org:1"),
        ("dns:///example.org:1", "dns:///example.org:1"),
        ("dns:///localhost:1,dns:///example.org:2", "dns:///example.org:2"),
        ("dns://127.0.0.1/example.org:1", "dns://127.0.0.1/example.org:1"),
        ("[2001:db8::1]:1", "[2001:db8::1]:1"),
        ("ipv6:[fe80::1]:1", "ipv6:[fe80::1]:1"),
        ("[::]:1", "[::]:1"),
        ("0.0.0.0:1", "0.0.0.0:1"),
        ("ipv4:8.8.8.8:53", "ipv4:8.8.8.8:53"),
    ],
)
def test_no_token_in_the_clear_to_other_machines(target: str, culprit: str) -> None:
    with pytest.raises(ConfigError) as caught:
        infeed.connect(target, "p", token=SECRET)
    assert str(caught.value).startswith(IN_THE_CLEAR.format(culprit))
    assert SECRET not in str(caught.value)
    GrpcTransport(target, Credentials(SECRET, tls=False))
    GrpcTransport(target, Credentials(SECRET, tls=True))
    GrpcTransport(target, Credentials())


@pytest.mark.parametrize(
    "target",
    [
        "127.0.0.1:1",
        "127.5.6.7:1",
        "localhost:1",
        "[::1]:1",
        "ipv6:[::1]:1",
        "ipv4:127.0.0.1:2",
        "dns:///localhost:1",
        "dns:///127.0.0.1:1",
        "unix:/run/a.sock",
        "unix:///run/a.sock",
        "unix-abstract:a",
        "127.0.0.1:1,[::1]:2,unix:a",
    ],
)
def test_a_token_in_the_clear_to_this_machine(target: str) -> None:
    GrpcTransport(target, Credentials(SECRET))


def test_a_transport_of_ones_own_has_its_own(fake: FakeTransport) -> None:
    for options in ({"token": SECRET}, {"tls": True}, {"tls": False}, {"tls": TLS()}):
        with pytest.raises(InvalidRequestError, match="token and tls are the transport's"):
            infeed.connect("x:1", "fake", transport=fake, **options)  # type: ignore[arg-type]


def test_files_are_looked_at_before_anybody_is_asked(pki: Any) -> None:
    with pytest.raises(ConfigError, match=r"tls: ca /none\.pem: no such file"):
        infeed.connect("127.0.0.1:1", "p", tls=TLS(ca="/none.pem"))
    with pytest.raises(ConfigError, match="is locked with a passphrase"):
        infeed.connect("127.0.0.1:1", "p", tls=TLS(cert=pki.server, key=pki.locked_key))


@pytest.mark.parametrize("host", ["a" * 70, ".a", "a..b", "\u00e9" * 70])
def test_names_that_no_certificate_bears(host: str) -> None:
    with pytest.raises(ConfigError, match=r"is no name that the certificate of .*:1 could bear"):
        infeed.connect(f"{host}:1", "p", tls=True)


@pytest.mark.parametrize("name", [".a", "a\0b", "x" * 70])
def test_server_names_that_no_certificate_bears(name: str) -> None:
    with pytest.raises(ConfigError, match="is no name that the certificate"):
        infeed.connect("127.0.0.1:1", "p", tls=TLS(server_name=name))


def test_links(pki: Any) -> None:
    assert type(Credentials(SECRET, tls=False).link("a:1", "a:1")) is Link
    assert type(Credentials(SECRET).link("a:1", "a:1")) is Link
    for tls in (True, TLS(ca=pki.ca)):
        assert type(Credentials(tls=tls).link("a:1", "a:1")) is SecureLink
    assert [Credentials(tls=tls).scheme for tls in (None, False, True, TLS())] == [
        *("http", "http", "https", "https")
    ]


@pytest.mark.parametrize(
    ("server_name", "name", "borne"),
    [
        (None, "dns:///infeed.example.org:1", "infeed.example.org"),
        (None, "infeed.example.org.:1", "infeed.example.org"),
        (None, "[::1]:1", "::1"),
        (None, "unix:/run/a.sock", "localhost"),
        ("other.example.org", "infeed.example.org:1", "other.example.org"),
    ],
)
def test_the_name_that_a_certificate_must_bear(
    server_name: str | None, name: str, borne: str
) -> None:
    link: Any = Credentials(tls=TLS(server_name=server_name)).link("10.1.2.3:1", name)
    assert link._server_name == borne


# Against a server that takes anybody, and keeps what it is shown.


@pytest.fixture
def shown(serve: Any, fake: FakeTransport, monkeypatch: Any) -> tuple[str, list[str | None]]:
    """The address of a server, and the authorizations that its calls came with."""
    server = serve(fake)
    seen: list[str | None] = []
    for name in ("_get", "_stream"):
        answer = getattr(server, name)

        def noting(request: Any, context: Any, answer: Any = answer) -> Any:
            seen.append(dict(context.invocation_metadata()).get("authorization"))
            return answer(request, context)

        monkeypatch.setattr(server, name, noting)
    server.stop()
    server.start()
    return server.address, seen


def test_a_function_is_asked_for_each_call(shown: Any) -> None:
    address, seen = shown
    numbers = iter(range(100))
    with infeed.connect(address, "fake", token=lambda: f"t{next(numbers)}") as feed:
        next(feed)
    assert seen == ["Bearer t0", "Bearer t1"]


def test_a_text_is_shown_with_each_call(shown: Any) -> None:
    address, seen = shown
    with infeed.connect(address, "fake", token=SECRET) as feed:
        next(feed)
    assert seen == [f"Bearer {SECRET}"] * 2


def failing_later(error: BaseException) -> Callable[[], str]:
    """A function that gives its token once, for the first call, and then fails."""
    calls = iter([SECRET])

    def token() -> str:
        for one in calls:
            return one
        raise error

    return token


@pytest.mark.parametrize("error", [ValueError("out of tokens"), FileNotFoundError("out of tokens")])
def test_a_function_that_raises_ends_it(
    shown: Any, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """An OSError too, which would be taken for one of the connection."""
    address, seen = shown
    told = rf"the function that gives the token failed: {type(error).__name__}: out of tokens"

    def fail() -> str:
        raise error

    with pytest.raises(UserCodeError, match=told) as caught:
        infeed.connect(address, "fake", token=fail, timeout=100_000.0)
    assert caught.value.__cause__ is error
    with (
        infeed.connect(address, "fake", token=failing_later(error)) as feed,
        pytest.raises(UserCodeError, match=told),
    ):
        feed.next(timeout=100)
    assert seen == [f"Bearer {SECRET}"]
    assert SECRET not in caplog.text


def test_a_function_may_raise_infeeds_own(shown: Any) -> None:
    def fail() -> str:
        raise ConfigError("mine")

    with pytest.raises(InfeedError, match=r"^mine$"):
        infeed.connect(shown[0], "fake", token=fail)


def test_a_token_that_goes_bad_ends_the_feed_and_does_not_show(
    shown: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    texts = iter([SECRET, SECRET + "\nx-admin: 1"])
    with (
        infeed.connect(shown[0], "fake", token=lambda: next(texts)) as feed,
        pytest.raises(ConfigError, match="printable ASCII") as caught,
    ):
        feed.next(timeout=100)
    assert SECRET not in str(caught.value) + caplog.text.replace("\n", "")


def test_many_threads_ask_the_same_function(shown: Any) -> None:
    address, seen = shown
    transport = GrpcTransport(address, Credentials(lambda: SECRET))
    threads = [threading.Thread(target=transport.get_pipeline, args=("fake",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    transport.close()
    assert seen == [f"Bearer {SECRET}"] * 8
