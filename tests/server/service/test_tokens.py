"""Bearer tokens: who is known, what each may, until when; and what is wrong with the file."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml

from infeed.errors import AuthenticationError, ConfigError, PermissionDeniedError
from infeed_server.config import watched
from infeed_server.service import tokens
from infeed_server.service.tokens import TokenAccess, entry, fingerprint, new_token, read

ANN, BEN = "infeed_ann", "infeed_ben"

Write = Callable[..., str]


def grant(token: str, name: str, *pipelines: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "sha256": fingerprint(token), "pipelines": list(pipelines), **more}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Makes the file anew: text, or grants."""
    file = tmp_path / "tokens.yaml"

    def make(*content: Any) -> str:
        text = content[0] if isinstance(content[0], str) else yaml.safe_dump({"tokens": content})
        new = tmp_path / "new"
        new.write_text(text)
        new.rename(file)
        return str(file)

    return make


@pytest.fixture
def both(write: Write) -> str:
    return write(grant(ANN, "ann", "imagenet-*", "photos"), grant(BEN, "ben", "*"))


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are looked at whenever they are asked for."""
    monkeypatch.setattr(watched, "LOOK_SECONDS", 0.0)


# Who is known.


@pytest.mark.parametrize("scheme", ["Bearer ", "bearer ", "BEARER ", "Bearer   ", "bEaReR "])
def test_who_shows_a_token(both: str, scheme: str) -> None:
    caller = TokenAccess(both).admit(f"{scheme}{ANN} ")
    assert caller.may("photos")
    assert not caller.may("secrets")


def test_who_shows_none(both: str) -> None:
    with pytest.raises(AuthenticationError, match=r"asks for a token: connect\(\.\.\., token="):
        TokenAccess(both).admit(None)


@pytest.mark.parametrize(
    "header", ["", "Bearer", ANN, f"Basic {ANN}", f"Token {ANN}", f"Bearer:{ANN}", f" Bearer {ANN}"]
)
def test_who_shows_something_else(both: str, header: str) -> None:
    with pytest.raises(AuthenticationError, match="not of the form 'Bearer <token>'") as caught:
        TokenAccess(both).admit(header)
    assert ANN not in str(caught.value)


@pytest.mark.parametrize(
    "token",
    [
        "infeed_else",
        "",
        ANN[:-1],
        ANN + "x",
        ANN.upper(),
        f"{ANN},{BEN}",
        f"{ANN} {BEN}",
        f"Bearer {ANN}",
        fingerprint(ANN),  # whoever has read the file has no token
        "\xff",
        "x" * 60_000,
    ],
)
def test_who_shows_a_token_that_is_not_known(both: str, token: str) -> None:
    with pytest.raises(AuthenticationError, match="the token is none that this server knows") as it:
        TokenAccess(both).admit(f"Bearer {token}")
    told = str(it.value) + str(it.value.metadata)
    assert "ann" not in told
    assert (token or "-") not in told


def test_every_token_is_compared_in_constant_time(
    both: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[str, str]] = []

    class Counting:
        @staticmethod
        def compare_digest(one: str, other: str) -> bool:
            compared.append((one, other))
            return hmac.compare_digest(one, other)

    access = TokenAccess(both)
    monkeypatch.setattr(tokens, "hmac", Counting)
    for token in (ANN, BEN, "infeed_else"):
        compared.clear()
        try:
            access.admit(f"Bearer {token}")
        except AuthenticationError:
            assert token == "infeed_else"
        assert {one for one, _ in compared} == {fingerprint(ANN), fingerprint(BEN)}
        assert {other for _, other in compared} == {fingerprint(token)}


@pytest.mark.parametrize("case", [str.upper, str.lower, str.title])
def test_the_case_of_a_hash_is_no_matter(write: Write, case: Callable[[str], str]) -> None:
    one = grant(ANN, "ann", "*")
    TokenAccess(write({**one, "sha256": case(one["sha256"])})).admit(f"Bearer {ANN}")


# What each may.


@pytest.mark.parametrize(
    ("pattern", "may", "may_not"),
    [
        ("photos", ["photos"], ["photo", "photoss", "Photos", "", "photos "]),
        ("imagenet-*", ["imagenet-", "imagenet-a"], ["imagenet", "my-imagenet-x", "IMAGENET-x"]),
        ("*", ["", "any", "a/b", "a\nb"], []),
        ("a?c", ["abc"], ["ac", "abbc"]),
        ("[ab]*", ["a1", "b"], ["c"]),
        ("[!a]", ["b"], ["a", "bb"]),
        ("a.c", ["a.c"], ["abc"]),
        ("a|b", ["a|b"], ["a", "b"]),
    ],
)
def test_patterns(write: Write, pattern: str, may: list[str], may_not: list[str]) -> None:
    caller = TokenAccess(write(grant(ANN, "ann", pattern))).admit(f"Bearer {ANN}")
    for name in may:
        assert caller.may(name)
        caller.require(name)
    for name in may_not:
        assert not caller.may(name)
        with pytest.raises(PermissionDeniedError) as caught:
            caller.require(name)
        assert str(caught.value) == f"the token of 'ann' has no right to a pipeline {name!r}"
        assert caught.value.metadata == {"token": "ann", "pipeline": name}


def test_a_pattern_of_many_stars_takes_no_time(write: Write) -> None:
    caller = TokenAccess(write(grant(ANN, "ann", "*a" * 20 + "b"))).admit(f"Bearer {ANN}")
    assert not caller.may("a" * 60_000)


# Until when.


@pytest.mark.parametrize(
    ("expires", "end"),
    [
        ("2027-06-30", "2027-06-30 00:00"),
        ("2027-06-30 12:30:00", "2027-06-30 12:30"),
        ("2027-06-30T12:30:00Z", "2027-06-30 12:30"),
        ("2027-06-30T12:30:00+02:00", "2027-06-30 10:30"),
        ("2027-06-30T23:30:00-05:00", "2027-07-01 04:30"),
        ("2024-02-29", "2024-02-29 00:00"),
    ],
)
def test_a_token_that_expires(write: Write, expires: str, end: str) -> None:
    text = yaml.safe_dump({"tokens": [grant(ANN, "ann", "*")]})
    file = write(text.replace("- name:", f"- expires: {expires}\n  name:"))
    at = datetime.strptime(f"{end} +0000", "%Y-%m-%d %H:%M %z")
    now = [at.replace(year=at.year - 1, day=28)]
    access = TokenAccess(file, lambda: now[0])
    caller = access.admit(f"Bearer {ANN}")
    now[0] = at.fromtimestamp(at.timestamp() - 1, timezone.utc)
    caller.require("any")
    now[0] = at
    told = f"the token of 'ann' has expired, on {end} UTC"
    for use in (
        lambda: caller.require("any"),
        lambda: caller.may("any"),
        lambda: access.admit(f"Bearer {ANN}"),
    ):
        with pytest.raises(AuthenticationError) as caught:
            use()
        assert str(caught.value) == told


@pytest.mark.parametrize("expires", ["9999-12-31", "9999-12-31T23:59:59-05:00", "null"])
def test_a_token_that_never_does(write: Write, expires: str) -> None:
    text = yaml.safe_dump({"tokens": [grant(ANN, "ann", "*")]})
    file = write(text.replace("- name:", f"- expires: {expires}\n  name:"))
    TokenAccess(file).admit(f"Bearer {ANN}").require("any")


# The file changes.


def test_a_token_that_is_added_and_taken_out(both: str, write: Write, at_once: None) -> None:
    access = TokenAccess(both)
    ann = access.admit(f"Bearer {ANN}")
    write(grant("infeed_new", "new", "*"))
    access.admit("Bearer infeed_new").require("any")
    for use in (lambda: ann.require("photos"), lambda: ann.may("photos")):
        with pytest.raises(AuthenticationError, match=r"knows \(any more\)"):
            use()


def test_rights_that_change(both: str, write: Write, at_once: None) -> None:
    access = TokenAccess(both)
    ann, ben = access.admit(f"Bearer {ANN}"), access.admit(f"Bearer {BEN}")
    write(grant(BEN, "ben", "other"), grant(ANN, "anna", "other"))
    for caller in (ann, ben):
        caller.require("other")
        with pytest.raises(PermissionDeniedError):
            caller.require("photos")


def test_all_tokens_taken_out(both: str, write: Write, at_once: None) -> None:
    access = TokenAccess(both)
    write("tokens: []\n")
    with pytest.raises(AuthenticationError):
        access.admit(f"Bearer {ANN}")


@pytest.mark.parametrize(
    "text", ["", "tokens:\n", "tokens: [{name: x}]\n", "tokens: [", "\0", "tokens: &a [*a]\n"]
)
def test_a_file_that_goes_bad_leaves_the_tokens_in_force(
    both: str, write: Write, at_once: None, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    caplog.set_level(logging.INFO)
    access = TokenAccess(both)
    ann = access.admit(f"Bearer {ANN}")
    write(text)
    for _ in range(3):
        ann.require("photos")
        access.admit(f"Bearer {BEN}")
    assert caplog.text.count("stays in force") == 1
    assert both in caplog.text
    Path(both).unlink()
    ann.require("photos")
    write(grant(BEN, "ben", "*"))
    with pytest.raises(AuthenticationError):
        ann.require("photos")


# The file is wrong.


ONE = f"""\
tokens:
  - name: ann
    sha256: {fingerprint(ANN)}
    pipelines: [photos]
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", ["tokens.yaml:1"]),
        ("tokens:\n", ["tokens.yaml:1: tokens"]),
        ("[]\n", ["tokens.yaml:1"]),
        ("token: []\n", ["tokens.yaml:1", "did you mean 'tokens'"]),
        ("tokens: {}\n", ["tokens.yaml:1: tokens"]),
        (ONE.replace("name: ann", "name: ''"), ["tokens.yaml:2: tokens[0].name"]),
        (ONE.replace("name: ann", "name: 5"), ["tokens.yaml:2: tokens[0].name"]),
        (ONE.replace("    pipelines: [photos]\n", ""), ["tokens.yaml:2: tokens[0].pipelines"]),
        (ONE.replace("[photos]", "[]"), ["tokens.yaml:4: tokens[0].pipelines"]),
        (ONE.replace("[photos]", "photos"), ["tokens.yaml:4: tokens[0].pipelines"]),
        (ONE.replace("[photos]", "[photos, 7]"), ["tokens.yaml:4: tokens[0].pipelines[1]"]),
        (ONE.replace(fingerprint(ANN), ANN), ["tokens.yaml:3: tokens[0].sha256", "64 hexadecimal"]),
        (ONE.replace(fingerprint(ANN), "0" * 64), ["tokens.yaml:3: tokens[0].sha256"]),  # a number
        (ONE.replace(fingerprint(ANN), f"'{'a' * 63}'"), ["64 hexadecimal", "`infeed token`"]),
        (ONE.replace(fingerprint(ANN), f"'{'a' * 63}\u0661'"), ["64 hexadecimal"]),
        (ONE.replace(fingerprint(ANN), f'"{"a" * 64}\\n"'), ["64 hexadecimal"]),
        (ONE + "    until: 2027-01-01\n", ["tokens.yaml:5: tokens[0].until"]),
        (ONE + "    expires: soon\n", ["tokens.yaml:5: tokens[0].expires"]),
        (ONE + "    expires: '2027-01-01'\n", ["tokens.yaml:5: tokens[0].expires"]),
        (ONE + "    expires: 1830000000\n", ["tokens.yaml:5: tokens[0].expires"]),
        (ONE + "    expires: 2027-13-01\n", ["tokens.yaml:5: tokens[0].expires: month"]),
        (ONE + "    name: ben\n", ["tokens.yaml:5: tokens[0].name: given twice, first in line 2"]),
        (
            ONE + f"  - name: ann\n    sha256: {fingerprint(BEN)}\n    pipelines: ['*']\n",
            ["tokens.yaml:5: tokens[1].name: another token has the same"],
        ),
        (
            ONE + f"  - name: ben\n    sha256: {fingerprint(ANN).upper()}\n    pipelines: ['*']\n",
            ["tokens.yaml:6: tokens[1].sha256: another token has the same"],
        ),
        ("tokens: [!!python/name:os.system x]\n", ["tokens.yaml:1: not valid YAML"]),
        ("tokens: [\n", ["tokens.yaml:2: not valid YAML"]),
    ],
)
def test_what_is_wrong_is_told_with_its_line(write: Write, text: str, told: list[str]) -> None:
    file = write(text)
    with pytest.raises(ConfigError) as caught:
        read(file)
    for words in told:
        assert words in str(caught.value)
    assert caught.value.metadata["file"] == file
    with pytest.raises(ConfigError):
        TokenAccess(file)


