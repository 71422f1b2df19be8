"""Drafts of pipelines for WebDataset tars."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

from infeed.shared.errors import SourceError
from infeed.shared.spec import BYTES
from infeed_formats.tfrecord.starter import SAMPLES_READ, some_files
from infeed_formats.webdataset.fields import (
    decode_integer,
    default_fields,
    kind_of,
    require_few_extensions,
)
from infeed_formats.webdataset.index import read_samples
from infeed_formats.webdataset.members import MemberScan, TruncatedTar
from infeed_server.storage.files import reading
from infeed_server.storage.handles import BlockHandle
from infeed_tools.init.draft import Draft
from infeed_tools.init.drafter import Drafter
from infeed_tools.init.listing import Files

_IMAGES = ("jpg", "jpeg", "png")


def _tars(data: Files) -> Iterator[Draft]:
    """Yields the draft for WebDataset tars."""
    samples: list[dict[str, bytes]] = []
    for path in some_files(data):
        # `infeed check --scan` reports a truncated tar.
        with reading(path), BlockHandle(path) as handle, suppress(TruncatedTar):
            members = read_samples(MemberScan(handle, path, handle.stamp().size), path)
            for _, sample in islice(members, SAMPLES_READ):
                samples.append({name: handle.read(m.offset, m.size) for name, m in sample.items()})
    if not samples:
        file = data.files[0]
        raise SourceError(f"{file}: the file has no samples; write it again", file=file)
    known = dict.fromkeys(extension for sample in samples for extension in sample)
    require_few_extensions(known, len(samples))
    names = default_fields([extension for extension in known if extension not in _IMAGES])
    groups = {"label" if name == "cls" else name: [text] for name, text in names.items()}
    groups = {"image": [*_IMAGES], **groups} if len(names) < len(known) else groups
    fields: dict[str, Any] = {}
    columns: dict[str, tuple[str, Any]] = {}
    left_out, notes = {}, []
    for name, extensions in groups.items():
        values: list[Any] = [s[text] for s in samples for text in extensions if text in s]
        kind, fields[name] = kind_of(extensions[0]), ";".join(extensions)
        if kind == "int64":
            try:
                values = [decode_integer(value) for value in values]
            except ValueError:
                kind, fields[name] = BYTES, {extensions[0]: BYTES}
                notes.append(f"{name} has words; use a map, or write numbers into .cls")
        columns[name] = kind, values if kind != "npy" else ()
        if len(values) != len(samples):
            left_out[name] = f"{len(values)} of {len(samples)} samples have it"
            del fields[name], columns[name]
    source = {"webdataset": data.pattern, "fields": fields}
    draft = Draft(data.name, source, len(samples), is_counted=False, notes=notes)
    draft.add(columns)
    draft.leave_out(left_out)
    yield draft


DRAFTER = Drafter(_tars, endings=(".tar",), has_twins=True)  # the tables of img2dataset
