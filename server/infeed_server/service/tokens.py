"""Bearer tokens from a file, with the pipelines that each has a right to.

    tokens:
      - name: vision-team                # for messages and the log; no secret
        sha256: 0f4a...                  # of the token, which the file itself does not hold
        pipelines: [imagenet-*, photos]  # names and patterns
        expires: 2027-06-30              # optional, UTC

The file is read again when it changes.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from datetime import date, datetime, timezone
from fnmatch import fnmatchcase
from functools import partial
from typing import Annotated

import yaml
from pydantic import Field, ValidationError, field_validator

from infeed.errors import AuthenticationError, ConfigError, PermissionDeniedError
from infeed_server.config import document
from infeed_server.config.model import Definition, explain
from infeed_server.config.watched import Watched

PREFIX = "infeed_"
"""Of the tokens that we make, so that scanners for leaked secrets can know them."""

_MADE = re.compile(PREFIX + r"[\w-]+")
"""A token that we made, which no message may show."""

_SCHEME = "bearer "


class Grant(Definition):
    """One token of the file."""

    name: Annotated[str, Field(min_length=1)]
    sha256: str
    pipelines: Annotated[list[str], Field(min_length=1)]
    expires: datetime | date | None = None

    @field_validator("sha256")
    @classmethod
    def _is_a_hash(cls, value: str) -> str:
        if not re.fullmatch(r"[0-9a-fA-F]{64}", value):
            raise ValueError(  # which never shows what stands there: it may be the token itself
                "the SHA-256 of a token is 64 hexadecimal digits, and this is not; `infeed token` "
                "makes both"
            )
        return value.lower()

    def may(self, pipeline: str) -> bool:
        return any(fnmatchcase(pipeline, pattern) for pattern in self.pipelines)

    @property
    def end(self) -> datetime | None:
        """From when on the token is worth nothing."""
        if self.expires is None:
            return None
        if not isinstance(self.expires, datetime):
            return datetime(*self.expires.timetuple()[:3], tzinfo=timezone.utc)
        return self.expires if self.expires.tzinfo else self.expires.replace(tzinfo=timezone.utc)


class TokenFile(Definition):
    tokens: list[Grant]


class TokenAccess:
    """Admits whoever shows a token of the file. Thread-safe."""

    def __init__(self, file: str, now: Callable[[], datetime] | None = None) -> None:
        """Raises `ConfigError` that names file and line."""
        self._now = now or partial(datetime.now, timezone.utc)
        self._grants = Watched([file], partial(read, file))

    def admit(self, authorization: str | None) -> TokenCaller:
        if authorization is None:
            raise AuthenticationError(
                "this server asks for a token: connect(..., token=...), or --token-file"
            )
        if not authorization.lower().startswith(_SCHEME):
            raise AuthenticationError("the authorization is not of the form 'Bearer <token>'")
        digest = fingerprint(authorization[len(_SCHEME) :].strip())
        self.grant(digest)
        return TokenCaller(self, digest)

    def grant(self, digest: str) -> Grant:
        """What a token's SHA-256 stands for now. Raises `AuthenticationError`."""
        found = None
        for grant in self._grants.value:
            # Every one is compared, and in constant time, so that time tells nothing.
            if hmac.compare_digest(grant.sha256, digest):
                found = grant
        if found is None:
            raise AuthenticationError("the token is none that this server knows (any more)")
        if found.end is not None and self._now() >= found.end:
            raise AuthenticationError(
                f"the token of {found.name!r} has expired, on "
                f"{found.end.astimezone(timezone.utc):%Y-%m-%d %H:%M} UTC",
                token=found.name,
            )
        return found


class TokenCaller:
    """Whoever has shown a token."""

    def __init__(self, access: TokenAccess, digest: str) -> None:
        self._access = access
        self._digest = digest

    def may(self, pipeline: str) -> bool:
        return self._access.grant(self._digest).may(pipeline)

    def require(self, pipeline: str) -> None:
        grant = self._access.grant(self._digest)
        if not grant.may(pipeline):
            raise PermissionDeniedError(
                f"the token of {grant.name!r} has no right to a pipeline {pipeline!r}",
                token=grant.name,
                pipeline=pipeline,
            )


def fingerprint(token: str) -> str:
    """What the file holds of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def new_token() -> str:
    """A token that nobody can guess."""
    return PREFIX + secrets.token_urlsafe(32)


def entry(token: str, name: str, pipelines: list[str]) -> str:
    """What the file is to hold of a token, as YAML. Raises `ConfigError` without a name."""
    if not name:
        raise ConfigError("a token needs a name, for messages and the log")
    grant = {"name": name, "sha256": fingerprint(token), "pipelines": pipelines}
    return yaml.safe_dump({"tokens": [grant]}, sort_keys=False, default_flow_style=None)


def read(file: str) -> list[Grant]:
    """The tokens of a file. Raises `ConfigError`."""
    doc = document.read(file)
    try:
        grants = TokenFile.model_validate(doc.value).tokens
    except ValidationError as error:
        problems = [
            f"{doc.where(path)}: {text}" for path, text in explain(error, TokenFile, doc.value)
        ]
        told = _MADE.sub(f"{PREFIX}...", "\n".join(problems))
        raise ConfigError(told, file=file) from None
    for key in ("name", "sha256"):
        seen: set[str] = set()
        for number, grant in enumerate(grants):
            value = getattr(grant, key)
            if value in seen:
                raise ConfigError(
                    f"{doc.where(('tokens', number, key))}: another token has the same", file=file
                )
            seen.add(value)
    return grants
