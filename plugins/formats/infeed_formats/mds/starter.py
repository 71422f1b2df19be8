"""Drafts of pipelines for Mosaic Streaming's folders."""

from __future__ import annotations

from collections.abc import Iterator

from infeed.shared.errors import SourceError
from infeed_formats.mds.encodings import decoder
from infeed_formats.mds.index import INDEX_NAME, read_index
from infeed_tools.init.columns import add_columns, open_columns
from infeed_tools.init.draft import Draft
from infeed_tools.init.drafter import Drafter
from infeed_tools.init.listing import Files


def _mds(data: Files) -> Iterator[Draft]:
    """Yields the draft for a folder from Mosaic Streaming."""
    left_out = {}
    columns = read_index(data.files[0])[0].columns
    for name, encoding, size in zip(*columns, strict=True):
        try:
            decoder(name, encoding, size)
        except SourceError:
            left_out[name] = encoding
    names = {"fields": [name for name in columns[0] if name not in left_out]} if left_out else {}
    source = {"mds": data.pattern, **names}
    definition, reader = open_columns(source, data.target)
    draft = Draft(data.name, source, len(reader))
    add_columns(draft, definition, reader)
    draft.leave_out(left_out)
    yield draft


DRAFTER = Drafter(_mds, described_by={INDEX_NAME: {"version", "shards"}})
