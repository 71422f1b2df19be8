"""Transforms that change no value: `rename`, `drop` and the marker `cache`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ByteSize, Field, field_validator, model_validator
from typing_extensions import Self, override

from infeed_server.sources.base import Sample
from infeed_server.transforms.base import FieldName, Key, Transform
from infeed_server.transforms.option_types import Names


class Rename(Transform):
    """Renames fields, which keep their order; two fields may swap names.

    Result: types and shapes kept.
    """

    # An alias, since `fields` is also the name of a method.
    names: Annotated[dict[FieldName, FieldName], Field(alias="fields", min_length=1)]
    """New names, `{old: new}`."""

    @field_validator("names")
    @classmethod
    def _distinct(cls, value: dict[str, str]) -> dict[str, str]:
        new = list(value.values())
        duplicates = sorted({name for name in new if new.count(name) > 1})
        if duplicates:
            raise ValueError(f"gives the name {duplicates[0]!r} to two fields")
        return value

    @override
    def apply(self, sample: Sample, key: Key) -> Sample:
        for old, new in self.names.items():
            self.get_field(sample, old)
            if new in sample and new not in self.names:
                raise self.error(
                    f"{old!r} cannot be renamed to {new!r}, which already exists; "
                    "drop or rename that field too"
                )
        return {self.names.get(field, field): value for field, value in sample.items()}

    @override
    def fields(self) -> set[str] | None:
        return {*self.names, *self.names.values()}


class Drop(Transform):
    """Removes fields.

    Result: the other fields.
    """

    names: Annotated[Names, Field(alias="fields")]
    """Fields to remove, `[a, b]`."""

    @override
    def apply(self, sample: Sample, key: Key) -> Sample:
        for field in self.names:
            self.get_field(sample, field)
        return {field: value for field, value in sample.items() if field not in self.names}

    @override
    def fields(self) -> set[str] | None:
        return set(self.names)


class Cache(Transform):
    """Caches samples, as the transforms before it make them, up to a budget.

    It changes neither samples nor the fingerprint; `infeed_server.pipeline` splits the list here.

    Result: types and shapes kept.
    """

    shorthand = "store"

    store: Literal["memory", "disk"] = "memory"
    """Where to keep samples: `disk` survives restarts, and several processes share it."""
    budget: Annotated[ByteSize, Field(ge=1 << 20)] = ByteSize(4 << 30)
    """Maximum bytes, at least 1 MiB: in memory, of all the server's processes together; on disk,
    including the unused caches below `path`."""
    path: str | None = None
    """Folder on a local disk; by default `samples` in the
    [user's folder](commands.md#environment-variables)."""

    @override
    def resolve(self, base: Path) -> Self:
        return self.model_copy(update={"path": str(base / self.path)}) if self.path else self

    @model_validator(mode="before")
    @classmethod
    def _no_limit(cls, value: Any) -> Any:
        if isinstance(value, dict) and "limit_mb" in value:
            raise ValueError(f"limit_mb is now budget: {value['limit_mb']}MiB")
        return value

    @override
    def apply(self, sample: Sample, key: Key) -> Sample:
        return sample

    @override
    def fields(self) -> set[str] | None:
        return set()
