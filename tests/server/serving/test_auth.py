"""Authentication: callers without tokens, and the tokens of a file."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml

from infeed.shared.errors import AuthenticationError, ConfigError, PermissionDeniedError
from infeed_server.config import reloading
from infeed_server.serving.auth import (
    TokenAuthenticator,
    hash_token,
    new_token,
    parse_expiry,
    read_tokens,
    token_entry,
)

ANN, BEN = "infeed_ann", "infeed_ben"

Write = Callable[..., str]


def grant(token: str, name: str, *pipelines: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "sha256": hash_token(token), "pipelines": list(pipelines), **more}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes the file: text, or grants."""
    file = tmp_path / "tokens.yaml"

    def make(*content: Any) -> str:
        text = content[0] if isinstance(content[0], str) else yaml.safe_dump({"tokens": content})
        new = tmp_path / "new"
        new.write_text(text)
        new.rename(file)
        return str(file)

    return make


@pytest.fixture
def token_file(write: Write) -> str:
    return write(grant(ANN, "ann", "imagenet-*", "photos"), grant(BEN, "ben", "*"))


@pytest.fixture
def reload_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes each use check the file for changes."""
    monkeypatch.setattr(reloading, "CHECK_INTERVAL_SECONDS", 0.0)


# Identification.


@pytest.mark.parametrize("scheme", ["Bearer ", "bearer ", "BEARER ", "Bearer   ", "bEaReR "])
def test_valid_token_is_accepted(token_file: str, scheme: str) -> None:
    caller = TokenAuthenticator(token_file).authenticate(f"{scheme}{ANN} ")
    assert caller.has_access("photos")
    assert not caller.has_access("secrets")


@pytest.mark.parametrize(
    "header", ["", "Bearer", ANN, f"Basic {ANN}", f"Token {ANN}", f"Bearer:{ANN}", f" Bearer {ANN}"]
)
def test_other_authorization_is_refused(token_file: str, header: str) -> None:
    with pytest.raises(AuthenticationError, match="must have the form 'Bearer <token>'") as caught:
        TokenAuthenticator(token_file).authenticate(header)
    assert ANN not in str(caught.value)


@pytest.mark.parametrize(
    "token",
    [
        "infeed_else",
        "",
        ANN[:-1],
        ANN + "x",
        f"{ANN} {BEN}",
        f"Bearer {ANN}",
        hash_token(ANN),  # the hash in the file is not a token
        "\xff",
    ],
)
def test_unknown_token_is_refused(token_file: str, token: str) -> None:
    with pytest.raises(AuthenticationError, match="unknown or revoked token; add its") as caught:
        TokenAuthenticator(token_file).authenticate(f"Bearer {token}")
    text = str(caught.value) + str(caught.value.metadata)
    assert "ann" not in text
    assert (token or ANN) not in text


# Pipelines.


@pytest.mark.parametrize(
    ("pattern", "allowed", "denied"),
    [
        ("photos", ["photos"], ["photo", "photoss", "Photos", "", "photos "]),
        ("imagenet-*", ["imagenet-", "imagenet-a"], ["imagenet", "my-imagenet-x", "IMAGENET-x"]),
        ("*", ["", "any", "a/b", "a\nb"], []),
        ("[ab]?c", ["abc"], ["cbc", "ac"]),
        ("a.c", ["a.c"], ["abc"]),
    ],
)
def test_pipeline_patterns(
    write: Write, pattern: str, allowed: list[str], denied: list[str]
) -> None:
    caller = TokenAuthenticator(write(grant(ANN, "ann", pattern))).authenticate(f"Bearer {ANN}")
    for name in allowed:
        assert caller.has_access(name)
        caller.require_access(name)
    for name in denied:
        assert not caller.has_access(name)
        with pytest.raises(PermissionDeniedError) as caught:
            caller.require_access(name)
        assert str(caught.value) == f"the token of 'ann' has no access to pipeline {name!r}"
        assert caught.value.metadata == {"token": "ann", "pipeline": name}


# Expiry.


@pytest.mark.parametrize(
    ("expires", "end"),
    [
        ("2027-06-30", "2027-06-30 00:00"),
        ("2027-06-30 12:30:00", "2027-06-30 12:30"),
        ("2027-06-30T12:30:00+02:00", "2027-06-30 10:30"),
        ("2027-06-30T23:30:00-05:00", "2027-07-01 04:30"),
    ],
)
def test_token_expires(write: Write, expires: str, end: str) -> None:
    text = yaml.safe_dump({"tokens": [grant(ANN, "ann", "*")]})
    file = write(text.replace("- name:", f"- expires: {expires}\n  name:"))
    expiry = datetime.strptime(f"{end} +0000", "%Y-%m-%d %H:%M %z")
    now = [expiry.replace(year=expiry.year - 1, day=28)]
    authenticator = TokenAuthenticator(file, lambda: now[0])
    caller = authenticator.authenticate(f"Bearer {ANN}")
    now[0] = expiry.fromtimestamp(expiry.timestamp() - 1, timezone.utc)
    caller.require_access("any")
    now[0] = expiry
    expected = f"the token of 'ann' expired on {end} UTC"
    for use in (
        lambda: caller.require_access("any"),
        lambda: caller.has_access("any"),
        lambda: authenticator.authenticate(f"Bearer {ANN}"),
    ):
        with pytest.raises(AuthenticationError) as caught:
            use()
        assert str(caught.value) == expected


# Changes of the file.


def test_tokens_are_added_and_revoked(token_file: str, write: Write, reload_at_once: None) -> None:
    authenticator = TokenAuthenticator(token_file)
    ann = authenticator.authenticate(f"Bearer {ANN}")
    write(grant("infeed_new", "new", "*"))
    authenticator.authenticate("Bearer infeed_new").require_access("any")
    for use in (lambda: ann.require_access("photos"), lambda: ann.has_access("photos")):
        with pytest.raises(AuthenticationError, match="unknown or revoked token"):
            use()


@pytest.mark.parametrize(
    "text", ["", "tokens:\n", "tokens: [{name: x}]\n", "tokens: [", "\0", "tokens: &a [*a]\n"]
)
def test_invalid_new_file_keeps_the_previous_tokens(
    token_file: str, write: Write, reload_at_once: None, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    caplog.set_level(logging.INFO)
    authenticator = TokenAuthenticator(token_file)
    ann = authenticator.authenticate(f"Bearer {ANN}")
    write(text)
    for _ in range(3):
        ann.require_access("photos")
        authenticator.authenticate(f"Bearer {BEN}")
    assert caplog.text.count("stays in force") == 1
    assert token_file in caplog.text
    write(grant(BEN, "ben", "*"))
    with pytest.raises(AuthenticationError):
        ann.require_access("photos")


def test_deleted_file_revokes_all_tokens_until_it_is_back(
    token_file: str, write: Write, reload_at_once: None, caplog: pytest.LogCaptureFixture
) -> None:
    authenticator = TokenAuthenticator(token_file)
    ann = authenticator.authenticate(f"Bearer {ANN}")
    Path(token_file).unlink()
    with pytest.raises(AuthenticationError, match="unknown or revoked token"):
        ann.require_access("photos")
    with pytest.raises(AuthenticationError, match="unknown or revoked token"):
        authenticator.authenticate(f"Bearer {BEN}")
    assert caplog.text.count(f"{token_file}: no such file, so every token is revoked") == 1
    write(grant(ANN, "ann", "photos"))
    ann.require_access("photos")


# Invalid files.


FILE = f"""\
tokens:
  - name: ann
    sha256: {hash_token(ANN)}
    pipelines: [photos]
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["tokens.yaml:1"]),
        ("tokens:\n", ["tokens.yaml:1: tokens"]),
        ("token: []\n", ["tokens.yaml:1", "did you mean 'tokens'"]),
        (FILE.replace("name: ann", "name: ''"), ["tokens.yaml:2: tokens[0].name"]),
        (FILE.replace("    pipelines: [photos]\n", ""), ["tokens.yaml:2: tokens[0].pipelines"]),
        (FILE.replace("[photos]", "[]"), ["tokens.yaml:4: tokens[0].pipelines"]),
        (FILE.replace(hash_token(ANN), ANN), ["tokens.yaml:3: tokens[0].sha256", "64 hexadecimal"]),
        (FILE.replace(hash_token(ANN), "0" * 64), ["tokens.yaml:3: tokens[0].sha256"]),  # a number
        (FILE.replace(hash_token(ANN), f"'{'a' * 63}'"), ["64 hexadecimal", "`infeed token`"]),
        (FILE + "    until: 2027-01-01\n", ["tokens.yaml:5: tokens[0].until"]),
        (FILE + "    expires: soon\n", ["tokens.yaml:5: tokens[0].expires"]),
        (FILE + "    expires: 2027-13-01\n", ["tokens.yaml:5: tokens[0].expires: month"]),
        (FILE + "    name: ben\n", ["tokens.yaml:5: tokens[0].name: given twice, first on line 2"]),
        (
            FILE + f"  - name: ann\n    sha256: {hash_token(BEN)}\n    pipelines: ['*']\n",
            ["tokens.yaml:5: tokens[1].name: another token has the same"],
        ),
        (
            FILE + f"  - name: ben\n    sha256: {hash_token(ANN).upper()}\n    pipelines: ['*']\n",
            ["tokens.yaml:6: tokens[1].sha256: another token has the same"],
        ),
        ("tokens: [\n", ["tokens.yaml:2: not valid YAML"]),
    ],
)
def test_invalid_file_error_has_the_line(write: Write, text: str, expected: list[str]) -> None:
    file = write(text)
    with pytest.raises(ConfigError) as caught:
        read_tokens(file)
    for words in expected:
        assert words in str(caught.value)
    assert caught.value.metadata["file"] == file
    with pytest.raises(ConfigError):
        TokenAuthenticator(file)


