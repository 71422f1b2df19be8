"""The verification of a manifest: what it states, computed again from the data."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, zip_longest
from typing import Any

import numpy as np

from infeed.cursor import Cursor
from infeed.shared.errors import ConfigError, CursorError, InfeedError, InvalidRequestError
from infeed_server.pipeline.load import Pipelines
from infeed_server.pipeline.removal import find_sample
from infeed_server.run.manifest import RunData, open_run, read_contents, statement, to_bytes
from infeed_server.sources.content import Contents, is_proven, kept_under, split

_SHOWN = 10
"""Samples that are named of each source."""


def verify(
    text: bytes,
    pipelines: Pipelines,
    read: Callable[[RunData], Contents],
    sample: str | None = None,
) -> tuple[list[str], bool]:
    """Returns a line for each thing that differs from a manifest, and whether there is none. `read`
    returns the contents of the data. The lines on a `sample` say whether and when the run had it.
    """
    lines: list[str] = []
    try:
        with open_run(_cursor(text), pipelines) as run:
            contents = read(run)
            lines += _problems(text, run, contents)
            is_good = not lines
            if sample is not None:
                more, is_shown = _sample(text, run, contents, sample)
                lines, is_good = lines + more, is_good and is_shown
            return lines, is_good
    except InfeedError as error:
        return [*lines, error.message], False


def _cursor(text: bytes) -> Cursor:
    """Returns the run that a manifest states. Raises `CursorError` for another file."""
    try:
        predicate = json.loads(text)["predicate"]
        segments = [{**one} for one in predicate["segments"]]
        for segment in segments:
            del segment["defined"]
        return Cursor.from_json({**predicate["run"], "segments": segments})
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise CursorError(f"the file is no manifest of a run: {reason}; make it again") from error


def _problems(text: bytes, run: RunData, contents: Contents) -> Iterator[str]:
    stated, now = json.loads(text), statement(run, contents)
    try:
        run.order()
    except InvalidRequestError as error:
        yield error.message
    found = [*_differences("", stated, now)]
    yield from found
    if not found and text != to_bytes(now):
        yield "its values are right, but its bytes are not as they were written"
    for number, one in enumerate(split(contents, run.opened.parts)):
        yield from _changed(run, number, one, _root(stated, number))


def _differences(path: str, stated: Any, now: Any) -> Iterator[str]:
    """Yields what differs between JSON values, each with its path."""
    if isinstance(stated, dict) and isinstance(now, dict):
        for key in sorted(stated.keys() | now.keys()):
            inner = f"{path}.{key}" if path else key
            yield from _differences(inner, stated.get(key), now.get(key))
    elif isinstance(stated, list) and isinstance(now, list):
        for number, (one, other) in enumerate(zip_longest(stated, now)):
            yield from _differences(f"{path}[{number}]", one, other)
    elif json.dumps(stated) != json.dumps(now):  # 1, 1.0 and true are equal in Python
        yield f"{path}: the manifest has {json.dumps(stated)}, now it is {json.dumps(now)}"


def _root(stated: Any, number: int) -> str:
    """Returns what a manifest states as the content of a source; "" if nothing."""
    try:
        return str(stated["predicate"]["sources"][number]["content"])
    except (LookupError, TypeError):
        return ""


def _some(lines: Iterable[str]) -> Iterator[str]:
    """Yields the first lines, and a line with the number of the others."""
    lines = iter(lines)
    yield from islice(lines, _SHOWN)
    if more := sum(1 for _ in lines):
        yield f"and {more} more"


def _changed(run: RunData, number: int, now: Contents, root: str) -> Iterator[str]:
    """Yields the samples of a source that differ from the manifest's, if their digests are kept."""
    if root == now.root:
        return
    where, before = f"source {number}", kept_under(root)
    if before is None:
        yield f"{where}: which samples differ is unknown, as the manifest's digests are not here"
        return
    first = sum(map(len, run.opened.parts[:number]))
    if len(before) != len(now):  # their ids have moved
        yield f"{where}: it had {len(before)} samples and has {len(now)}"
        remain = {now[index] for index in range(len(now))}
        gone = [index for index in range(len(before)) if before[index] not in remain]
        yield from _some(
            f"{where}: sample {first + index} of the manifest is gone" for index in gone
        )
        return
    changed = [first + index for index in now.differing(before).tolist()]
    provenance = run.opened.source.provenance
    yield from _some(f"{where}: sample {i} differs: {provenance(i)}" for i in changed)


def _sample(text: bytes, run: RunData, contents: Contents, name: str) -> tuple[list[str], bool]:
    """Returns lines on a sample, by its id or file name, and whether what it has is proven: it is
    read again, and what leads from there to the manifest's root is checked."""
    source, parts = run.opened.source, run.opened.parts
    try:
        sample = find_sample(name, source)
    except ConfigError as error:
        return [f"sample {name}: {error.message}"], False
    begins = np.cumsum([0, *map(len, parts)])
    number = int(np.searchsorted(begins, sample, side="right")) - 1
    index, root = sample - int(begins[number]), _root(json.loads(text), number)
    now = split(contents, parts)[number]
    stated, is_good = now if now.root == root else kept_under(root), False
    state = "not proven, as the digests of the manifest are not here"
    if stated is not None and index < len(stated):
        digest = read_contents(source, range(sample, sample + 1))[0]
        is_good = is_proven(root, len(stated), index, digest, stated.proof(index))
        state = f"{'proven' if is_good else 'not the one'} under the manifest's root"
    lines = [f"sample {sample}, {source.provenance(sample)}", f"  content: {state}"]
    lines += [f"  removed: {reason or 'yes'}" for one, reason in run.removed if one == sample]
    slots = [f"  {slot}" for slot in _slots(run, sample)]
    return [*lines, *(slots or ["  no step had it"])], is_good


def _slots(run: RunData, sample: int) -> Iterator[str]:
    """Yields the slots that have had a sample, in the order of the run."""
    order, cursor = run.order(), run.cursor
    last = order.parts[-1].locate(np.array([cursor.position], np.int64))[0]
    for epoch, position in order.positions_of(sample, int(last[0]) + 1):
        if position >= cursor.position:
            continue
        part = next(one for one in reversed(order.parts) if one.segment.start <= position)
        segment = part.segment
        steps, rest = divmod(position - segment.start, segment.global_stride)
        rank, slot = divmod(rest, segment.batch_size)
        yield f"epoch {epoch}, step {segment.step + steps}, rank {rank}, slot {slot}"
