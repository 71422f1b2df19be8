"""The `python` source: an object with `__len__` and `__getitem__`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    NonNegativeInt,
    field_serializer,
    field_validator,
    model_validator,
)
from typing_extensions import Self

from infeed.shared.errors import within
from infeed_formats import values
from infeed_formats.columns import ColumnSource
from infeed_python.backend import Backend
from infeed_python.dataset import DatasetOptions
from infeed_python.worker import Request
from infeed_server.config.model import Definition, as_tuple
from infeed_server.sources.base import (
    CodeDefinition,
    Columns,
    IndexedDefinition,
    ProgressCallback,
    check_code_name,
    expand_type,
)
from infeed_server.sources.places import Indices, OnePlace, example_indices
from infeed_server.sources.work import PythonWork


class FieldOptions(Definition):
    """A field; a type's name alone is a scalar."""

    type: Literal[
        "bytes", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "float16", "float32", "float64", "bfloat16",
    ]  # fmt: skip
    """Type of the values: a NumPy type, which arrays must have and Python numbers are converted to,
    or `bytes` for bytes and text."""
    shape: Annotated[tuple[NonNegativeInt | None, ...], BeforeValidator(as_tuple)] = ()
    """Shape of an element's array; `null` for a size that varies."""


DeclaredFields: TypeAlias = Annotated[
    dict[str, Annotated[FieldOptions, BeforeValidator(expand_type)]], Field(min_length=1)
]


def declared_fields(options: DeclaredFields | None) -> tuple[values.Field, ...] | None:
    """Returns the fields that the options declare."""
    if options is None:
        return None
    return tuple(values.Field(name, field.type, field.shape) for name, field in options.items())


class PythonSource(CodeDefinition, IndexedDefinition):
    """Your own data set: an object with `__len__` and `__getitem__`."""

    kind: ClassVar[str] = "python"

    python: Annotated[str | Callable[[], Any] | Any, AfterValidator(check_code_name)]
    """The object, or a function without arguments that returns it, as `module:attr`; in Python,
    also the object or function itself."""
    names: (
        Annotated[
            tuple[Annotated[str, Field(min_length=1)], ...],
            Field(min_length=1),
            BeforeValidator(as_tuple),
        ]
        | None
    ) = None
    """Names for the parts of a tuple, or for a single value."""
    fields: DeclaredFields | None = None
    """Fields to serve, by name; by default all, with the types and shapes that eight elements
    show."""
    identity: Annotated[str, Field(min_length=1)] | None = None
    """Text for the fingerprint, instead of the object's own identity: see below."""
    processes: Annotated[int, Field(ge=0, le=256)] = 0
    """Worker processes that read, each with its own data set; 0: one thread of the server reads."""

    @field_validator("names")
    @classmethod
    def _check_names(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for number, name in enumerate(names or ()):
            if name in names[:number]:  # type: ignore[index]
                raise ValueError(f"{name!r} appears twice; give each part its own name")
        return names

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.processes and not isinstance(self.python, str):
            raise ValueError(
                "worker processes open the data set by name; write python: as module:attr, or omit "
                "processes"
            )
        return self

    @field_serializer("python")
    def _dump(self, _: Any) -> str:
        return self.label

    def open(self, progress: ProgressCallback | None = None, **_: bool) -> PythonReader:  # noqa: ARG002
        """Opens the data set. Raises `ConfigError`, `SourceError` and `UserCodeError`."""
        fields = declared_fields(self.fields)
        options = DatasetOptions(self.python, self.label, self.names, fields, self.identity)
        backend = Backend(self.label, self.processes, options)
        try:
            with within("python"):
                return PythonReader(backend, fields)
        except BaseException:  # also a signal
            backend.close()
            raise


class PythonReader(ColumnSource):
    """Reads elements by index."""

    def __init__(self, backend: Backend, fields: tuple[values.Field, ...] | None) -> None:
        """Reads some elements unless fields are declared. Raises the errors of a worker."""
        self.backend = backend
        self._description = opened = backend.open()
        if fields is None:
            looked_at = example_indices(opened.length)
            fields = backend.infer(Request(backend.label, looked_at, opened))
        listed = [f"{field.name}: {field}" for field in fields]
        identity = hashlib.sha256(f"{opened.identity} {listed}".encode()).hexdigest()
        super().__init__(OnePlace(backend.label, opened.length), fields, identity)

    def request(self, indices: Sequence[int]) -> Request:
        return Request(self.backend.label, indices, self._description, self.fields)

    def read(self, indices: Indices) -> Columns:
        return self.to_columns(self.backend.read(self.request(indices.tolist())))

    def work(self) -> PythonWork:
        return self.backend.meter.work()

    def close(self) -> None:
        self.backend.close()