def test_token_in_the_file_is_not_shown_in_the_error(write: Write) -> None:
    secret = new_token()
    for text in (
        FILE.replace(hash_token(ANN), secret),
        FILE.replace(hash_token(ANN), secret.replace("infeed_", "")),
        f"tokens: [{secret}]\n",
        f"tokens: {secret}\n",
        f"{secret}\n",
        FILE + f"    {secret}: 1\n",
    ):
        with pytest.raises(ConfigError) as caught:
            read_tokens(write(text))
        assert secret.removeprefix("infeed_") not in str(caught.value)


# Access to everything.


def test_the_control_plane_needs_a_token_for_every_pipeline(write: Write) -> None:
    file = write(grant(ANN, "ann", "photos", "*"), grant(BEN, "ben", "photo*"))
    authenticator = TokenAuthenticator(file, option="--http-tokens")
    authenticator.require_access_to_all(f"Bearer {ANN}")
    with pytest.raises(PermissionDeniedError, match="add the pattern '\\*' to its entry in"):
        authenticator.require_access_to_all(f"Bearer {BEN}")
    with pytest.raises(AuthenticationError, match="add its entry to the server's --http-tokens"):
        authenticator.require_access_to_all("Bearer infeed_other")
    with pytest.raises(AuthenticationError, match="requires a token"):
        authenticator.require_access_to_all(None)


