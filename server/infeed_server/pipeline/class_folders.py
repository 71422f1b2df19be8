"""Class folders of several pipelines: one class has one number in all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from infeed.shared.errors import InfeedError
from infeed_server.config.document import flow
from infeed_server.config.model import Finding
from infeed_server.pipeline.definition import Pipeline
from infeed_server.sources import ImagesSource
from infeed_server.sources.class_names import class_conflict
from infeed_server.sources.images.listing import class_folders
from infeed_server.storage.files import abbreviate, absolute_path

Names: TypeAlias = tuple[str, ...]

_MAX_NAMED = 30
"""Classes in the list that an error suggests."""


def class_folder_problems(pipelines: Mapping[str, Pipeline]) -> Iterator[Finding]:
    """Yields the sources whose folders would number a class otherwise than the first ones do. With
    one such source, nothing is listed."""
    sources = [
        (("pipelines", name, *path), source)
        for name, pipeline in pipelines.items()
        for path, source in _sources(pipeline)
        if isinstance(source, ImagesSource) and source.numbers_folders
    ]
    roots = {absolute_path(source.images) for _, source in sources}
    folders = {root: _class_folders(root) for root in roots} if len(roots) > 1 else {}
    first: Names = ()
    first_root = ""
    for path, source in sources if folders else ():
        root = absolute_path(source.images)
        if problem := class_conflict(folders[root], first):
            remedy = _remedy(folders[root], first, folders.values())
            yield (*path, "labels"), f"label {problem} in {first_root}; {remedy}"
        elif len(folders[root]) > len(first):
            first, first_root = folders[root], source.images


def _remedy(own: Names, first: Names, folders: Iterable[Names]) -> str:
    """Returns what to write: one list for parts of one data set, which have a class in common, and
    else two."""
    if {*own}.isdisjoint(first):
        return (
            f"they have no class in common, so give each its own list: here {_as_list(own)}, there "
            f"{_as_list(first)}"
        )
    related = [found for found in folders if not {*own, *first}.isdisjoint(found)]
    names = sorted({name for found in related for name in found})
    return f"give both one list of classes, as {_as_list(names)}"


def _as_list(names: Sequence[str]) -> str:
    return f"labels: {{folders: [{abbreviate([*map(flow, names)], _MAX_NAMED)}]}}"


def _sources(pipeline: Pipeline) -> Iterator[tuple[tuple[str | int, ...], object]]:
    yield ("source",), pipeline.source
    yield from ((("add", number), source) for number, source in enumerate(pipeline.add))


def _class_folders(root: str) -> Names:
    try:
        return class_folders(root)
    except InfeedError:  # opening the source raises it
        return ()
