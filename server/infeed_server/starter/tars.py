"""Starters for WebDataset tars: the extensions of some samples of several files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice

from infeed.shared.errors import SourceError
from infeed_server.sources.webdataset.fields import default_fields, kind_of
from infeed_server.sources.webdataset.index import read_samples
from infeed_server.sources.webdataset.members import MemberScan, TruncatedTar
from infeed_server.starter.draft import Draft, line
from infeed_server.starter.image_look import ImageLook, spread
from infeed_server.starter.paths import DataPath
from infeed_server.starter.records import describe_values
from infeed_server.starter.shards import Shards
from infeed_server.storage.files import abbreviate, reading
from infeed_server.storage.handles import BlockHandle

_FILES_READ = 4
_SAMPLES_READ = 64
"""Samples read of a file: fewer than a batch would suggest a smaller one."""

_IMAGES = ("jpg", "jpeg", "png")


def tar_drafts(shards: Shards) -> Iterator[Draft]:
    """Yields the draft for tars. Raises `SourceError`."""
    files = shards.files
    samples = [sample for n in spread(len(files), _FILES_READ) for sample in _look_at(files[n])]
    if not samples:
        text = f"{files[0]}: no sample in this file; write it again"
        raise SourceError(text, file=files[0])
    fields = _fields(samples[0])
    extensions = {extension for sample in samples for extension in sample}
    known = {extension for text in fields.values() for extension in text.split(";")}
    lacking = {n for n, text in fields.items() if not all(_value(s, text) for s in samples)}
    others = sorted(extensions - known) + sorted(fields[n] for n in lacking)
    about = [f"{shards.count}; {len(samples)} samples looked at"]
    about += [f"left out, as not all samples have them: {abbreviate(others)}"] * bool(others)
    source = [line("webdataset", shards.pattern), "fields:"]
    draft = Draft(shards.name, about, source, len(samples))
    for field in [field for field in fields if field not in lacking]:
        values = [value for sample in samples for value in _value(sample, fields[field])]
        look = ImageLook.of_all(values) if kind_of(fields[field]) == "bytes" else None
        text = f"an image: {look.describe()}" if look else _describe(fields[field], values)
        draft.source.append(f"  {line(field, fields[field], text)}")
        if look:
            look.suggest(draft, field, fields)
    yield draft


def _look_at(file: DataPath) -> list[dict[str, bytes]]:
    """Returns the members of some samples by extension. Raises `SourceError`."""
    path, found = str(file), []
    # That a tar is truncated, `infeed check --scan` says.
    with reading(path), BlockHandle(path) as handle, suppress(TruncatedTar):
        samples = read_samples(MemberScan(handle, path, handle.stamp().size), path)
        for _, sample in islice(samples, _SAMPLES_READ):
            found.append({name: handle.read(m.offset, m.size) for name, m in sample.items()})
    return found


def _fields(sample: dict[str, bytes]) -> dict[str, str]:
    """Returns the fields that are suggested, with usual names for an image and a class."""
    fields = default_fields([*sample])
    names = {
        name: "image" if name in _IMAGES else "label" if name == "cls" else name for name in fields
    }
    if len({*names.values()}) < len(names):
        return fields
    images = ";".join(_IMAGES)
    return {
        new: images if new == "image" and old in _IMAGES else fields[old]
        for old, new in names.items()
    }


def _value(sample: dict[str, bytes], extensions: str) -> list[bytes]:
    """Returns the member of a field, if the sample has it."""
    return [sample[extension] for extension in extensions.split(";") if extension in sample][:1]


def _describe(extension: str, values: Sequence[bytes]) -> str:
    kind = kind_of(extension)  # int64 is text in the tar, and a number in the field
    return describe_values("bytes", [values]) if kind == "bytes" else kind
