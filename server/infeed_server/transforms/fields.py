"""Which fields there are, and what they are called."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, field_validator
from typing_extensions import override

from infeed.errors import ConfigError
from infeed_server.transforms.base import FieldName, Key, Sample, Transform, take
from infeed_server.transforms.options import Names


class Rename(Transform):
    """`fields: {old: new}`. Two fields may swap their names; order is kept."""

    name: ClassVar[str] = "rename"

    # `fields` is the option's name, but also a method's: hence the alias.
    names: Annotated[dict[FieldName, FieldName], Field(alias="fields", min_length=1)]

    @field_validator("names")
    @classmethod
    def _distinct(cls, value: dict[str, str]) -> dict[str, str]:
        new = list(value.values())
        twice = sorted({name for name in new if new.count(name) > 1})
        if twice:
            raise ValueError(f"gives the name {twice[0]!r} to two fields")
        return value

    @override
    def apply(self, sample: Sample, key: Key) -> Sample:
        for old, new in self.names.items():
            take(sample, old, self.name)
            if new in sample and new not in self.names:
                raise ConfigError(
                    f"{self.name}: {old!r} cannot become {new!r}, there is a field of that name; "
                    "drop or rename it too",
                    stage=self.name,
                )
        return {self.names.get(field, field): value for field, value in sample.items()}

    @override
    def fields(self) -> set[str] | None:
        return {*self.names, *self.names.values()}


class Drop(Transform):
    """`fields: [a, b]`, which are no longer needed."""

    name: ClassVar[str] = "drop"

    names: Annotated[Names, Field(alias="fields")]

    @override
    def apply(self, sample: Sample, key: Key) -> Sample:
        for field in self.names:
            take(sample, field, self.name)
        return {field: value for field, value in sample.items() if field not in self.names}

    @override
    def fields(self) -> set[str] | None:
        return set(self.names)