def test_a_secret_that_stands_where_its_hash_should_does_not_show(write: Write) -> None:
    secret = new_token()
    for text in (
        ONE.replace(fingerprint(ANN), secret),
        ONE.replace(fingerprint(ANN), secret.replace("infeed_", "")),
        f"tokens: [{secret}]\n",
        f"tokens: {secret}\n",
        f"{secret}\n",
        ONE + f"    {secret}: 1\n",
    ):
        with pytest.raises(ConfigError) as caught:
            read(write(text))
        assert secret.removeprefix("infeed_") not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*none\.yaml: No such file"):
        TokenAccess(str(tmp_path / "none.yaml"))


# What we make.


def test_new_tokens_are_all_different_and_can_be_shown() -> None:
    made = {new_token() for _ in range(1000)}
    assert len(made) == 1000
    for token in made:
        assert token.startswith("infeed_")
        assert len(token) >= 40
        assert token.isascii()
        assert token.isprintable()
        assert " " not in token


@pytest.mark.parametrize("name", ["team", "5", "a: b", "- x", "#no", "null", "\u00fc\n2", "'\""])
def test_an_entry_is_what_the_file_takes(write: Write, name: str) -> None:
    token = new_token()
    text = entry(token, name, ["imagenet-*", "*", "a: b", "7"])
    assert token not in text
    (made,) = read(write(text))
    assert (made.name, made.sha256) == (name, fingerprint(token))
    assert made.pipelines == ["imagenet-*", "*", "a: b", "7"]


def test_an_entry_without_a_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="a token needs a name"):
        entry(new_token(), "", ["*"])
