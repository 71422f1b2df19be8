"""Authentication and authorization of callers, by bearer tokens from a file or without any.

    tokens:
      - name: vision-team                # for messages and the log; no secret
        sha256: 0f4a...                  # of the token, which is not in the file itself
        pipelines: [imagenet-*, photos]  # names and patterns
        expires: 2027-06-30              # optional, UTC

The file is read again when it changes. Without the file, no token is valid.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BeforeValidator, Field, ValidationError, field_validator

from infeed.shared.errors import AuthenticationError, ConfigError, PermissionDeniedError
from infeed_server.config import document
from infeed_server.config.model import Definition, explain
from infeed_server.config.reloading import ReloadingValue

log = logging.getLogger(__name__)

TOKEN_PREFIX = "infeed_"  # noqa: S105 - not a token
"""Prefix of each generated token, by which scanners for leaked secrets recognize it."""

_TOKEN = re.compile(TOKEN_PREFIX + r"[\w-]+")
"""A generated token, which no message may contain."""

_DURATION = re.compile(r"([1-9]\d{0,8})([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 7 * 24}

_SCHEME = "bearer "

_EVERY_PIPELINE = "*"
"""The pattern of tokens that may read every pipeline, including later ones."""


def _in_utc(value: Any) -> Any:
    """Returns a date as its midnight, and reads a time without a zone as UTC."""
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)  # noqa: DTZ001 - see below
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=timezone.utc)
    return value


class Grant(Definition):
    """One entry of the file: a token's hash and its pipelines."""

    name: Annotated[str, Field(min_length=1)]
    sha256: str
    pipelines: Annotated[list[str], Field(min_length=1)]
    expires: Annotated[datetime | None, BeforeValidator(_in_utc)] = None
    """Time from which the token is invalid."""

    @field_validator("sha256")
    @classmethod
    def _check_hash(cls, value: str) -> str:
        if not re.fullmatch(r"[0-9a-fA-F]{64}", value):
            raise ValueError(  # without "should", which would add the value: the token itself
                "not the SHA-256 of a token, 64 hexadecimal digits; run `infeed token` to create a "
                "token and its entry"
            )
        return value.lower()

    def allows(self, pipeline: str) -> bool:
        return any(fnmatchcase(pipeline, pattern) for pattern in self.pipelines)


class TokenFile(Definition):
    tokens: list[Grant]


class Caller:
    """The client of a call. It has the rights of a token, which can change during the call, or all
    rights."""

    def __init__(self, name: str, find_grant: Callable[[], Grant] | None = None) -> None:
        """Limits count calls by `name`. `find_grant` raises once the token is invalid."""
        self.name = name
        self._find_grant = find_grant

    def has_access(self, pipeline: str) -> bool:
        """Returns whether the caller may read the pipeline now."""
        return self._find_grant is None or self._find_grant().allows(pipeline)

    def require_access(self, pipeline: str) -> None:
        """Raises `PermissionDeniedError`, or `AuthenticationError` if its token has become
        invalid."""
        grant = self._find_grant and self._find_grant()
        if grant and not grant.allows(pipeline):
            raise PermissionDeniedError(
                f"the token of {grant.name!r} has no access to pipeline {pipeline!r}",
                token=grant.name,
                pipeline=pipeline,
            )


class TokenAuthenticator:
    """Identifies callers by the tokens of a file. Thread-safe."""

    def __init__(
        self,
        file: str,
        now: Callable[[], datetime] | None = None,
        option: str = "--tokens",
    ) -> None:
        """`option` names the command's option in messages. Raises `ConfigError` with file and
        line."""
        self._now = now or partial(datetime.now, timezone.utc)
        self._option = option
        read_tokens(file)  # at the start, a missing file is an error too
        self._grants = ReloadingValue([file], partial(_read_current_tokens, file))

    def authenticate(self, authorization: str | None) -> Caller:
        """Returns the caller of an authorization header. Raises `AuthenticationError`."""
        digest = _digest(authorization)
        return Caller(f"the token of {self._grant(digest).name!r}", partial(self._grant, digest))

    def require_access_to_all(self, authorization: str | None) -> None:
        """Raises `AuthenticationError` without a token that is valid now, and
        `PermissionDeniedError` for one that may not read every pipeline."""
        grant = self._grant(_digest(authorization))
        if _EVERY_PIPELINE not in grant.pipelines:
            raise PermissionDeniedError(
                f"the token of {grant.name!r} may not read every pipeline, which the control plane "
                f"requires; add the pattern '*' to its entry in the {self._option} file",
                token=grant.name,
            )

    def _grant(self, digest: str) -> Grant:
        """Returns the current grant of a token's SHA-256. Raises `AuthenticationError`."""
        # Looked up by hash, so that the time reveals nothing about a token.
        match = self._grants.value.get(digest)
        if match is None:
            raise AuthenticationError(
                f"unknown or revoked token; add its entry to the server's {self._option} file"
            )
        if match.expires and self._now() >= match.expires:
            raise AuthenticationError(
                f"the token of {match.name!r} expired on "
                f"{match.expires.astimezone(timezone.utc):%Y-%m-%d %H:%M} UTC",
                token=match.name,
            )
        return match


