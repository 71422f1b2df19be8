"""Class folders and tables of several pipelines: a class must have the same number in all of
them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from infeed.shared.errors import InfeedError
from infeed_server.config.document import flow
from infeed_server.config.model import Finding
from infeed_server.pipeline.definition import Pipeline
from infeed_server.sources.class_names import class_conflict
from infeed_server.sources.images.labels import TableLabels
from infeed_server.sources.images.listing import class_folders
from infeed_server.sources.images.source import ImagesSource
from infeed_server.storage.files import abbreviate, absolute_path

Names: TypeAlias = tuple[str, ...]

_MAX_NAMED = 30
"""Maximum classes in the list that an error suggests."""


def class_folder_problems(pipelines: Mapping[str, Pipeline]) -> Iterator[Finding]:
    """Yields the sources whose folders, or whose table with classes, number a class differently
    from earlier sources. A single source is not listed."""
    sources = [
        (("pipelines", name, *path), source)
        for name, pipeline in pipelines.items()
        for path, source in _sources(pipeline)
        if isinstance(source, ImagesSource) and (source.numbers_folders or _table_classes(source))
    ]
    roots = {absolute_path(source.images) for _, source in sources if source.numbers_folders}
    lists = {_table_classes(source) for _, source in sources if not source.numbers_folders}
    folders = {root: _class_folders(root) for root in roots} if len(roots) + len(lists) > 1 else {}
    everything = [*folders.values(), *lists]
    before: dict[Names, ImagesSource] = {}
    for path, source in sources:
        own = _table_classes(source) or folders.get(absolute_path(source.images), ())
        for names, other in before.items():
            # Lists in tables, which a user wrote, may have no class in common.
            is_related = source.numbers_folders and other.numbers_folders
            is_related |= not {*own}.isdisjoint(names)
            if is_related and (problem := class_conflict(own, names)):
                remedy = _remedy(own, names, everything, source)
                yield (*path, "labels"), f"label {problem} in {_place(other)}; {remedy}"
                break
        else:
            before.setdefault(own, source)


def _table_classes(source: ImagesSource) -> Names:
    """Returns the classes of a source's table; empty if it lists none."""
    return source.labels.classes if isinstance(source.labels, TableLabels) else ()


def _place(source: ImagesSource) -> str:
    return source.labels.table if isinstance(source.labels, TableLabels) else source.images


def _remedy(own: Names, other: Names, everything: Iterable[Names], source: ImagesSource) -> str:
    """Returns what to write: one list for parts of one data set, which have a class in common, else
    two lists."""
    if {*own}.isdisjoint(other):
        return (
            f"they have no class in common, so give each its own list: here {_as_list(own)}, there "
            f"{_as_list(other)}"
        )
    related = [found for found in everything if not {*own, *other}.isdisjoint(found)]
    names = sorted({name for found in related for name in found})
    where = "" if source.numbers_folders else f", beside table: {_place(source)}"
    return f"write the same list in both, {_as_list(names, where)}"


def _as_list(names: Sequence[str], of_table: str = "") -> str:
    listed = f"[{abbreviate([*map(flow, names)], _MAX_NAMED)}]"
    return f"classes: {listed}{of_table}" if of_table else f"labels: {{folders: {listed}}}"


def _sources(pipeline: Pipeline) -> Iterator[tuple[tuple[str | int, ...], object]]:
    yield ("source",), pipeline.source
    yield from ((("add", number), source) for number, source in enumerate(pipeline.add))


def _class_folders(root: str) -> Names:
    try:
        return class_folders(root)
    except InfeedError:  # opening the source raises it
        return ()