# Generated tokens.


@pytest.mark.parametrize("name", ["team", "5", "a: b", "- x", "#no", "null", "\u00fc\n2", "'\""])
def test_token_entry_is_valid_in_the_file(write: Write, name: str) -> None:
    token = new_token()
    text = token_entry(token, name, ["imagenet-*", "*", "a: b", "7"])
    assert token not in text
    (generated,) = read_tokens(write(text))
    assert (generated.name, generated.sha256) == (name, hash_token(token))
    assert generated.pipelines == ["imagenet-*", "*", "a: b", "7"]


NOW = datetime(2026, 3, 1, 12, 30, 15, 7, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("12h", "2026-03-02 00:30:15"),
        ("30d", "2026-03-31 12:30:15"),
        ("2w", "2026-03-15 12:30:15"),
        ("2026-03-02", "2026-03-02 00:00:00"),
        ("2026-03-01T12:31", "2026-03-01 12:31:00"),
        ("2026-03-01 14:31:00+02:00", "2026-03-01 12:31:00"),
    ],
)
def test_expiry_is_valid_in_the_file(write: Write, text: str, end: str) -> None:
    file = str(write(token_entry(new_token(), "ann", ["*"], parse_expiry(text, NOW))))
    [grant] = read_tokens(file)
    assert grant.expires == datetime.fromisoformat(f"{end}+00:00")


@pytest.mark.parametrize(
    "text", ["", "30", "0d", "30 d", "-3d", "soon", "2027-13-01", "9" * 9 + "w"]
)
def test_invalid_expiry_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=f"--expires {text}: neither a duration nor a date"):
        parse_expiry(text, NOW)


@pytest.mark.parametrize("text", ["2026-03-01", "2026-03-01T12:30"])
def test_expiry_in_the_past_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is past; give a later time"):
        parse_expiry(text, NOW)
