"""Tests of the drafts for tokens of Megatron-LM."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from tests.harness.starters import definitions, draft

from infeed.shared.errors import SourceError
from infeed_tools.init.detect import starter_for


def test_tokens(tmp_path: Path) -> None:
    lengths, pointers = np.array([3, 5], "<i4"), np.array([0, 6], "<i8")
    header = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 8, 2, 0)
    content = header + lengths.tobytes() + pointers.tobytes()
    (tmp_path / "web.idx").write_bytes(content)
    (tmp_path / "web.bin").write_bytes(bytes(16))
    pipeline = definitions(tmp_path, ".")["web"]
    assert pipeline["source"] == {"tokens": "web.idx", "length": 8}
    assert draft(tmp_path, ".").fields == {"tokens": "uint16[8], windows of 8 tokens"}
    (tmp_path / "web.idx").write_bytes(header.replace(b"\x02", b"\0"))
    with pytest.raises(SourceError, match="the file has no tokens; write it again"):
        starter_for(str(tmp_path / "web.idx"), tmp_path)
