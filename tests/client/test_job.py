"""The job of one rank: what its stream is opened with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infeed.cursor import Shard
from infeed.errors import InvalidRequestError, ProtocolError
from infeed.job import Job, new_job
from infeed.spec import MAX_BATCH_SIZE, FieldSpec, Guarantee, PipelineSpec

FIELDS = (FieldSpec("x", "int64"),)
SPEC = PipelineSpec(
    "train", FIELDS, FIELDS, (), 100, "ab12", Guarantee(), 8, 0, "drop", "raise", batch_stride=1
)
"""Of a dataset that makes batches of 8 itself: each is one element, and takes one position."""


def job(spec: PipelineSpec = SPEC, **changes: Any) -> Job:
    options = {
        "batch_size": None,
        "shard": Shard(1, 3),
        "seed": None,
        "epochs": None,
        "remainder": None,
        "cursor": None,
        "finish": "trainer",
        "job_name": None,
        "prefetch_bytes": 0,
        "reconnect_timeout": 1.0,
    }
    return new_job(spec, **{**options, **changes})


def test_every_stream_names_the_fingerprint_that_the_feed_began_with() -> None:
    assert job().open.fingerprint == "ab12"


def test_batches_of_the_dataset_take_its_stride() -> None:
    assert job().plan.at(2) == (7, 1)


def test_a_pipeline_that_makes_no_sense_has_no_job() -> None:
    with pytest.raises(ProtocolError, match="seed -1"):
        job(replace(SPEC, seed=-1))


def test_the_batch_that_is_asked_for_must_make_sense_too() -> None:
    wide = (FieldSpec("x", "uint8", (1 << 20,)),)
    spec = replace(SPEC, element_spec=wide, wire_spec=wide, batch_stride=0, sample_count=1 << 17)
    assert job(spec).expected.batch_size == 8
    with pytest.raises(ProtocolError, match="batches of"):
        job(spec, batch_size=MAX_BATCH_SIZE)


def test_a_batch_may_be_the_whole_data_set() -> None:
    spec = replace(SPEC, batch_stride=0)
    assert job(spec, batch_size=100).plan.stride == 100
    with pytest.raises(InvalidRequestError, match="batch_size 101 is larger than the data set"):
        job(spec, batch_size=101)


def test_batches_of_the_dataset_have_its_size() -> None:
    assert job(batch_size=8).open.batch_size == 8
    with pytest.raises(InvalidRequestError, match="batch_size 4 cannot be had"):
        job(batch_size=4)
