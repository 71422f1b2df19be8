"""The interface of a store of records."""

from __future__ import annotations

from abc import ABC, abstractmethod


class Store(ABC):
    """Records by index. Thread-safe."""

    @abstractmethod
    def get(self, index: int) -> bytes | None:
        """Returns a record that is kept, as it was put."""

    @abstractmethod
    def put(self, index: int, record: bytes) -> None:
        """Keeps a record, if it fits into the budget."""

    @abstractmethod
    def takes(self, index: int) -> bool:
        """Returns whether `put` may keep a record that is not kept: False where it is known."""

    @property
    @abstractmethod
    def used_bytes(self) -> int: ...

    @abstractmethod
    def close(self) -> None: ...
