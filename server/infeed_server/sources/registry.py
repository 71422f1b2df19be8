"""The sources of all installed packages, found through the entry points `infeed.sources`.

An entry point is named after the key that selects the source in a configuration, and loads its
`SourceDefinition`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BeforeValidator, SerializeAsAny
from pydantic_core import PydanticCustomError

from infeed.shared.doors import Door
from infeed.shared.errors import ConfigError, InfeedError, within
from infeed_server.config.model import did_you_mean
from infeed_server.config.user_errors import user_errors
from infeed_server.sources.base import IndexedDefinition, ProgressCallback, Source, SourceDefinition
from infeed_server.sources.concat import ConcatSource
from infeed_server.storage.git_lfs import name_pointer

_DOOR = Door("infeed.sources", "source")


def source_kinds() -> list[str]:
    """Returns the configuration keys of sources."""
    return _DOOR.names()


def source_class(kind: str) -> type[SourceDefinition]:
    """Returns the definition of a kind. Raises `ConfigError` if its package is broken."""
    found: type[SourceDefinition] = _DOOR.load(kind)
    is_definition = isinstance(found, type) and issubclass(found, SourceDefinition)
    if is_definition and getattr(found, "kind", None) == kind:
        return found
    problem = f"should be a SourceDefinition with kind = {kind!r}"
    raise ConfigError(f"the source {kind!r}, {_DOOR.place(kind)}, {problem}")


def source_classes() -> Iterator[type[SourceDefinition]]:
    """Yields the definitions of all kinds, except those of broken packages."""
    for kind in source_kinds():
        with suppress(ConfigError):
            yield source_class(kind)


def _validate(value: Any) -> SourceDefinition:
    if isinstance(value, SourceDefinition):
        return value
    known = source_kinds()
    kinds = [kind for kind in known if isinstance(value, dict) and kind in value]
    if len(kinds) == 1:
        try:
            chosen = source_class(kinds[0])
        except ConfigError as error:
            raise ValueError(error.message) from error
        # Its errors keep their locations: pydantic puts them below the source's.
        return chosen.model_validate(value)
    message = f"a source has one of: {', '.join(known)}"
    if kinds:
        message += f"; this one has {' and '.join(kinds)}"
    elif isinstance(value, dict):
        options = {name for one in source_classes() for name in one.model_fields}
        hints = {key: did_you_mean(str(key), known) for key in value if key not in options}
        unknown = [f"unknown key {key!r}{hint}; " for key, hint in hints.items() if hint]
        message = f"{''.join(unknown[:1])}{message}"
    raise PydanticCustomError("source_kind", "{message}", {"message": message})


AnySource: TypeAlias = Annotated[SerializeAsAny[SourceDefinition], BeforeValidator(_validate)]
"""A definition of any source, as a field of a model."""


def _is_indexed(source: SourceDefinition) -> SourceDefinition:
    if not isinstance(source, IndexedDefinition):
        raise ValueError(f"should be a source with samples by index, which {source.kind} is not")
    return source


AddedSource: TypeAlias = Annotated[AnySource, AfterValidator(_is_indexed)]
"""A definition of a source with random access."""


def open_source(
    definition: SourceDefinition,
    progress: ProgressCallback | None = None,
    *,
    keep_damaged: bool = False,
) -> Source:
    """Opens an indexed source. Raises `ConfigError` for a sequential one, `SourceError`, and
    `UserCodeError` for any other exception in its package."""
    if not isinstance(definition, IndexedDefinition):
        raise ConfigError(
            f"the source {definition.kind} is sequential: its elements cannot be read by index"
        )
    subject = _DOOR.subject(definition.kind)
    with user_errors(subject, InfeedError, KeyboardInterrupt, SystemExit):  # by a signal
        try:
            source = definition.open(progress, keep_damaged=keep_damaged)
        except InfeedError as error:
            name_pointer(error)
            raise
    source.subject = subject
    return source


def open_sources(
    definitions: Sequence[SourceDefinition],
    progress: ProgressCallback | None = None,
    *,
    keep_damaged: bool = False,
) -> Source:
    """Opens a pipeline's source and those that it adds, as one. Raises `SourceError`, and
    `ConfigError` if their columns differ or one is a mixture."""
    opened: list[Source] = []
    with ExitStack() as undo:
        for number, definition in enumerate(definitions):
            with within(*(("add", number - 1) if number else ("source",))):
                opened.append(open_source(definition, progress, keep_damaged=keep_damaged))
                undo.callback(opened[-1].close)
                if len(definitions) > 1 and opened[-1].part_sizes:
                    raise ConfigError(
                        f"{definition.kind} has an order of its own, so nothing can be added to "
                        "it, nor it to others; put all sources into it"
                    )
        names = [_describe(definition) for definition in definitions]
        source = opened[0] if len(opened) == 1 else ConcatSource(opened, names)
        undo.pop_all()
    return source


def _describe(definition: SourceDefinition) -> str:
    paths = getattr(definition, definition.kind)
    return f"{definition.kind}: {paths}" if isinstance(paths, str | list) else definition.kind
