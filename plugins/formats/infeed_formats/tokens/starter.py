"""Drafts of pipelines for Megatron-LM's tokens."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from infeed.shared.errors import SourceError
from infeed_formats.tokens.idx import read_idx
from infeed_server.storage.files import read_bytes
from infeed_tools.init.draft import Draft
from infeed_tools.init.drafter import Drafter
from infeed_tools.init.listing import Files

_MAGIC = b"MMIDIDX\0"
_TOKENS = 2048
"""Tokens of a window: the usual context of a small language model."""


def _tokens(data: Files) -> Iterator[Draft]:
    """Yields the draft for `.idx` files from Megatron-LM."""
    indexes = [read_idx(read_bytes(file), file) for file in data.files]
    counts = [int(index.lengths.sum(dtype=np.int64)) for index in indexes]
    if not sum(counts):
        raise SourceError(f"{data.files[0]}: the file has no tokens; write it again")
    length = min(_TOKENS, max(counts))
    draft = Draft(data.name, {"tokens": data.pattern, "length": length}, sum(counts) // length)
    draft.fields["tokens"] = f"{indexes[0].dtype}[{length}], windows of {sum(counts)} tokens"
    yield draft


DRAFTER = Drafter(_tokens, begins=lambda head: head.startswith(_MAGIC))
