"""Starters for Megatron's tokens."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from infeed.shared.errors import SourceError
from infeed_server.sources.tokens.idx import read_idx
from infeed_server.starter.draft import Draft, line
from infeed_server.starter.shards import Shards
from infeed_server.storage.files import read_bytes

_LENGTH = 2048
"""Tokens of a window: the usual context of a small language model."""


def token_drafts(shards: Shards) -> Iterator[Draft]:
    """Yields the draft for `.idx` files. Raises `SourceError`."""
    files = shards.files
    indexes = [read_idx(read_bytes(str(file)), str(file)) for file in files]
    lengths = np.concatenate([index.lengths for index in indexes])
    tokens = int(lengths.sum(dtype=np.int64))
    if not tokens:
        raise SourceError(f"{files[0]}: no token in this file; write it again", file=files[0])
    length = min(_LENGTH, max(int(index.lengths.sum(dtype=np.int64)) for index in indexes))
    spread = f"{len(lengths)} sequences of {lengths.min()} to {lengths.max()} tokens"
    about = [f"{spread}, in total {tokens}, {indexes[0].dtype}"]
    source = [
        line("tokens", shards.pattern),
        line("length", length, "tokens of a sample: windows of the joined sequences"),
    ]
    yield Draft(shards.name, about, source, tokens // length)