def _digest(authorization: str | None) -> str:
    """Returns the SHA-256 of the token in a header. Raises `AuthenticationError`."""
    if authorization is None:
        raise AuthenticationError(
            "this server requires a token; pass connect(..., token=...) or --token-file"
        )
    if not authorization.lower().startswith(_SCHEME):
        raise AuthenticationError("the authorization must have the form 'Bearer <token>'")
    return hash_token(authorization[len(_SCHEME) :].strip())


def hash_token(token: str) -> str:
    """Returns the SHA-256 of a token, as the file holds it."""
    return hashlib.sha256(token.encode()).hexdigest()


def require_token(digest: str, authorization: str | None) -> None:
    """Raises `AuthenticationError` unless the header has the token of this SHA-256."""
    scheme, _, token = (authorization or "").partition(" ")
    if scheme.lower() != "bearer" or not hmac.compare_digest(hash_token(token.strip()), digest):
        raise AuthenticationError(
            "this control plane answers only its parent process; use that of infeed serve"
        )


def new_token() -> str:
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def parse_expiry(text: str, now: datetime) -> datetime:
    """Returns when a token expires: after a duration from `now`, or at a date or time in UTC.
    Raises `ConfigError` for any other text, and for a past time."""
    try:
        if match := _DURATION.fullmatch(text):
            hours = int(match[1]) * _HOURS[match[2]]
            end = now.replace(microsecond=0) + timedelta(hours=hours)
        else:
            end = _in_utc(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        raise ConfigError(
            f"--expires {text}: neither a duration nor a date; write for example 30d or 2027-06-30"
        ) from None
    if end <= now:
        raise ConfigError(f"--expires {text}: {end:%Y-%m-%d %H:%M} UTC is past; give a later time")
    return end


def token_entry(
    token: str, name: str, pipelines: list[str], expires: datetime | None = None
) -> str:
    """Returns the file's entry for a token, as YAML. Raises `ConfigError` without a name."""
    if not name:
        raise ConfigError("a token needs a name for messages and the log")
    grant: dict[str, Any] = {"name": name, "sha256": hash_token(token), "pipelines": pipelines}
    if expires is not None:
        grant["expires"] = expires
    return yaml.safe_dump({"tokens": [grant]}, sort_keys=False, default_flow_style=None)


def _read_current_tokens(file: str) -> dict[str, Grant]:
    """Reads the entries of a file that may have been deleted, which revokes all tokens."""
    if Path(file).exists():
        return {grant.sha256: grant for grant in read_tokens(file)}
    log.error("%s: no such file, so every token is revoked; restore it to accept tokens", file)
    return {}


def read_tokens(file: str) -> list[Grant]:
    """Reads the entries of a file. Raises `ConfigError`."""
    doc = document.read(file)
    try:
        grants = TokenFile.model_validate(doc.value).tokens
    except ValidationError as error:
        problems = [f"{doc.location(path)}: {text}" for path, text in explain(error, doc.value)]
        message = _TOKEN.sub(f"{TOKEN_PREFIX}...", "\n".join(problems))
        raise ConfigError(message, file=file) from None
    for key in ("name", "sha256"):
        seen: set[str] = set()
        for index, grant in enumerate(grants):
            value = getattr(grant, key)
            if value in seen:
                raise ConfigError(
                    f"{doc.location(('tokens', index, key))}: another token has the same", file=file
                )
            seen.add(value)
    return grants
