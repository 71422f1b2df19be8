"""The job of one rank: what its stream is opened with."""

from __future__ import annotations

from typing import Any

import pytest

from infeed.cursor import Shard
from infeed.errors import InvalidRequestError
from infeed.job import Job, new_job
from infeed.spec import FieldSpec, Guarantee, PipelineSpec

FIELDS = (FieldSpec("x", "int64"),)
SPEC = PipelineSpec(
    "train", FIELDS, FIELDS, (), 100, "ab12", Guarantee(), 8, 0, "drop", "raise", batch_stride=1
)
"""Of a dataset that makes batches of 8 itself: each is one element, and takes one position."""


def job(**changes: Any) -> Job:
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
    return new_job(SPEC, **{**options, **changes})


def test_every_stream_names_the_fingerprint_that_the_feed_began_with() -> None:
    assert job().open.fingerprint == "ab12"


def test_batches_of_the_dataset_take_its_stride() -> None:
    assert job().plan.at(2) == (7, 1)


def test_batches_of_the_dataset_have_its_size() -> None:
    assert job(batch_size=8).open.batch_size == 8
    with pytest.raises(InvalidRequestError, match="batch_size 4 cannot be had"):
        job(batch_size=4)
