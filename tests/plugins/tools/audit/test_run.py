"""Audits of fake servers: exact ones, and ones that lose, repeat or invent samples."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.client.waiting import infeed_threads

from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec import Guarantee
from infeed.testing import FakeTransport
from infeed_tools.audit.report import AuditReport
from infeed_tools.audit.run import MAX_RANKS, audit


class TamperedTransport(FakeTransport):
    """Delivers the sample ids returned by `tamper(positions, ids)` instead of its own."""

    def __init__(
        self, tamper: Callable[[np.ndarray, np.ndarray], np.ndarray], **options: Any
    ) -> None:
        super().__init__({"x": np.arange(50)}, batch_size=4, seed=3, **options)
        self._tamper = tamper

    def sample_ids(self, seed: int, start: int, count: int) -> np.ndarray:
        ids = super().sample_ids(seed, start, count)
        return self._tamper(np.arange(start, start + count), ids)


def audit_fake(fake: FakeTransport, **options: Any) -> AuditReport:
    return audit("fake", "fake", transport=fake, **options)


def unshuffled(samples: int = 50, **options: Any) -> FakeTransport:
    return FakeTransport({"x": np.arange(samples)}, batch_size=4, shuffle=False, **options)


# --- exact ---


@pytest.mark.parametrize(("world", "epochs"), [(1, 1), (3, 1), (2, 3), (7, 3)])
def test_every_sample_of_every_epoch_comes_once(
    fake: FakeTransport, world: int, epochs: int
) -> None:
    result = audit_fake(fake, world_size=world, epochs=epochs)
    assert result.exact
    assert [epoch.once for epoch in result.epochs] == [50] * epochs
    assert (result.total("never"), result.total("more")) == (0, 0)
    steps = -(-50 * epochs // (4 * world))
    (run,) = result.runs
    assert (run.base, run.world_size, run.steps) == (0, world, steps)
    assert result.batches == steps * world
    assert (result.findings(), result.notes()) == ([], [])
    assert not infeed_threads()


def test_samples_left_out_at_the_end_are_not_lost(fake: FakeTransport) -> None:
    result = audit_fake(fake, world_size=3, epochs=2, remainder="drop")
    assert result.exact
    assert [epoch.left_out for epoch in result.epochs] == [0, 4]
    assert result.outcome.end == 96
    assert result.notes() == [
        "4 samples left out at the end: too few for a batch on every rank (remainder: drop)"
    ]
    # The pipeline's own default is also "drop".
    assert audit_fake(fake, world_size=3, remainder=None).remainder == "drop"


@pytest.mark.parametrize("remainder", ["pad", "drop"])
def test_an_audit_resumes_with_other_world_sizes(fake: FakeTransport, remainder: Any) -> None:
    result = audit_fake(fake, world_size=(3, 2, 5), resume_every=2, epochs=3, remainder=remainder)
    assert result.exact
    assert [run.world_size for run in result.runs] == [3, 2, 5, 3, 2, 5]
    assert [run.base for run in result.runs] == [0, 24, 40, 80, 104, 120]
    assert result.outcome.end == (150 if remainder == "pad" else 140)


# --- not exact ---


def test_a_sample_replaced_by_another_is_listed() -> None:
    fake = TamperedTransport(lambda positions, ids: np.where(ids == 7, 9, ids))
    result = audit_fake(fake, world_size=3, epochs=2)
    assert not result.exact
    assert [(epoch.once, epoch.more, epoch.never) for epoch in result.epochs] == [(48, 1, 1)] * 2
    lost, repeated, lost_again, _ = result.findings()
    assert (lost, lost_again) == ("epoch 0: 1 sample lost: 7", "epoch 1: 1 sample lost: 7")
    assert repeated.startswith("epoch 0: sample 9 delivered again at position ")


def test_empty_slots_are_not_delivered() -> None:
    def empty(positions: np.ndarray, ids: np.ndarray) -> np.ndarray:
        return np.where((positions >= 16) & (positions < 20) | np.isin(ids, (2, 11, 12)), -1, ids)

    result = audit_fake(TamperedTransport(empty, shuffle=False), world_size=3)
    assert not result.exact
    assert result.findings() == [
        "position 2 (rank 0 of 3, step 0) not delivered",
        "positions 11 to 12 (rank 2 of 3, step 0, to rank 0 of 3, step 1) not delivered",
        "positions 16 to 19 (rank 1 of 3, step 1) not delivered",
        "epoch 0: 7 samples lost: 2, 11, 12, 16, 17, 18, 19",
    ]


def test_many_findings_are_abbreviated() -> None:
    findings = audit_fake(TamperedTransport(lambda positions, ids: ids * 0)).findings()
    assert len(findings) == 12
    assert findings[0] == "epoch 0: 49 samples lost: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 39 more"
    assert findings[-1] == "epoch 0: 39 more slots with a repeated sample"


# --- bad samples ---


def test_substituted_samples_are_lost_unless_named() -> None:
    fake = TamperedTransport(
        lambda positions, ids: np.where(ids == 7, 9, ids), on_error="substitute"
    )
    result = audit_fake(fake)
    assert not result.exact
    assert result.findings()[0] == "epoch 0: 1 sample lost: 7"
    assert "list the bad ones with --quarantine LOG" in result.notes()[0]
    result = audit_fake(fake, bad_samples={7, 30})
    assert result.exact
    assert (result.total("substituted"), result.total("more")) == (1, 1)
    assert result.notes()[0].startswith("1 bad sample substituted (on_error: substitute)")
    assert not audit_fake(fake, bad_samples={30}).exact


# --- lengths and guarantees ---


@pytest.mark.parametrize(
    ("samples", "world", "remainder"),
    [(48, 1, "pad"), (48, 3, "drop"), (50, 1, "drop"), (50, 2, "drop"), (50, 3, "pad")],
)
def test_an_unknown_length_is_exact(samples: int, world: int, remainder: Any) -> None:
    result = audit_fake(
        unshuffled(samples, length_known=False), world_size=world, epochs=2, remainder=remainder
    )
    assert result.exact
    total = 2 * samples
    step = 4 * world
    assert result.outcome.end == (total if remainder == "pad" else total // step * step)
    assert [epoch.epoch for epoch in result.epochs] == [0, 1]


def test_one_whole_epoch_of_the_data_service_is_audited() -> None:
    fake = unshuffled(48, length_known=False)
    guarantee = Guarantee("none", "at_most_once", "none")
    fake.spec = replace(fake.spec, guarantee=guarantee, engine="tf_data_service")
    result = audit_fake(fake, world_size=3)
    assert result.exact, result.findings()
    assert (result.total("once"), result.batches) == (48, 12)
    assert "does not report the number of samples" in result.notes()[0]
    with pytest.raises(InvalidRequestError, match="audit one epoch"):
        audit_fake(fake, epochs=2)
    with pytest.raises(InvalidRequestError, match='use remainder "pad"'):
        audit_fake(fake, remainder="drop")
    with pytest.raises(InvalidRequestError, match="cannot be audited across a resume"):
        audit_fake(fake, resume_every=2)


# --- results ---


def test_a_report_converts_to_json(fake: FakeTransport) -> None:
    result = audit_fake(fake, world_size=(2, 3), resume_every=3, epochs=2, remainder="drop")
    values = json.loads(json.dumps(result.to_json()))
    same = [values[name] for name in ("exact", "pipeline", "fingerprint")]
    assert same == [True, "fake", fake.spec.fingerprint]
    total = values["total"]
    assert {kind for kind, count in total.items() if count} == {"once", "never", "left_out"}
    assert (total["once"], total["never"], total["left_out"]) == (96, 4, 4)
    assert values["runs"][1] == {"base": 24, "world_size": 3, "stride": 4, "steps": 3}
    assert values["positions"]["end"] == 96
    bad = audit_fake(TamperedTransport(lambda positions, ids: ids * 0)).to_json()
    assert bad["epochs"][0]["repeats"][0] == {"sample_id": 0, "position": 1}
    assert bad["findings"]


# --- errors ---


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"world_size": 0}, "world_size must be from 1 to 1024, not 0"),
        ({"world_size": ()}, r"world_size \(\)"),
        ({"world_size": (2, -1), "resume_every": 1}, "not -1"),
        ({"world_size": MAX_RANKS + 1}, "not 1025"),
        ({"world_size": (2, 3)}, r"\(2, 3\) is not one number of ranks"),
        ({"resume_every": 0}, "resume_every must be from 1 to .*, not 0"),
        ({"epochs": 0}, "epochs must be from 1 to"),
        ({"batch_size": 51, "remainder": "drop"}, "no complete step"),
        ({"remainder": "keep"}, '"drop" or "pad"'),
        ({"remainder": "drop", "world_size": 13}, "no complete step: 13 ranks"),
        ({"bad_samples": {1}}, "on_error is raise"),
        ({"prefetch_bytes": -1}, "prefetch_bytes must be from 0 to"),
    ],
)
def test_invalid_options_raise(fake: FakeTransport, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        audit_fake(fake, **options)
    assert not infeed_threads()
