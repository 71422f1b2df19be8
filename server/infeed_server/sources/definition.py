"""The base of every source's definition."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Protocol

from typing_extensions import Self

from infeed_server.config.model import Definition
from infeed_server.sources.base import StoredSource


class Progress(Protocol):
    """Told how far a long scan is, in bytes; the total may be 0."""

    def __call__(self, done_bytes: int, total_bytes: int, /) -> None: ...


class SourceDefinition(Definition):
    """What the configuration says about a source; `kind` is the key that picks it."""

    kind: ClassVar[str]

    def resolve(self, base: Path) -> Self:
        """The same definition with its relative paths and globs seen from `base`."""
        raise NotImplementedError(type(self).__name__)


class IndexedDefinition(SourceDefinition):
    """A source whose samples are read by index."""

    def open(self, progress: Progress | None = None) -> StoredSource:
        """The opened source. Raises `SourceError` when there is none to open."""
        raise NotImplementedError(type(self).__name__)
