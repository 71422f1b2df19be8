"""Passes over a run with segments, whose epochs have other ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch")

from tests.client.runs import amended_run, ids_at

import infeed
from infeed import testing
from infeed.torch import FeedDataset


def test_passes_end_where_the_epochs_of_the_run_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testing, "_refuse_segments", lambda _: None)
    _, new, cursor = amended_run()
    first, second = cursor.segments
    # Epoch 0 had 80 samples; epoch 1 has what is left, up to 130, and each further one 50.
    lineage = (replace(first, epoch_end=80), replace(second, epoch_end=130))
    state = replace(cursor, segments=lineage).to_json()
    with FeedDataset("-", "new", state=state, batch_size=6, epochs=1, transport=new) as data:
        for start, end in ((110, 130), (130, 180), (180, 230)):
            assert [batch["x"].int().tolist() for batch in data] == [
                ids_at(lineage, at, 6).tolist() for at in range(start, end - 5, 6)
            ]
            assert data.state_dict()["cursor"]["segments"] == state["segments"]
        # Of a whole pass, which began at 180.
        assert len(data) == 8


def test_a_dataset_of_passes_takes_no_steps() -> None:
    with pytest.raises(infeed.InvalidRequestError, match=r"infeed\.torch\.connect does"):
        FeedDataset("-", "new", steps=(0, 1))
