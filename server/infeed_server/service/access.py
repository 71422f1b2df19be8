"""Who may ask for what."""

from __future__ import annotations

from typing import Protocol


class Caller(Protocol):
    """Whoever makes a call. Its rights can change while it lasts."""

    def may(self, pipeline: str) -> bool:
        """Whether it has the right to the pipeline now."""

    def require(self, pipeline: str) -> None:
        """Raises `PermissionDeniedError`, or `AuthenticationError` when it is no longer known."""


class Access(Protocol):
    """What tells callers apart."""

    def admit(self, authorization: str | None) -> Caller:
        """The caller that shows this header. Raises `AuthenticationError`."""


class Anybody:
    """May ask for everything: where the network, or TLS, keeps strangers out."""

    def admit(self, authorization: str | None) -> Caller:
        del authorization
        return self

    def may(self, pipeline: str) -> bool:
        del pipeline
        return True

    def require(self, pipeline: str) -> None:
        """Everybody may."""
