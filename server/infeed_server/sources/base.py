"""The interface of random-access sources, and the base classes of source definitions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol, TypeAlias

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
"""Threads that read a source: enough to hide the latency of a file system, few enough for Python's
lock."""

Columns = dict[str, npt.NDArray[Any]]
"""Raw values of some samples: column name → array, one row per sample."""


def array_bytes(array: npt.NDArray[Any]) -> int:
    """Counts the bytes of an array, with the byte strings that it points to."""
    strings = sum(map(len, array.flat)) if array.dtype == object else 0
    return array.nbytes + strings


Sample: TypeAlias = "dict[str, tf.Tensor]"
"""One sample inside a graph: field name → tensor, without a slots dimension."""


class Source(ABC):
    """An opened source with random access. Thread-safe: several threads call `read`."""

    behind: Source | None = None
    """The source whose samples functions in Python get, of one that has their results."""
    keyed_stages: Sequence[str] = ()
    """The functions that draw from the keys of samples."""
    transforms: Sequence[Any] = ()
    """Transforms of each sample, in front of the pipeline's."""
    arrangement: Any = None
    """What `order` depends on, for the fingerprint: a JSON value."""
    shown: Mapping[str, TargetSpec] = {}
    """What fields show of a picture, where the source knows it."""
    part_sizes: Mapping[str, int] = {}
    """Names of the parts of a mixture, and the samples of each, which are numbered part by part."""

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
        of the samples, independent of where they are stored. `parsed`: the columns are the fields
        already, so that `parse` does nothing. `classes` has the name of each class by its number,
        of each field whose classes have names; `advice` is what makes samples in a global order
        cost less."""
        self.places, self.columns, self.identity = places, columns, identity
        self.parsed, self.classes, self.advice = parsed, classes, advice
        self.subject = f"the source {type(self).__name__}"

    @abstractmethod
    def read(self, indices: Indices) -> Columns:
        """Reads samples, in this order. Raises `SampleError` with the first bad `sample_id`."""

    def read_checked(self, indices: Indices) -> Columns:
        """Returns what `read` does. Raises `SourceError` where that is not what `columns` says."""
        found = self.read(indices)
        if problem := self._layout.problem(found, len(indices)):
            raise SourceError(f"{self.subject}: its read {problem}")
        return found

    def read_keyed(self, indices: Indices, keys: Keys) -> Columns:  # noqa: ARG002
        """Returns what `read_checked` does, under keys if the samples depend on them."""
        return self.read_checked(indices)

    def work(self) -> PythonWork:
        """Returns the work of the user's Python code where the source is read."""
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
        """Returns the fields, such as a label, that are known of all samples: an array for each."""
        return {}

    def whole_field(self, name: str) -> npt.NDArray[Any] | None:
        """Returns a field of all samples, each a number, a byte string or an array of its rows;
        None where it would be necessary to read them."""
        return self.known_fields().get(name)

    def order(self, plain: SampleOrder) -> SampleOrder:
        """Returns the order of a pipeline, from the one of as many samples without parts."""
        return plain

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources whose samples are numbered one behind the other."""
        return (self,)

    def parse(self, columns: Sample) -> Sample:
        """Parses one sample's columns into its fields. Runs inside the pipeline's graph."""
        return columns

    def sample_error(
        self, index: int, problem: str, place: object = None, **where: Any
    ) -> SampleError:
        """Returns the error for a bad sample; `place` is where it is, in words."""
        return sample_error(self.places, index, problem, place, **where)

    def close(self) -> None:
        """Ends what reads for the source. A read in progress may end with a `SourceError`."""
        self.places.close()


class ProgressCallback(Protocol):
    """A callback for the progress of a long scan, in bytes. The total may be 0."""

    def __call__(self, done_bytes: int, total_bytes: int, /) -> None: ...


class SourceDefinition(Definition):
    """The options of a source. `kind` is the key that selects it in the configuration."""

    kind: ClassVar[str]
    nesting: ClassVar[int] = 0
    """Above 0 where the key can also stand in the pipeline, beside `source`: around it, and around
    sources of a smaller number."""
    engine: ClassVar[str] = ""
    """The engine of `infeed.engines` that serves a source without samples by index."""

    def paths(self) -> dict[str, Any]:
        """Returns the options that are paths and globs, lists of them or mappings to them."""
        names = {self.kind, "index"} & type(self).model_fields.keys()
        return {name: getattr(self, name) for name in names}

    def resolve(self, base: Path) -> Self:
        """Returns the definition with its relative paths and globs taken from `base`."""
        return self.model_copy(update={key: rebase(v, base) for key, v in self.paths().items()})

    def linked(self, pipelines: Mapping[str, Any]) -> Self:  # noqa: ARG002 - of mixtures
        """Returns the definition with the pipelines that it names. Raises `ConfigError`."""
        return self

    def check(self) -> Iterator[Finding]:
        """Yields missing files. Takes milliseconds, loads no TensorFlow."""
        return iter(())


class IndexedDefinition(SourceDefinition):
    """The options of a source with random access."""

    def open(
        self, progress: ProgressCallback | None = None, *, keep_damaged: bool = False
    ) -> Source:
        """Opens the source, with the progress of scans of its files. Raises `SourceError`. With
        `keep_damaged`, damaged records that a scan finds are samples that cannot be read."""
        raise NotImplementedError(type(self).__name__)


Paths = PathString | Annotated[list[PathString], Field(min_length=1)]
"""A path or a glob, or a list of them."""


class FilesDefinition(IndexedDefinition):
    """The options of a source in files: the option named like its `kind` has their paths or globs,
    one or a list."""

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
        """Builds the index of each file, or checks it, and yields what was found. `directory` is
        its folder, instead of the data's own. Raises `SourceError`."""
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
        text = f"no {what} in the {files} files of {patterns}; write them again"
        return SourceError(text, pattern=self.patterns[0])

    def check(self) -> Iterator[Finding]:
        for number, pattern in enumerate(self.patterns):
            if not is_remote(pattern):
                is_one = isinstance(getattr(self, self.kind), str)
                key = (self.kind,) if is_one else (self.kind, number)
                yield from find_missing(key, partial(list_shards, [pattern]))


def find_missing(path: KeyPath, find: Callable[[], object]) -> Iterator[Finding]:
    """Yields the `SourceError` of looking for a file as a finding about the key at `path`."""
    try:
        find()
    except SourceError as error:
        yield path, error.message


def require_names(
    names: Iterable[str], available: Sequence[str], subject: str, what: str = "column"
) -> None:
    """Raises `SourceError` for the first name that `subject`, a path, does not have."""
    for name in names:
        if name not in available:
            raise SourceError(
                f"{subject} has no {what} {name!r}{did_you_mean(name, [*available])}; "
                f"available: {abbreviate(available, 12) or 'none'}",
                file=subject,
            )


def expand_type(value: Any) -> Any:
    """Returns the options of a field, where the name of a type alone stands for a scalar."""
    return {"type": value} if isinstance(value, str) else value


def check_code_name(value: Any) -> Any:
    """Returns an object, or a name of the form `module:attr`. Raises `ValueError` for another."""
    if isinstance(value, str) and not all(value.partition(":")):
        raise ValueError("should be of the form module:attr")
    return value


class CodeDefinition(SourceDefinition):
    """The options of a source that the user's code makes: an option `kind` has it or its name."""

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
