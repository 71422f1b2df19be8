"""Feed plan of one rank: its streams, its steps, and invalid options."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.client.plans import plan_of

from infeed.cursor import Shard
from infeed.shared.errors import CursorError, InvalidRequestError, ProtocolError
from infeed.shared.spec import MAX_BATCH_SIZE, FieldSpec, Guarantee, PipelineSpec

FIELDS = (FieldSpec("x", "int64"),)
SPEC = PipelineSpec(
    "train", FIELDS, FIELDS, (), 100, "ab12", Guarantee(), 8, 0, "drop", "raise", batch_stride=1
)
"""Its dataset makes batches of 8 itself: each is one element, and takes one position."""


def test_open_message_has_the_fingerprint() -> None:
    assert plan_of(SPEC, shard=Shard(1, 3)).contract.opening.fingerprint == "ab12"


def test_batches_made_by_the_dataset_use_its_stride() -> None:
    assert plan_of(SPEC, shard=Shard(1, 3)).shard_plan.batch_range(2) == (7, 1)


def test_invalid_spec_is_rejected() -> None:
    with pytest.raises(ProtocolError, match="seed -1"):
        plan_of(replace(SPEC, seed=-1))


def test_spec_is_validated_for_the_requested_batch_size() -> None:
    wide = (FieldSpec("x", "uint8", (1 << 20,)),)
    spec = replace(SPEC, element_spec=wide, wire_spec=wide, batch_stride=0, sample_count=1 << 17)
    assert plan_of(spec).contract.batch_size == 8
    with pytest.raises(InvalidRequestError, match="batches of"):
        plan_of(spec, batch_size=MAX_BATCH_SIZE)


def test_cursor_of_another_run_is_refused() -> None:
    cursor = plan_of(replace(SPEC, fingerprint="cd34")).cursor_at(8)
    with pytest.raises(CursorError, match="its fingerprint is 'cd34', expected 'ab12'"):
        plan_of(SPEC, state=cursor)


def test_a_batch_larger_than_the_data_set_is_padded_or_spans_epochs() -> None:
    spec = replace(SPEC, batch_stride=0)
    padded = plan_of(spec, batch_size=101, epochs=1, remainder="pad").shard_plan
    assert [padded.batch_range(step) for step in range(padded.steps or 0)] == [(0, 100)]
    assert plan_of(spec, batch_size=101, epochs=2, remainder="drop").shard_plan.steps == 1
    with pytest.raises(InvalidRequestError, match=r"no complete step.*100; use smaller .*pad"):
        plan_of(spec, batch_size=101, epochs=1, remainder="drop")


def test_batches_made_by_the_dataset_have_a_fixed_size() -> None:
    assert plan_of(SPEC, batch_size=8).contract.opening.batch_size == 8
    with pytest.raises(InvalidRequestError, match="batch size 4 is not available"):
        plan_of(SPEC, batch_size=4)


def blocks_of(spec: PipelineSpec, server: str = "unix:/run/infeed", **options: Any) -> int:
    """Returns the number of blocks that a stream asks for."""
    return plan_of(spec, **options).contract_with(server).opening.blocks


def test_a_stream_of_this_host_has_blocks_for_its_window() -> None:
    depth = plan_of(SPEC).window().depth
    assert blocks_of(SPEC) == depth + 2
    assert blocks_of(SPEC, prefetch_bytes=1 << 30, prefetch_batches=64) == 66
    assert blocks_of(SPEC, "dns:///infeed.example:7470") == 0


def test_a_stream_without_shared_memory_asks_for_no_block() -> None:
    assert blocks_of(SPEC, shared_memory=False) == 0
    fields = (FieldSpec("x", "bytes"),)
    strings = replace(SPEC, element_spec=fields, wire_spec=fields)
    assert plan_of(strings).shared_memory_refusal == "byte strings make the batches' sizes vary"
    assert blocks_of(strings) == 0
