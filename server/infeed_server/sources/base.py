"""The interface of random-access sources, and the base classes of source definitions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypeAlias

import numpy.typing as npt
import tensorflow as tf
from pydantic import Field
from typing_extensions import Self

from infeed.shared.errors import KeyPath, SampleError, SourceError
from infeed.shared.spec import TargetSpec
from infeed_server.config.importer import named_in
from infeed_server.config.model import Definition, Finding, did_you_mean
from infeed_server.order import SampleOrder
from infeed_server.sources.layout import Layout
from infeed_server.sources.places import Indices, Keys, Places, Provenance, sample_error
from infeed_server.sources.shards import list_shards, warn_of_missing
from infeed_server.sources.work import PythonWork
from infeed_server.storage.files import PathString, abbreviate, is_remote, rebase
from infeed_server.storage.stamp import StoredFile

READ_THREADS = 4
"""Threads that read a source: enough to hide a file system's latency, few enough for Python's
lock."""

Columns = dict[str, npt.NDArray[Any]]
"""Raw values of samples: column name → array, one row per sample."""


def array_bytes(array: npt.NDArray[Any]) -> int:
    """Counts the bytes of an array, including the byte strings that it points to."""
    strings = sum(map(len, array.flat)) if array.dtype == object else 0
    return array.nbytes + strings


Sample: TypeAlias = "dict[str, tf.Tensor]"
"""One sample inside a graph: field name → tensor, without a slots dimension."""

Exif: TypeAlias = Literal["", "apply", "ignore", "unclear"]
"""The `exif` of `decode_image` with which labels lie on their pictures; empty if any does, since
EXIF turns no picture."""


class Source(ABC):
    """An opened source with random access. Thread-safe: several threads call `read`."""

    behind: Source | None = None
    """For a source of Python functions' results: the source that feeds the functions."""
    keyed_stages: Sequence[str] = ()
    """The functions that draw random numbers from the samples' keys."""
    transforms: Sequence[Any] = ()
    """Transforms of each sample that run before the pipeline's."""
    arrangement: Any = None
    """What `order` depends on, for the fingerprint: a JSON value."""
    shown: Mapping[str, TargetSpec] = {}
    """What the fields show of a picture, if the source knows."""
    exif: Exif = ""
    part_sizes: Mapping[str, int] = {}
    """Number of samples in each part of a mixture, by name; samples are numbered part by part."""

    def __init__(
        self,
        places: Places,
        columns: Mapping[str, tf.TensorSpec],
        identity: str,
        *,
        parsed: bool = True,
        classes: Mapping[str, Sequence[str]] = {},
        advice: str = "",
    ) -> None:
        """`columns` are what `read` returns, per sample (no slots dimension). `identity` is a hash
        of the samples, wherever they are stored. `parsed`: the columns already are the fields, so
        `parse` does nothing. `classes` gives class names by field; `advice` tells how to make
        reading in global order cheaper."""
        self.places, self.columns, self.identity = places, columns, identity
        self.parsed, self.classes, self.advice = parsed, classes, advice
        self.subject = f"the source {type(self).__name__}"

    @abstractmethod
    def read(self, indices: Indices) -> Columns:
        """Reads samples in the given order. Raises `SampleError` with the first bad `sample_id`."""

    def read_checked(self, indices: Indices) -> Columns:
        """Returns what `read` does. Raises `SourceError` if that does not match `columns`."""
        found = self.read(indices)
        if problem := self._layout.problem(found, len(indices)):
            raise SourceError(f"{self.subject}: its read {problem}")
        return found

    def read_keyed(self, indices: Indices, keys: Keys) -> Columns:  # noqa: ARG002
        """Returns what `read_checked` does; uses the keys if the samples depend on them."""
        return self.read_checked(indices)

    def work(self) -> PythonWork:
        """Returns the work done so far by the user's Python code in reading the source."""
        return PythonWork()

    @cached_property
    def _layout(self) -> Layout:
        return Layout(self.columns)

    def __len__(self) -> int:
        return len(self.places)

    def provenance(self, index: int) -> Provenance:
        """Returns the location of a sample."""
        return self.places.provenance(index)

    def known_fields(self) -> Mapping[str, npt.NDArray[Any]]:
        """Returns the fields, such as a label, known for all samples: an array for each."""
        return {}

    def whole_field(self, name: str) -> npt.NDArray[Any] | None:
        """Returns one field of all samples, each a number, a byte string or an array of its rows;
        None if that would require reading the samples."""
        return self.known_fields().get(name)

    def order(self, plain: SampleOrder) -> SampleOrder:
        """Returns a pipeline's order, derived from the plain one of the same size."""
        return plain

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources whose samples are numbered one source after the other."""
        return (self,)

    def parse(self, columns: Sample) -> Sample:
        """Parses one sample's columns into its fields. Runs inside the pipeline's graph."""
        return columns

    def sample_error(
        self, index: int, problem: str, place: object = None, **where: Any
    ) -> SampleError:
        """Returns the error for a bad sample; `place` describes where it is."""
        return sample_error(self.places, index, problem, place, **where)

    def close(self) -> None:
        """Stops the source's readers. A read in progress may end with a `SourceError`."""
        self.places.close()


