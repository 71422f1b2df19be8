"""Audits of fakes: exact ones, and ones that lose, repeat or invent samples."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from infeed.audit import MOST_RANKS, audit
from infeed.audited import Audit
from infeed.errors import InvalidRequestError, PipelineNotFoundError, SampleError
from infeed.spec import Guarantee
from infeed.testing import FakeTransport


class Tampered(FakeTransport):
    """Delivers other samples than it should: `tamper(positions, ids)` says which."""

    def __init__(
        self, tamper: Callable[[np.ndarray, np.ndarray], np.ndarray], **options: Any
    ) -> None:
        super().__init__({"x": np.arange(50)}, batch_size=4, seed=3, **options)
        self._tamper = tamper

    def sample_ids(self, seed: int, start: int, count: int) -> np.ndarray:
        ids = super().sample_ids(seed, start, count)
        return self._tamper(np.arange(start, start + count), ids)


def walk(fake: FakeTransport, **options: Any) -> Audit:
    return audit("fake", "fake", transport=fake, **options)


def in_order(samples: int = 50, **options: Any) -> FakeTransport:
    return FakeTransport({"x": np.arange(samples)}, batch_size=4, shuffle=False, **options)


# --- exact ---


@pytest.mark.parametrize("world", [1, 2, 3, 7])
@pytest.mark.parametrize("epochs", [1, 3])
def test_every_sample_of_every_epoch_comes_once(
    fake: FakeTransport, world: int, epochs: int
) -> None:
    result = walk(fake, world_size=world, epochs=epochs)
    assert result.exact
    assert [epoch.once for epoch in result.epochs] == [50] * epochs
    assert (result.total("never"), result.total("more")) == (0, 0)
    steps = -(-50 * epochs // (4 * world))
    (run,) = result.runs
    assert (run.base, run.world_size, run.steps) == (0, world, steps)
    assert result.batches == steps * world
    assert (result.findings(), result.notes()) == ([], [])
    assert not [t for t in threading.enumerate() if t.name.startswith("infeed")]


def test_what_is_left_out_at_the_end_is_no_loss(fake: FakeTransport) -> None:
    result = walk(fake, world_size=3, epochs=2, remainder="drop")
    assert result.exact
    assert [epoch.left_out for epoch in result.epochs] == [0, 4]
    assert result.outcome.end == 96
    assert result.notes() == [
        "4 samples left out at the end, as they fill no batch on every rank (remainder: drop)"
    ]
    # The pipeline's own choice is "drop" too.
    assert walk(fake, world_size=3, remainder=None).remainder == "drop"


def test_the_feeds_options_are_taken(fake: FakeTransport) -> None:
    result = walk(fake, batch_size=7, seed=11, world_size=2)
    assert (result.batch_size, result.seed, result.batches) == (7, 11, 8)
    assert walk(fake).seed == 3


@pytest.mark.parametrize("remainder", ["pad", "drop"])
def test_across_resumes_with_other_world_sizes(fake: FakeTransport, remainder: Any) -> None:
    result = walk(fake, world_size=(3, 2, 5), resume_every=2, epochs=3, remainder=remainder)
    assert result.exact
    assert [run.world_size for run in result.runs] == [3, 2, 5, 3, 2, 5]
    assert [run.base for run in result.runs] == [0, 24, 40, 80, 104, 120]
    assert result.outcome.end == (150 if remainder == "pad" else 140)


def test_resumed_where_the_last_step_is_a_runs_last(fake: FakeTransport) -> None:
    result = walk(fake, resume_every=13, world_size=1)
    assert result.exact
    assert len(result.runs) == 1
    # Here the larger world finds no step left: what it would need is left out.
    result = walk(fake, resume_every=6, world_size=(2, 7), remainder="drop")
    assert (result.exact, result.outcome.end, len(result.runs)) == (True, 48, 1)


def test_the_ranks_share_what_is_fetched_ahead() -> None:
    asked: list[int] = []
    fake = in_order(1000, before_batch=asked.append)
    ahead = 0

    def progress(walked: int, total: int | None) -> None:
        nonlocal ahead
        assert total == 1000
        ahead = max(ahead, len(asked) - walked // 4)

    # A batch is 32 bytes: room for eight in all, two for each rank.
    result = walk(fake, world_size=4, prefetch_bytes=256, progress=progress)
    assert result.exact
    assert ahead <= 8 + 2 + 4  # those of the look at the pipeline, and the step under way


# --- not exact ---


def test_a_sample_that_another_stands_in_for_is_named() -> None:
    fake = Tampered(lambda positions, ids: np.where(ids == 7, 9, ids))
    result = walk(fake, world_size=3, epochs=2)
    assert not result.exact
    assert [(epoch.once, epoch.more, epoch.never) for epoch in result.epochs] == [(48, 1, 1)] * 2
    order = FakeTransport({"x": np.arange(50)}, seed=3).sample_ids(3, 0, 50).tolist()
    first, again = sorted((order.index(7), order.index(9)))
    told = result.findings()
    assert told[0] == "epoch 0: 1 sample lost: 7"
    assert told[1] == (
        f"epoch 0: sample 9 came at position {first} ({place(first)}), and again at position "
        f"{again} ({place(again)})"
    )
    assert told[2] == "epoch 1: 1 sample lost: 7"
    assert len(told) == 4


def place(position: int, world: int = 3) -> str:
    """Of batches of 4, that all ranks begin at 0."""
    batch = position // 4
    return f"rank {batch % world} of {world}, step {batch // world}"


def test_places_across_resumes() -> None:
    def later(positions: np.ndarray, ids: np.ndarray) -> np.ndarray:
        return np.where(positions == 45, ids - 1, ids)

    result = walk(Tampered(later, shuffle=False), world_size=(3, 2), resume_every=2)
    where = "run 2, rank 1 of 3, step 0"
    assert result.findings() == [
        "epoch 0: 1 sample lost: 45",
        f"epoch 0: sample 44 came at position 44 ({where}), and again at position 45 ({where})",
    ]


def test_a_batch_whose_slots_are_empty_never_came() -> None:
    def gone(positions: np.ndarray, ids: np.ndarray) -> np.ndarray:
        return np.where((positions >= 16) & (positions < 20) | np.isin(ids, (2, 11, 12)), -1, ids)

    result = walk(Tampered(gone, shuffle=False), world_size=3)
    assert not result.exact
    assert result.findings() == [
        "position 2 (rank 0 of 3, step 0) never came",
        "positions 11 to 12 (rank 2 of 3, step 0, to rank 0 of 3, step 1) never came",
        "positions 16 to 19 (rank 1 of 3, step 1) never came",
        "epoch 0: 7 samples lost: 2, 11, 12, 16, 17, 18, 19",
    ]


def test_a_loss_among_samples_that_are_left_out() -> None:
    fake = Tampered(lambda positions, ids: np.where(ids == 0, 1, ids), shuffle=False)
    told = walk(fake, remainder="drop").findings()
    assert told[0] == "epoch 0: 1 sample lost: among 0, 48, 49"


def test_ids_that_the_pipeline_does_not_have() -> None:
    fake = Tampered(lambda positions, ids: np.where(ids == 5, 51, ids), shuffle=False)
    fake._arrays["x"] = np.arange(60)
    lost, unknown = walk(fake).findings()
    assert lost == "epoch 0: 1 sample lost: 5"
    assert unknown == (
        "epoch 0: sample id 51 came at position 5 (rank 0 of 1, step 1); the pipeline has 50 "
        "samples"
    )


def test_many_mishaps_are_told_shortly() -> None:
    fake = Tampered(lambda positions, ids: ids * 0)
    told = walk(fake).findings()
    assert len(told) == 12
    assert told[0] == "epoch 0: 49 samples lost: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 39 more"
    assert told[-1] == "epoch 0: 39 more slots hold what came before"
    fake = Tampered(lambda positions, ids: ids + 100)
    fake._arrays["x"] = np.arange(200)
    assert walk(fake).findings()[-1] == "epoch 0: 40 more slots hold an id it does not have"


# --- bad samples ---


def test_masked_samples_are_accounted_for() -> None:
    fake = Tampered(lambda positions, ids: np.where(ids == 7, -1, ids), on_error="mask")
    result = walk(fake, world_size=3, epochs=2)
    assert result.exact
    assert [(epoch.once, epoch.masked) for epoch in result.epochs] == [(49, 1)] * 2
    assert result.notes() == ["2 bad samples masked, as on_error: mask says"]


def test_substituted_samples_need_names() -> None:
    fake = Tampered(lambda positions, ids: np.where(ids == 7, 9, ids), on_error="substitute")
    result = walk(fake)
    assert not result.exact
    assert result.findings()[0] == "epoch 0: 1 sample lost: 7"
    assert "name the bad ones (--quarantine LOG)" in result.notes()[0]
    result = walk(fake, bad_samples={7, 30})
    assert result.exact
    assert (result.total("substituted"), result.total("more")) == (1, 1)
    assert result.notes()[0].startswith("1 bad sample substituted, as on_error: substitute says")
    assert not walk(fake, bad_samples={30}).exact


# --- lengths and guarantees ---


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("remainder", ["pad", "drop"])
@pytest.mark.parametrize("samples", [48, 50])
def test_of_unknown_length(world: int, remainder: Any, samples: int) -> None:
    result = walk(
        in_order(samples, length_known=False), world_size=world, epochs=2, remainder=remainder
    )
    assert result.exact
    whole = 2 * samples
    step = 4 * world
    assert result.outcome.end == (whole if remainder == "pad" else whole // step * step)
    assert [epoch.epoch for epoch in result.epochs] == [0, 1]


def test_of_unknown_length_across_resumes() -> None:
    fake = in_order(length_known=False)
    result = walk(fake, world_size=(3, 2), resume_every=3, epochs=2)
    assert result.exact
    assert result.outcome.end == 100


def test_of_unknown_length_a_loss_shows_as_a_gap() -> None:
    fake = Tampered(
        lambda positions, ids: np.where(ids == 5, 4, ids), shuffle=False, length_known=False
    )
    assert walk(fake, world_size=2).findings()[0] == "epoch 0: 1 sample lost: 5"


def test_of_the_data_service_one_whole_epoch_is_audited() -> None:
    fake = in_order(48, length_known=False)
    promise = Guarantee("none", "at_most_once", "none")
    fake.spec = replace(fake.spec, guarantee=promise, engine="tf_data_service")
    result = walk(fake, world_size=3)
    assert result.exact, result.findings()
    assert (result.total("once"), result.batches) == (48, 12)
    assert "do not tell how many samples there are" in result.notes()[0]
    with pytest.raises(InvalidRequestError, match="audit one"):
        walk(fake, epochs=2)
    with pytest.raises(InvalidRequestError, match='audit with "pad"'):
        walk(fake, remainder="drop")


def test_the_guarantee_of_a_sequential_pipeline_is_said() -> None:
    fake = in_order(length_known=False)
    fake.spec = replace(fake.spec, guarantee=Guarantee("none", "at_most_once", "none"))
    result = walk(fake, world_size=2, remainder="drop")
    assert result.exact
    read, length, promise = result.notes()
    assert "what the data set itself repeats or leaves out is not seen" in read
    assert "its length is unknown" in length
    assert "none order, at most once delivery, none resume" in promise
    with pytest.raises(InvalidRequestError, match="cannot be audited across a resume"):
        walk(fake, resume_every=2)


# --- results ---


def test_the_result_as_json(fake: FakeTransport) -> None:
    result = walk(fake, world_size=(2, 3), resume_every=3, epochs=2, remainder="drop")
    found = json.loads(json.dumps(result.to_json()))
    assert found["exact"] is True
    assert found["pipeline"] == "fake"
    assert found["fingerprint"] == fake.spec.fingerprint
    assert found["guarantee"]["delivery"] == "exactly_once"
    total = found["total"]
    assert {kind for kind, count in total.items() if count} == {"once", "never", "left_out"}
    assert (total["once"], total["never"], total["left_out"]) == (96, 4, 4)
    assert found["runs"][1] == {"base": 24, "world_size": 3, "stride": 4, "steps": 3}
    assert found["positions"]["end"] == 96
    assert [epoch["exact"] for epoch in found["epochs"]] == [True, True]
    bad = walk(Tampered(lambda positions, ids: ids * 0)).to_json()
    assert bad["exact"] is False
    assert bad["epochs"][0]["repeats"][0] == {"sample_id": 0, "first": 0, "again": 1}
    assert bad["findings"]


# --- errors ---


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"world_size": 0}, "world size must be from 1 to 1024, not 0"),
        ({"world_size": ()}, "not none"),
        ({"world_size": (2, -1), "resume_every": 1}, "not 2, -1"),
        ({"world_size": MOST_RANKS + 1}, "not 1025"),
        ({"world_size": (2, 3)}, r"2 world sizes.*\(resume_every\)"),
        ({"resume_every": 0}, "resume_every must be at least 1 step, not 0"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"batch_size": 51}, "larger than the data set"),
        ({"remainder": "keep"}, '"drop" or "pad"'),
        ({"remainder": "drop", "world_size": 13}, "not one step fits: 13 ranks"),
        ({"bad_samples": {1}}, "on_error: raise"),
        ({"prefetch_bytes": -1}, "prefetch_bytes must be at least 0"),
    ],
)
def test_nonsense_is_refused(fake: FakeTransport, options: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidRequestError, match=told):
        walk(fake, **options)
    assert not [t for t in threading.enumerate() if t.name.startswith("infeed")]


def test_what_the_server_raises_ends_the_walk(arrays: Any) -> None:
    def fail(start: int) -> None:
        if start == 20:
            raise SampleError("sample 3 cannot be read")

    fake = FakeTransport(arrays, batch_size=4, before_batch=fail)
    with pytest.raises(SampleError, match="sample 3"):
        walk(fake, world_size=3)
    with pytest.raises(PipelineNotFoundError):
        audit("fake", "other", transport=fake)
    assert not [t for t in threading.enumerate() if t.name.startswith("infeed")]
