"""The samples that a definition removes, by their ids."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from infeed.shared.errors import ConfigError, within
from infeed_server.pipeline.definition import Remove
from infeed_server.pipeline.removal_list import read_list
from infeed_server.sources.base import Source


def removed_samples(remove: Remove | None, source: Source) -> tuple[int, ...]:
    """Returns the ids of the samples to remove, in the order of the definition. Raises
    `ConfigError` for one that the source does not have, or has more than once."""
    if remove is None:
        return ()
    listed, others = read_list(remove.samples)
    where = f"{remove.samples}: " if isinstance(remove.samples, str) else ""
    with within("remove"):
        ids = _ids_of(listed, others, source, where)
        seen: set[int] = set()
        for name, index in zip(listed, ids, strict=True):
            if index in seen:
                raise ConfigError(
                    f"{where}sample {index} is listed again as {name!r}; leave out one of the two"
                )
            seen.add(index)
        if ids and len(ids) == len(source):
            raise ConfigError(f"{where}all {len(ids)} samples are listed; keep at least one")
    return tuple(ids)


def _ids_of(
    listed: Sequence[int | str], others: frozenset[str], source: Source, where: str
) -> list[int]:
    names = {name: -1 for name in listed if isinstance(name, str)}
    if names or others:
        last_parts = {name.rpartition("/")[2] for name in (*names, *others)}
        for index in range(len(source)):
            file = source.provenance(index).file
            if file.rpartition("/")[2] not in last_parts:
                continue
            for name in _endings(file):
                if name in others:
                    raise ConfigError(
                        f"{where}{name!r} is the file name of sample {index}, but also reads as a "
                        "name with a comment after ' # '; give the id of the sample that you mean, "
                        f"or for this file {json.dumps(name)}, in quotes"
                    )
                if names.get(name, -1) >= 0:
                    raise ConfigError(
                        f"{where}{name!r} matches samples {names[name]} and {index}, and perhaps "
                        "more; give more folders of the path, or the id"
                    )
                if name in names:
                    names[name] = index
    for name, index in names.items():
        if index < 0:
            raise ConfigError(
                f"{where}no sample has the file {name!r}; `infeed what` shows files and ids, and "
                "comments begin with ' # '"
            )
    ids = [names[item] if isinstance(item, str) else item for item in listed]
    for index in ids:
        if not 0 <= index < len(source):
            raise ConfigError(
                f"{where}there is no sample {index}; the ids are 0 to {len(source) - 1}"
            )
    return ids


def _endings(file: str) -> Iterator[str]:
    """Yields a path, and what remains of it after each of its folders."""
    yield file
    while file:
        file = file.partition("/")[2]
        yield file