class ProgressCallback(Protocol):
    """A callback for the progress of a long scan, in bytes. The total may be 0."""

    def __call__(self, done_bytes: int, total_bytes: int, /) -> None: ...


class SourceDefinition(Definition):
    """The options of a source. `kind` is the key that selects it in the configuration."""

    kind: ClassVar[str]
    nesting: ClassVar[int] = 0
    """Above 0 if the key may also stand in the pipeline beside `source`: it then wraps `source`,
    and sources with a smaller number."""
    engine: ClassVar[str] = ""
    """The engine of `infeed.engines` that serves the source if it has no random access."""

    def paths(self) -> dict[str, Any]:
        """Returns the options that hold paths or globs, directly or in lists or mappings."""
        names = {self.kind, "index"} & type(self).model_fields.keys()
        return {name: getattr(self, name) for name in names}

    def resolve(self, base: Path) -> Self:
        """Returns the definition with its relative paths and globs resolved against `base`."""
        return self.model_copy(update={key: rebase(v, base) for key, v in self.paths().items()})

    def linked(self, pipelines: Mapping[str, Any]) -> Self:  # noqa: ARG002 - of mixtures
        """Returns the definition linked to the pipelines that it names. Raises `ConfigError`."""
        return self

    def check(self) -> Iterator[Finding]:
        """Yields missing files. Takes milliseconds and loads no TensorFlow."""
        return iter(())


class IndexedDefinition(SourceDefinition):
    """The options of a source with random access."""

    def open(
        self, progress: ProgressCallback | None = None, *, keep_damaged: bool = False
    ) -> Source:
        """Opens the source, reporting the progress of file scans. Raises `SourceError`. With
        `keep_damaged`, damaged records found by a scan become unreadable samples."""
        raise NotImplementedError(type(self).__name__)


Paths = PathString | Annotated[list[PathString], Field(min_length=1)]
"""A path or a glob, or a list of them."""


class FilesDefinition(IndexedDefinition):
    """The options of a source in files, with one or more paths or globs in the option named after
    its `kind`."""

    indexed_ending: ClassVar[str] = ""
    """Ending of the files that `index_files` indexes."""

    @classmethod
    def index_files(
        cls,
        files: Sequence[StoredFile],
        directory: str | None,
        progress: ProgressCallback,
        *,
        rebuild: bool,
    ) -> Iterator[str]:
        """Builds or checks the index of each file and yields the result. `directory` holds the
        indexes instead of the data's folder. Raises `SourceError`."""
        raise NotImplementedError(cls.__name__)

    @property
    def patterns(self) -> list[str]:
        value = getattr(self, self.kind)
        return [value] if isinstance(value, str) else list(value)

    def list_files(self) -> list[StoredFile]:
        """Lists the files, sorted by path. Raises `SourceError`."""
        files = list_shards(self.patterns)
        warn_of_missing(files)
        return files

    def nothing(self, what: str, files: int) -> SourceError:
        """Returns the error for files without a sample."""
        patterns = ", ".join(self.patterns)
        text = f"no {what} in the {files} files of {patterns}; write the files again"
        return SourceError(text, pattern=self.patterns[0])

    def check(self) -> Iterator[Finding]:
        for number, pattern in enumerate(self.patterns):
            if not is_remote(pattern):
                is_one = isinstance(getattr(self, self.kind), str)
                key = (self.kind,) if is_one else (self.kind, number)
                yield from find_missing(key, partial(list_shards, [pattern]))


def find_missing(path: KeyPath, find: Callable[[], object]) -> Iterator[Finding]:
    """Looks for a file; yields a `SourceError` as a finding about the key at `path`."""
    try:
        find()
    except SourceError as error:
        yield path, error.message


def require_names(
    names: Iterable[str], available: Sequence[str], subject: str, what: str = "column"
) -> None:
    """Raises `SourceError` for the first name that is missing in `subject`, a path."""
    for name in names:
        if name not in available:
            raise SourceError(
                f"{subject} has no {what} {name!r}{did_you_mean(name, [*available])}; "
                f"available: {abbreviate(available, 12) or 'none'}",
                file=subject,
            )


def expand_type(value: Any) -> Any:
    """Returns a field's options; a type's name alone means a scalar."""
    return {"type": value} if isinstance(value, str) else value


def check_code_name(value: Any) -> Any:
    """Returns an object, or a name of the form `module:attr`. Raises `ValueError` for other
    text."""
    if isinstance(value, str) and not all(value.partition(":")):
        raise ValueError("should be of the form module:attr")
    return value


class CodeDefinition(SourceDefinition):
    """The options of a source made by the user's code, which the option `kind` holds or names."""

    def paths(self) -> dict[str, Any]:
        return {}

    def resolve(self, base: Path) -> Self:
        return self.model_copy(update={self.kind: named_in(self.target, base)})

    @property
    def target(self) -> Any:
        return getattr(self, self.kind)

    @property
    def label(self) -> str:
        """The name of the code in messages: `module:attr`."""
        if isinstance(self.target, str):
            return str(self.target)
        named = self.target if hasattr(self.target, "__qualname__") else type(self.target)
        return f"{named.__module__}:{named.__qualname__}"
