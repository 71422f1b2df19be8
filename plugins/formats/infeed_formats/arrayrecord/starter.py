"""Drafts of pipelines for ArrayRecords of tf.train.Example."""

from __future__ import annotations

from functools import partial

from infeed_formats.arrayrecord.reader import read_first
from infeed_formats.tfrecord.starter import draft_examples
from infeed_tools.init.drafter import Drafter

_MAGIC = bytes.fromhex("83af70d10d884a3f")

DRAFTER = Drafter(
    partial(draft_examples, "arrayrecord", read_first),
    begins=lambda head: head.startswith(_MAGIC),
    is_local=True,
)
