"""Class folders of several pipelines: one class has one number in all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from infeed.shared.errors import InfeedError
from infeed_server.config.model import Finding
from infeed_server.pipeline.definition import Pipeline
from infeed_server.sources import ImagesSource
from infeed_server.sources.class_names import class_conflict
from infeed_server.sources.images.listing import class_folders
from infeed_server.storage.files import abbreviate, absolute_path

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
    first: tuple[str, ...] = ()
    first_root = ""
    for path, source in sources if folders else ():
        root = absolute_path(source.images)
        if problem := class_conflict(folders[root], first):
            names = sorted({name for found in folders.values() for name in found})
            remedy = f"labels: {{folders: [{abbreviate(names, _MAX_NAMED)}]}}"
            text = f"label {problem} in {first_root}; give both one list of classes, as {remedy}"
            yield (*path, "labels"), text
        elif len(folders[root]) > len(first):
            first, first_root = folders[root], source.images


def _sources(pipeline: Pipeline) -> Iterator[tuple[tuple[str | int, ...], object]]:
    yield ("source",), pipeline.source
    yield from ((("add", number), source) for number, source in enumerate(pipeline.add))


def _class_folders(root: str) -> tuple[str, ...]:
    try:
        return class_folders(root)
    except InfeedError:  # opening the source raises it
        return ()
